"""A connection as a server has it: requests are read from it one after another, and what is bounded
of it is bounded whatever is behind it.

What a request means, and how it is answered, is the business of who derives from this: nodes,
producers and lease members in `apps.http.connection`, the door of a service in
`apps.node.door_connection`. Bytes become requests in `request_flow`, for both alike.
"""

from __future__ import annotations

import asyncio
import math
from typing import cast

from spillover.live.http1.bounds import Owner
from spillover.live.http1.half_closed import HalfClosed
from spillover.live.http1.heads import RequestHead
from spillover.live.http1.lingering import Lingering
from spillover.live.http1.request_flow import (
    AwaitsBody,
    Begun,
    Event,
    Late,
    Piece,
    Refused,
    RequestFlow,
    Whole,
)
from spillover.model.addresses import of_socket

AHEAD_MAX_BYTES = 65_536
"""A connection is not read on while more than this has come that nobody has taken: of a body, or
behind a request that is under way."""


class TooSlow(Exception):
    """A head that has begun is not whole in time, or a body comes too slowly (`of_body`)."""

    def __init__(self, within_s: float, bytes_per_s: float | None = None) -> None:
        super().__init__(f"expected the whole head of a request within {within_s:g} s")
        self.within_s = within_s
        self.bytes_per_s = bytes_per_s

    @property
    def of_body(self) -> bool:
        return self.bytes_per_s is not None


class ServerConnection(RequestFlow, asyncio.Protocol):
    """While a request is under way (`is_busy`) its body is read; what comes behind it waits, up to
    a limit, and is read to see whether the client is still there."""

    __slots__ = ("_is_feeding", "_owner", "client", "transport")

    transport: asyncio.Transport
    client: tuple[str, int] | None

    def __init__(self, owner: Owner) -> None:
        super().__init__(owner.bounds)
        self._owner = owner
        self._is_feeding = False

    # --- what is known to who derives from this -----------------------------------------------

    def begin(self, head: RequestHead) -> None:
        """A head has come. May raise what `refuse` takes."""
        raise NotImplementedError

    def whole(self, head: RequestHead, body: bytes, data: bytes) -> None:
        """Its request is there at once. `data` is all of it as it came, nothing if it came in
        parts. May raise what `refuse` takes."""
        raise NotImplementedError

    def take(self, piece: bytes, *, is_last: bool) -> None:
        """More of a body has come. May raise what `refuse` takes."""
        raise NotImplementedError

    def await_body(self, head: RequestHead) -> None:
        """Nothing has come of its body yet."""
        raise NotImplementedError

    def refuse(self, error: Exception) -> None:
        """What has come is not read on: answer, if an answer is due, and end."""
        raise NotImplementedError

    def be_the_last(self) -> None:
        """The answer that is due says that it is the last one, if it has not begun."""
        raise NotImplementedError

    def waits_half_closed(self) -> bool:
        """Returns whether a client may wait for the answer that is due that sends nothing more;
        then whether it does is found out."""
        raise NotImplementedError

    # --- what the loop tells ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.client = of_socket(transport.get_extra_info("peername"))
        self.await_request()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - all ends are alike
        if isinstance(self.transport, HalfClosed):
            self.transport.stop()
        self._body = None
        self._ahead = b""

    def data_received(self, data: bytes) -> None:
        if self._is_feeding:
            self._ahead += data
        else:
            self._feed(data)

    def eof_received(self) -> bool:
        """Returns whether to keep the connection although the other side sends nothing more: for
        answers to whole requests."""
        self._owner.flush()  # what closes now takes nothing along that is answered
        if self._is_last or self.transport.get_extra_info("ssl_object") is not None:
            return False  # TLS has no half-closed connections
        if self._body is not None or not (self.is_busy or self._ahead):
            return False
        if self.is_busy and not self.waits_half_closed():
            return False
        self.half_closed = True
        if not self._ahead:
            self.be_the_last()
        return True

    def begin_answer(self) -> None:
        """See whether anybody is there to read it, who sends nothing more."""
        if not isinstance(self.transport, HalfClosed):
            half = HalfClosed(self.transport, self._owner.loop)
            self.transport = cast("asyncio.Transport", half)

    def pause_writing(self) -> None:
        self.write_paused = True

    def resume_writing(self) -> None:
        self.write_paused = False
        if not self.is_busy:
            self.read_on()

    # --- reading ------------------------------------------------------------------------------

    @property
    def is_gone(self) -> bool:
        return self.transport.is_closing()

    @property
    def is_over(self) -> bool:
        """Returns whether nothing that comes is read any more."""
        return self._is_last or self.transport.is_closing()

    def _feed(self, data: bytes) -> None:
        """Go on with what has come, request by request, as long as each is answered at once."""
        self._is_feeding, clock = True, self._owner.clock
        event: Event | None = None
        try:
            while not self.transport.is_closing() and (events := self.receive(data, clock())):
                data = b""
                for event in events:
                    self._tell(event)
                    if self.transport.is_closing():
                        break
        except Exception as error:  # noqa: BLE001 - nothing behind this turns a bug into an answer
            self._ahead = b""
            if type(event) is Begun:
                self._body = None  # nothing of it is read
            self.refuse(error)
        finally:
            self._is_feeding = False
        if len(self._ahead) > AHEAD_MAX_BYTES and not self.is_over:
            self.pause_reading()
        is_short = self._body is not None or not self.is_busy
        if self.half_closed and is_short and not (self._ahead or self.is_over):
            self.close()  # what is there of another request will never be whole

    def _tell(self, event: Event) -> None:
        if type(event) is Whole:
            self.begin(event.head)
            self.whole(*event)
        elif type(event) is Piece:
            if event.is_last:
                self._await_next()
            self.take(event.data, is_last=event.is_last)
        elif type(event) is Begun:
            # Whoever ends the connection with its head wants nothing of it: that is not waited for.
            body, self._body = self._body, None
            self.begin(event.head)
            self._body = None if self.transport.is_closing() else body
        elif type(event) is AwaitsBody:
            self.await_body(event.head)
        elif type(event) is Refused:
            self.refuse(event.error)

    def end_body(self) -> None:
        """All of it has come."""
        self._body, self.due_s = None, math.inf
        self._await_next()

    def _await_next(self) -> None:
        """The request that has come whole may have been answered before."""
        if not self.is_busy:
            self.await_request()

    def pause_reading(self) -> None:
        """Leave what comes to the kernel."""
        if not self._read_paused:
            self._read_paused = True
            self.transport.pause_reading()

    def read_on(self) -> None:
        """Go on reading, if that was paused, and with what has come: unless the client has not read
        the last answers, which must not pile up."""
        if (self.write_paused and self._body is None) or self.is_over:
            return
        takes_more = self._body is not None or not self.is_busy
        if self._read_paused and (takes_more or len(self._ahead) <= AHEAD_MAX_BYTES):
            self._read_paused = False
            self.transport.resume_reading()
        if self._ahead and not (self.is_busy or self._is_feeding):
            # In another turn, lest a thousand requests in a row be answered within each other.
            self._owner.loop.call_soon(self._feed_ahead)

    def _feed_ahead(self) -> None:
        if not (self.is_busy or self._is_feeding or self.write_paused or self.is_over):
            data, self._ahead = self._ahead, b""
            self._feed(data)

    # --- what answers tell --------------------------------------------------------------------

    def answered(self, *, keep_alive: bool) -> None:
        """The answer to the request that is under way is written."""
        self.is_busy, owner = False, self._owner
        self.cut_s = math.inf
        if self.half_closed and not (self._ahead or self._is_feeding):
            keep_alive = False
        if not keep_alive or self._is_last:
            self._end()
            return
        if self._body is None:
            self.due_s = owner.clock() + min(owner.bounds.idle_s, owner.leaving_idle_s)
        if self._read_paused or self._ahead:
            self.read_on()

    def _end(self) -> None:
        """What was written last is the last answer. Where more may come, the client has the time to
        read it, though it may look up only once all is sent."""
        self._owner.flush()
        if not (self._is_last or self._body is not None) or self.half_closed or self.is_gone:
            self.close()
            return
        self._is_last, self._body, self.due_s = True, None, math.inf
        self.bound_exchange()
        lingering = Lingering(self, self.transport, self._owner.loop)
        self.transport = cast("asyncio.Transport", lingering)

    def end_now(self) -> None:
        """Nothing more is read, nor answered but by what is written."""
        self._is_last = True
        self._body = None
        self._end()

    def close(self) -> None:
        """Close it once all is sent that was written."""
        self._owner.flush()
        self.due_s = self._owner.clock() + self._owner.bounds.unread_s
        self.bound_exchange()
        self.transport.close()

    # --- bounds -------------------------------------------------------------------------------

    def await_request(self) -> None:
        """It is idle from now on."""
        owner = self._owner
        self.due_s = owner.clock() + min(owner.bounds.idle_s, owner.leaving_idle_s)

    def bound_exchange(self) -> None:
        """An exchange has begun, if none had."""
        exchange_s = self._owner.bounds.exchange_s
        if exchange_s is not None and self.cut_s == math.inf:
            self.cut_s = self._owner.clock() + exchange_s

    def leave(self) -> None:
        """Have the client go elsewhere, or stay after all, as the owner says: an answer that has
        not begun says that it is the last one, and who asks nothing is not kept for long."""
        if self.is_busy:
            if self._owner.leaving_idle_s != math.inf:
                self.be_the_last()
        elif self.is_between and not self.is_over:
            self.await_request()

    def too_late(self, now_s: float) -> None:
        """What was awaited has not come in time (`bounds.Due`)."""
        is_closing, bounds = self.transport.is_closing(), self._bounds
        match self.late(now_s, self.transport.get_write_buffer_size(), is_closing=is_closing):
            case Late.ABORT:
                self.transport.abort()
            case Late.CLOSE:
                self.close()
            case Late.HEAD:
                self.refuse(TooSlow(bounds.head_s))
            case Late.BODY:
                self.refuse(TooSlow(bounds.body_s, bounds.body_bytes_per_s))
