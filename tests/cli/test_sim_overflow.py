"""`spillover sim overflow` and `spillover plan` as their users call them."""

from __future__ import annotations

import importlib.util
import json
from types import SimpleNamespace

import pytest

from spillover.cli import main

POISSON = ("--workload", "poisson", "--rate", "60", "--duration-s", "3")
SIM = ("sim", "overflow", "--topology", "ring5", *POISSON)


@pytest.fixture
def run(capsys):
    """`run(*arguments)`: the command in this process; its status and what it wrote."""

    def run_it(*arguments):
        status = main(arguments)
        out, err = capsys.readouterr()
        return SimpleNamespace(status=status, out=out, err=err)

    return run_it


@pytest.fixture
def numba(require):
    require(importlib.util.find_spec("numba"), "numba, from the extra `sim`")


def test_policies_are_compared_on_the_same_requests(run, numba):
    """Both engines say the same, policy by policy; `shared` is the best there can be."""
    answers = []
    for engine in ("full", "fast"):
        policies = "isolated,paper,shared"
        done = run(*SIM, "--rate", "115", "--compare", policies, "--engine", engine, "--json")
        assert done.status == 0
        answers.append(json.loads(done.out))
    full, fast = answers
    assert list(full["policies"]) == ["isolated", "paper", "shared"]
    for policy, one in full["policies"].items():
        other = fast["policies"][policy]
        assert one["policy"] == other["policy"] == policy
        assert one["system_time_ms"] == pytest.approx(other["system_time_ms"])
        assert one["hops"] == other["hops"]
        assert one["requests"] == full["requests"] == fast["requests"]
    means = {p: one["system_time_ms"]["mean"] for p, one in full["policies"].items()}
    assert means["shared"] <= means["paper"] <= means["isolated"]


def test_a_site_that_dies(run, tmp_path):
    """What was at work there is done again elsewhere; who comes there finds nobody."""
    faults = tmp_path / "dies.yaml"
    faults.write_text("faults:\n  - {at_s: 1, action: crash, cluster: c}\n")
    done = run(*SIM, "--faults", str(faults), "--json")
    assert done.status == 0
    result = json.loads(done.out)
    assert result["faults"] == 1
    assert result["outcomes"]["unreachable"] > 50
    assert result["outcomes"]["done"] > 600
    assert sum(result["outcomes"].values()) == result["requests"]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--compare", "paper,paper"), "expected some of isolated, paper, two-choice, shared, "),
        (("--compare", "best"), "got 'best'"),
        (("--compare", "paper", "--policy", "paper"), "--compare: expected without --policy"),
        (("--faults", "random:1", "--engine", "fast"), "--faults: expected with --engine full"),
        (("--faults", "random:1", "--policy", "shared"), "--faults: expected without shared"),
        (("--faults", "nothing.yaml"), "nothing.yaml: expected"),
        (("--plot", "x.gif"), "--plot: expected a name ending in .pdf, .png, .svg; got 'x.gif'"),
        (("--plot", "no/such/x.png"), "--plot: expected a file in a directory to write to"),
    ],
)
def test_unusable_options_are_told_in_one_line(run, tmp_path, options, line):
    done = run(*SIM, *options)
    assert done.status == 2
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert line in done.err


def test_a_fault_file_that_names_an_unknown_cluster(run, tmp_path):
    faults = tmp_path / "faults.yaml"
    faults.write_text("faults:\n  - {at_s: 1, action: crash, cluster: zz}\n")
    done = run(*SIM, "--faults", str(faults))
    assert done.status == 2
    assert done.err.startswith(f"spillover: {faults}: ")
    assert "zz" in done.err
    assert done.err.count("\n") == 1


def test_runs_are_drawn(run, require, tmp_path):
    """Into the file that was named, whole or not at all."""
    require(importlib.util.find_spec("matplotlib"), "matplotlib, from the extra `report`")
    file = tmp_path / "runs.png"
    assert run(*SIM, "--compare", "isolated,paper", "--plot", str(file)).status == 0
    assert file.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["runs.png"]


def test_a_plan(run, numba):
    """Networked sites need fewer servers for the same p99, and say so with it kept."""
    done = run("plan", "--topology", "ring5", *POISSON, "--p99-ms", "90", "--json")
    assert done.status == 0
    plan = json.loads(done.out)
    for side in ("isolated", "networked"):
        assert plan[side]["total"] == sum(plan[side]["servers"].values())
        assert max(plan[side]["p99_ms"].values()) <= 90
    saved = 1 - plan["networked"]["total"] / plan["isolated"]["total"]
    assert plan["saved_share"] == pytest.approx(saved)
    assert saved >= 0


def test_a_plan_that_cannot_be(run, numba):
    done = run("plan", "--topology", "ring5", *POISSON, "--p99-ms", "20")
    assert done.status == 2
    assert done.err == (
        "spillover: --p99-ms: expected at least 46: what requests at cluster a take without any "
        "waiting; got 20\n"
    )
