"""`spillover sim leases`: one JSON object, the same for a seed; one line for bad input."""

import json

import pytest

SMALL = ("--nodes", "4", "--partitions", "17", "--periods", "30")


def test_the_contract(told):
    """Guarded unless told otherwise; the named fields, counts by node."""
    words = ("--start", "one-node", "--stall", "n0:500", "--json")
    status, out, err = told("sim", "leases", *SMALL, *words)
    assert (status, out.count("\n"), err) == (0, 1, "")
    result = json.loads(out)
    assert (result["moves"], result["moves_min"]) == (12, 12)
    assert sorted(result["counts"].values()) == [4, 4, 4, 5]
    assert list(result["counts"]) == ["n0", "n1", "n2", "n3"]
    assert (result["start"], result["seed"], result["double_owned_ms"]) == ("one-node", 1, 0)
    assert 0 < result["unowned_ms_max"] < 2_000
    assert result["rule"] == "guarded"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ("--nodes 0", "--nodes: expected at least 1, got 0"),
        ("--partitions 0", "--partitions: expected at least 1, got 0"),
        ("--periods 0", "--periods: expected at least 1, got 0"),
        ("--stall n4:500", "--stall: expected a node of n0..n3, got 'n4'"),
        ("--stall n01:500", "--stall: expected a node of n0..n3, got 'n01'"),
        ("--stall :500", "--stall: expected NODE:MS, such as n0:500, got ':500'"),
        ("--stall n0:-5", "--stall: expected a number of at least 0, got '-5'"),
        ("--stall n0:1 --stall n0:2", "--stall: expected each node once, got 'n0'"),
        ("--crash n9:5", "--crash: expected a node of n0..n3, got 'n9'"),
        ("--join n4:5", "--join: expected a node of n0..n3, got 'n4'"),
        ("--message-loss 2", "--message-loss: expected a share of 0..1, got '2'"),
        ("--max-lease-ms 170000", "--max-lease-ms: expected at least three renewals"),
        ("--min-grab-ms 60000", "--min-grab-ms: expected less than --normal-lease-ms"),
        ("--held-delay-ms 0", "--held-delay-ms: expected a number above 0, got '0'"),
        ("--crash n0:5 --join n0:9", "--join: expected a node to join before it crashes"),
        ("--waits halves", "--waits: expected only with --rule blog"),
        ("--challenges all --rule guarded", "--challenges: expected only with --rule blo"),
        ("--loads 1,2", "--loads: expected one for each of 17 partitions, got 2"),
        ("--loads 1,x", "--loads: expected a finite number, got 'x'"),
        ("--loads -1", "--loads: expected a number of at least 0, got '-1'"),
        (f"--loads {','.join(['1e308'] * 17)}", "--loads: expected numbers of 0 to 1e+09, got"),
        ("--load-noise 0.1", "--load-noise: expected only with --loads"),
        ("--load-noise 2 --loads skewed", "--load-noise: expected a share of 0..1"),
        ("--balance load --rule blog", "--balance: expected count with the blog's"),
        ("--start random", "--start: invalid choice: 'random'"),
    ],
)
def test_bad_input_is_told_in_one_line(refused, options, complaint):
    assert complaint in refused("sim", "leases", *SMALL, *options.split())
