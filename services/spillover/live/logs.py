"""Keeping logs readable and small while something fails thousands of times a second."""

from __future__ import annotations

import logging
import time

PERIOD_S = 1.0


class OncePerPeriod(logging.Filter):
    """Lets one record of each message through a second, and says in the next one of that message
    how many it held back. Messages are told apart before their arguments are filled in: there are
    as many as there are lines of code that log.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next_s: dict[str, float] = {}
        self._held_back: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        message = str(record.msg)
        now_s = time.monotonic()
        if now_s < self._next_s.get(message, 0.0):
            self._held_back[message] = self._held_back.get(message, 0) + 1
            return False
        self._next_s[message] = now_s + PERIOD_S
        held_back = self._held_back.pop(message, 0)
        if held_back:
            record.msg = f"{message} (and {held_back} more since the last such line)"
        return True
