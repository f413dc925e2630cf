"""The connection on which a neighbor gets an answer that passes through: chunks of HTTP with frames
in them, or a message. `live.overflow` knows what those are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spillover.apps.http.exchange import Exchange
from spillover.live.engine.write_batch import JOIN_LIMIT_BYTES
from spillover.live.http1.heads import CHUNKED
from spillover.live.http1.written import STATUS_LINE, answer_head
from spillover.live.overflow.passed_wire import piece_head
from spillover.live.overflow.protocol import STREAM
from spillover.live.overflow.relay import UNSENT_MAX_BYTES, UNSENT_RESUME_BYTES
from spillover.live.overflow.wire import Stay

_STREAM_LINE = b"content-type: %b\r\n" % STREAM


@dataclass(frozen=True, slots=True)
class PassedOutlet:
    """The outlet for one exchange."""

    exchange: Exchange
    received_s: float
    """The time when the head of the exchange's request had come."""
    read_s: float
    """The time when its body had come."""

    def begin(self, frame: bytes, on_flow: Callable[[bool], None]) -> None:
        """Begin the answer with this frame (`passed_back.Outlet`)."""
        exchange = self.exchange
        told = STATUS_LINE[200], _STREAM_LINE + exchange.header_lines, CHUNKED
        head = answer_head(*told, keep_alive=exchange.keep_alive, is_old=False)
        if exchange.is_gone:
            return
        exchange.connection.transport.set_write_buffer_limits(UNSENT_MAX_BYTES, UNSENT_RESUME_BYTES)
        exchange.begin(b"%b%x\r\n%b\r\n" % (head, len(frame), frame), on_flow)

    def write(self, data: bytes) -> None:
        """Write a piece as one frame in one chunk (`passed_back.Outlet`)."""
        frame_head = piece_head(len(data))
        size_bytes = len(frame_head) + len(data)
        if size_bytes <= JOIN_LIMIT_BYTES:
            self.exchange.write(b"%x\r\n%b%b\r\n" % (size_bytes, frame_head, data))
        else:
            self.exchange.write(b"%x\r\n%b" % (size_bytes, frame_head), data, b"\r\n")

    def end(self, frame: bytes) -> None:
        """Write the last frame, and end the answer (`passed_back.Outlet`)."""
        self.exchange.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(frame), frame))
        self.exchange.end()

    def whole(self, message: bytes) -> None:
        """Answer with all at once, together with other answers of the turn
        (`passed_back.Outlet`)."""
        self.exchange.answer_raw(200, _STREAM_LINE, message)

    def break_off(self, _: bytes) -> None:
        """Close the connection in the midst of the answer (`passed_back.Outlet`)."""
        self.exchange.break_off()

    def stay(self, now_s: float, waited_s: float) -> Stay:
        """Returns how long the request has been here, and waited on the way back
        (`passed_back.Outlet`)."""
        return Stay(now_s - self.received_s, self.read_s - self.received_s, waited_s)
