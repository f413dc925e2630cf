"""The path `/session`: a client has one long answer of its node, on which changes of the federation
are told (decision 0041). `hot_paths` dispatches it, and `live.membership.clients` has the
messages."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from urllib.parse import parse_qs

from spillover.apps.http.access import Access
from spillover.apps.http.asgi import Send
from spillover.apps.http.exchange import Exchange
from spillover.apps.http.problems import Problem
from spillover.apps.node.answers import JSON_LINE, rate_limited
from spillover.core.membership.letting_in import LettingIn
from spillover.core.membership.node_clients import NodeCount
from spillover.core.membership.session_events import servers_of
from spillover.live.membership.clients import Clients, Session
from spillover.live.membership.session_wire import SESSION
from spillover.live.overflow.shell import NodeShell
from spillover.live.overflow.sibling_wire import Sessions
from spillover.live.overflow.site import Site
from spillover.model.access import ApiToken
from spillover.model.configuration import Configuration
from spillover.model.ids import request_id_of
from spillover.model.request import NAME_LENGTH_MAX, is_name
from spillover.model.topology import Topology

LOOK_S = 0.25

TELL_S = 0.05
"""The time, in seconds, between two messages to other nodes of the cluster about how many clients
are here, where that has changed. What those let in meanwhile may be too many."""

ASKED_WITHIN_S = 2.0
"""The time, in seconds, after which a node that has not said whether it has a session is taken to
have none."""

_FOUND, _NOT_FOUND = b'{"found":true}', b'{"found":false}'

ATTEMPT = re.compile("[0-9]{1,9}")
QUERY_MAX = 8
"""The most fields of a query; later versions may have more."""


class SessionPaths:
    """The paths of sessions at one node. With `access`, a session ends when its API token does not
    count any more."""

    def __init__(self, shell: NodeShell, access: Access | None = None) -> None:
        self._shell = shell
        self._access = access
        topology = shell.topology
        self._letting_in = LettingIn(*_limits(topology))
        self.clients = Clients(
            shell.cluster.id,
            shell.epoch,
            self._letting_in,
            shell.timers,
            numbers=self._numbers,
            on_count=self._counted,
            shares_server=shell.number if shell.shares_address else None,
            url=shell.cluster.url,
        )
        shell.neighborhood.streams.tell_clients(0)
        self._shared_with: Site | None = None
        self._is_telling = False
        self._share()
        shell.on_change.append(self._share)
        self._is_looking = self._has_parted = False
        shell.metrics.count_clients = self._count
        shell.on_close.append(self.clients.close)
        shell.metrics.registry.register(self.clients)

    async def serve(self, exchange: Exchange, send: Send, token: ApiToken | None) -> None:
        """Begin a session by GET, or end it by DELETE. The names of each tenant's clients are its
        own."""
        name, attempt, moved = _asked(exchange)
        tenant = "" if token is None else token.tenant
        client = request_id_of(tenant, name)
        if exchange.method == "DELETE":
            found = self.clients.leave(client, attempt, moved=moved)
            found = found or await self._left_elsewhere(exchange)
            exchange.answer_raw(200, JSON_LINE, _FOUND if found else _NOT_FOUND)
            return
        self._count_in(client, tenant)
        try:
            self._check(client)
            await self._hold(exchange, send, client, attempt, token)
        finally:
            self._count_out(tenant)

    async def _hold(
        self,
        exchange: Exchange,
        send: Send,
        client: str,
        attempt: int | None,
        token: ApiToken | None,
    ) -> None:
        lines = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": lines})
        ended = asyncio.Event()
        exchange.watch(ended.set)
        self._look_after(LOOK_S)
        session = self.clients.open(client, attempt, partial(_put, exchange, ended), ended.set)
        try:
            with self._while_known(token, session):
                await ended.wait()
        finally:
            self.clients.drop(session)
            exchange.unwatch()
        if exchange.is_gone:
            exchange.break_off()
        else:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def go_by(self, configuration: Configuration) -> None:
        stamp = configuration.stamp
        self._letting_in.change(*_limits(configuration.topology))
        servers = servers_of(configuration.topology)
        self.clients.announce(stamp.version, stamp.cluster, servers, stamp.epoch)

    def _count_in(self, client: str, tenant: str) -> None:
        """Count a session of a tenant. Raises Problem if the tenant has as many as it may. A client
        that comes again, perhaps after a connection that it has lost, takes its own place."""
        quotas = self._shell.requests.home.quotas
        if quotas is None or not tenant:
            return
        in_place = client in self.clients
        excess = quotas.begin_session(tenant, self._shell.now_s, in_place=in_place)
        if excess is not None:
            raise rate_limited("", excess)

    def _count_out(self, tenant: str) -> None:
        quotas = self._shell.requests.home.quotas
        if quotas is not None and tenant:
            quotas.end_session(tenant)

    def _while_known(
        self, token: ApiToken | None, session: Session
    ) -> AbstractContextManager[None]:
        """End a session when its API token counts no more."""
        if self._access is None or token is None:
            return nullcontext()
        if not self._access.still_knows(token):  # since it was asked for
            session.end()
        return self._access.lasting(token, session.end)

    # --- other nodes of the cluster -----------------------------------------------------------

    @property
    def here(self) -> Sessions:
        return Sessions(*self.clients.machine.here)

    def hear(self, node: int, told: Sessions | None) -> None:
        """Take in the sessions of another node; None once it is not heard any more."""
        self.clients.hear(node, None if told is None else NodeCount(told.clients, told.let_in))
        self._shell.neighborhood.streams.tell_clients(self.clients.machine.of_cluster)

    def _share(self) -> None:
        """Have sessions count for the cluster where it has other nodes, now or from now on."""
        if (site := self._shell.site) is not None and self._shared_with is None:
            self._shared_with = site
            site.share_sessions(self)

    def _counted(self, of_cluster: int) -> None:
        """Note that clients have come or gone here."""
        self._shell.neighborhood.streams.tell_clients(of_cluster)
        if self._shared_with is not None and not self._is_telling:
            self._is_telling = True
            self._shell.timers.at(self._shell.now_s + TELL_S, self._tell)

    def _tell(self, _: float) -> None:
        self._is_telling = False
        if self._shared_with is not None:
            self._shared_with.say_sessions()

    async def _left_elsewhere(self, exchange: Exchange) -> bool:
        """Have the other nodes end the session of a client that leaves, whose connection for that
        has come to this one. Returns whether one had it. Returns False if too many questions wait
        for other nodes: the session then ends with its connection."""
        site = self._shared_with
        if site is None or exchange.asked_as or site.looked_up >= site.looked_up_max:
            return False
        path = f"{SESSION}?{exchange.query.decode('ascii')}"
        shown = [one for one in exchange.headers if one[0] == b"authorization"]
        site.looked_up += 1
        try:
            answers = await site.ask_all(
                "DELETE", path, shown, b"", ASKED_WITHIN_S, among=site.others
            )
        finally:
            site.looked_up -= 1
        return any(status == 200 and body == _FOUND for _, status, body in answers)

    def _count(self) -> tuple[int, int, int]:
        clients = self.clients.machine
        return len(clients), clients.moves, clients.refused

    def _look_after(self, wait_s: float) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._shell.timers.at(self._shell.now_s + wait_s, self._look)

    def _look(self, _: float) -> None:
        """Look once in a while, as long as there are clients, whether the node drains: then they
        are to go."""
        self._is_looking = False
        draining = self._shell.machine.draining
        if draining and not self._has_parted:
            self.clients.part()
        self._has_parted = draining
        if len(self.clients):
            self._look_after(LOOK_S)

    def _check(self, client: str) -> None:
        if self.clients.closed:
            raise Problem("not_ready", "the node ends")
        if self._shell.machine.draining:
            # Perhaps it is only late: an added cluster may hear of its return after clients do.
            raise Problem("draining", "the cluster is draining", retry_after_s=1.0)
        is_full = self.clients.machine.is_full_for(client)
        wait_s = self.clients.let_in(client)
        if wait_s is None:
            return
        if is_full:
            detail = "the cluster has as many clients as it may (client_sessions_max)"
            raise Problem("too_many_clients", detail, retry_after_s=wait_s)
        detail = "too many clients connect at a time (client_connects_per_s)"
        raise Problem("reconnect_limit", detail, retry_after_s=wait_s)

    def _numbers(self) -> Mapping[str, int]:
        """Returns how many clients each neighbor has, of those that tell."""
        return {
            neighbor.id: neighbor.report.clients
            for neighbor in self._shell.machine.neighbors
            if neighbor.report is not None and neighbor.report.clients is not None
        }


def _put(exchange: Exchange, ended: asyncio.Event, line: bytes) -> None:
    """Write a line to a client. A client that does not read must not miss any, and is let go of."""
    if exchange.connection.write_paused:
        exchange.break_off()
        ended.set()
    else:
        exchange.write_piece(line)


def _asked(exchange: Exchange) -> tuple[str, int | None, bool]:
    """Returns the client that asks, the attempt that it asks about, and whether it has moved.
    Raises Problem."""
    try:
        query = parse_qs(exchange.query.decode("ascii"), max_num_fields=QUERY_MAX)
    except ValueError as error:
        raise Problem("invalid", f"query: {error}") from None
    client = query.get("client", [""])[0]
    if not is_name(client, NAME_LENGTH_MAX):
        expected = f"expected 1 to {NAME_LENGTH_MAX} printable characters"
        raise Problem("invalid", f"query.client: {expected}")
    attempt = query.get("attempt", [""])[0]
    if attempt and not ATTEMPT.fullmatch(attempt):
        raise Problem("invalid", "query.attempt: expected a whole number")
    return client, int(attempt) if attempt else None, query.get("moved") == ["1"]


def _limits(topology: Topology) -> tuple[float, int, int]:
    return (
        topology.client_connects_per_s,
        topology.client_connects_burst,
        topology.client_sessions_max,
    )
