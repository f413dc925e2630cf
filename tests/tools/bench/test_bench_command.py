"""`spillover bench` as a command: what it refuses, and that it leaves no process behind."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys

import psutil
import pytest

from spillover.cli import main
from spillover.cli.bench import _interrupt
from spillover.model.extras import how_to_get
from spillover.tools.bench import catalog

BENCH = [sys.executable, "-m", "spillover", "bench", "node", "--quick"]


@pytest.mark.e2e
@pytest.mark.together
def test_ended_early_it_leaves_no_process(tmp_path):
    """Nodes, peers, relays and askers all go with it. Ctrl-C ends `bench sim` and `peers` so."""
    command = [*BENCH, "--runs", "1000", "--case", "forwarded, 1 KiB"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as bench:
        parent = psutil.Process(bench.pid)
        children = []
        try:
            for line in bench.stderr:
                if "run 1 of 1000" in line:
                    break
            children = parent.children(recursive=True)
            assert len(children) >= 5, line
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
        (["peers", "--policy", "papr"], "--policy: expected some of isolated, paper, "),
        (["peers", "--duration-s", "0"], "--duration-s: expected a whole number from 1 to 3600"),
        (["membership", "--report", "no/page.html"], "--report: expected a file that can be"),
        (["nonsense"], "NAME: invalid choice: 'nonsense'"),
    ],
)
def test_bad_usage_is_told_in_one_line(arguments, told, capsys):
    """Before anything is started."""
    assert main(["bench", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert told in err
    assert err.count("\n") == 1


def test_a_missing_package_is_told_in_one_line(monkeypatch, capsys):
    """The extra is not part of the core install."""
    monkeypatch.setattr(catalog, "_PACKAGES", ("aiohttp", "no_such_package"))
    assert main(["bench", "node"]) == 2
    expected = f"no_such_package: a benchmark needs {how_to_get('bench')}\n"
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("name", catalog.BENCHES)
def test_cases_have_names_of_their_own(name):
    """--case picks by them."""
    stages = importlib.import_module(catalog.BENCHES[name]).STAGES
    names = [case for stage in stages for case in stage.cases]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.default_int_handler], ids=["bg", "fg"])
def test_sigterm_ends_it_also_in_the_background(handler):
    """Where shells have it ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            _interrupt(signal.SIGTERM, None)
    finally:
        signal.signal(signal.SIGINT, before)
