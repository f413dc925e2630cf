"""One answer that many are given in the same turn of the loop, encoded once for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from spillover.model.request import Answer

WORTH_BYTES = 16_384
"""Less than that is copied into each write anyway."""


class EncodedOnce:
    """A thousand clients that wait for a result of a mebibyte must not hold a thousand copies of
    it. Keeps the last one to the end of the turn, and no longer."""

    __slots__ = ("_answer", "_body", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._answer: Answer | None = None
        self._body = b""

    def body(self, answer: Answer, encode: Callable[[], bytes]) -> bytes:
        """Returns what `encode` gives, or gave for the same answer before in this turn."""
        if answer is self._answer:
            return self._body
        body = encode()
        if len(body) > WORTH_BYTES:
            if self._answer is None:
                self._loop.call_soon(self._forget)
            self._answer, self._body = answer, body
        return body

    def _forget(self) -> None:
        self._answer, self._body = None, b""
