"""The shared connections on which neighbors hand requests over. Requests in frames are taken as
those by POST are (`peer_paths`), and answered in frames.

The peer of a connection is settled before it is shared, and checked again with each request: a
neighbor may leave, and a certificate end.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from spillover.apps.http.problems import Problem
from spillover.core.overflow.events import BytesMoving, CancelAsked
from spillover.live.http1.keepalive import keep_alive
from spillover.live.overflow import passed_wire, wire
from spillover.live.overflow.foreign_requests import Asker
from spillover.live.overflow.frames.callee import Callee
from spillover.live.overflow.frames.caller import STREAMS_MAX
from spillover.live.overflow.frames.frame import (
    ANSWER,
    CANCEL,
    CHUNK_BYTES,
    DROP,
    FORWARD,
    PASS,
    WHOLE,
)
from spillover.live.overflow.identity import Peer, TurnedAway
from spillover.live.overflow.metrics import FRAME, REQUEST
from spillover.live.overflow.protocol import SHARED
from spillover.live.overflow.shared_connection import CALLEE, SharedConnection
from spillover.live.overflow.shell import NodeShell
from spillover.live.overflow.waiters import Told
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.live.tls.certified import PeerCertificate
from spillover.model.request import Answer, Request

READ_S: Final = 10.0
"""The time, in seconds, that a neighbor has to send all of a request."""

UNREAD_S: Final = 60.0
"""The longest time, in seconds, for which a neighbor may read nothing of what was written."""

UNREAD_MAX_BYTES: Final = 1_048_576
"""The number of unread bytes from which on a neighbor's requests are refused. What it sends is read
all the same: a system gives a connection up whose other end takes nothing."""

SOON_MAX_BYTES: Final = 16_777_216
"""Nothing more is read of a neighbor that leaves more than this unread of what is short: some
frames of a few bytes are answered without a request."""

NOT_TAKEN: Final = -1
"""The ref of a request that is about to be taken."""

READ_BY: Final = {FORWARD: wire.decode_forward, PASS: passed_wire.decode_pass}
"""The function that reads a request that is handed over, by its kind."""

LAST_WORDS_S: Final = 0.5
"""The time, in seconds, that a neighbor has to close a connection on which nothing is under way any
more."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class Check(Protocol):
    """A check whether a request of this neighbor may be taken; it raises Problem if not."""

    def __call__(self, kind: int, request: Request, peer: Peer) -> None: ...


class SharedCaller(SharedConnection):
    """A connection on which a neighbor hands requests over. For its server it is a connection like
    any other, except that none of its bounds is the server's (`bounds.Due`)."""

    due_s = cut_s = math.inf

    def __init__(
        self,
        shell: NodeShell,
        transport: asyncio.Transport,
        peer: Peer,
        certificate: PeerCertificate | None,
        check: Check,
        limits_bytes: dict[int, int],
    ) -> None:
        self._callee = callee = Callee(limits_bytes)
        super().__init__(transport, callee.out)
        self._shell = shell
        self.peer: Peer | None = peer
        self.certificate = certificate
        self._check = check
        self.on_end: Callable[[], None] | None = None
        """The function to call when it has ended."""
        self._refs: dict[int, int] = {}
        """The requests that are under way, by their numbers."""
        self._unread_refusals = 0
        """The number of requests that were refused because the neighbor has not read."""
        self._shuts_down = False
        self._has_ended = False
        """Whether nothing more is sent."""
        self._is_lost = False
        self._moving_bytes = 0
        """The number of bytes here that count as moving."""
        self._timer: asyncio.TimerHandle | None = None
        """The timer that ends requests which do not come whole in time."""
        self._unread: asyncio.TimerHandle | None = None
        opened = transport.get_extra_info("socket")
        if opened is not None:
            keep_alive(opened, UNREAD_S)
        self._counts = shell.neighborhood.clients.shared
        self._counts.open[CALLEE].add(self)

    # --- what the server tells ----------------------------------------------------------------

    def leave(self) -> None:
        """Do nothing: reports say where a neighbor is to send its work."""

    def shutdown(self) -> None:
        """End the connection once all that is under way is answered."""
        if self._shuts_down:
            return
        self._shuts_down = True
        self._callee.leave()
        self.write_soon()
        self._loop.call_later(LAST_WORDS_S, self._end_if_done)

    def _end_if_done(self) -> None:
        if self.transport.is_closing():
            return
        if len(self._callee) or self.out.unsent_bytes:
            self._loop.call_later(LAST_WORDS_S, self._end_if_done)
        elif self.transport.can_write_eof() and not self._has_ended:
            # Closed now, it would be reset by what comes meanwhile, and the last answers with it.
            self._has_ended = True
            self.transport.write_eof()
            self._loop.call_later(LAST_WORDS_S, self._end_if_done)
        else:
            self.transport.close()

    # --- what the loop tells ------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        callee, received_s = self._callee, self._shell.timers.clock()
        events = callee.receive(data, received_s)
        self.frames_received += len(events)
        for kind, number, told in events:
            if kind in (FORWARD, PASS):
                self._take(kind, number, told, received_s)
            elif kind == CANCEL:
                if (ref := self._refs.get(number)) is not None:
                    self._shell.feed(CancelAsked(ref))
            elif kind == DROP and (ref := self._refs.pop(number, None)) is not None:
                self._shell.requests.foreign.abandon(ref)
        out = self.out
        if out.soon_bytes or out.waiting_bytes:
            self.write_soon()
        if out.is_blocked and out.soon_bytes > SOON_MAX_BYTES and self.transport.is_reading():
            self.transport.pause_reading()
        if callee.reader.fault is not None:
            self._end_for(callee.reader.fault)
        elif callee.begun or self._moving_bytes or out.is_blocked:
            self._count()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()
        self._count()

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        super().resume_writing()
        self._unread_refusals = 0
        if not self.transport.is_reading():
            self.transport.resume_reading()
        self._count()

    def _await_reader(self) -> None:
        unread_bytes = self.transport.get_write_buffer_size()
        self._unread = self._loop.call_later(UNREAD_S, self._look_at_reader, unread_bytes)

    def _look_at_reader(self, unread_bytes: int) -> None:
        if self.transport.get_write_buffer_size() < unread_bytes:  # it is read, slowly
            self._await_reader()
        else:
            self.transport.abort()

    def wait_unread(self) -> None:
        """Count the bytes that are unread."""
        self._count()

    def connection_lost(self, _: Exception | None) -> None:
        self._counts.ended(self)
        for timer in (self._timer, self._unread):
            if timer is not None:
                timer.cancel()
        self._is_lost = True
        self._tell_moving()
        refs, self._refs = self._refs, {}
        for ref in refs.values():
            self._shell.requests.foreign.abandon(ref)
        if self.on_end is not None:
            self.on_end()

    # --- requests -----------------------------------------------------------------------------

    def _take(self, kind: int, number: int, body: bytes, read_s: float) -> None:
        """Take a request, or refuse it. A bug ends that request, and not all of them."""
        begun_s = self._callee.begun_s(number) if len(body) > CHUNK_BYTES else read_s
        if begun_s is None:
            return  # the request was dropped in the same read
        try:
            if self.out.is_blocked and self.out.unsent_bytes > UNREAD_MAX_BYTES:
                self._refuse_unread(number)
                return
            forwarded = READ_BY[kind](body)
            peer = self._shell.neighborhood.peers.settle(self, None)
            self._check(kind, forwarded.request, peer)
            settled = partial(self._settled, number, (begun_s, read_s))
            asker = Asker(settled, partial(self.break_off, number))
            passes = kind == PASS
            outlet = _Outlet(self, self._callee, number, begun_s, read_s) if passes else None
            self._refs[number] = NOT_TAKEN
            told = forwarded, begun_s + forwarded.remaining_s, peer.neighbor, asker, outlet
            ref = self._shell.requests.foreign.take(*told)
            if number in self._refs:  # else the request is settled already
                self._refs[number] = ref
        except wire.MalformedMessage as error:
            self._complain(REQUEST, str(error))
            self._callee.refuse(number, wire.encode_refused("invalid"))
        except TurnedAway:
            self._callee.refuse(number, wire.encode_refused("not_a_neighbor"))
            self.shutdown()  # on another connection the caller names itself anew
        except Problem as problem:
            self._callee.refuse(number, wire.encode_refused(problem.reason))
        except Exception:  # noqa: BLE001 - see above
            _log.exception(Message("internal error", path=SHARED))
            self.break_off(number)

    def _refuse_unread(self, number: int) -> None:
        """Refuse one more request of a neighbor that does not read. It may send STREAMS_MAX at most
        before it reads; after that it is not read any more."""
        self._unread_refusals += 1
        if self._unread_refusals > STREAMS_MAX and self.transport.is_reading():
            self.transport.pause_reading()
        self._callee.refuse(number, wire.encode_refused("queue_full"))

    def has_ended(self, number: int) -> None:
        """Forget a request, as the end of its answer, which passes through, leaves."""
        self._refs.pop(number, None)
        self.write_soon()

    def _settled(
        self, number: int, times: tuple[float, float], ref: int, told: Told, waited_s: float
    ) -> None:
        """Tells the neighbor the outcome of its request; None says that the node has ended before.
        The machine's shell calls this, so that a bug in here must not bring it down."""
        self._refs.pop(number, None)
        try:
            if isinstance(told, Answer):
                received_s, read_s = times
                held_s = self._shell.timers.clock() - received_s
                stay = wire.Stay(held_s, read_s - received_s, waited_s)
                self._callee.answer(number, ANSWER, (wire.encode_answer(told, stay),))
            elif told is not None:
                # Its deadline is for its sender to tell.
                told_refusal = told.reason.value, told.load, told.upstream_status
                self._callee.refuse(number, wire.encode_refused(*told_refusal))
            elif self._shell.machine.surely_never_ran(ref):
                self._callee.refuse(number, wire.encode_refused("draining"))
            else:
                self._callee.break_off(number)
        except Exception:  # noqa: BLE001 - as above
            _log.exception(Message("internal error", path=SHARED))
            self._callee.break_off(number)
        self.write_soon()

    def break_off(self, number: int, why: bytes = b"") -> None:
        """Break an answer off that is lost on the emulated link, or never will be whole."""
        self._refs.pop(number, None)
        self._callee.break_off(number, why)
        self.write_soon()

    # --- bounds -------------------------------------------------------------------------------

    def _count(self) -> None:
        """Count the bytes of requests that are not whole, and the bytes that the neighbor does not
        read. Requests for which there is no room are refused."""
        self._tell_moving()
        callee, moving = self._callee, self._shell.room.moving
        if callee.held_bytes and moving.is_too_much:
            wanted_bytes = max(one.whole_bytes for one in callee.begun.values())
            self._refuse(list(callee.begun), "queue_full")
            self._shell.feed(BytesMoving(moving.bytes, wanted=wanted_bytes))
        elif callee.begun and self._timer is None:
            self._timer = self._loop.call_later(READ_S, self._look)

    def _look(self) -> None:
        """Refuse the requests that have not come whole in time."""
        self._timer = None
        self._refuse(
            self._callee.begun_before(self._shell.timers.clock() - READ_S), "body_too_slow"
        )
        if self._callee.begun:
            self._timer = self._loop.call_later(READ_S / 4, self._look)

    def _refuse(self, numbers: list[int], reason: str) -> None:
        for number in numbers:
            self._callee.refuse(number, wire.encode_refused(reason))
        self.write_soon()
        self._tell_moving()

    def _tell_moving(self) -> None:
        """Tell the node how many bytes are here. Once the connection is lost, there are none, also
        of answers that come later."""
        moving_bytes = 0
        if not self._is_lost:
            unread_bytes = self.out.unsent_bytes if self.out.is_blocked else 0
            moving_bytes = self._callee.held_bytes + unread_bytes
        self._shell.room.moving.add(moving_bytes - self._moving_bytes)
        self._moving_bytes = moving_bytes

    def _complain(self, what: str, reason: str) -> None:
        neighbor = "" if self.peer is None else self.peer.caller.cluster
        self._shell.metrics.peer_refused(neighbor, what)
        told = {"neighbor": neighbor, "message": what, "reason": reason}
        _log.warning(Message("neighbor is not understood", **told))

    def _end_for(self, fault: str) -> None:
        """End the connection for a frame that may not come: frames behind it would mean nothing."""
        if not self.transport.is_closing():
            self._complain(FRAME, fault)
            self.transport.abort()


@dataclass(frozen=True, slots=True)
class _Outlet:
    """The outlet of an answer that passes through (`passed_back.Outlet`). Frames of the connection
    say what the heads of `passed_wire`'s frames would."""

    line: SharedCaller
    callee: Callee
    number: int
    received_s: float
    read_s: float

    def begin(self, frame: bytes, on_flow: Callable[[bool], None]) -> None:
        self.callee.begin(self.number, frame[passed_wire.FRAME.size :], on_flow)
        self.line.write_soon()

    def write(self, data: bytes) -> None:
        self.callee.piece(self.number, data)
        self.line.write_soon()

    def end(self, frame: bytes) -> None:
        self.callee.end(self.number, frame[passed_wire.FRAME.size :])
        self.line.has_ended(self.number)

    def whole(self, message: bytes) -> None:
        self.callee.answer(self.number, WHOLE, (message,))
        self.line.has_ended(self.number)

    def break_off(self, why: bytes) -> None:
        """End the answer in its midst."""
        self.line.break_off(self.number, why)

    def stay(self, now_s: float, waited_s: float) -> wire.Stay:
        """Returns how long the request has been here, and waited on the way back."""
        return wire.Stay(now_s - self.received_s, self.read_s - self.received_s, waited_s)
