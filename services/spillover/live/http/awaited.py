"""The future of an answer, for those who await. How an exchange runs is in `connection`."""

from __future__ import annotations

import asyncio
from typing import Any

from spillover.live.http.connection import OutgoingRequest, Response


class Awaited(asyncio.Future[Response]):
    """The future of an answer. Who cancels it ends the exchange in the same breath: what has not
    been sent by then never is."""

    exchange: OutgoingRequest | None = None

    def settle(self, came_to: Response | BaseException) -> None:
        """As an exchange's `on_end`."""
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
