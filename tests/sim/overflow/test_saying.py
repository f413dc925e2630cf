"""Federations whose requests say how large they are."""

from __future__ import annotations

from spillover.inputs.builtin import builtin_topology
from spillover.model.schedule import Schedule
from spillover.sim.overflow.run import run_overflow
from spillover.workloads.generated import poisson, sized

TOPOLOGY = builtin_topology("ring5").with_policy("adaptive")


def drawn(seed: int) -> Schedule:
    """Returns requests whose services have a squared coefficient of variation of 10."""
    ids = TOPOLOGY.cluster_ids
    means_ms = {one.id: one.service_ms for one in TOPOLOGY.clusters}
    arrivals = poisson(ids, rate_per_s=100.0, duration_s=4.0, seed=seed)
    return sized(arrivals, 10.0, means_ms, seed=seed)


def mean_wait_s(schedule: Schedule, seed: int, says_off: float | None) -> float:
    """Returns the mean time in queues and on ways, but for the delivery to clients."""
    waits_s: list[float] = []

    def note(_: int, answer) -> None:  # type: ignore[no-untyped-def]
        waits_s.append(answer.queued_s + answer.network_s)

    run_overflow(TOPOLOGY, schedule, seed, on_answer=note, says_off=says_off)
    return sum(waits_s) / len(waits_s)


def test_waits_are_shorter_where_sizes_are_known() -> None:
    """At most .9 of those where requests are counted, on the same requests, though what they say is
    off by a third."""
    ratios = []
    for seed in (1,):
        schedule = drawn(seed)
        ratios.append(mean_wait_s(schedule, seed, 0.3) / mean_wait_s(schedule, seed, None))
    assert sum(ratios) / len(ratios) <= 0.9
