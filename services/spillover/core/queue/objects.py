"""The objects of one producer: buffered, granted or dead, by number, and how many there were.

An object that comes back stands where it stood: the smallest number goes first. Who gets it is the
machine's business; bodies are the shell's.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator


class Objects:
    """The objects that were produced and not acknowledged. Numbers grow as objects come."""

    def __init__(self) -> None:
        self._buffer: list[int] = []
        self._deliveries: dict[int, int] = {}
        """How often each was granted; none of those that never were."""
        self.granted: set[int] = set()
        self.resting: set[int] = set()
        """The buffered objects that were given back as not handled, and are not to be granted again
        yet."""
        self.dead: dict[int, None] = {}
        """The dead objects, in the order in which they died."""
        self.produced = 0
        self.acknowledged = 0
        self.discarded = 0

    @property
    def buffered(self) -> int:
        """Returns how many wait for a consumer, those that rest among them."""
        return len(self._buffer) + len(self.resting)

    @property
    def ready(self) -> int:
        """Returns how many can be granted now."""
        return len(self._buffer)

    def __iter__(self) -> Iterator[int]:
        """Yield the objects that can be granted now, in their order."""
        return iter(sorted(self._buffer))

    def deliveries(self, number: int) -> int:
        return self._deliveries.get(number, 0)

    def add(self, number: int) -> None:
        """One more was produced."""
        self.produced += 1
        heapq.heappush(self._buffer, number)

    def recover(
        self, number: int, deliveries: int, *, dead: bool = False, rests: bool = False
    ) -> None:
        """One was produced before this start."""
        self.produced += 1
        if deliveries:
            self._deliveries[number] = deliveries
        if dead:
            self.dead[number] = None
        elif rests:
            self.resting.add(number)
        else:
            heapq.heappush(self._buffer, number)

    def grant(self) -> int:
        """Take out the oldest one that is buffered. IndexError without any."""
        number = heapq.heappop(self._buffer)
        self.granted.add(number)
        return number

    def delivered(self, number: int) -> None:
        """A consumer has been promised this one."""
        self._deliveries[number] = self.deliveries(number) + 1

    def give_back(self, number: int) -> None:
        self.granted.remove(number)
        heapq.heappush(self._buffer, number)

    def rest(self, number: int) -> None:
        """A granted one is not to be granted again before it was woken."""
        self.granted.remove(number)
        self.resting.add(number)

    def wake(self, number: int) -> None:
        """One that rested can be granted again."""
        self.resting.remove(number)
        heapq.heappush(self._buffer, number)

    def bury(self, number: int) -> None:
        self.granted.remove(number)
        self.dead[number] = None

    def put_back(self, number: int) -> bool:
        """A dead one is buffered again, as one that was never granted; False if it is not dead."""
        if number not in self.dead:
            return False
        del self.dead[number]
        self._deliveries.pop(number, None)
        heapq.heappush(self._buffer, number)
        return True

    def discard(self, number: int) -> bool:
        """A dead one is wanted no more; False if it is not dead."""
        if number not in self.dead:
            return False
        del self.dead[number]
        self._deliveries.pop(number, None)
        self.discarded += 1
        return True

    def acknowledge(self, number: int) -> None:
        """A granted one has served its purpose."""
        self.granted.remove(number)
        self._deliveries.pop(number, None)
        self.acknowledged += 1

    def check(self) -> None:
        here = len(self.granted) + self.buffered + len(self.dead)
        parts = self.acknowledged + self.discarded + here
        assert self.produced == parts, (self.produced, parts)
        living = set(self._buffer) | self.granted | self.resting | self.dead.keys()
        assert len(living) == here, "twice"
        assert self._deliveries.keys() <= living, "deliveries of what is gone"
