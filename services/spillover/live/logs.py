"""Keeping logs readable and small while something fails thousands of times a second."""

from __future__ import annotations

import logging
import time

PERIOD_S = 1.0


class OncePerPeriod(logging.Filter):
    """Lets one record through each second, and says in the next one how many it held back."""

    def __init__(self) -> None:
        super().__init__()
        self._next_s = 0.0
        self._held_back = 0

    def filter(self, record: logging.LogRecord) -> bool:
        now_s = time.monotonic()
        if now_s < self._next_s:
            self._held_back += 1
            return False
        self._next_s = now_s + PERIOD_S
        if self._held_back:
            record.msg = f"{record.msg} (and {self._held_back} more like it since the last line)"
            self._held_back = 0
        return True
