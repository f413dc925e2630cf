"""Numbers taken from samples: peaks survive thinning, and stretches are measured right."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from spillover.model.topology import Cluster, Topology
from spillover.tools.demo.model import DemoResult, RunResult, Sample
from spillover.tools.demo.series import (
    POINTS_MAX,
    _longest_above_s,
    hops_of,
    longest_pile_up_s,
    longest_queue,
    shared_hop_count,
    thin,
)


@pytest.mark.parametrize("length", [1, POINTS_MAX, POINTS_MAX + 1, 3 * POINTS_MAX, 5_001])
@pytest.mark.parametrize("seed", range(3))
def test_thinning_bounds_the_points_and_keeps_the_extremes(length: int, seed: int) -> None:
    """However long a series, few points remain, in order; of each stretch both extremes stay."""
    random = Random(seed)
    series = [(float(index), random.uniform(-1e6, 1e6)) for index in range(length)]
    kept = thin(series)
    assert len(kept) <= POINTS_MAX
    assert len(kept) == length or length > POINTS_MAX
    assert kept == sorted(kept)
    assert len(set(kept)) == len(kept)
    assert set(kept) <= set(series)
    assert {max(series, key=_value), min(series, key=_value)} <= set(kept)


def _value(point: tuple[float, float]) -> float:
    return point[1]


def sample(time_s: float, **lengths: int) -> Sample:
    return Sample(
        time_s=time_s,
        queue_length=lengths,
        accept_probability={},
        neighborhood_accept_probability={},
        forwards={},
    )


def test_the_longest_queue_is_that_of_one_cluster() -> None:
    """Not what waits in all of them together."""
    run = RunResult("paper", {}, [sample(0, a=3, b=4), sample(1, a=5, b=1)])
    assert longest_queue(run) == 5
    assert longest_queue(replace(run, samples=[])) == 0


def test_the_longest_stretch_is_one_without_a_break() -> None:
    """Two short ones are not one long one."""
    lengths = [9, 9, 0, 9, 9, 9, 0, 9]
    samples = [sample(0.5 * index, a=length) for index, length in enumerate(lengths)]
    assert _longest_above_s(samples, "a", 8) == 1.5
    assert _longest_above_s(samples, "a", 9) == 0.0
    assert _longest_above_s(samples, "b", 0) == 0.0


def test_requests_pile_up_where_more_than_two_wait_for_each_server() -> None:
    """In the worst of the clusters, by the number of its own servers."""
    sites = (Cluster(id="a", servers=2), Cluster(id="b", servers=1))
    samples = [sample(0, a=4, b=2), sample(1, a=5, b=2), sample(3, a=4, b=3), sample(4, a=9, b=2)]
    run = RunResult("paper", {}, samples)
    result = DemoResult(
        topology=Topology(name="pair", clusters=sites, links=()),
        seed=1,
        time_scale=1.0,
        duration_s=4.0,
        isolated=run,
        networked=run,
        simulated={},
        ledgers_balanced=True,
        user_rates={},
        finished_at="",
    )
    assert longest_pile_up_s(result, run) == 2.0
    assert longest_pile_up_s(result, replace(run, samples=samples[2:])) == 1.0


def test_hops_are_counted_for_each_population() -> None:
    load = {"per_cluster": {"a": {"hops": {"0": 3, "2": 1}}, "b": {"hops": {"1": 5}}}}
    run = RunResult("paper", load, [])
    assert hops_of(run, "a") == {0: 3, 2: 1}
    assert hops_of(run, "c") == {}
    assert shared_hop_count(run) == 2
