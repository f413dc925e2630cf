"""`spillover bench` as a command: real nodes and peers, one object, and nothing left behind."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys

import psutil
import pytest

from spillover.cli import main
from spillover.cli.bench import _interrupt, configure, plan_of
from spillover.model.extras import how_to_get
from spillover.tools.bench import catalog
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.node import STAGES

BENCH = [sys.executable, "-m", "spillover", "bench", "node", "--quick"]
ROW_FIELDS = {"case", "value", "unit", "runs", "peer", "peer_value", "ratio"}


@pytest.mark.e2e
@pytest.mark.together
def test_one_case_gives_one_object(tmp_path):
    """With the fields of the contract; the table is for people and goes elsewhere."""
    command = [*BENCH, "--json", "--runs", "2", "--case", "local, 1 KiB"]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("\n") == 1
    result = json.loads(run.stdout)
    assert result["name"] == "node"
    assert result["machine"]["cores"] >= 1
    assert [row["peer"] for row in result["rows"]] == [
        "bare ASGI app",
        "bare ASGI app that checks its JSON",
    ]
    for row in result["rows"]:
        assert row.keys() >= ROW_FIELDS
        assert (row["case"], row["runs"]) == ("local, 1 KiB", 2)
        assert row["value"] > 0
        assert row["ratio"] == pytest.approx(row["value"] / row["peer_value"])
    assert "local, 1 KiB: run 2 of 2" in run.stderr
    assert "bench node: medians of 2 runs" in run.stderr


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


def test_without_options_it_is_what_a_plan_is_of_which_nothing_is_said():
    parser = argparse.ArgumentParser()
    configure(parser)
    assert plan_of(parser.parse_args(["node"])) == BenchPlan()


def test_a_missing_package_is_told_in_one_line(monkeypatch, capsys):
    """The extra is not part of the core install."""
    monkeypatch.setattr(catalog, "_PACKAGES", ("aiohttp", "no_such_package"))
    assert main(["bench", "node"]) == 2
    expected = f"no_such_package: a benchmark needs {how_to_get('bench')}\n"
    assert expected in capsys.readouterr().err


def test_every_way_of_asking_is_measured_with_small_and_large_requests():
    """What is fast for 1 KiB may not be for 64 KiB."""
    cases = {case for stage in STAGES for case in stage.cases}
    ways = ("local", "local, keyed", "local, asynchronous", "forwarded")
    assert {f"{way}, {size}" for way in ways for size in ("1 KiB", "64 KiB")} <= cases


def test_cases_have_names_of_their_own():
    """--case picks by them."""
    names = [case for stage in STAGES for case in stage.cases]
    assert len(names) == len(set(names)) >= 11


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.default_int_handler], ids=["bg", "fg"])
def test_sigterm_ends_it_also_in_the_background(handler):
    """Where shells have it ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            _interrupt(signal.SIGTERM, None)
    finally:
        signal.signal(signal.SIGINT, before)
