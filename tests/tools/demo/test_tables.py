"""The rows of the report's tables: what stands beside what, sums that are sums, the heat map."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from spillover.model.topology import Cluster, Topology
from spillover.tools.demo.figures import _forwarded_share, _rate_steps
from spillover.tools.demo.model import DemoResult, RunResult
from spillover.tools.demo.sampling import is_balanced
from spillover.tools.demo.tables import forward_rows, speedup_rows, system_time_rows

FIELDS = ("mean", "max", "min", "std")


def times(*values: float) -> dict[str, float]:
    return dict(zip(FIELDS, values, strict=True))


def load(everything: dict[str, float], **of_clusters: dict[str, Any]) -> dict[str, Any]:
    return {
        "system_time_ms": everything,
        "per_cluster": {
            name: {"system_time_ms": found.get("times", {}), "hops": found.get("hops", {})}
            for name, found in of_clusters.items()
        },
    }


@pytest.fixture
def result() -> DemoResult:
    """Two populations. One has nothing that went three hops far, the other nothing that stayed."""
    return DemoResult(
        topology=Topology(
            name="pair", clusters=(Cluster(id="a", servers=1), Cluster(id="b", servers=1)), links=()
        ),
        seed=1,
        time_scale=1.0,
        duration_s=1.0,
        isolated=RunResult("isolated", load(times(80, 900, 40, 30), a={}, b={}), []),
        networked=RunResult(
            "paper",
            load(
                times(20, 100, 40, 0),
                a={"times": times(8, 9, 7, 1), "hops": {"0": 99, "1": 9}},
                b={"hops": {"1": 20, "3": 1}},
            ),
            [],
        ),
        simulated={
            "isolated": load(times(60, 800, 40, 20)),
            "networked": load(times(30, 200, 40, 5)),
        },
        ledgers_balanced=True,
        user_rates={},
        finished_at="",
    )


def test_forwards_add_up_to_those_of_all(result: DemoResult) -> None:
    """By the number of hops, up to the most that any request took."""
    rows = {name: [cell.requests for cell in cells] for name, cells in forward_rows(result)}
    assert rows == {"a": [99, 9, 0, 0], "b": [0, 20, 0, 1], None: [99, 29, 0, 1]}


def test_shares_of_forwards_are_of_all_requests(result: DemoResult) -> None:
    """Those that stayed count in the whole; the last color is of all that went at least as far."""
    run = result.networked
    assert _forwarded_share(run, "a", 1, 6) == pytest.approx(9 / 108)
    assert [_forwarded_share(run, "b", hops, 2) for hops in (1, 2)] == [20 / 21, 1 / 21]
    assert [_forwarded_share(run, "b", hops, 3) for hops in (2, 3)] == [0.0, 1 / 21]
    assert _forwarded_share(run, "b", 1, 1) == 1.0
    assert _forwarded_share(result.isolated, "a", 1, 6) == 0.0


def test_the_last_rate_of_users_is_drawn_to_the_end(result: DemoResult) -> None:
    """It holds until then; a line that stops would look as if no user came any more."""
    rates = replace(result, duration_s=9.0, user_rates={"a": [(0.0, 5.0), (4.0, 7.0)]})
    assert _rate_steps(rates, "a") == [(0.0, 5.0), (4.0, 7.0), (9.0, 7.0)]
    assert _rate_steps(rates, "b") == []


HOME = {"accepted": 9, "done": 4, "failed": 1, "queued": 3, "away": 1}
FOREIGN = {"received": 5, "answered": 2, "running": 3}


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize(("of", "entry"), [("home", "done"), ("foreign", "answered")])
def test_a_ledger_is_balanced_only_if_both_its_sides_are(of: str, entry: str, by: int) -> None:
    """One too many is no better than one too few."""
    ledger = {"home": dict(HOME), "foreign": dict(FOREIGN)}
    assert is_balanced(ledger)
    ledger[of][entry] += by
    assert not is_balanced(ledger)


def test_the_heat_of_few_can_be_seen_beside_many(result: DemoResult) -> None:
    """0 for none, 1 for the most of any cell, logarithmic in between, and none in sums."""
    heat = {name: [cell.heat for cell in cells] for name, cells in forward_rows(result)}
    assert heat["a"] == pytest.approx([1.0, math.log(10) / math.log(100), 0.0, 0.0])
    assert heat["b"] == pytest.approx(
        [0.0, math.log(21) / math.log(100), 0.0, math.log(2) / math.log(100)]
    )
    assert heat[None] == [None] * 4


def test_measured_stands_before_simulated_and_isolated_before_networked(result: DemoResult) -> None:
    rows = dict(system_time_rows(result))
    isolated = [(80, 60), (900, 800), (40, 40), (30, 20)]
    assert rows[None] == [*isolated, (20, 30), (100, 200), (40, 40), (0, 5)]
    assert rows["a"] == [(None, None)] * 4 + [(8, None), (9, None), (7, None), (1, None)]


def test_speedups_are_of_measured_and_of_simulated_times(result: DemoResult) -> None:
    """Isolated over networked; none where a value is missing, or to be divided by 0."""
    rows = dict(speedup_rows(result))
    assert rows[None] == [(4.0, 2.0), (9.0, 4.0), (1.0, 1.0), (None, 4.0)]
    assert rows["a"] == [(None, None)] * 4
