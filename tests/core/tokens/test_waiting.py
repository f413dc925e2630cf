"""The lines of blocked visits, beside lists that are sorted anew each time."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.core.tokens.waiting import WaitingLines

JOINS = ((0,), (0, 1))
"""Which classes types 0 and 1 may join."""


@dataclass(eq=False)
class Visit:
    """As much of one as lines look at."""

    ref: int
    kind: int
    is_home: bool = True
    refused_on: tuple[int, ...] = ()
    place: object = None
    request: object = field(default_factory=SimpleNamespace)


def refs(waiting):
    waiting.check()
    return [visit.ref for visit in waiting]


@given(st.data())
def test_whoever_comes_back_waits_where_it_was(data):
    """From any place of a line of any length, several of them, in any order."""
    waiting, refs_drawn, away, there = WaitingLines(JOINS, 2), count(1), {}, {}
    for _ in range(data.draw(st.integers(0, 25))):
        visit = Visit(next(refs_drawn), data.draw(st.integers(0, 1)), data.draw(st.booleans()))
        there[waiting.join(visit.kind, visit)] = visit
    for _ in range(data.draw(st.integers(0, 40))):
        if away and data.draw(st.booleans()):
            number = data.draw(st.sampled_from(sorted(away)))
            there[number] = away.pop(number)
            waiting.put_back(there[number].kind, number, there[number])
        elif there:
            number = data.draw(st.sampled_from(sorted(there)))
            away[number] = there.pop(number)
            assert waiting.leave(away[number].kind, number) is away[number]
        assert refs(waiting) == [there[number].ref for number in sorted(there)]
        for kind, line in enumerate(waiting.lines):
            ours = [number for number in sorted(there) if there[number].kind == kind]
            assert list(line.visits) == ours


class CountedLine(dict):
    """A line that counts how many are moved in it, and how many are looked at."""

    def __init__(self, visits):
        super().__init__(visits)
        self.steps = 0

    def __iter__(self):
        for one in list(super().__iter__()):
            self.steps += 1
            yield one

    def __reversed__(self):
        return reversed(list(super().__iter__()))

    def move_to_end(self, key, last=True):
        self.steps += 1
        kept = [(one, self[one]) for one in super().__iter__() if one != key]
        moved = [(key, self[key])]
        self.clear()
        self.update([*kept, *moved] if last else [*moved, *kept])


@pytest.mark.parametrize("place", [0, 2, 997, 999])
def test_a_long_line_costs_nothing_near_its_ends(place):
    """Refused ones come back again and again, however many wait: those at the front, that began
    first, and newcomers that have just gone by."""
    waiting = WaitingLines(JOINS, 2)
    numbers = [waiting.join(0, Visit(ref, 0)) for ref in range(1000)]
    visit = waiting.leave(0, numbers[place])
    line = waiting.lines[0].visits = CountedLine(waiting.lines[0].visits)
    waiting.put_back(0, numbers[place], visit)
    assert line.steps <= 8
    assert list(line) == numbers
