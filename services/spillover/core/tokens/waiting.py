"""The blocked requests: no token of a class that they may join was available. Among those that a
freed token fits the first one comes first."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeVar


class TypedRequest(Protocol):
    """The part of a request that a pool needs."""

    @property
    def type(self) -> str: ...
    @property
    def hops(self) -> int: ...


class TypedVisit(Protocol):
    """The part of a visit that a pool needs."""

    place: Any
    refused_on: tuple[int, ...]
    """Numbers of servers that go without it: what runs their jobs has surely not done it. Kept by
    the pool."""

    @property
    def ref(self) -> int: ...
    @property
    def request(self) -> TypedRequest: ...
    @property
    def is_home(self) -> bool: ...


V = TypeVar("V", bound=TypedVisit)


class Line(Generic[V]):
    """The blocked visits of one type, by their numbers, in order."""

    def __init__(self) -> None:
        self.visits: OrderedDict[int, V] = OrderedDict()
        self.foreign = 0

    def remove(self, number: int) -> V:
        """Take out the one with this number, from any place."""
        visit = self.visits.pop(number)
        self.foreign -= not visit.is_home
        return visit


class WaitingLines(Generic[V]):
    """The lines of all types. `joins` says, by type, which classes it may join."""

    def __init__(self, joins: Sequence[Sequence[int]], classes: int) -> None:
        self.lines: list[Line[V]] = [Line() for _ in joins]
        """A line for each type."""
        self._by_class = [
            tuple(line for line, of in zip(self.lines, joins, strict=True) if kind in of)
            for kind in range(classes)
        ]
        self._next = 0
        self.count = 0

    def __iter__(self) -> Iterator[V]:
        """Returns all that wait, in the order in which they came."""
        lines = [line.visits.items() for line in self.lines]
        return (visit for _, visit in heapq.merge(*lines, key=itemgetter(0)))

    def join(self, kind: int, visit: V) -> int:
        """Returns the number of this visit, which is the last to come."""
        self._next += 1
        self._add(kind, self._next, visit)
        return self._next

    def put_back(self, kind: int, number: int, visit: V) -> None:
        """Let a visit that had left wait again, before all that came later."""
        visits = self.lines[kind].visits
        earlier: list[int] = []
        later: list[int] = []
        is_near_front = True
        # From both ends at once: it is near one of them, however long the line is.
        for first, last in zip(visits, reversed(visits), strict=True):
            is_near_front = first > number
            if is_near_front or last < number:
                break
            earlier.append(first)
            later.append(last)
        self._add(kind, number, visit)
        if is_near_front:
            for one in (number, *reversed(earlier)):
                visits.move_to_end(one, last=False)
        else:
            for one in reversed(later):
                visits.move_to_end(one)

    def leave(self, kind: int, number: int) -> V:
        self.count -= 1
        return self.lines[kind].remove(number)

    def first(self, classes: Iterable[int], may_join: Callable[[V, int], bool]) -> V | None:
        """Returns the one that came first among those that may join one of these classes. One that
        was refused somewhere is asked for: `may_join`."""
        first, found = self._next + 1, None
        for kind in classes:
            for line in self._by_class[kind]:
                for number, visit in line.visits.items():
                    if number >= first:
                        break
                    if not visit.refused_on or may_join(visit, kind):
                        first, found = number, visit
                        break
        return found

    def _add(self, kind: int, number: int, visit: V) -> None:
        line = self.lines[kind]
        line.visits[number] = visit
        line.foreign += not visit.is_home
        self.count += 1

    def check(self) -> None:
        assert self.count == sum(len(line.visits) for line in self.lines)
        for line in self.lines:
            assert list(line.visits) == sorted(line.visits)
            assert line.foreign == sum(not visit.is_home for visit in line.visits.values())
