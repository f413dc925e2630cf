"""The calls of neighbors under /peer/ while there is traffic: requests handed over, cancels, and
the stream of reports, in each version of the protocol that is spoken. `hot_paths` dispatches them,
and the faults of other calls there."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import parse_qs

from spillover.apps.http.exchange import Exchange, body_too_slow, too_large
from spillover.apps.http.problems import Problem
from spillover.apps.node.answers import answer_internal_error, node_ended, problem_of
from spillover.apps.node.passed_outlet import PassedOutlet
from spillover.apps.node.shared_callers import READ_BY, SharedCaller
from spillover.core.overflow.events import BytesMoving, CancelAsked, Refuse, ReportAsked
from spillover.live.overflow import protocol, wire
from spillover.live.overflow.agreement import Terms, node_asking
from spillover.live.overflow.configured import FIELD
from spillover.live.overflow.foreign_requests import Asker
from spillover.live.overflow.frames.frame import FORWARD, PASS
from spillover.live.overflow.identity import HELLO, Peer, Peers, TurnedAway, read_hello
from spillover.live.overflow.metrics import REQUEST
from spillover.live.overflow.protocol import SHARED, UPGRADE
from spillover.live.overflow.report_streams import ReportStream
from spillover.live.overflow.shell import NodeShell
from spillover.live.overflow.site import sibling_name
from spillover.live.overflow.waiters import Told
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.model.configuration import Stamp
from spillover.model.ids import RequestId, name_of
from spillover.model.request import Answer, Refusal, Request

Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

ENVELOPE_LIMIT_BYTES = 65_536
"""The bytes that a forward may take beyond its payload: path, names, numbers."""

READ_S = 10.0
"""The time, in seconds, that a neighbor has to send all of a message."""

PEER_OF = "spillover.peer_of"
"""The key in the scope of a call that goes on to the app, for `peer_of` of its connection."""

QUERY_MAX = 16
"""The most fields of a question for reports; later versions may ask more."""

NUMBER_DIGITS_MAX = 4
"""The most digits of the number of a node that asks."""

JSON_LINE = b"content-type: application/json\r\n"

_SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: %b\r\n\r\n" % UPGRADE
)

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class PeerPaths:
    """The paths of one node that its neighbors use."""

    def __init__(self, shell: NodeShell) -> None:
        self._shell = shell
        self._clock = shell.timers.clock
        self._limits_bytes = dict[int, int]()
        """The longest request that is handed over, in bytes, by its kind."""
        self._go_by()
        shell.on_change.append(self._go_by)

    def _go_by(self) -> None:
        limit_bytes = self._shell.topology.payload_limit_bytes
        self._limits_bytes[FORWARD] = limit_bytes + ENVELOPE_LIMIT_BYTES
        passed_bytes = self._shell.cluster.passed_body_limit_bytes
        self._limits_bytes[PASS] = passed_bytes + 3 * ENVELOPE_LIMIT_BYTES

    async def hello(self, exchange: Exchange, _: Send) -> None:
        """Tell a neighbor who this is, as it wants to know whether it is believed here."""
        hello = dict(exchange.headers).get(HELLO, b"")
        if self._shell.site is not None and read_hello(hello)[0].cluster == self._shell.cluster.id:
            check_sibling(self._shell, exchange)
        else:
            peer_of(self._shell.neighborhood.peers, exchange, dict(exchange.headers))
        told = {
            "cluster": self._shell.cluster.id,
            "epoch": self._shell.epoch,
            "speaks": protocol.TELLING,
        }
        exchange.answer_raw(200, JSON_LINE, json.dumps(told).encode())

    async def forward(self, exchange: Exchange, _: Send) -> None:
        """Take a request that is handed over; the answer goes back on the same exchange."""
        received_s = self._clock()
        body = await self._read(exchange, self._limits_bytes[FORWARD])
        self._take(FORWARD, exchange, body, received_s)
        await exchange.answered()

    async def passed(self, exchange: Exchange, _: Send) -> None:
        """Take a request that passes through. Its answer goes back as it comes once it has
        begun."""
        received_s = self._clock()
        body = await self._read(exchange, self._limits_bytes[PASS])
        self._take(PASS, exchange, body, received_s)
        del body  # the answer may take long
        exchange.leave_task()

    def take_whole(self, kind: int, exchange: Exchange, body: bytes) -> None:
        """Take a request of either kind that came whole, or refuse it."""
        limit_bytes = self._limits_bytes[kind]
        try:
            if len(body) <= limit_bytes:
                self._take(kind, exchange, body, exchange.begun_s or self._clock())
            else:
                exchange.refuse(too_large(limit_bytes, whole=True))
        except Problem as problem:
            exchange.refuse(problem)
        except Exception:  # noqa: BLE001 - nothing behind this turns a bug into an answer
            answer_internal_error(self._shell, exchange, None)

    def _take(self, kind: int, exchange: Exchange, body: bytes, received_s: float) -> None:
        """Take a request. Raises Problem where it is not taken."""
        shell, read_s = self._shell, self._clock()
        try:
            forwarded = READ_BY[kind](body)
        except wire.MalformedMessage as error:
            raise self._malformed(exchange, error) from error
        request, times = forwarded.request, (received_s, read_s)
        peer = peer_of(shell.neighborhood.peers, exchange, dict(exchange.headers))
        exchange.headers.clear()  # they are read
        self._check(kind, request, peer)
        asker = Asker(partial(self._settled, exchange, request.id, times), exchange.break_off)
        outlet = PassedOutlet(exchange, *times) if kind == PASS else None
        deadline_s = received_s + forwarded.remaining_s
        ref = shell.requests.foreign.take(forwarded, deadline_s, peer.neighbor, asker, outlet)
        exchange.watch(partial(shell.requests.foreign.abandon, ref))

    async def share(self, exchange: Exchange, _: Send) -> None:
        """Have requests share this connection from now on. Raises Problem."""
        headers = dict(exchange.headers)
        peer = peer_of(self._shell.neighborhood.peers, exchange, headers)
        asked_for = headers.get(b"upgrade", b"").lower()
        if b"upgrade" not in headers.get(b"connection", b"").lower() or asked_for != UPGRADE:
            raise Problem("invalid", f"{SHARED}: expected Upgrade: {UPGRADE.decode()}")
        certificate = exchange.connection.certificate
        told = peer, certificate, self._check, self._limits_bytes
        make = partial(SharedCaller, self._shell)
        if not exchange.connection.switch(exchange, _SWITCH, lambda one: make(one, *told)):
            raise Problem("invalid", f"{SHARED}: expected nothing else on its connection")

    def _check(self, kind: int, request: Request, peer: Peer) -> None:
        """Raises Problem if a request is not taken. That includes one whose path no node of this
        topology would take, which may have no end."""
        sender, own = peer.caller.cluster, self._shell.cluster.id
        why, reason = None, "invalid"
        if request.path[-1] != sender:
            why = f"path: expected it to end with {sender}, got {request.path[-1]}"
        elif own in request.path:
            why = f"path: it was at cluster {own} before"
        elif len(request.path) > (hops_max := self._shell.topology.max_hops):
            why = f"path: expected at most {hops_max} hops, got {len(request.path)}"
        elif kind == FORWARD:
            # Its home may have another handler: refused, it is decided again there.
            why = self._shell.requests.workers.problem_with(request.work)
        elif not self._shell.machine.settings.passes:
            why, reason = "no request passes through this cluster", "unknown_type"
        if why is not None:
            raise Problem(reason, why, id=name_of(request.id))

    def _settled(
        self,
        exchange: Exchange,
        request_id: RequestId,
        times: tuple[float, float],
        ref: int,
        told: Told,
        waited_s: float,
    ) -> None:
        """Tells its sender the outcome of a request that was handed over; None says that the node
        has ended before. The machine's shell calls this, so that a bug in here must not bring it
        down."""
        if exchange.response_complete:  # a bug was its answer, and the node ends
            return
        try:
            if isinstance(told, Answer):
                received_s, read_s = times
                stay = wire.Stay(self._clock() - received_s, read_s - received_s, waited_s)
                exchange.answer_raw(200, JSON_LINE, wire.encode_answer(told, stay))
            elif told is None:
                has_not_run = self._shell.machine.surely_never_ran(ref)
                exchange.refuse(node_ended(name_of(request_id), has_not_run=has_not_run))
            else:
                exchange.refuse(_refusal(name_of(request_id), told))
        except Exception:  # noqa: BLE001 - as above
            answer_internal_error(self._shell, exchange, None)

    async def _read(
        self, exchange: Exchange, limit_bytes: int, *, handed_over: bool = True
    ) -> bytes:
        """Returns the whole body. A neighbor that is too slow to send it is told so: no deadline
        has passed, since the request was not even read."""
        try:
            return await exchange.read_body(limit_bytes, READ_S)
        except Problem as problem:
            if problem.reason == "deadline_exceeded":
                raise body_too_slow(READ_S) from None
            if problem.reason == "queue_full" and handed_over:
                moving_bytes = self._shell.room.moving.bytes
                self._shell.feed(BytesMoving(moving_bytes, wanted=exchange.length_bytes))
            raise

    async def cancel(self, exchange: Exchange, _: Send) -> None:
        """Cancel a request for the neighbor that handed it over. The answer to the request itself
        says how it ended."""
        headers = dict(exchange.headers)
        body = await self._read(exchange, ENVELOPE_LIMIT_BYTES, handed_over=False)
        try:
            request_id = wire.decode_cancel(body)
        except wire.MalformedMessage as error:
            raise self._malformed(exchange, error) from error
        origin = peer_of(self._shell.neighborhood.peers, exchange, headers).neighbor
        ref = self._shell.requests.foreign.ref_of(request_id, origin)
        if ref is not None:
            self._shell.feed(CancelAsked(ref))
        found = wire.encode_cancel_answer(found=ref is not None)
        exchange.answer_raw(200, JSON_LINE, found)

    async def reports(self, exchange: Exchange, send: Send) -> None:
        """Write a stream of this node's reports, until one of the two ends closes it."""
        try:
            query = _query(exchange)
            terms, node = Terms.read(query), node_asking(query)
        except ValueError as error:  # MalformedMessage is one
            raise Problem("invalid", f"query: {error}") from error
        headers = dict(exchange.headers)
        configuration = query.get(FIELD, [""])[0]
        try:
            peer = peer_of(self._shell.neighborhood.peers, exchange, headers)
        except Problem:
            self._hear_stranger(exchange, headers, configuration)
            raise
        neighbor = peer.neighbor
        self._shell.neighborhood.configured.heard(peer.caller.cluster, configuration)
        self._shell.neighborhood.peers.agreements[neighbor].asked(terms, configuration)
        if self._shell.turns_neighbors_away:
            raise Problem("not_ready", "the node drains: expected another one of its cluster")
        stream = self._shell.neighborhood.streams.open(neighbor, exchange.write_piece, node)
        if stream is None:
            raise Problem("not_ready", "the node ends")
        try:
            lines = [(b"content-type", b"application/x-ndjson")]
            await send({"type": "http.response.start", "status": 200, "headers": lines})
            await self._report(exchange, send, stream)
        finally:
            self._shell.neighborhood.streams.drop(neighbor, stream)
            exchange.unwatch()

    async def siblings(self, exchange: Exchange, send: Send) -> None:
        """Write the stream of what this node tells another one of its site, until one of the two
        closes it."""
        check_sibling(self._shell, exchange)
        try:
            query = _query(exchange)
        except ValueError as error:
            raise Problem("invalid", f"query: {error}") from error
        told, servers = query.get("node", [""])[0], query.get("servers", [""])[0]
        number = int(told) if told.isdecimal() and len(told) <= NUMBER_DIGITS_MAX else 0
        site, configuration = self._shell.site, query.get(FIELD, [""])[0]
        form = query.get("form", [""])[0]
        stream = None if site is None else site.open(number, exchange.write_piece, form)
        if site is None or stream is None:
            raise self._no_sibling(configuration)
        self._shell.neighborhood.configured.heard(
            sibling_name(self._shell.cluster.id, number), configuration
        )
        site.heard_servers(told, servers[:20], configuration)
        try:
            lines = [(b"content-type", b"application/x-ndjson")]
            await send({"type": "http.response.start", "status": 200, "headers": lines})
            exchange.watch(stream.end)
            site.greet(stream)
            await stream.until_ended()
            exchange.break_off()
        finally:
            site.drop(number, stream)
            exchange.unwatch()

    def _no_sibling(self, configuration: str) -> Problem:
        """Returns why this node opens no stream to another one of its cluster."""
        stamp = Stamp.read(configuration)
        if stamp is not None and stamp > self._shell.neighborhood.configured.stamp:
            detail = "this node does not go by that configuration yet"
            return Problem("version_conflict", detail)
        if self._shell.site is None:
            return Problem("not_found", "the cluster has one node")
        form = self._shell.site.siblings.own.form
        numbers = f"another node of {self._shell.machine.settings.nodes}, form {form}"
        return Problem("invalid", f"query: node: expected the number of {numbers}")

    def _hear_stranger(
        self, exchange: Exchange, headers: Mapping[bytes, bytes], configuration: str
    ) -> None:
        """Take in the configuration of a node of this federation that is no neighbor here; by that
        configuration it may be one."""
        with contextlib.suppress(TurnedAway):
            cluster = self._shell.neighborhood.peers.member(exchange.connection, headers.get(HELLO))
            self._shell.neighborhood.configured.heard(cluster, configuration)

    async def _report(self, exchange: Exchange, send: Send, stream: ReportStream) -> None:
        """Write the stream behind its head. A bug in here cannot be answered any more: the answer
        would be taken for a part of the stream."""
        try:
            self._shell.feed(ReportAsked())
            exchange.watch(stream.end)
            await stream.until_ended()
            if exchange.is_gone:
                exchange.break_off()
            else:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except Exception:
            exchange.break_off()
            raise

    def _malformed(self, exchange: Exchange, error: wire.MalformedMessage) -> Problem:
        """Returns the refusal of a message that cannot be read. It is counted if the caller of the
        connection is known."""
        peer: Peer | None = exchange.connection.peer
        if peer is not None:
            neighbor = peer.caller.cluster
            self._shell.metrics.peer_refused(neighbor, REQUEST)
            told = {"neighbor": neighbor, "message": REQUEST, "reason": str(error)}
            _log.warning(Message("neighbor is not understood", **told))
        return Problem("invalid", f"body: {error}")

    def other_version(self, exchange: Exchange) -> Problem:
        """Returns the refusal of a call of a version that is not spoken here."""
        hello = dict(exchange.headers).get(HELLO)
        self._shell.neighborhood.peers.of_another_version(hello)
        spoken = " or ".join(f"{protocol.PEER_PREFIX}v{one}/" for one in protocol.VERSIONS)
        told = (protocol.TOLD, protocol.TELLING.encode())
        return Problem("wrong_version", f"{exchange.path}: expected {spoken}", headers=[told])


def check_sibling(shell: NodeShell, exchange: Exchange) -> None:
    """Raise Problem unless the other end says that it is of this node's own cluster, and proves it
    where nodes do."""
    peers, own = shell.neighborhood.peers, shell.cluster.id
    try:
        caller = peers.member(exchange.connection, dict(exchange.headers).get(HELLO))
    except TurnedAway as error:
        raise Problem("not_a_neighbor", str(error), headers=peers.who_this_is()) from None
    if caller != own:
        detail = f"expected a node of cluster {own}, got one of {caller}"
        raise Problem("not_a_neighbor", detail, headers=peers.who_this_is())


def peer_of(peers: Peers, exchange: Exchange, headers: Mapping[bytes, bytes]) -> Peer:
    """Returns the peer at the other end of the connection. Raises Problem `not_a_neighbor`."""
    try:
        return peers.settle(exchange.connection, headers.get(HELLO))
    except TurnedAway as error:
        raise Problem("not_a_neighbor", str(error), headers=peers.who_this_is()) from None


def _query(exchange: Exchange) -> dict[str, list[str]]:
    """Returns the fields of the query. Raises ValueError where there are too many."""
    return parse_qs(exchange.query.decode("latin-1"), max_num_fields=QUERY_MAX)


def _refusal(name: str, refuse: Refuse) -> Problem:
    """Returns the refusal for a neighbor, which decides again. It never says that the deadline has
    passed, which would be an answer."""
    if refuse.reason is Refusal.TOO_LATE:
        refuse.reason = Refusal.QUEUE_FULL
    problem = problem_of(name, refuse)
    if refuse.load is not None:
        problem.headers.append((wire.LOAD, wire.encode_load(refuse.load)))
    if refuse.upstream_status is not None:
        problem.headers.append((wire.UPSTREAM_STATUS, b"%d" % refuse.upstream_status))
    return problem
