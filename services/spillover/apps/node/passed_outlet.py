"""The connection on which a neighbor gets an answer that passes through: chunks of HTTP with frames
in them, or a message. What those are is known to `live.overflow`.
"""

from __future__ import annotations

from collections.abc import Callable

from spillover.apps.http.exchange import STATUS_LINE, Exchange
from spillover.live.engine.write_batch import JOIN_LIMIT_BYTES
from spillover.live.overflow.protocol import STREAM
from spillover.live.overflow.relay import UNSENT_MAX_BYTES, UNSENT_RESUME_BYTES
from spillover.live.overflow.wire import Stay

_STREAM_LINE = b"content-type: %b\r\n" % STREAM
_HEAD = b"%b%btransfer-encoding: chunked\r\n" % (STATUS_LINE[200], _STREAM_LINE)


class PassedOutlet:
    """Of one exchange, whose head came at `received_s` and its body until `read_s`."""

    __slots__ = ("_exchange", "_read_s", "_received_s")

    def __init__(self, exchange: Exchange, received_s: float, read_s: float) -> None:
        self._exchange = exchange
        self._received_s = received_s
        self._read_s = read_s

    def begin(self, frame: bytes, on_flow: Callable[[bool], None]) -> None:
        """Of `passed_back.Outlet`."""
        exchange = self._exchange
        told = (_HEAD, _closes(exchange), exchange.header_lines, len(frame), frame)
        if exchange.is_gone:
            return
        exchange.connection.transport.set_write_buffer_limits(UNSENT_MAX_BYTES, UNSENT_RESUME_BYTES)
        exchange.begin(b"%b%b%b\r\n%x\r\n%b\r\n" % told, on_flow)

    def write(self, frame_head: bytes, data: bytes) -> None:
        """Of `passed_back.Outlet`: one chunk."""
        size_bytes = len(frame_head) + len(data)
        if size_bytes <= JOIN_LIMIT_BYTES:
            self._exchange.write(b"%x\r\n%b%b\r\n" % (size_bytes, frame_head, data))
        else:
            self._exchange.write(b"%x\r\n%b" % (size_bytes, frame_head), data, b"\r\n")

    def end(self, frame: bytes) -> None:
        """Of `passed_back.Outlet`."""
        self._exchange.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(frame), frame))
        self._exchange.end()

    def whole(self, message: bytes) -> None:
        """Of `passed_back.Outlet`: it leaves with other answers of the turn."""
        self._exchange.answer_raw(200, _STREAM_LINE, message)

    def break_off(self) -> None:
        """Of `passed_back.Outlet`."""
        self._exchange.break_off()

    def stay(self, now_s: float, waited_s: float) -> Stay:
        """Of `passed_back.Outlet`."""
        return Stay(now_s - self._received_s, self._read_s - self._received_s, waited_s)


def _closes(exchange: Exchange) -> bytes:
    return b"" if exchange.keep_alive else b"connection: close\r\n"
