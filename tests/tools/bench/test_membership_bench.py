"""`spillover bench membership`: real nodes, connected clients, four changes, and a page."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import psutil
import pytest

from spillover.cli import main
from spillover.tools.bench.membership import one_node
from spillover.tools.bench.membership.rules import RULES
from spillover.tools.bench.membership.steps import Look, Step
from spillover_loadgen.clients_driver import client_name

BENCH = [sys.executable, "-m", "spillover", "bench", "membership", "--quick", "--json"]
SERVERS = ["a", "b", "c", "d", "e"]
NAMES = [client_name("x", number) for number in range(1000)]


@pytest.mark.e2e
@pytest.mark.threes
def test_clients_follow_four_changes_and_nothing_fails(tmp_path):
    """From an even start, counts differ by no more than the number of changes and one, but for
    clients that a node put off: it may not know yet that it was added."""
    command = [*BENCH, "--case", "stratified from", "--report", "page.html"]
    done = subprocess.run(
        command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    (run,) = result["details"]
    assert [len(step["servers"]) for step in run["steps"]] == [4, 2, 4, 5]
    names = [f"s{place}-{run['seed']}" for place in range(1, 6)]
    assert sorted(run["steps"][-1]["servers"]) == names, "another seed is another circle"
    slack = 1
    for step in run["steps"]:
        slack += 1 + 2 * step["put_off"]
        counts = step["clients"].values()
        assert sum(counts) == 60
        assert max(counts) - min(counts) <= slack
        assert abs(step["moved"] - step["moved_min"]) <= slack
        assert step["moved"] > 0
    assert run["requests"]["ok"] > 0
    cases = {(row["case"].rpartition(": ")[2], row["peer"]): row for row in result["rows"]}
    assert cases["requests failed", None]["value"] == 0
    assert cases["clients moved", "least possible"]["ratio"] == pytest.approx(1, abs=0.2)
    assert cases["fullest server", "simulated"]["peer_value"] >= 1
    assert cases["until done", "wait + 2 s"]["value"] > 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert "stratified from an even start" in page


@pytest.mark.e2e
@pytest.mark.threes
def test_ended_early_it_leaves_no_process(tmp_path):
    """Nodes and clients go with it."""
    with subprocess.Popen(BENCH, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as bench:
        parent = psutil.Process(bench.pid)
        children = []
        try:
            for line in bench.stderr:
                if "one removed" in line:
                    break
            children = parent.children(recursive=True)
            assert len(children) >= 6, line
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


@pytest.mark.e2e
@pytest.mark.threes
def test_what_a_crowd_costs_a_node_and_how_soon_it_is_elsewhere(tmp_path):
    """Beside what is wanted; only clients of the killed node go."""
    command = [*BENCH, "--case", "node"]
    done = subprocess.run(
        command, check=False, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    rows = {row["case"]: row for row in json.loads(done.stdout)["rows"]}
    assert {case: (row["unit"], row["peer_value"]) for case, row in rows.items()} == {
        case: (one_node.UNITS[case], one_node.WANTED[case]) for case in one_node.UNITS
    }
    assert 0 < rows[one_node.MEMORY]["value"] < 60
    assert rows[one_node.ELSEWHERE]["value"] > 0
    assert rows[one_node.OTHERS]["value"] == 0


def test_a_page_that_cannot_be_written_is_told_first(capsys, tmp_path):
    assert main(["bench", "membership", "--report", str(tmp_path / "none" / "page.html")]) == 2
    assert "--report: expected a file that can be written" in capsys.readouterr().err


def test_a_page_is_of_membership_alone(capsys, tmp_path):
    page = str(tmp_path / "page.html")
    assert main(["bench", "membership", "--case", "killed", "--report", page]) == 2
    assert "--report: expected a --case that a page is on" in capsys.readouterr().err
    assert main(["bench", "node", "--report", "page.html"]) == 2
    assert "--report: expected with bench membership alone" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.label)
def test_clients_begin_where_the_rule_has_them(rule):
    """On the circle they are not even, and stay the same for the same names."""
    starts = rule.starts(NAMES, SERVERS)
    counts = sorted(starts.count(server) for server in SERVERS)
    if rule.rule == "consistent-hash":
        assert sum(counts) == len(NAMES)
        assert counts[0] + 20 < counts[-1]
        assert starts == rule.starts(NAMES, SERVERS[::-1])
    else:
        assert counts == ([200] * 5 if rule.start == "balanced" else [0] * 5)


def test_a_step_counts_from_what_was_before():
    before = Look(1.0, {"a": 30, "b": 30}, 0, 7, 2)
    after = Look(9.0, {"a": 21, "b": 20, "c": 19}, 0, 27, 5)
    step = Step(("a", "b", "c"), before, after, 1.0, 4.0)
    assert (step.moved, step.moved_min, step.put_off) == (20, 20, 3)
    assert (step.max_over_mean, step.min_over_mean) == (21 / 20, 19 / 20)
    assert after.spread(["a", "b"]) == (9.0, 20, 30.0, 21)
