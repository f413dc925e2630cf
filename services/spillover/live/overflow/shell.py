"""One cluster node as a running thing: the machine, its timers, links and servers, joined.

Clients' requests come in at the `home_requests`, those of neighbors are `foreign_requests`;
everything else happens through commands. No rule is made here: what the machine says is done.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, cast

from spillover.core.driver import Driver
from spillover.core.overflow import events as ev
from spillover.core.overflow.confirming import ConfirmingMachine
from spillover.core.overflow.idempotency import IdempotencyTable
from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.settings import NodeSettings
from spillover.core.overflow.visit import Visit
from spillover.live.engine.alarms import finest_alarm
from spillover.live.engine.moving import Moving
from spillover.live.engine.timers import Timers
from spillover.live.engine.write_batch import WriteBatch
from spillover.live.handlers.base import Workers
from spillover.live.handlers.make import (
    be_ready,
    make_unlike_workers,
    make_workers,
    upstreams_of,
)
from spillover.live.http.client import Response
from spillover.live.overflow import report_lines
from spillover.live.overflow.condition_log import ConditionLog
from spillover.live.overflow.configured import Configured
from spillover.live.overflow.emulated_link import EmulatedLink, Faults
from spillover.live.overflow.ending import Leaving, Left, serve_as_lame_duck, wait_for_the_end
from spillover.live.overflow.foreign_requests import ForeignRequests
from spillover.live.overflow.home_requests import HomeRequests
from spillover.live.overflow.identity import Peers
from spillover.live.overflow.links import Links
from spillover.live.overflow.metrics import RAISED, NodeMetrics
from spillover.live.overflow.passed_link import PassedLink
from spillover.live.overflow.peer_clients import PeerClients
from spillover.live.overflow.peer_link import PeerLink
from spillover.live.overflow.pool_log import pool_log
from spillover.live.overflow.recent import REFUSED
from spillover.live.overflow.relay import Relays
from spillover.live.overflow.report_streams import ReportStreams
from spillover.live.overflow.request_log import is_logged, log_request
from spillover.live.overflow.room import Room
from spillover.live.overflow.waiters import Waiters
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.live.process.memory_limit import default_held_limit_bytes
from spillover.model.errors import InputError
from spillover.model.request import DONE, Answer
from spillover.model.topology import Neighbor, Topology

if TYPE_CHECKING:
    from spillover.live.handlers.http.upstream_calls import UpstreamWorkers
    from spillover.live.tls.rotation import Credentials

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class NodeShell:
    """The running node of one cluster of a topology. Must be made inside a running loop.

    `seed` makes the node's own random choices repeatable; `source` is what errors name as where the
    topology was read, its name if None. `confirm`, if given, is asked about each request before it
    counts as accepted, and feeds in `Confirmed` or `NotConfirmed`, at once or later. `credentials`
    are for topologies with `https://`. `on_close` are
    those who hold connections open, called first when the node ends, `on_change` those who go by
    the topology, called when it has changed. Raises
    InputError for a handler that cannot be imported, and for a neighbor without a url.
    """

    status_of: Callable[[Answer], tuple[int, str]] = staticmethod(lambda _: (200, ""))
    """Says which status a client is told where there is no result, and the reason."""

    def __init__(
        self,
        topology: Topology,
        cluster_id: str,
        *,
        seed: int | None = None,
        source: str | None = None,
        journal: Callable[[ev.Event, float], None] | None = None,
        confirm: Callable[[ev.Confirm], None] | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.topology = topology
        self._source = source or topology.name
        self.cluster = topology.cluster(cluster_id)
        self.epoch = time.time_ns() // 1_000_000
        self.started_s = time.monotonic()
        neighbors, random = topology.neighbors(cluster_id), _stream(seed, f"node/{cluster_id}")
        self.machine = self._make_machine(neighbors, random, confirms=confirm is not None)
        self._link_random = _stream(seed, f"links/{cluster_id}")  # not to shift the machine's
        loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[None] = loop.create_future()
        self.timers, self.writes = Timers(loop, finest_alarm), WriteBatch(loop)
        self.interpreters: dict[type[ev.Command], Callable[[Any], None]] = {}
        self._driver = self._make_driver(journal)
        self.feed, put = self._driver.feed, self._driver.put
        held = self.machine.held
        self.moving = Moving(self.timers, held, self._moved)
        self.names = _names_of(topology, held.limit_bytes)
        self.clients = PeerClients(topology, credentials, self.writes, self.moving)
        self.room = Room(held, self.moving, self.names)
        self.metrics = NodeMetrics(self.machine, self.timers, self.names)
        self.links = Links(self.timers, _stream(seed, f"faults/{cluster_id}"), self._make_link)
        self._links, self._emulated = self.links.by_handle, self.links.emulated
        self.configured = Configured()
        period_s, streams_max = topology.gossip_period_ms / 1e3, self.clients.streams_max
        self.streams = ReportStreams(self._emulated, period_s, self.configured, streams_max)
        self.waiters = Waiters()
        self.relays = self.metrics.watched(Relays(self.feed, self.waiters, self.timers, put))
        self.relays.go_by(self.cluster)
        self.workers = self._make_workers()
        self.peers = Peers(topology, self.cluster.id, self.configured)
        self._condition_log = ConditionLog(self.machine)
        self.leaving, self._pool_log = Leaving(self.machine), pool_log(self.machine)
        self.on_close, self.on_change = list[Callable[[], None]](), list[Callable[[], None]]()
        fed, told = (count(1).__next__, self.feed), (self.waiters, self.relays)
        self.home_requests = HomeRequests(self.cluster.id, self.names, *fed, *told)
        self.foreign_requests = ForeignRequests(*fed, self._emulated, *told)
        self.interpreters |= self._interpreters(confirm)
        for neighbor in neighbors:
            self.links.open(self.machine.neighbors.index[neighbor.id], neighbor)

    # --- life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Speak and listen until cancelled. A loop that fails ends the node, loudly; so does the
        machine, since what it would do next is not known."""
        self._driver.start(ev.TimerFired())
        async with asyncio.TaskGroup() as group:
            self.links.start(group)
            try:
                await asyncio.shield(self._failed)
            finally:
                self.links.stop()

    async def be_ready(self) -> None:
        """Return when its servers can run requests at once. Raises InputError if they cannot."""
        await be_ready(self.workers, self.cluster, f"{self._source}: cluster {self.cluster.id}")

    async def drain(
        self, timeout_s: float, results_timeout_s: float, lame_duck_s: float = 0.0
    ) -> float:
        """Drain, and wait until nothing is left to run, to answer or to be fetched of what came
        before the lame duck was over; see `ending.wait_for_the_end` for the limits, which count
        from then on, and for what is returned."""
        await serve_as_lame_duck(self.machine, self.feed, lame_duck_s)
        both = self.home_requests, self.foreign_requests
        return await wait_for_the_end(*both, timeout_s, results_timeout_s)

    @property
    def left(self) -> Left:
        """Returns what would be lost if the node ended now."""
        return Left.of(self.home_requests, self.foreign_requests)

    async def close(self) -> None:
        """Let go of everything. Streams first: an open one holds up the server. Whoever still
        waits is told by a cancelled future that there will be no answer."""
        self.home_requests.closed = self.foreign_requests.closed = True
        self._driver.close()
        for close in self.on_close:
            close()
        self.streams.close()
        await self.links.close()
        await self.workers.close()
        self.timers.close()
        self.home_requests.close()
        self.foreign_requests.close()
        self.waiters.close()
        self._failed.cancel()

    # --- what changes ------------------------------------------------------------------------

    def go_by(self, topology: Topology) -> None:
        """Go by this topology from now on. What comes of it for the machine is fed in after that:
        neighbors that join and part, delays, settings."""
        self.topology = topology
        self.cluster = topology.cluster(self.cluster.id)
        self.names.keep(topology.result_ttl_s, topology.result_limit)
        self.peers.go_by(topology)
        self.relays.go_by(self.cluster)
        for changed in self.on_change:
            changed()

    def limits_changed(self) -> None:
        """The machine has other limits now: so have those who keep to them."""
        self.room.make()
        for link in self._links.values():
            link.allow(self.machine.settings.away_limit)

    # --- what routes call ---------------------------------------------------------------------

    def visit_of(self, request_id: str) -> Visit | None:
        """Returns the visit here of a request that a neighbor has handed over."""
        ref = self.foreign_requests.ref_of(request_id)
        return None if ref is None else self.machine.register.visits.get(ref)

    def surely_never_ran(self, ref: int) -> bool:
        """Of a visit without an answer, also once the node has ended: whether it has surely not
        run anywhere, so that whoever sent it may safely send it elsewhere."""
        return self.machine.surely_never_ran(ref)

    def story(self, request_id: str) -> list[dict[str, Any]]:
        """Returns what is still known of a request's way through this cluster, oldest first."""
        return self.machine.decider.log.tell(request_id)

    def ask_neighbor(
        self, neighbor: int, body: bytes, timeout_s: float
    ) -> asyncio.Future[Response]:
        """Ask a neighbor about the federation; the future raises PeerError as HttpClient's does."""
        return self._links[neighbor].ask_federation(body, timeout_s)

    @property
    def now_s(self) -> float:
        """Returns the node's clock: monotonic, of this machine alone."""
        return time.monotonic()

    def set_link(
        self,
        neighbor: int,
        *,
        delay_s: float | None = None,
        loss: float | None = None,
        cut: bool | None = None,
    ) -> None:
        """Change what is emulated on the way to this neighbor; see `EmulatedLink.set_faults`."""
        self._emulated[neighbor].set_faults(delay_s=delay_s, loss=loss, cut=cut)

    def link_faults(self, neighbor: int) -> Faults:
        """Returns what is emulated on the way to this neighbor: (delay_s, loss, cut)."""
        return self._emulated[neighbor].faults

    # --- commands -----------------------------------------------------------------------------

    def _interpreters(
        self, confirm: Callable[[ev.Confirm], None] | None
    ) -> dict[type[ev.Command], Callable[[Any], None]]:
        interpreters: dict[type[ev.Command], Callable[[Any], None]] = {
            ev.Accepted: self.room.on_accepted,
            ev.Refuse: self._refuse,
            ev.Start: self.workers.start,
            ev.AskService: self._ask_service,
            ev.Began: self.relays.began,
            ev.Stop: lambda command: self.workers.stop(command.ref),
            ev.Forward: self._forward,
            ev.Recall: self._recall,
            ev.AskCancel: self._ask_cancel,
            ev.Reply: self._reply,
            ev.Publish: self._publish,
            ev.AskForWork: lambda command: self.streams.say(
                command.neighbor, report_lines.encode_ask(command.load, command.group)
            ),
            ev.NoWork: lambda command: self.streams.say(
                command.neighbor, report_lines.encode_no_work(command.load, command.group)
            ),
            ev.Heartbeat: lambda _: self.streams.publish(report_lines.HEARTBEAT),
            ev.Connect: self._connect,
            ev.JoinRefused: self._join_refused,
            ev.SettingsRefused: self._settings_refused,
            ev.Distrust: self._distrust,
            ev.Disconnect: self._disconnect,
        }
        if confirm is not None:
            interpreters[ev.Accepted] = self._accepted
            interpreters[ev.Confirm] = partial(self._confirm, confirm)
        return interpreters

    def _confirm(self, confirm: Callable[[ev.Confirm], None], command: ev.Confirm) -> None:
        if command.origin == ev.HOME:
            self.home_requests.confirm(command)
        confirm(command)

    def _accepted(self, command: ev.Accepted) -> None:
        self.room.on_accepted(command)
        self.home_requests.accepted(command.ref)

    def _forward(self, command: ev.Forward) -> None:
        self.metrics.forwards_left[command.neighbor] += 1
        if command.pulled:
            self.metrics.pulls_left[command.neighbor] += 1
        self._links[command.neighbor].forward(command)

    def _recall(self, command: ev.Recall) -> None:
        if (link := self._links.get(command.neighbor)) is not None:
            link.recall(command.ref)

    def _ask_cancel(self, command: ev.AskCancel) -> None:
        if (link := self._links.get(command.neighbor)) is not None:
            link.ask_cancel(command.ref)

    def _refuse(self, command: ev.Refuse) -> None:
        if command.origin == ev.HOME:
            self.metrics.home_refused(command.reason)
            entry = self.home_requests.refused(command)
            if self.metrics.tokens is not None:
                self.metrics.tokens.home_refused(entry.type)
        else:
            self.metrics.foreign_ended(command.origin, REFUSED)
            self.waiters.tell(command.ref, command)

    def _reply(self, command: ev.Reply) -> None:
        ref, answer, origin = command.ref, command.answer, command.origin
        if command.delay_s > 0.0:
            due_s = time.monotonic() + command.delay_s
            at_once = ev.Reply(ref, origin, answer, 0.0)
            self.timers.at(due_s, lambda _: self._reply(at_once))
            return
        if origin != ev.HOME:
            self.metrics.foreign_ended(origin, answer.outcome.value)
            self.waiters.tell(ref, answer)
            return
        self.metrics.home_ended(answer)
        entry = self.home_requests.answered(ref, answer)
        if self.metrics.tokens is not None:
            self.metrics.tokens.home_ended(entry.type, answer)
        if not self.machine.settings.passes and is_logged():  # at the door that is the answer's
            status = 200 if answer.outcome is DONE else self.status_of(answer)[0]
            log_request(entry, answer, status)

    def _moved(self, moving_bytes: int) -> None:
        self.feed(ev.BytesMoving(moving_bytes))
        self.room.make()

    def _publish(self, command: ev.Publish) -> None:
        self.streams.tell(command.report)
        self.leaving.look()
        self.room.on_report(self.now_s)
        self._condition_log.look(self.now_s)
        if self._pool_log is not None:
            self._pool_log.look(self.now_s)

    def _connect(self, command: ev.Connect) -> None:
        """A cluster of the topology, which has been changed before, is a neighbor now."""
        linked = self.topology.neighbors(self.cluster.id)
        neighbor = next(one for one in linked if one.id == command.cluster)
        self.peers.join(command.neighbor, neighbor.id, neighbor.delay_ms)
        self.metrics.joined(command.neighbor, neighbor.id)
        self.links.open(command.neighbor, neighbor)

    def _join_refused(self, command: ev.JoinRefused) -> None:
        _log.warning(Message("no neighbor", cluster=command.cluster, reason=command.reason))

    def _settings_refused(self, command: ev.SettingsRefused) -> None:
        _log.warning(Message("settings stay as they were", reason=command.reason))

    def _disconnect(self, command: ev.Disconnect) -> None:
        """What is away there comes back first. What it has sent still finds its way."""
        link = self.links.end(command.neighbor)
        self.streams.end(command.neighbor)
        self.peers.leave(command.neighbor)
        self.metrics.left(command.neighbor, link.cluster)

    def _distrust(self, command: ev.Distrust) -> None:
        """What it told was within its ranges, so that this is a bug."""
        if (link := self._links.get(command.neighbor)) is not None:
            said = Message("bug: dropped what a neighbor told", neighbor=link.cluster)
            _log.error(said, exc_info=command.error)
            self.metrics.peer_refused(link.cluster, RAISED)
            link.distrust()

    def fail(self, error: BaseException) -> None:
        """End the node: what it would do next is not known."""
        if not self._failed.done():
            self._failed.set_exception(error)
            self._failed.exception()  # retrieved: it also comes out where the event came in

    def _ask_service(self, _: ev.AskService) -> None:
        workers = cast("UpstreamWorkers[Any]", self.workers)  # of no others
        workers.ask_service(lambda is_well: self.feed(ev.ServiceAsked(is_well)))

    def _health_changed(self, is_up: bool) -> None:  # noqa: FBT001 - of `OnHealth`
        self.feed(ev.ServersUp() if is_up else ev.ServersDown())

    def _server_changed(self, server: int, is_up: bool) -> None:  # noqa: FBT001 - `OnServerHealth`
        self.feed(ev.ServersUp(server) if is_up else ev.ServersDown(server))

    # --- parts --------------------------------------------------------------------------------

    def _make_machine(
        self, neighbors: Sequence[Neighbor], random: Random, *, confirms: bool
    ) -> NodeMachine:
        settings = NodeSettings.of(self.topology, self.cluster.id, epoch=self.epoch)
        limit_bytes = self.cluster.held_limit_bytes or default_held_limit_bytes()
        settings = replace(settings, held_limit_bytes=limit_bytes)
        ways = [(neighbor.id, neighbor.delay_ms / 1e3) for neighbor in neighbors]
        make = ConfirmingMachine if confirms else NodeMachine
        machine = make(settings, ways, random, self.started_s)
        machine.spares_node = True
        return machine

    def _make_driver(
        self, journal: Callable[[ev.Event, float], None] | None
    ) -> Driver[ev.Event, ev.Command]:
        driven = (self.machine, self.timers, self.interpreters, self.fail)
        return Driver(*driven, journal=journal, on_late=ev.HeldUp)

    def _make_workers(self) -> Workers:
        cluster, pool = self.cluster, self.cluster.pool
        told = (f"{self._source}: cluster {cluster.id}", self.timers, self.feed)
        passing = (self.moving, self.relays)
        if pool is None:
            workers = make_workers(cluster, *told, self._health_changed, *passing)
        else:
            workers = make_unlike_workers(cluster, pool, *told, self._server_changed, *passing)
        self.metrics.gateway.upstreams = partial(upstreams_of, workers)
        return workers

    def _make_link(self, handle: int, neighbor: Neighbor, emulated_link: EmulatedLink) -> PeerLink:
        cluster, url = neighbor.id, neighbor.url
        if url is None:
            index = self.topology.cluster_ids.index(cluster)
            raise InputError(self._source, f"clusters[{index}].url", "expected a url")
        settings = self.machine.settings
        make = partial(PassedLink, relays=self.relays) if settings.passes else PeerLink
        return make(
            neighbor=handle,
            cluster=cluster,
            url=url,
            emulated_link=emulated_link,
            away_max=settings.away_limit,
            agreement=self.peers.agreements[handle],
            timers=self.timers,
            clients=self.clients,
            random=self._link_random,
            feed=self.feed,
            on_forward=partial(self.metrics.forwarded, cluster),
            on_refused=partial(self.metrics.peer_refused, cluster),
        )


def _names_of(topology: Topology, limit_bytes: int) -> IdempotencyTable:
    return IdempotencyTable(topology.result_ttl_s, topology.result_limit, limit_bytes)


def _stream(seed: int | None, name: str) -> Random:
    """A random stream of its own for each purpose, repeatable if there is a seed."""
    return Random() if seed is None else Random(f"{seed}/{name}")
