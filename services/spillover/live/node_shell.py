"""One cluster node as a running thing: the machine, its timers, links and servers, joined.

Routes call `submit` and wait on the future; everything else happens through commands. No rule is
made here: what the machine says is done.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

from spillover.core import node_events as ev
from spillover.core.node import NodeMachine
from spillover.core.node_settings import NodeSettings
from spillover.live import wire
from spillover.live.driver import Driver
from spillover.live.http1 import Response
from spillover.live.node_metrics import NodeMetrics
from spillover.live.peer_link import PeerLink
from spillover.live.report_streams import ReportStreams
from spillover.live.timers import Timers
from spillover.live.workers.base import Workers
from spillover.live.workers.python_handler import python_workers
from spillover.live.workers.sleep import SleepWorkers
from spillover.live.workers.spin import SpinWorkers
from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.request import Answer, Refusal, Request
from spillover.model.topology import Topology

Settled: TypeAlias = Answer | ev.Refuse
"""What a submitted request comes to."""


class NodeShell:
    """The running node of one cluster of a topology. Must be made inside a running loop.

    `seed` makes the node's own random choices repeatable. Raises InputError for a handler that
    cannot be imported, and for a neighbor without a url.
    """

    def __init__(
        self,
        topology: Topology,
        cluster_id: str,
        *,
        seed: int | None = None,
        journal: Callable[[Any, float], None] | None = None,
    ) -> None:
        self.topology = topology
        self.cluster = topology.cluster(cluster_id)
        self.epoch = time.time_ns() // 1_000_000
        self.started_s = time.monotonic()
        neighbors = topology.neighbors(cluster_id)
        delays_s = [neighbor.delay_ms / 1e3 for neighbor in neighbors]
        self.machine = NodeMachine(
            NodeSettings.of(topology, cluster_id, epoch=self.epoch),
            [(n.id, delay_s) for n, delay_s in zip(neighbors, delays_s, strict=True)],
            _stream(seed, f"node/{cluster_id}"),
            self.started_s,
        )
        # A stream of its own: what links draw must not shift what the machine draws.
        self._link_random = _stream(seed, f"links/{cluster_id}")
        loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[None] = loop.create_future()
        self.timers = Timers(loop)
        self.metrics = NodeMetrics(self.machine, self.timers)
        self.streams = ReportStreams(self.timers, delays_s)
        self.workers = self._make_workers()
        self._delays_s = delays_s
        self._refs = 0
        self._closed = False
        self._waiting: dict[int, asyncio.Future[Settled]] = {}
        self._all_settled = asyncio.Event()
        self._driver = Driver(
            self.machine, self.timers, self._interpreters(), self._on_failure, journal
        )
        self._links = [
            self._make_link(y, neighbor.id, neighbor.url, delays_s[y])
            for y, neighbor in enumerate(neighbors)
        ]

    # --- life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Speak and listen until cancelled. A loop that fails ends the node, loudly; so does the
        machine, since what it would do next is not known."""
        self._driver.start(ev.Woke())
        async with asyncio.TaskGroup() as group:
            for link in self._links:
                group.create_task(link.listen(), name=f"reports of {link.cluster}")
                group.create_task(link.warm(), name=f"connections to {link.cluster}")
            await asyncio.shield(self._failed)

    async def drain(self, timeout_s: float) -> int:
        """Drain, and wait until nothing is left; how many requests were left at the limit."""
        self.feed(ev.Drain())
        try:
            async with asyncio.timeout(timeout_s):
                while self._waiting:
                    self._all_settled.clear()
                    await self._all_settled.wait()
        except TimeoutError:
            return len(self._waiting)
        return 0

    async def close(self) -> None:
        """Let go of everything. Streams first: an open one holds up the server. Whoever still
        waits is told by a canceled future that there will be no answer."""
        self._closed = True
        self._driver.close()
        self.streams.close()
        for link in self._links:
            await link.close()
        await self.workers.close()
        self.timers.close()
        for future in self._waiting.values():
            future.cancel()
        self._waiting.clear()
        self._failed.cancel()

    # --- what routes call ---------------------------------------------------------------------

    def feed(self, event: Any) -> None:
        self._driver.feed(event)

    def submit(
        self, request: Request, deadline_s: float, origin: int = ev.HOME
    ) -> tuple[int, asyncio.Future[Settled]]:
        """Take a request in. The future always comes to an answer or a refusal."""
        self._refs += 1
        ref = self._refs
        future: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        if self._closed:  # surely not accepted, which lets a neighbor decide again
            future.set_result(ev.Refuse(ref, origin, Refusal.DRAINING, 0.0))
            return ref, future
        self._waiting[ref] = future
        self._driver.feed(ev.Arrived(ref, request, deadline_s, origin))
        return ref, future

    def cancel(self, ref: int) -> None:
        """Nobody waits for this one any more."""
        self._driver.feed(ev.Cancelled(ref))

    def ask_neighbor(
        self, neighbor: int, method: str, path: str, body: bytes, timeout_s: float
    ) -> asyncio.Future[Response]:
        """A question that is not a request; the future raises PeerError as HttpClient's does."""
        return self._links[neighbor].ask(method, path, body, timeout_s)

    @property
    def now_s(self) -> float:
        """The node's clock: monotonic, of this machine alone."""
        return time.monotonic()

    def link_delay_s(self, neighbor: int) -> float:
        """How late answers leave for this neighbor: the emulated delay of the link."""
        return self._delays_s[neighbor]

    def new_request_id(self) -> str:
        """`<cluster>-<random>`, from the system's randomness: no two nodes may make the same."""
        return f"{self.cluster.id}-{os.urandom(8).hex()}"

    # --- commands -----------------------------------------------------------------------------

    def _interpreters(self) -> dict[type, Callable[[Any], None]]:
        return {
            ev.Accepted: lambda _: None,  # a journal's place: complete before anything is told
            ev.Refuse: self._refuse,
            ev.Start: self.workers.start,
            ev.Stop: lambda command: self.workers.stop(command.ref),
            ev.Forward: self._forward,
            ev.Recall: lambda command: self._links[command.neighbor].recall(command.ref),
            ev.Reply: self._reply,
            ev.Publish: lambda command: self.streams.publish(wire.encode_report(command.report)),
            ev.Beat: lambda _: self.streams.publish(wire.HEARTBEAT),
        }

    def _forward(self, command: ev.Forward) -> None:
        self.metrics.forwards_left += 1
        self._links[command.neighbor].forward(command)

    def _refuse(self, command: ev.Refuse) -> None:
        if command.origin == ev.HOME:
            self.metrics.home_refused()
            self._settle(command.ref, command)
        else:
            self.metrics.foreign_ended(self.machine.neighbors.ids[command.origin], "refused")
            self._settle_later(command.ref, command, self._delays_s[command.origin])

    def _reply(self, command: ev.Reply) -> None:
        answer, origin, delay_s = command.answer, command.origin, command.delay_s
        if origin == ev.HOME:
            self.metrics.home_ended(answer)
        else:
            neighbor = self.machine.neighbors.ids[origin]
            self.metrics.foreign_ended(neighbor, answer.outcome.value)
            delay_s += self._delays_s[origin]
        self._settle_later(command.ref, answer, delay_s)

    def _settle_later(self, ref: int, settled: Settled, delay_s: float) -> None:
        if delay_s > 0.0:
            due_s = time.monotonic() + delay_s
            self.timers.at(due_s, lambda _: self._settle(ref, settled))
        else:
            self._settle(ref, settled)

    def _settle(self, ref: int, settled: Settled) -> None:
        future = self._waiting.pop(ref, None)
        if future is not None and not future.done():
            future.set_result(settled)
        if not self._waiting:
            self._all_settled.set()

    def _on_failure(self, error: BaseException) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)
            self._failed.exception()  # retrieved: it also comes out where the event came in

    def _service_ended(self, event: ev.ServiceEnded, at_s: float | None) -> None:
        self._driver.feed(event, at_s)

    # --- parts --------------------------------------------------------------------------------

    def _make_link(self, y: int, cluster: ClusterId, url: str | None, delay_s: float) -> PeerLink:
        if url is None:
            index = self.topology.cluster_ids.index(cluster)
            raise InputError(self.topology.name, f"clusters[{index}].url", "expected a url")
        return PeerLink(
            neighbor=y,
            cluster=cluster,
            url=url,
            delay_s=delay_s,
            away_max=self.machine.settings.away_limit,
            sender=self.cluster.id,
            timers=self.timers,
            random=self._link_random,
            feed=self.feed,
            on_forward=lambda outcome: self.metrics.forwarded(cluster, outcome),
        )

    def _make_workers(self) -> Workers:
        cluster = self.cluster
        service_s = cluster.service_ms / 1e3
        if cluster.handler == "sleep":
            return SleepWorkers(service_s, self.timers, self._service_ended)
        if cluster.handler == "spin":
            return SpinWorkers(cluster.servers, service_s, self._service_ended)
        source = f"{self.topology.name}: cluster {cluster.id}"
        return python_workers(cluster, source, self._service_ended)


def _stream(seed: int | None, name: str) -> Random:
    """A random stream of its own for each purpose, repeatable if there is a seed."""
    return Random() if seed is None else Random(f"{seed}/{name}")
