"""One cluster node as it runs: the machine, its timers, requests and neighbors, joined.

Clients' and neighbors' requests come in through `requests`; everything else happens through
commands. The shell makes no rule: it carries out what the machine commands.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, cast

from spillover.core.driver import Driver
from spillover.core.overflow import events as ev
from spillover.core.overflow.idempotency import IdempotencyTable
from spillover.core.overflow.pools import learned_servers, site_servers, sized_servers
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
from spillover.live.handlers.work_features import WorkFeatures
from spillover.live.overflow.condition_log import ConditionLog
from spillover.live.overflow.ending import Leaving, serve_as_lame_duck, wait_for_the_end
from spillover.live.overflow.engine_watch import EngineWatch
from spillover.live.overflow.metrics import NodeMetrics
from spillover.live.overflow.neighborhood import Neighborhood
from spillover.live.overflow.node_machine import make_machine
from spillover.live.overflow.node_requests import NodeRequests
from spillover.live.overflow.peer_clients import PeerClients
from spillover.live.overflow.pool_log import pool_log
from spillover.live.overflow.relay import Relays
from spillover.live.overflow.room import Room
from spillover.live.overflow.site import Site, SiteProcess
from spillover.live.overflow.waiters import Waiters
from spillover.live.overflow.wire import Caller
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.model.errors import InputError
from spillover.model.topology import Topology
from spillover.model.upstream_urls import metrics_pages

if TYPE_CHECKING:
    from spillover.live.handlers.http.upstream_calls import UpstreamWorkers
    from spillover.live.tls.rotation import Credentials

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class NodeShell:
    """The running node of one cluster of a topology. It must be made inside a running loop.

    `node` is the node's number where the cluster has several nodes, or the process's number where
    several processes on this machine are the cluster. `seed` makes the node's own random choices
    repeatable. `source` is where the topology was read, as errors name it; None stands for the
    topology's name. `confirm`, if given, is called for each request before that counts as accepted,
    and feeds in `Confirmed` or `NotConfirmed`, at once or later. `credentials` are for topologies
    with `https://`. The callables in `on_close` belong to holders of open connections and are
    called first when the node ends; those in `on_change` are called when the topology has changed.
    The constructor raises InputError for a handler that cannot be imported, and for a neighbor
    without a url.

    The class has 21 attributes, since it is where doors, pages and tests find each part of a node.
    """

    def __init__(
        self,
        topology: Topology,
        cluster_id: str,
        *,
        node: int | SiteProcess = 1,
        seed: int | None = None,
        source: str | None = None,
        journal: Callable[[ev.Event, float], None] | None = None,
        confirm: Callable[[ev.Confirm], None] | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.topology = topology
        self._source = source or topology.name
        number = self.number = node if isinstance(node, int) else node.number
        self.cluster = topology.cluster(cluster_id).at(number)
        self._process = None if isinstance(node, int) else node
        self.started_s = time.monotonic()
        name = f"node/{cluster_id}" if number == 1 else f"node/{cluster_id}/{number}"
        self.machine = make_machine(
            topology,
            self.cluster.id,
            number,
            _stream(seed, name),
            self.started_s,
            processes=1 if self._process is None else len(self._process.urls),
            confirms=confirm is not None,
        )
        loop = asyncio.get_running_loop()
        self._failed: asyncio.Future[None] = loop.create_future()
        self.timers, self.writes = Timers(loop, finest_alarm), WriteBatch(loop)
        self.interpreters: dict[type[ev.Command], Callable[[Any], None]] = {}
        self._driver = self._make_driver(journal)
        self.feed = self._driver.feed
        held = self.machine.held
        kept = IdempotencyTable(topology.result_ttl_s, topology.result_limit, held.limit_bytes)
        self.room = Room(held, Moving(self.timers, held, self._moved), kept)
        self.metrics = NodeMetrics(self.machine, self.timers, kept)
        waiters = Waiters()
        relays = self.metrics.watched(Relays(self.feed, waiters, self.timers))
        relays.go_by(self.cluster)
        self.neighborhood = self._make_neighborhood(relays, credentials, seed)
        self.requests = self._make_requests(relays, waiters, confirm)
        if self.machine.sites is not None:
            workers = cast("UpstreamWorkers[Any]", self.requests.workers)  # of no others
            self.requests.home.seen = workers.seen
        self.engines = self._make_engines()
        self.site = self._make_site()
        self._group: asyncio.TaskGroup | None = None
        self.leaving = Leaving(self.machine)
        logs = ConditionLog(self.machine), pool_log(self.machine)
        self._logs = [log for log in logs if log is not None]
        self.on_close, self.on_change = list[Callable[[], None]](), list[Callable[[], None]]()
        self.interpreters |= {
            **self.requests.interpreters,
            **self.neighborhood.interpreters,
            ev.TellSibling: self._tell_sibling,
            ev.DistrustSibling: self._distrust_sibling,
            ev.Publish: self._publish,
            ev.SettingsRefused: self._settings_refused,
        }

    # --- life ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Speak and listen until cancelled.

        A loop that fails ends the node, loudly. So does a machine that raises, since what it would
        do next is not known. Raises InputError where this node's topology turns out not to be that
        of the others.
        """
        try:
            await self._run()
        except ExceptionGroup as errors:
            unfit = errors.subgroup(InputError)
            if unfit is None:
                raise
            raise unfit.exceptions[0] from None

    async def _run(self) -> None:
        self._driver.start(ev.TimerFired())
        async with asyncio.TaskGroup() as group:
            self._group = group
            self.neighborhood.start(group)
            if self.site is not None:
                self.site.start(group)
            if self.engines is not None:
                self.engines.start(group)
            try:
                await asyncio.shield(self._failed)
            finally:
                self._group = None
                self.neighborhood.stop()
                if self.engines is not None:
                    self.engines.stop()

    async def be_ready(self) -> None:
        """Return when the servers can run requests at once. Raises InputError if they cannot."""
        await be_ready(
            self.requests.workers, self.cluster, f"{self._source}: cluster {self.cluster.id}"
        )

    async def drain(
        self, timeout_s: float, results_timeout_s: float, lame_duck_s: float = 0.0
    ) -> float:
        """Drain, and wait until the lame duck is over and nothing from before is left to run, to
        answer or to be fetched.

        The limits and the result are those of `ending.wait_for_the_end`; the limits count from the
        end of the lame duck.
        """
        await serve_as_lame_duck(self.machine, self.feed, lame_duck_s)
        both = self.requests.home, self.requests.foreign
        return await wait_for_the_end(*both, timeout_s, results_timeout_s)

    async def close(self) -> None:
        self.requests.take_no_more()
        self._driver.close()
        for close in self.on_close:
            close()
        await self.neighborhood.close()
        if self.site is not None:
            await self.site.close()
        if self.engines is not None:
            await self.engines.close()
        await self.requests.workers.close()
        self.timers.close()
        self.requests.close()
        self._failed.cancel()

    # --- what changes ------------------------------------------------------------------------

    def go_by(self, topology: Topology) -> None:
        """Go by this topology from now on. Its consequences for the machine (neighbors that join
        and part, delays, settings) are fed in after that."""
        self.topology = topology
        self.cluster = topology.cluster(self.cluster.id).at(self.number)
        self.room.kept.keep(topology.result_ttl_s, topology.result_limit)
        self.neighborhood.go_by(topology)
        self.requests.relays.go_by(self.cluster)
        if self.site is not None:
            self.site.go_by(self.cluster, topology.result_ttl_s)
        self._tell_changed()

    def _tell_changed(self) -> None:
        for changed in self.on_change:
            changed()

    def limits_changed(self) -> None:
        """Pass the machine's new limits on to the parts that keep to them. From now on these may be
        the limits of one node of several."""
        if self.site is None and (site := self._make_site()) is not None:
            self.site = site
            if self._group is not None:
                site.start(self._group)
            self._tell_changed()
        self.room.make()
        self.neighborhood.limits_changed()
        settings = self.machine.settings
        is_given = settings.bounds is None and settings.pool is None
        if self.cluster.affinity is not None and is_given:
            workers = cast("UpstreamWorkers[Any]", self.requests.workers)  # of no others
            workers.upstreams.use(settings.servers)

    # --- what routes call ---------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """Returns the number of this life of the node: a later life has a higher number."""
        return self.machine.settings.epoch

    @property
    def now_s(self) -> float:
        """Returns the node's clock: monotonic, of this machine alone."""
        return time.monotonic()

    @property
    def place(self) -> int:
        """Returns which node of the cluster this is by the topology, which knows nothing of
        processes."""
        return self.number if self._process is None else 1

    @property
    def shares_address(self) -> bool:
        """Returns whether other processes of the cluster are behind the same address."""
        return self._process is not None

    @property
    def turns_neighbors_away(self) -> bool:
        """Returns whether neighbors are to call another node of the cluster, since this one drains.
        Processes that share an address drain together, so that none of them turns neighbors
        away."""
        return self.machine.leaves_to_siblings and not self.shares_address

    # --- commands -----------------------------------------------------------------------------

    def _moved(self, moving_bytes: int) -> None:
        self.feed(ev.BytesMoving(moving_bytes))
        self.room.make()

    def _publish(self, command: ev.Publish) -> None:
        report = command.report
        tells_places = self.requests.home.seen is not None and self.site is None
        if tells_places and self.cluster.weighs_between_sites:
            workers = cast("UpstreamWorkers[Any]", self.requests.workers)  # of no others
            report = replace(report, places=workers.upstreams.loads())
        self.neighborhood.streams.tell(report)
        if self.turns_neighbors_away:
            self.neighborhood.streams.end_all()
        self.leaving.look()
        self.room.on_report(self.now_s)
        for log in self._logs:
            log.look(self.now_s)

    def _tell_sibling(self, command: ev.TellSibling) -> None:
        if self.site is not None:
            self.site.tell(command)

    def _distrust_sibling(self, command: ev.DistrustSibling) -> None:
        if self.site is not None:
            self.site.distrust(command)

    def _settings_refused(self, command: ev.SettingsRefused) -> None:
        _log.warning(Message("settings stay as they were", reason=command.reason))

    def fail(self, error: BaseException) -> None:
        """End the node: what it would do next is not known."""
        if not self._failed.done():
            self._failed.set_exception(error)
            self._failed.exception()  # retrieved: it also comes out where the event came in

    # --- parts --------------------------------------------------------------------------------

    def _health_changed(self, is_up: bool) -> None:  # noqa: FBT001 - of `OnHealth`
        self.feed(ev.ServersUp() if is_up else ev.ServersDown())

    def _server_changed(self, server: int, is_up: bool) -> None:  # noqa: FBT001 - `OnServerHealth`
        self.feed(ev.ServersUp(server) if is_up else ev.ServersDown(server))

    def _make_neighborhood(
        self, relays: Relays, credentials: Credentials | None, seed: int | None
    ) -> Neighborhood:
        return Neighborhood(
            self.topology,
            self.machine,
            PeerClients(self.topology, credentials, self.writes, self.room.moving),
            self.metrics,
            timers=self.timers,
            feed=self.feed,
            on_failure=self.fail,
            relays=relays,
            random=_stream(seed, f"links/{self.cluster.id}"),  # not to shift the machine's
            fault_random=_stream(seed, f"faults/{self.cluster.id}"),
            source=self._source,
        )

    def _make_requests(
        self, relays: Relays, waiters: Waiters, confirm: Callable[[ev.Confirm], None] | None
    ) -> NodeRequests:
        return NodeRequests(
            self.machine,
            self.metrics,
            self.room,
            self.timers,
            feed=self._feed_arrivals(),
            waiters=waiters,
            relays=relays,
            neighborhood=self.neighborhood,
            workers=self._make_workers(relays),
            confirm=confirm,
        )

    def _make_site(self) -> Site | None:
        """Returns the other nodes of the cluster; None where there are none."""
        servers = site_servers(self.machine.servers)
        if servers is None:
            return None
        own = self.cluster.id
        caller = Caller(own, own, self.neighborhood.peers.federation)
        return Site(
            self.cluster,
            servers.siblings,
            caller,
            self.neighborhood.clients,
            self.neighborhood.configured,
            urls=() if self._process is None else self._process.urls,
            feed=self.feed,
            on_failure=self.fail,
            on_refused=lambda node, what: self.metrics.sibling_refused(f"{own}/{node}", what),
            result_ttl_s=self.topology.result_ttl_s,
        )

    def _make_engines(self) -> EngineWatch | None:
        """Returns the watch that reads what engines report of their load; None where no engine is
        watched."""
        source = self.cluster.servers_from
        if source is None or learned_servers(self.machine.servers) is None:
            return None
        watch = EngineWatch(metrics_pages(source.metrics), self.feed)
        if source.orca:
            workers = cast("UpstreamWorkers[Any]", self.requests.workers)  # of no others
            workers.on_orca = watch.heard
        self.metrics.engine_looks = watch.ends
        return watch

    def _make_driver(
        self, journal: Callable[[ev.Event, float], None] | None
    ) -> Driver[ev.Event, ev.Command]:
        driven = (self.machine, self.timers, self.interpreters, self.fail)
        return Driver(*driven, journal=journal, on_late=ev.HeldUp)

    def _feed_arrivals(self) -> Callable[[Any], None]:
        """Returns the callable that feeds in events of requests, together with the size that a
        request states where sizes count."""
        if sized_servers(self.machine.servers) is None:
            return self.feed
        sizes, feed = WorkFeatures(self.cluster), self.feed

        def feed_sized(event: Any) -> None:
            if isinstance(event, ev.Arrived):
                sizes.note(event.request)
            feed(event)

        return feed_sized

    def _make_workers(self, relays: Relays) -> Workers:
        cluster, pool = self.cluster, self.cluster.pool
        told = (f"{self._source}: cluster {cluster.id}", self.timers, self.feed)
        passing = (self.room.moving, relays)
        if pool is None:
            workers = make_workers(cluster, *told, self._health_changed, *passing)
        else:
            workers = make_unlike_workers(cluster, pool, *told, self._server_changed, *passing)
        self.metrics.gateway.upstreams = partial(upstreams_of, workers)
        return workers


def _stream(seed: int | None, name: str) -> Random:
    """Returns a random stream of its own for each purpose; it is repeatable if there is a seed."""
    return Random() if seed is None else Random(f"{seed}/{name}")
