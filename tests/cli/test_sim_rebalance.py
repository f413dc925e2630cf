"""`spillover sim rebalance` from the outside: its object, its table, and bad input."""

from __future__ import annotations

import json

import pytest

from spillover.cli import main

COMMAND = ("sim", "rebalance", "--clients", "1000", "--servers", "s1,s2,s3")
STEP = {"servers", "moved", "moved_min", "clients", "max_over_mean", "min_over_mean"}


def result_of(capsys, *arguments):
    assert main((*COMMAND, *arguments, "--json")) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.count("\n") == 1
    return json.loads(out)


@pytest.mark.parametrize("rule", ["probabilistic", "stratified", "baseline", "consistent-hash"])
def test_one_step_for_each_change(capsys, rule):
    """The object of `--json` has its fields; the same seed gives the same."""
    arguments = ("--then", "s2,s3", "--then", "s2,s3,s4,s1", "--rule", rule, "--seed", "7")
    result = result_of(capsys, *arguments)
    first, second = result["steps"]
    assert set(first) >= STEP
    assert (first["servers"], second["servers"]) == (["s2", "s3"], ["s2", "s3", "s4", "s1"])
    assert sum(first["clients"].values()) == sum(second["clients"].values()) == 1000
    assert first["max_over_mean"] == max(first["clients"].values()) / 500
    assert second["min_over_mean"] == min(second["clients"].values()) / 250
    assert result_of(capsys, *arguments) == result
    if rule != "consistent-hash":
        assert first["moved"] == first["moved_min"]
        assert first["moved"] in {333, 334}


def test_options_reach_the_model(capsys):
    """Start, seed and virtual nodes change what comes out."""
    balanced = result_of(capsys, "--then", "s1,s2,s3")["steps"][0]
    assert sorted(balanced["clients"].values()) == [333, 333, 334]
    assert (balanced["moved"], balanced["moved_min"]) == (0, 0)
    anywhere = result_of(capsys, "--then", "s1,s2,s3", "--start", "random")["steps"][0]
    assert anywhere["moved"] == 0 < anywhere["moved_min"]
    circle = ("--then", "s1,s2,s3", "--rule", "consistent-hash")
    few = result_of(capsys, *circle)["steps"][0]
    many = result_of(capsys, *circle, "--virtual-nodes", "200")["steps"][0]
    assert few["clients"] != many["clients"]
    assert few["clients"] != result_of(capsys, *circle, "--seed", "2")["steps"][0]["clients"]
    changes = ("--then", "s2, s3", "--then", "s1,s2,s3,s4", "--seed", "3")
    prompt, late = (result_of(capsys, *changes, "--skip", share) for share in ("0", "0.9"))
    assert prompt["steps"][0]["servers"] == ["s2", "s3"]
    assert prompt["steps"][0]["moved"] > 2 * late["steps"][0]["moved"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--servers", "", "--then", "a"), "--servers: expected at least one server, got none"),
        (("--then", " "), "--then: expected at least one server, got none"),
        (("--then", "a,,b"), "--then: expected names with commas between, got 'a,,b'"),
        ((), "required: --then"),
        (("--servers", "a,a,b", "--then", "a"), "--servers: expected each server once, got 'a'"),
        (("--then", "b, a,b"), "--then: expected each server once, got 'b' twice"),
        (
            ("--then", "a", "--virtual-nodes", "1"),
            "--virtual-nodes: expected only with --rule consistent-hash",
        ),
        (
            ("--then", "a", "--start", "balanced", "--rule", "consistent-hash"),
            "--start: expected without consistent-hash: its circle decides",
        ),
        (("--then", "a", "--clients", "0"), "--clients: expected a whole number from 1 to"),
        (("--then", "a", "--clients", "1e3"), "--clients: expected a whole number, got '1e3'"),
        (("--then", "a", "--virtual-nodes", "0"), "--virtual-nodes: expected a whole number"),
        (("--then", "a", "--skip", "1"), "--skip: expected a share from 0 to below 1, got '1'"),
        (("--then", "a", "--rule", "best"), "--rule: invalid choice: 'best'"),
        (("--then", "a", "--start", "empty"), "--start: invalid choice: 'empty'"),
    ],
)
def test_bad_input(capsys, arguments, complaint):
    """One line, exit status 2."""
    assert main((*COMMAND, *arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert complaint in err
