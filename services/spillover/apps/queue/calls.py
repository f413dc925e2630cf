"""The calls that carry objects, and those between producers (docs/queue.md): each is a coroutine
that sees one exchange through. Which call is which, and the rest, is in `app`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import Any, TypeAlias

from spillover.apps.http.asgi import Message, Send
from spillover.apps.http.doors import Doors
from spillover.apps.http.exchange import ClientGone, Exchange, body_too_slow, too_large
from spillover.apps.http.problems import Problem
from spillover.apps.queue.asked import (
    ExtendBody,
    NackBody,
    TakeBody,
    check_take,
    content_type,
    deadline_s,
    read_body,
    size_bytes_at_most,
)
from spillover.core.queue import events as ev
from spillover.live.http1.written import CLOSE
from spillover.live.process.logs import Message as LogLine
from spillover.live.process.logs import OncePerPeriod
from spillover.live.queue import wire
from spillover.live.queue.bodies import Damaged
from spillover.live.queue.client_wire import object_path
from spillover.live.queue.shell import QueueShell
from spillover.live.queue.store import FILE_BYTES_MIN
from spillover.model.access import ApiToken

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())

BODY_S = 60.0
"""The time that an object has to come once it is admitted: a place is held for it."""

MESSAGE_LIMIT_BYTES = 262_144
"""The largest message that is no object."""

RETRY_AFTER_S = 1.0

NOBODY = 0
"""The ref of no call: nobody waits for the answer."""

Call: TypeAlias = Callable[[Exchange, Send, str], Awaitable[None]]

REFUSED = {
    ev.Reason.QUEUE_FULL: "there was no place for the object before the deadline",
    ev.Reason.STORE_FULL: "the store has no room for the object: nothing was kept of it",
    ev.Reason.DRAINING: "the producer is draining",
}


class QueueCalls:
    """Those of one producer."""

    def __init__(
        self, shell: QueueShell, object_limit_bytes: int, doors: Doors | None = None
    ) -> None:
        self._shell = shell
        self._limit_bytes = object_limit_bytes
        self._doors = doors
        self.peers_messages: Mapping[str, Callable[[Exchange, bytes], None]] = {
            wire.PROBE_PATH: self._probe,
            wire.OFFER_PATH: self._peer_offer,
        }

    # --- objects ------------------------------------------------------------------------------

    async def offer(self, exchange: Exchange, _: Send, __: str) -> None:
        """POST /objects: wait for a place, then read the object, then have it kept."""
        kind, wait_s = content_type(exchange), deadline_s(exchange)
        if exchange.length_bytes > self._limit_bytes:
            raise too_large(self._limit_bytes, whole=False)
        shell = self._shell
        until_s = shell.now_s + wait_s
        size_bytes = size_bytes_at_most(exchange, self._limit_bytes)
        answer = await self._ask(
            exchange, lambda ref: ev.Offered(ref, until_s, size_bytes), ev.OfferGone
        )
        if isinstance(answer, int):  # the client has gone
            raise ClientGone
        if isinstance(answer, ev.RefuseOffer):
            raise _refused(answer.reason)
        try:
            content = await exchange.read_body(self._limit_bytes, BODY_S)
        except BaseException as error:
            shell.feed(ev.OfferGone(answer.ref))
            if isinstance(error, Problem) and error.reason == "deadline_exceeded":
                raise body_too_slow(BODY_S) from None  # it was asked for late, and came later
            raise
        kept = await shell.object_read(answer.ref, kind, content)
        if isinstance(kept, ev.RefuseOffer):
            raise _refused(kept.reason)
        assert isinstance(kept, ev.Accept)  # noqa: S101 - there is no third answer
        name = shell.object_id(kept.number)
        body = b'{"id":"%b","durable":%b}' % (
            name.encode(),
            b"true" if shell.bodies.is_durable else b"false",
        )
        exchange.answer(201, [(b"content-type", b"application/json")], body)

    async def fetch(self, exchange: Exchange, send: Send, grant: str) -> None:
        """GET /objects/{grant}: the object of an offer that was taken, once."""
        answer = await self._ask(exchange, lambda ref: ev.Fetched(ref, grant))
        if isinstance(answer, ev.Give):
            await self._give(exchange, send, answer)
        else:
            raise _unknown(grant)

    # --- consumers ----------------------------------------------------------------------------

    async def take(self, exchange: Exchange, send: Send, _: str) -> None:
        """POST /take."""
        shell = self._shell
        asked = read_body(await exchange.read_body(MESSAGE_LIMIT_BYTES, BODY_S), TakeBody)
        access = check_take(asked, shell.public_urls, shell.settings.id)
        if asked.probe_id in shell.machine.takes:
            problem = "expected the id of no probe that is under way"
            raise Problem("conflict", f"body.probe_id: {problem}, got {asked.probe_id!r}")
        begun_s = shell.now_s
        until_s = begun_s + deadline_s(exchange)
        answer = await self._ask(
            exchange,
            lambda ref: ev.Taken(
                ref,
                asked.probe_id,
                asked.consumer,
                asked.max_hops,
                access,
                asked.avoid_visited,
                until_s,
            ),
            ev.TakeGone,
        )
        match answer:
            case int():  # the client has gone
                raise ClientGone
            case ev.Give():
                shell.metrics.waited(shell.now_s - begun_s)
                await self._give(exchange, send, answer)
            case ev.Direct(_, offer):
                where = f"{shell.public_urls[offer.producer]}{object_path(offer.grant)}"
                headers = _of_grant(offer.grant, offer.producer, offer.probes)
                exchange.answer(303, [(b"location", where.encode()), *headers], b"")
                _leave(exchange)
                shell.metrics.waited(shell.now_s - begun_s)
            case ev.NoObject():
                headers = [(b"spillover-probes", b"%d" % answer.probes)]
                await _answer_empty(send, 204, headers)
            case ev.RefuseTake():
                detail = "the producer is draining"
                if answer.reason is not ev.Reason.DRAINING:
                    detail = "as many consumers wait here as there is room for"
                raise Problem(answer.reason.value, detail, retry_after_s=RETRY_AFTER_S)

    async def acknowledge(self, exchange: Exchange, send: Send, grant: str) -> None:
        """POST /grants/{grant}/ack. Its body is read, so that no malformed call acknowledges."""
        await exchange.read_body(MESSAGE_LIMIT_BYTES, BODY_S)
        await self._tell(send, grant, lambda ref: ev.Acked(ref, grant), settled=True)

    async def give_back(self, exchange: Exchange, send: Send, grant: str) -> None:
        """POST /grants/{grant}/nack, with a body or without."""
        asked = read_body(await exchange.read_body(MESSAGE_LIMIT_BYTES, BODY_S), NackBody)
        rest_s = None if asked.delay_ms is None else asked.delay_ms / 1e3
        await self._tell(send, grant, lambda ref: ev.Nacked(ref, grant, rest_s))

    async def extend(self, exchange: Exchange, send: Send, grant: str) -> None:
        """POST /grants/{grant}/extend, with a body or without."""
        asked = read_body(await exchange.read_body(MESSAGE_LIMIT_BYTES, BODY_S), ExtendBody)
        longer_s = None if asked.visibility_ms is None else asked.visibility_ms / 1e3
        await self._tell(send, grant, lambda ref: ev.Extended(ref, grant, longer_s))

    # --- between producers --------------------------------------------------------------------

    async def of_peer(self, exchange: Exchange, _: Send, __: str) -> None:
        """What a peer says, that comes in pieces."""
        self._check_caller(exchange)
        body = await exchange.read_body(MESSAGE_LIMIT_BYTES, BODY_S)
        self.peers_messages[exchange.path](exchange, body)

    def of_peer_whole(self, exchange: Exchange, body: bytes) -> None:
        """The same of what is here: a consumer waits for it, and a task would cost a quarter of its
        way through this producer."""
        self._check_caller(exchange)
        if len(body) > MESSAGE_LIMIT_BYTES:
            raise too_large(MESSAGE_LIMIT_BYTES, whole=True)
        self.peers_messages[exchange.path](exchange, body)

    def _probe(self, exchange: Exchange, body: bytes) -> None:
        """A peer's probe: 202, once what comes of it now has left."""
        probe = _read(wire.decode_probe, body)
        self._check_peer(probe.first)
        self._shell.feed(ev.ProbeCame(probe))
        exchange.answer(202, [], b"")

    def _peer_offer(self, exchange: Exchange, body: bytes) -> None:
        """A peer's object for a take that is held here."""
        offer = _read(wire.decode_offer, body)
        self._check_peer(offer.producer)
        self._check_caller(exchange, offer.producer)
        answer = self._shell.ask_now(lambda ref: ev.OfferCame(ref, offer))
        if answer is None:
            raise ClientGone  # nobody is here to answer
        headers = [(b"content-type", b"application/json")]
        exchange.answer(200, headers, wire.encode_taken(answer.taken))

    def _check_peer(self, name: str) -> None:
        if name not in self._shell.peers and name != self._shell.settings.id:
            raise Problem("not_a_neighbor", f"expected a producer that is a peer, got {name!r}")

    def _check_caller(self, exchange: Exchange, claimed: str | None = None) -> None:
        """Raise Problem unless a peer calls that has proved to be one, and the one that it claims
        to be, where producers have certificates."""
        certified = self._shell.certified
        if certified is None:
            return
        shown = exchange.connection.certificate
        if (why := certified.why_not(shown, claimed)) is not None:
            # On a new connection there may be one that holds.
            raise Problem("not_a_neighbor", why, headers=[CLOSE] if shown is None else [])

    # --- parts --------------------------------------------------------------------------------

    async def _ask(
        self,
        exchange: Exchange,
        make: Callable[[int], ev.Event],
        gone: Callable[[int], ev.Event] | None = None,
    ) -> Any:
        """What the machine answers; the ref alone if the client goes before that: that is `gone`
        then. Raises Problem if its API token does: for who is revoked nothing comes any more."""
        if self._doors is None or gone is None:
            return await self._shell.ask(make, exchange.watch, gone)
        while True:
            token = self._doors.enter(exchange)
            answer = await self._ask_for(token, exchange, make, gone)
            if exchange.disconnected or not isinstance(answer, int):
                return answer

    async def _ask_for(
        self,
        token: ApiToken | None,
        exchange: Exchange,
        make: Callable[[int], ev.Event],
        gone: Callable[[int], ev.Event],
    ) -> Any:
        """Ask as `_ask` does. Returns the ref alone also when the API token is no more what it
        was."""
        with ExitStack() as lasting:

            def watch(leave: Callable[[], None]) -> None:
                if self._doors is not None and token is not None:
                    lasting.enter_context(self._doors.access.lasting(token, leave))
                exchange.watch(leave)

            return await self._shell.ask(make, watch, gone)

    async def _tell(
        self, send: Send, grant: str, make: Callable[[int], ev.Event], *, settled: bool = False
    ) -> None:
        answer = await self._shell.ask(make)
        if not answer.known:
            raise _unknown(grant)
        if settled:
            await self._shell.bodies.settled()
        await _answer_empty(send, 204, [])

    async def _give(self, exchange: Exchange, send: Send, give: ev.Give) -> None:
        """Send the object. Whoever does not get all of it has got nothing."""
        shell = self._shell
        if give.number not in shell.bodies:  # acknowledged before it was given
            raise _unknown(give.grant)
        body = shell.bodies[give.number]
        headers = [
            (b"content-type", body.content_type.encode()),
            *_of_grant(give.grant, shell.settings.id, give.probes),
            (b"spillover-object", shell.object_id(give.number).encode()),
            (b"spillover-deliveries", b"%d" % shell.machine.objects.deliveries(give.number)),
            (b"spillover-visibility-ms", b"%.15g" % (shell.settings.visibility_s * 1e3)),
        ]
        whole = False
        try:
            shell.bodies.check(give.number)
            if body.content is not None and body.size_bytes <= FILE_BYTES_MIN:
                exchange.answer(200, headers, body.content)  # in one write
                _leave(exchange)
                shell.metrics.sent_bytes += body.size_bytes
                whole = not exchange.disconnected
            else:
                headers.append((b"content-length", b"%d" % body.size_bytes))
                pieces = shell.bodies.chunks(give.number)
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                await self._stream(exchange, send, give, pieces)
                whole = True  # a consumer that has all of it may close before it is told the end
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except Damaged as error:
            problem = store_damaged(error)
            raise (ClientGone if exchange.response_started else problem) from error
        finally:
            shell.feed(ev.Sent(give.grant, whole))
        # The system takes much that a consumer which has just died will never read.
        exchange.watch_reset(lambda: shell.feed(ev.ThrownAway(give.grant)))

    async def _stream(
        self,
        exchange: Exchange,
        send: Send,
        give: ev.Give,
        pieces: AsyncIterator[bytes | memoryview],
    ) -> None:
        """Send the object as fast as the consumer reads. The time of its grant does not run
        meanwhile."""
        shell = self._shell
        extended_s = shell.now_s
        async for piece in pieces:
            await exchange.connection.drained()
            if exchange.disconnected:  # before it could have all
                raise ClientGone
            await send(_piece(piece))
            # The loop says only at the end of its turn that the kernel takes no more.
            await asyncio.sleep(0)
            shell.metrics.sent_bytes += len(piece)
            if shell.now_s - extended_s > shell.settings.visibility_s / 4:
                extended_s = shell.now_s
                shell.feed(ev.Extended(NOBODY, give.grant))


def store_damaged(error: Damaged) -> Problem:
    """Tell operators, and return what is said to whoever wanted the object."""
    _log.error(LogLine("an object is damaged in the store", problem=str(error)))
    detail = "the object is damaged on the producer's disk; the producer's log tells where"
    return Problem("store_damaged", detail)


def _leave(exchange: Exchange) -> None:
    """Have the answer leave now. What else this turn of the loop does, a consumer need not wait
    for: the object whose place its own made free is read, and a peer hears that its offer is
    taken."""
    exchange.connection.writes.flush()


def _piece(piece: bytes | memoryview) -> Message:
    return {"type": "http.response.body", "body": piece, "more_body": True}


async def _answer_empty(send: Send, status: int, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _of_grant(grant: str, producer: str, probes: int) -> list[tuple[bytes, bytes]]:
    return [
        (b"spillover-grant", grant.encode()),
        (b"spillover-producer", producer.encode()),
        (b"spillover-probes", b"%d" % probes),
    ]


def _refused(reason: ev.Reason) -> Problem:
    return Problem(reason.value, REFUSED[reason], retry_after_s=RETRY_AFTER_S)


def _unknown(grant: str) -> Problem:
    detail = "expected a grant that is open here: it has ended, or is another producer's"
    return Problem("unknown_grant", detail, id=grant if grant.isprintable() else None)


def _read(decode: Callable[[bytes], Any], body: bytes) -> Any:
    try:
        return decode(body)
    except wire.MalformedMessage as error:
        raise Problem("invalid", f"body: {error}") from None
