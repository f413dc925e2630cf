"""The connection on which a neighbor gets an answer that passes through: chunks of HTTP with frames
in them. What frames are is known to `live.overflow`.
"""

from __future__ import annotations

from collections.abc import Callable

from spillover.apps.http.exchange import STATUS_LINE, Exchange
from spillover.live.engine.write_batch import JOIN_LIMIT_BYTES
from spillover.live.overflow.protocol import STREAM
from spillover.live.overflow.wire import Stay

_HEAD = b"%bcontent-type: %b\r\ntransfer-encoding: chunked\r\n" % (STATUS_LINE[200], STREAM)


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

    def whole(self, frames: tuple[bytes, bytes, bytes]) -> None:
        """Of `passed_back.Outlet`: one chunk, which leaves with other answers of the turn."""
        exchange = self._exchange
        before, body, after = frames
        size_bytes = len(before) + len(body) + len(after)
        told = (_HEAD, _closes(exchange), exchange.header_lines, size_bytes, before)
        head, last = b"%b%b%b\r\n%x\r\n%b" % told, after + b"\r\n0\r\n\r\n"
        if len(body) <= JOIN_LIMIT_BYTES:
            exchange.answer_as_it_is(head + body + last)
        else:
            exchange.answer_as_it_is(head, body, last)

    def break_off(self) -> None:
        """Of `passed_back.Outlet`."""
        self._exchange.break_off()

    def stay(self, now_s: float, waited_s: float) -> Stay:
        """Of `passed_back.Outlet`."""
        return Stay(now_s - self._received_s, self._read_s - self._received_s, waited_s)


def _closes(exchange: Exchange) -> bytes:
    return b"" if exchange.keep_alive else b"connection: close\r\n"
