"""The lines of blocked visits, beside lists that are sorted anew each time."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace

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
