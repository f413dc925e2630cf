"""An iterator that any number of threads may share. A generator is for one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

_NEW, _BEGUN, _OVER = range(3)


class SharedIterator(Iterator[T]):
    """Calls `begin` before the first `following`, which waits for one thing and returns None at the
    end, and `end` once: by whoever is the last to leave, or when nobody has the iterator any more,
    as a loop that was left."""

    def __init__(
        self,
        begin: Callable[[], object],
        following: Callable[[], T | None],
        end: Callable[[], object],
    ) -> None:
        self._begin, self._following, self._end = begin, following, end
        self._lock = threading.RLock()
        self._state = _NEW
        self._waiting = 0
        """Threads that wait for something here."""

    def __next__(self) -> T:
        with self._lock:
            if self._state == _NEW:
                self._begin()
                self._state = _BEGUN
            if self._state == _OVER:
                raise StopIteration
            self._waiting += 1
        found = None
        try:
            found = self._following()
        finally:
            self._leave(is_over=found is None)
        if found is None:
            raise StopIteration
        return found

    def _leave(self, *, is_over: bool) -> None:
        with self._lock:
            self._waiting -= 1
            if is_over:
                self._state = _OVER
            ends = self._state == _OVER and self._waiting == 0
        if ends:
            self._end()

    def __del__(self) -> None:
        if self._state == _BEGUN:
            self._state = _OVER
            self._end()
