"""The door of a service: a listener of its own, where every method and path is one request that is
passed on as it is. Its headers, or routes, say what it may wait for and which type it has.

`door_connection` knows how requests are read, and `passed_answers` what answers look like.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import re
import socket
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from msgspec.structs import replace

from spillover.apps.http.doors import Doors
from spillover.apps.http.problems import Problem
from spillover.apps.node.answers import rate_limited
from spillover.apps.node.door_connection import Asked, DoorConnection
from spillover.apps.node.door_pages import Origins, Page
from spillover.apps.node.intake import NO_HEADERS, Headers, read_headers
from spillover.apps.node.passed_answers import UNQUEUED_RETRY_S, PassedAnswer
from spillover.apps.node.repeats import waits_for_key
from spillover.core.overflow.events import SoFar
from spillover.live.handlers.proxy.handler import ProxyWorkers
from spillover.live.handlers.proxy.known import KnownRequests, WrittenHeads
from spillover.live.handlers.proxy.onward import Ingress
from spillover.live.handlers.proxy.sent_heads import OwnRequest
from spillover.live.handlers.proxy.unqueued import Unqueued
from spillover.live.http1.bounds import Bounds, Swept
from spillover.live.http1.heads import RequestHead
from spillover.live.overflow.shell import NodeShell
from spillover.live.process.listening import BACKLOG
from spillover.live.process.logs import OncePerPeriod
from spillover.live.tls.handshakes import Front, Handshake, at_door
from spillover.model.ids import RequestId, name_of, request_id_of, told_inside
from spillover.model.passed import PassedHead, PassedRequest
from spillover.model.request import KIND_LENGTH_MAX, Refusal, Request
from spillover.model.routes import Route

STOP_S = 2.0

WAYS_MAX = 1024
"""The most addresses for which the meaning of headers is remembered: heads are known again by
it."""

KIND_PARTS = 2
"""The number of parts of the path, from its beginning, that tell requests without a type apart,
together with the method."""

_ONE_OF_MANY = re.compile(rb"[0-9]+|(?=[^0-9]*[0-9])[0-9A-Fa-f-]{8,}")
"""A part of a path that names one thing among many, by a number or a hexadecimal id. It is no kind
of its own."""

_SERVER_NAMES = frozenset(
    {b"idempotency-key", b"spillover-deadline-ms", b"spillover-priority", b"spillover-type",
     b"traceparent", b"tracestate"}
)  # fmt: skip
_LOOKED_AT = _SERVER_NAMES | {b"origin"}

_DOTS = re.compile(rb"(?i)(?:[/\\]|%2f|%5c)(?:\.|%2e){1,2}(?:[/\\;]|%2f|%5c|\Z)")

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class ProxyDoor:
    """The listener of a node whose cluster passes requests on. To be made where the loop runs."""

    def __init__(
        self,
        shell: NodeShell,
        bounds: Bounds | None = None,
        *,
        tls: Front | None = None,
        doors: Doors | None = None,
        allowed_origins: frozenset[str] = frozenset(),
    ) -> None:
        self._tls = tls
        self._handshakes: set[Handshake] = set()
        self._doors = doors
        self._origins = Origins(allowed_origins)
        self._own = shell.cluster.id
        self.shell = shell
        self.bounds = bounds or Bounds()
        self.ready = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.flush, self.clock = shell.writes.flush, shell.timers.clock
        self._swept: Swept[DoorConnection] = Swept(self.loop, set())
        # Unlike any other's on the way of a request, also of a node of the same name elsewhere.
        self.pseudonym = f"{shell.cluster.id}-{os.urandom(4).hex()}.spillover"
        self.requests, self.answers = KnownRequests(), WrittenHeads()
        self.counts = shell.metrics.gateway.http
        workers = shell.requests.workers
        self._unqueued = (
            Unqueued(workers.upstreams, shell.timers, shell.room.moving)
            if isinstance(workers, ProxyWorkers)
            else None
        )
        self.leaving_idle_s = math.inf
        self.way_of = lru_cache(WAYS_MAX)(self._way_of)
        """Returns what headers say of requests that come from an address by a scheme."""
        self._servers: list[asyncio.Server] = []
        self._stopped = asyncio.Event()
        self._emptied: asyncio.Event | None = None
        """Set when the last connection is gone, at the end."""
        self._go_by()
        shell.on_change.append(self._go_by)

    def _go_by(self) -> None:
        topology, cluster = self.shell.topology, self.shell.cluster
        self._default_deadline_ms = topology.default_deadline_ms
        self.body_limit_bytes = cluster.passed_body_limit_bytes
        self._routes = cluster.routes
        self._trusted = cluster.trusted_networks
        self.way_of.cache_clear()
        if self._unqueued is not None:
            self._unqueued.stall_s = cluster.passed_stall_ms / 1e3

    @property
    def connections(self) -> set[DoorConnection]:
        return self._swept.connections

    @property
    def is_busy(self) -> bool:
        """Returns whether any answer is under way."""
        return any(connection.is_busy for connection in self.connections)

    @property
    def connection_count(self) -> int:
        """Returns how many connections there are, including those that have only begun."""
        return len(self.connections) + len(self._handshakes)

    async def serve(self, sockets: Sequence[socket.socket]) -> None:
        make = at_door(lambda: DoorConnection(self), self._tls, self._handshakes)
        self._servers = [
            await self.loop.create_server(make, sock=one, backlog=BACKLOG) for one in sockets
        ]
        self.ready.set()
        await self._stopped.wait()
        self.stop_listening()
        for connection in list(self.connections):
            connection.close()
        if self.connections:
            self._emptied = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), STOP_S)
        for connection in list(self.connections):
            connection.transport.abort()

    def leave(self, idle_s: float | None) -> None:
        """Have clients leave, as `HttpServer.leave` does."""
        self.leaving_idle_s = math.inf if idle_s is None else idle_s
        for connection in list(self.connections):
            connection.leave()

    def stop_listening(self) -> None:
        """Let no client connect any more."""
        for server in self._servers:
            server.close()

    def stop(self) -> None:
        """Have `serve` return once the answers have left, or the time for that is up."""
        self._stopped.set()

    def _way_of(self, client: str, scheme: str) -> Ingress:
        is_trusted = self._trusted is None
        if self._trusted:
            with contextlib.suppress(ValueError):
                address = ip_address(client.partition("%")[0])
                mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
                is_trusted = any((mapped or address) in network for network in self._trusted)
        return Ingress(client, scheme, self.pseudonym, is_trusted=is_trusted)

    def watch(self, connection: DoorConnection) -> None:
        """Have a connection looked at each second."""
        self._swept.add(connection)

    def let_go(self, connection: DoorConnection) -> None:
        self.connections.discard(connection)
        if self._emptied is not None and not self.connections:
            self._emptied.set()

    def route_of(self, head: RequestHead) -> Route | None:
        """Returns the first route that fits a request."""
        target, method = head.target.decode("latin-1"), head.method
        has_dots = _DOTS.search(head.target.partition(b"?")[0]) is not None
        for route in self._routes:
            if route.unqueued and has_dots:  # the service may read another path
                continue
            if target.startswith(route.path) and (not route.methods or method in route.methods):
                return route
        return None

    def tenant_of(self, head: RequestHead, address: str) -> str:
        """Returns the tenant of a request. Raises Problem if it belongs to nobody who is let in."""
        if self._doors is None:
            return ""
        shown = [value for name, value in head.fields if name.lower() == b"proxy-authorization"]
        door = f"{head.method} {head.target.partition(b'?')[0].decode('latin-1')}"
        return self._doors.passer(shown, door, address).tenant

    def pass_on(
        self, answer: PassedAnswer, asked: Asked, way: Ingress, body: bytes, received_s: float
    ) -> None:
        """Pass on a request that has come whole. Raises Problem if it is not taken."""
        head, tenant, known = asked
        route = self.route_of(head) if self._routes else None
        beside = None
        if route is not None:
            answer.counts = self.counts[head.method, route.path]
            answer.tells_events = route.sse_error_event
            if route.unqueued:
                beside = self._unqueued
            if answer.asked is not None:
                answer.asked.route = route.path
        headers = NO_HEADERS
        if not _LOOKED_AT.isdisjoint(head.names):
            both = zip(head.names, head.fields, strict=True)
            headers = read_headers([(name, one[1]) for name, one in both if name in _SERVER_NAMES])
            if b"origin" in head.names:
                beside = self._beside_of_page(answer, head) or beside
        own = OwnRequest(head, way, body, known)
        passed: OwnRequest | PassedRequest = own
        if tenant:
            self._check_quota(headers.key, tenant)
            passed = _of_tenant(own, tenant, headers.key)
        deadline_s = received_s + self._deadline_ms(headers, route) / 1e3
        if beside is not None:
            name = request_id_of(tenant, headers.key or f"{self._own}-{os.urandom(8).hex()}")
            self._pass_beside(beside, answer, passed, name, deadline_s)
            return
        type_ = headers.type or (None if route is None else route.type) or "default"
        id_ = request_id_of(tenant, headers.key or "")
        kind = _kind_of(head.method, head.target[:KIND_LENGTH_MAX]) if type_ == "default" else ""
        request = Request(
            id_, headers.key is not None, passed, (), type_,
            headers.priority, headers.trace, own.size_bytes, kind,
        )  # fmt: skip
        answer.request = request
        if headers.key is not None and waits_for_key(self.shell, answer, request, deadline_s):
            return
        entry = self.shell.requests.home.take_passed(request, deadline_s, answer)
        answer.taken(entry)

    def page_of(self, head: RequestHead) -> Page | None:
        """Returns the page of a browser that asks; None if none says that it does."""
        return Page(self._origins, head) if b"origin" in head.names else None

    def _beside_of_page(self, answer: PassedAnswer, head: RequestHead) -> Unqueued | None:
        """Returns what passes a preflight on beside the queue. Returns None if the request is no
        preflight, or cannot be passed on there: it goes the way of all others, which may lead to a
        neighbor."""
        answer.page = page = Page(self._origins, head)
        beside = self._unqueued
        if not page.is_preflight or beside is None or beside.is_full:
            return None
        return beside if beside.upstreams.some_up else None

    def _check_quota(self, name: str | None, tenant: str) -> None:
        quotas = self.shell.requests.home.quotas
        excess = None if quotas is None else quotas.ask(tenant, self.shell.now_s)
        if excess is not None:
            self.shell.metrics.home_refused(Refusal.RATE_LIMITED)
            raise rate_limited(name or "", excess)

    def _pass_beside(
        self,
        unqueued: Unqueued,
        answer: PassedAnswer,
        passed: OwnRequest | PassedRequest,
        request_id: RequestId,
        deadline_s: float,
    ) -> None:
        cluster = self._own
        answer.own_name = name = name_of(request_id)
        if unqueued.is_full:
            self.shell.metrics.home_refused(Refusal.QUEUE_FULL)
            detail = "too many requests are passed on beside the servers"
            raise Problem("queue_full", detail, id=name, retry_after_s=UNQUEUED_RETRY_S)
        begun_s = self.shell.now_s

        def on_head(head: PassedHead) -> None:
            if head.status < 200:
                answer.hint(head)
                return
            so_far = SoFar((cluster,), 0.0, 0.0, self.shell.now_s - begun_s)
            call = answer.call
            assert call is not None  # noqa: S101 - a head comes later than the call
            answer.begin(head, so_far, call)

        ends = (on_head, answer.piece, answer.unqueued_ended)
        answer.call = unqueued.send(passed, request_id, deadline_s, *ends)

    def _deadline_ms(self, headers: Headers, route: Route | None) -> float:
        if headers.deadline_ms is not None:
            return headers.deadline_ms
        if route is not None and route.deadline_ms is not None:
            return route.deadline_ms
        return self._default_deadline_ms


def _of_tenant(own: OwnRequest, tenant: str, key: str | None) -> OwnRequest | PassedRequest:
    """Returns the request, with a key that the service does not take for another tenant's."""
    if key is None:
        return own
    return _with_key(own.passed(), told_inside(request_id_of(tenant, key)).encode())


def _with_key(passed: PassedRequest, key: bytes) -> PassedRequest:
    """Returns the request with this key as its `Idempotency-Key`."""
    fields = tuple((name, key if name.lower() == b"idempotency-key" else value)
                   for name, value in passed.headers)  # fmt: skip
    return replace(passed, headers=fields)


@lru_cache(maxsize=256)
def _kind_of(method: str, target: bytes) -> str:
    """Returns method and beginning of the path, by which failures of untyped requests are told
    apart, with `*` for what names one thing among many. Most clients ask for the same few paths."""
    parts = target.partition(b"?")[0].split(b"/", KIND_PARTS + 1)[: KIND_PARTS + 1]
    path = b"/".join(b"*" if _ONE_OF_MANY.fullmatch(part) else part for part in parts)
    return f"{method} {path.decode('latin-1')}"[:KIND_LENGTH_MAX]
