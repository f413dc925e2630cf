"""Several nodes of a cluster as one, to operators and to Prometheus (decision 0050).

Series of a cluster of several nodes have the label `node`. If the nodes are processes behind one
address, the one that is asked answers for all: with the series of all, and an operator's change is
made at all.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from fastapi import Request
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from spillover.apps.http.exchange import EXCHANGE, Exchange
from spillover.apps.http.problems import Problem
from spillover.live.overflow.shell import NodeShell

METRICS = "/metrics"

ASKED_OF_ALL = frozenset({METRICS, "/admin/drain", "/admin/resume", "/admin/policy"})
"""The paths at which one process asks the others."""

WITHIN_S = 2.0
"""The time, in seconds, after which a process that has not answered another one has no part in the
answer."""

_FAMILY = re.compile(rb"^(?=# HELP )", re.MULTILINE)
_AUTHORIZATION = b"authorization"


class OfNode(Collector):
    """The series of a registry, with the number of the node as a label."""

    def __init__(self, registry: CollectorRegistry, node: int) -> None:
        self._registry = registry
        self._node = str(node)

    def collect(self) -> Iterator[Metric]:
        """Yield all families, which are made anew for each scrape."""
        for metric in self._registry.collect():
            metric.samples = [
                one._replace(labels={**one.labels, "node": self._node}) for one in metric.samples
            ]
            yield metric


def metrics_page(shell: NodeShell) -> Callable[[Request], Awaitable[bytes]]:
    """Returns the callable that writes the page of metrics of a node, or of all that share its
    address."""
    of_node = CollectorRegistry()
    of_node.register(OfNode(shell.metrics.registry, shell.number))

    async def page(request: Request) -> bytes:
        if shell.site is None:
            return generate_latest(shell.metrics.registry)
        others = [body for _, status, body in await _ask_others(shell, request) if status == 200]
        own = generate_latest(of_node)
        return merged([own, *others]) if others else own

    return page


def merged(pages: Sequence[bytes]) -> bytes:
    """Returns the samples of several pages as one page: those of a family stand together."""
    samples: dict[bytes, list[bytes]] = {}
    for page in pages:
        for family in _FAMILY.split(page):
            lines = family.splitlines(keepends=True)
            head = b"".join(line for line in lines if line.startswith(b"#"))
            samples.setdefault(head, []).extend(lines[head.count(b"\n") :])
    return b"".join(head + b"".join(lines) for head, lines in samples.items())


async def tell_others(shell: NodeShell, request: Request, body: bytes = b"") -> None:
    """Have an operator's change, which is made here, made at all processes behind this address, and
    at those that are started later. Raises Problem if one has not made it."""
    machine = shell.machine
    if shell.site is not None and shell.shares_address:
        shell.site.operate(machine.policy, machine.shadow, drains=machine.draining)
    missed = [
        number for number, status, _ in await _ask_others(shell, request, body) if status >= 300
    ]
    if missed:
        raise Problem("not_ready", f"not done at process {missed[0]}: ask again")


async def _ask_others(
    shell: NodeShell, request: Request, body: bytes = b""
) -> Iterable[tuple[int, int, bytes]]:
    """Returns the number, the status and the body of each other process. A process that is not
    there is left out, and one that does not answer has 504."""
    exchange: Exchange = request.scope[EXCHANGE]
    if shell.site is None or not shell.shares_address or exchange.asked_as:
        return []
    shown = [one for one in request.scope["headers"] if one[0] == _AUTHORIZATION]
    path = request.scope["path"]
    return await shell.site.ask_all(request.method, path, shown, body, WITHIN_S)
