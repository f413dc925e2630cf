"""`spillover sim rebalance` from the outside: its object, its table, and bad input."""

import json

import pytest

COMMAND = ("sim", "rebalance", "--clients", "1000", "--servers", "s1,s2,s3")
CIRCLE = ("--rule", "consistent-hash")
STEP = {"servers", "moved", "moved_min", "clients", "max_over_mean", "min_over_mean"}


@pytest.fixture
def result_of(told):
    def run(*words):
        status, out, err = told(*COMMAND, *words, "--json")
        assert (status, out.count("\n"), err) == (0, 1, "")
        return json.loads(out)

    return run


@pytest.mark.parametrize("rule", ["probabilistic", "stratified", "baseline", "consistent-hash"])
def test_one_step_for_each_change(result_of, rule):
    """The object of `--json` has its fields; the same seed gives the same."""
    arguments = ("--then", "s2,s3", "--then", "s2,s3,s4,s1", "--rule", rule, "--seed", "7")
    result = result_of(*arguments)
    first, second = result["steps"]
    assert set(first) >= STEP
    assert (first["servers"], second["servers"]) == (["s2", "s3"], ["s2", "s3", "s4", "s1"])
    assert sum(first["clients"].values()) == sum(second["clients"].values()) == 1000
    assert first["max_over_mean"] == max(first["clients"].values()) / 500
    assert second["min_over_mean"] == min(second["clients"].values()) / 250
    assert result_of(*arguments) == result
    if rule != "consistent-hash":
        assert first["moved"] == first["moved_min"]
        assert first["moved"] in {333, 334}


def test_options_reach_the_model(result_of):
    """Start, seed and virtual nodes change what comes out."""
    balanced = result_of("--then", "s1,s2,s3")["steps"][0]
    assert sorted(balanced["clients"].values()) == [333, 333, 334]
    assert (balanced["moved"], balanced["moved_min"]) == (0, 0)
    anywhere = result_of("--then", "s1,s2,s3", "--start", "random")["steps"][0]
    assert anywhere["moved"] == 0 < anywhere["moved_min"]
    circle = ("--then", "s1,s2,s3", *CIRCLE)
    few = result_of(*circle)["steps"][0]
    many = result_of(*circle, "--virtual-nodes", "200")["steps"][0]
    assert few["clients"] != many["clients"]
    assert few["clients"] != result_of(*circle, "--seed", "2")["steps"][0]["clients"]
    changes = ("--then", "s2, s3", "--then", "s1,s2,s3,s4", "--seed", "3")
    prompt, late = (result_of(*changes, "--skip", share) for share in ("0", "0.9"))
    assert prompt["steps"][0]["servers"] == ["s2", "s3"]
    assert prompt["steps"][0]["moved"] > 2 * late["steps"][0]["moved"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--servers", "", "--then", "a"), "--servers: expected at least one server, got none"),
        (("--then", " "), "--then: expected at least one server, got none"),
        (("--then", "a,,b"), "--then: expected names with commas between, got 'a,,b'"),
        ((), "required: --then"),
        (("--servers", "a,a,b", "--then", "a"), "--servers: expected each server once, got 'a'"),
        (("--then", "b, a,b"), "--then: expected each server once, got 'b' twice"),
        (("--then", "a", "--virtual-nodes", "1"), "--virtual-nodes: expected only with --rule con"),
        (("--then", "a", "--start", "balanced", *CIRCLE), "--start: expected without consistent-"),
        (("--then", "a", "--clients", "0"), "--clients: expected a whole number from 1 to"),
        (("--then", "a", "--virtual-nodes", "0"), "--virtual-nodes: expected a whole number"),
        (("--then", "a", "--skip", "1"), "--skip: expected a share from 0 to below 1, got '1'"),
        (("--then", "a", "--rule", "best"), "--rule: invalid choice: 'best'"),
    ],
)
def test_bad_input(refused, words, complaint):
    assert complaint in refused(*COMMAND, *words)
