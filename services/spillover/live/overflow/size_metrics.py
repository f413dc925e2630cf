"""The metrics of the sizes that requests state, and of the load that engines report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import Metric

from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.pools import learned_servers, sized_servers
from spillover.live.engine.metric_types import counter, gauges
from spillover.model.ids import ClusterId
from spillover.model.signals import sizes as signals


def size_metrics(
    machine: NodeMachine, looks: Mapping[str, int] | None, cluster: ClusterId
) -> Iterator[Metric]:
    """Yield these metrics of a node; none where neither is known. `looks` are the ends of looks at
    pages of engines, None where there are none."""
    if looks is not None:
        yield from _engines(machine, looks, cluster)
    yield from _work(machine, cluster)


def _engines(
    machine: NodeMachine, looks: Mapping[str, int], cluster: ClusterId
) -> Iterator[Metric]:
    yield counter(signals.ENGINE_LOOKS, cluster, [((end,), count) for end, count in looks.items()])
    learned = learned_servers(machine.servers)
    if learned is None:
        return
    yield from gauges(signals.SERVERS_CEILING, cluster, [((), learned.search.ceiling)])
    if (load := learned.engine.load) is None:
        return
    told = [(("running",), load.running), (("waiting",), load.waiting)]
    known = [(labels, number) for labels, number in told if number is not None]
    yield from gauges(signals.ENGINE_REQUESTS, cluster, known)
    held = [] if load.held is None else [((), load.held)]
    yield from gauges(signals.ENGINE_HELD, cluster, held)


def _work(machine: NodeMachine, cluster: ClusterId) -> Iterator[Metric]:
    sized = sized_servers(machine.servers)
    if sized is None:
        return
    expected = sized.line.expected
    yield from gauges(signals.WAITING_WORK, cluster, [((), sized.line.waiting_s)])
    yield counter(signals.WORK_UNREAD, cluster, [((), expected.unread)])
    errors = [
        ((kind, by), error)
        for kind, told in expected.labeled().items()
        for by, error in (("work", told.error), ("count", told.counted_error))
    ]
    yield from gauges(signals.WORK_ERROR, cluster, errors)
