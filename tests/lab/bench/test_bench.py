"""`spillover bench` as a command: what it refuses, in one line and before anything is started, and
that it leaves no process behind."""

import asyncio
import signal
import subprocess
import sys

import psutil
import pytest

from spillover.cli import main
from spillover.model.extras import how_to_get
from spillover_lab.bench import catalog
from spillover_lab.bench.session import BenchPlan, Figure, Session, Side

BENCH = [sys.executable, "-m", "spillover", "bench", "node", "--quick"]


@pytest.mark.processes
def test_ended_early_it_leaves_no_process(tmp_path):
    """A node, its peers and who asks them go with it. Ctrl-C ends `bench sim` and `peers` so."""
    command = [*BENCH, "--runs", "1000", "--case", "local, 1 KiB"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as bench:
        parent = psutil.Process(bench.pid)
        children = []
        try:
            for line in bench.stderr:
                if "run 1 of 1000" in line:
                    break
            children = parent.children(recursive=True)
            assert len(children) >= 4, line
            bench.send_signal(signal.SIGTERM)
            said = bench.stderr.read()
            assert bench.wait(20) == 130, said
            assert "Traceback" not in said
            gone, alive = psutil.wait_procs(children, timeout=5)
            assert not alive, gone
        finally:
            for process in (*children, parent):
                if process.is_running():
                    process.kill()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["node", "--case", "nonsense"], "--case: expected a part of one of: local, 1 KiB; "),
        (["node", "--runs", "0"], "--runs: expected a whole number from 1 to 1000, got '0'"),
        (["node", "--policy", "paper"], "--policy: expected with bench peers alone"),
        (["node", "--replicas", "2"], "--replicas: expected with bench tokens alone"),
        (["sim", "--duration-s", "2"], "--duration-s: expected with bench peers or tokens alone"),
        (["peers", "--policy", "papr"], "--policy: expected some of isolated, paper, "),
        (["nonsense"], "NAME: invalid choice: 'nonsense'"),
    ],
)
def test_bad_usage_is_told_in_one_line(arguments, told, capsys):
    assert main(["bench", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert err.count("\n") == 1


def test_a_missing_package_is_told_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(catalog, "PACKAGES", ("aiohttp", "no_such_package"))
    assert main(["bench", "node"]) == 2
    expected = f"no_such_package: a benchmark needs {how_to_get('bench')}\n"
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("name", catalog.BENCHES)
def test_cases_have_names_of_their_own(name):
    names = [case for stage in catalog.stages_of(name) for case in stage.cases]
    assert len(names) == len(set(names)) > 0


def test_sides_run_in_turn_and_medians_stand_beside_each_other():
    """Every other run begins with the other side; what was used is added up over the turns."""
    asked = []

    def side(name, values):
        values = iter(values)

        async def measure():
            asked.append(name)
            return (next(values),)

        return Side(name, measure)

    session = Session(BenchPlan(runs=3), say=lambda _: None)
    ours, peer = side("ours", [(1, 1), (90, 1), (3, 1)]), side("peer", [4.0, 4.0, 6.0])
    asyncio.run(session.compare([Figure("speed", "1/s")], ours, peer))
    assert asked == ["ours", "peer", "peer", "ours", "ours", "peer"]
    (row,) = session.rows
    assert (row.value, row.peer, row.peer_value, row.ratio) == (3.0, "peer", 4.0, 0.75)
