"""The future of an answer, for those who await. How an exchange runs is in `connection`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from spillover.live.http1.lines import LineSplitter
from spillover.live.http1.outgoing import OutgoingRequest, Response


class Awaited(asyncio.Future[Response]):
    """The future of an answer. Who cancels it ends the exchange in the same breath: what has not
    been sent by then never is."""

    exchange: OutgoingRequest | None = None

    def settle(self, came_to: Response | BaseException) -> None:
        """Take the result of an exchange, as its `on_end`."""
        if self.done():
            return
        if isinstance(came_to, Response):
            self.set_result(came_to)
        else:
            self.set_exception(came_to)

    def cancel(self, msg: Any | None = None) -> bool:
        cancelled = super().cancel(msg)
        if self.exchange is not None:
            self.exchange.cancel()
        return cancelled


async def while_heard(
    exchange: OutgoingRequest, lines: LineSplitter, answer: Awaited, silence_s: float
) -> None:
    """Wait for the end of a stream, and break it off when no line is complete for `silence_s`:
    bytes alone say nothing."""
    rest_s = silence_s
    while not answer.done():
        await asyncio.wait([answer], timeout=rest_s)
        if exchange.connection is None:
            continue  # it has ended, or not been sent, which the connect timeout bounds
        rest_s = max(exchange.sent_s, lines.heard_s) + silence_s - time.monotonic()
        if rest_s <= 0:
            exchange.break_off(f"no line arrived for {silence_s:g} s")
