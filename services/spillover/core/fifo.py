"""A FIFO from whose middle things can be taken in constant time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FifoEntry(Generic[T]):
    """One place in the queue; `item` is None once it has been taken out."""

    __slots__ = ("item",)

    def __init__(self, item: T) -> None:
        self.item: T | None = item


class Fifo(Generic[T]):
    """First in, first out. Taking from the middle leaves a hole, and holes are swept out when
    they outnumber what waits, so that both memory and time stay proportional to the latter."""

    def __init__(self) -> None:
        self._places: deque[FifoEntry[T]] = deque()
        self._holes = 0

    def __len__(self) -> int:
        return len(self._places) - self._holes

    def __iter__(self) -> Iterator[T]:
        return (place.item for place in self._places if place.item is not None)

    def append(self, item: T) -> FifoEntry[T]:
        """Join at the end; keep the place to be able to leave early."""
        place = FifoEntry(item)
        self._places.append(place)
        return place

    def prepend(self, item: T) -> FifoEntry[T]:
        """Join at the front, as what was there before."""
        place = FifoEntry(item)
        self._places.appendleft(place)
        return place

    def popleft(self) -> T:
        """Returns the longest waiting item. IndexError if nothing waits."""
        while True:
            place = self._places.popleft()
            item = place.item
            if item is not None:
                place.item = None
                return item
            self._holes -= 1

    def discard(self, place: FifoEntry[T]) -> None:
        """Leave the queue from any place in it."""
        assert place.item is not None, "this place has been left before"
        place.item = None
        self._holes += 1
        if self._holes > 32 and self._holes > len(self):
            self._places = deque(place for place in self._places if place.item is not None)
            self._holes = 0
