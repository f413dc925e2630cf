"""The calling side of the connections that forwards to one neighbor share.

One connection is open, ahead of need. A second one opens while the first ends and takes no more:
since its other end leaves, since certificates have changed, or since it has carried as many
requests as it can.

`frames` has the kinds of requests and answers, which are not known here.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import msgspec

from spillover.live.engine.write_batch import Buffer
from spillover.live.http1.acknowledged import told_of
from spillover.live.http1.client import HttpClient, Response
from spillover.live.http1.connection import Connection
from spillover.live.http1.outgoing import SwitchingRequest
from spillover.live.http1.securing import Retired
from spillover.live.overflow.frames.caller import STREAMS_MAX, Caller
from spillover.live.overflow.frames.frame import BEGIN, BROKEN, MORE, REFUSED
from spillover.live.overflow.protocol import PROBLEM, SHARED, UPGRADE
from spillover.live.overflow.shared_connection import CALLER, SharedConnection, SharedCounts
from spillover.model.errors import UNREADABLE, OutcomeUnknown

OPENED_WITHIN_S: Final = 5.0
"""The time, in seconds, within which the other end must answer that a connection is shared."""

ANSWER_LIMIT_BYTES: Final = 67_108_864
"""The longest answer, in bytes."""

NOT_LEFT: Final = 0
"""The kind that ends a call which has waited for a connection. Nothing of it has left, and now a
connection is open, or none is shared. The request is to be sent anew, with the times of now."""

TURNED_AWAY: Final = frozenset({403, 408, 429, 503})
"""The statuses by which a node that shares connections shares none now: the request surely does not
run there. Any other answer is that of something on the way that does not know how to share."""

UNANSWERED_MAX: Final = 3
"""The number of questions in a row without an answer after which something on the way counts as not
letting the shared connection through."""

OnTold: TypeAlias = Callable[[int, bytes], None]
"""A callable that takes a kind of frame and its content."""


@dataclass(slots=True, eq=False)
class SharedCall:
    """One request on its way, or on its way back."""

    on_told: OnTold | None
    """The callable that takes what `Caller.receive` tells of the call; None once nobody waits for
    it."""
    number: int = 0
    sent_s: float = 0.0
    on_piece: Callable[[bytes], None] | None = None
    """The callable that takes the pieces of an answer that has begun; `on_told` sets it then."""
    line: _CallingConnection | None = None
    """The connection by which the call leaves; None before there is one."""

    def tell(self, kind: int, told: bytes = b"") -> None:
        """End the call with this kind of frame and its content."""
        on_told, self.on_told = self.on_told, None
        if on_told is not None:
            on_told(kind, told)

    def cancel(self) -> None:
        """Tell the neighbor that nobody waits for the call any more."""
        self.on_told, line = None, self.line
        if line is not None and line.calls.pop(self.number, None) is not None:
            line.caller.drop(self.number)
            line.write_soon()
            line.end_if_done()

    def ask_cancel(self) -> bool:
        """Ask for the call to be cancelled. Returns whether its answer will tell how it ended;
        otherwise it surely has not run, and nothing more is told of it."""
        line = self.line
        if line is not None and line.caller.cancel(self.number):
            line.write_soon()
            return True
        self.cancel()
        return False

    def pause(self) -> None:
        """Have no more of the answer come than is on its way."""
        if self.line is not None:
            self.line.caller.pause(self.number)
            if self.line.out.soon_bytes:
                self.line.write_soon()

    def resume(self) -> None:
        if self.line is not None:
            self.line.caller.resume(self.number)
            self.line.write_soon()


class _CallingConnection(SharedConnection):
    """One shared connection, and the calls that are under way on it."""

    def __init__(self, owner: Connection, exchange: SwitchingRequest) -> None:
        self.caller = Caller(ANSWER_LIMIT_BYTES)
        super().__init__(owner.transport, self.caller.out)
        self.calls: dict[int, SharedCall] = {}
        self.is_retired = False
        """Whether no more calls begin on it."""
        self._owner = owner
        self._exchange = exchange
        self._has_ended = False
        """Whether the other end has closed it."""
        told = told_of(self.transport)
        is_plain = self.transport.get_extra_info("ssl_object") is None
        self._before_bytes = told.acknowledged if is_plain and told is not None else None
        """The number of bytes that had been written before; None where the system does not tell
        what has left since."""

    @property
    def is_over(self) -> bool:
        """Returns whether no more calls will begin on it."""
        return self.is_retired or self.caller.is_over

    def data_received(self, data: bytes) -> None:
        caller, calls = self.caller, self.calls
        events = caller.receive(data)
        self.frames_received += len(events)
        for kind, number, told in events:
            if kind == MORE:
                call = calls.get(number)
                if call is not None and call.on_piece is not None:
                    call.on_piece(told)
            elif kind == BEGIN:
                call = calls.get(number)
                if call is not None and call.on_told is not None:
                    call.on_told(kind, told)
            elif (call := calls.pop(number, None)) is not None and call.on_told is not None:
                on_told, call.on_told = call.on_told, None
                on_told(kind, told)
        if caller.out.soon_bytes:
            self.write_soon()
        if caller.reader.fault is not None:
            self._exchange.cannot_read(caller.reader.fault)
        elif caller.is_leaving or self.is_retired:
            self.end_if_done()

    def eof_received(self) -> None:
        self._has_ended = True

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.connection_lost(exc)

    def retire(self) -> None:
        """Begin no more calls on it, and close it once all are answered."""
        self.is_retired = True
        self.end_if_done()

    def end_if_done(self) -> None:
        """Close it if no call is under way and no more will begin."""
        if not self.calls and self.is_over:
            self._exchange.break_off("it has carried what it was for")

    def lose(self) -> None:
        """End the calls of a connection that has ended. A request that had not left whole surely
        does not run; one that had may run."""
        told = told_of(self.transport)
        left_bytes = float(self.out.written_bytes)
        if told is not None and self._before_bytes is not None:
            known_bytes = told.acknowledged if self._has_ended else told.left
            left_bytes = min(left_bytes, known_bytes - self._before_bytes)
        calls, self.calls = self.calls, {}
        lost, undelivered = self.caller.lost(left_bytes)
        for kind, numbers in ((REFUSED, undelivered), (BROKEN, lost)):
            for number in numbers:
                if number in calls:
                    calls.pop(number).tell(kind)
        for call in calls.values():  # a bug has kept their ends from being told
            call.tell(BROKEN)


class SharedCalls:
    """The shared calls to one neighbor, over connections of `client`. `on_fault` gets the reason
    why a connection was ended by frames that may not come."""

    def __init__(
        self, client: HttpClient, counts: SharedCounts, on_fault: Callable[[str], None]
    ) -> None:
        self._counts = counts
        self._client = client
        self._on_fault = on_fault
        self.is_shared = True
        """Whether connections are shared, as far as is known."""
        self._line: _CallingConnection | None = None
        self.lines: set[_CallingConnection] = set()
        self._opening: SwitchingRequest | None = None
        self._waiting: deque[SharedCall] = deque()
        self._is_closed = False
        self._unanswered = 0
        """The number of times in a row that a question for a connection has got no answer."""

    def open(self) -> None:
        """Open a connection, unless there is one or will be."""
        line = self._line
        if self._is_closed or self._opening is not None or not (line is None or line.is_over):
            return
        if line is not None:
            line.retire()
        self._line = None
        opening = self._client.switch(
            SHARED, UPGRADE, self._switched, self._came_to, timeout_s=OPENED_WITHIN_S
        )
        if opening.on_end is not None:  # else it has failed at once
            self._opening = opening

    def call(self, kind: int, parts: tuple[Buffer, ...], on_told: OnTold) -> SharedCall:
        """Hand a request over. If no connection is open yet, one will be, and `on_told` gets
        NOT_LEFT then. `on_told` may be called before this returns."""
        call, line = SharedCall(on_told), self._line
        if line is not None and not line.is_retired and (number := line.caller.call(kind, parts)):
            call.line, call.sent_s, call.number = line, time.monotonic(), number
            line.calls[number] = call
            line.write_soon()
        elif self._is_closed or (line is not None and not line.is_over):
            call.tell(REFUSED)  # as many calls are under way, or as much, as may be
        elif len(self._waiting) >= STREAMS_MAX:
            call.tell(REFUSED)
        else:
            self._waiting.append(call)
            self.open()
        return call

    def retire(self) -> None:
        """Have each open connection close once all calls on it are answered."""
        for line in list(self.lines):
            line.retire()

    def close(self) -> None:
        """Begin no more calls. Those under way end with the client's connections."""
        self._is_closed = True
        self._tell_waiting(REFUSED)

    def _switched(self, exchange: SwitchingRequest, opened: Connection, data: bytes) -> None:
        self._opening = None
        self._unanswered = 0
        self._line = line = _CallingConnection(opened, exchange)
        exchange.on_retire = line.retire
        exchange.on_end = partial(self._ended, line)
        self.lines.add(line)
        self._counts.open[CALLER].add(line)
        line.take_over()
        if data:
            line.data_received(data)
        if isinstance(opened.pool, Retired):  # certificates have changed since it was asked for
            self._line = None
            line.retire()
            if self._waiting:
                self.open()
            return
        self._tell_waiting(NOT_LEFT)

    def _ended(self, line: _CallingConnection, _: Response | BaseException) -> None:
        self.lines.discard(line)
        self._counts.ended(line)
        if self._line is line:
            self._line = None
        if line.caller.reader.fault is not None:
            self._on_fault(line.caller.reader.fault)
        line.lose()

    def _came_to(self, came_to: Response | BaseException) -> None:
        """Take an answer that shares no connection, or the error in its place."""
        self._opening = None
        self._unanswered += isinstance(came_to, OutcomeUnknown)
        if isinstance(came_to, Response):
            is_refused = came_to.status in TURNED_AWAY and _is_of_a_node(came_to)
        else:
            is_refused = self._unanswered < UNANSWERED_MAX
        self.is_shared = is_refused
        self._tell_waiting(REFUSED if is_refused else NOT_LEFT)

    def _tell_waiting(self, kind: int) -> None:
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            call.tell(kind)


def _is_of_a_node(refusal: Response) -> bool:
    """Returns whether the refusal comes from the neighbor itself, and not from a proxy or a gateway
    before it."""
    if refusal.headers.get(b"content-type") != PROBLEM:
        return False
    try:
        told = msgspec.json.decode(refusal.body)
    except UNREADABLE:
        return False
    return isinstance(told, dict) and isinstance(told.get("reason"), str)
