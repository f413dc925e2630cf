"""Who waits for the end of a visit."""

import asyncio

import pytest

from spillover.core.overflow import events as ev
from spillover.live.overflow import waiters as waiters_module
from spillover.live.overflow.waiters import FutureWaiter, Waiters
from spillover.model.request import Answer, Outcome, Refusal

DONE = Answer(Outcome.DONE, ("a",))
REFUSED = ev.Refuse(1, 0, Refusal.DEGRADED, 1.0)


def test_everyone_is_told_once_and_who_has_left_is_not():
    """Of that visit alone, in the order in which they came; nothing is kept of it."""
    waiters, told = Waiters(), []
    names = [lambda end, name=name: told.append((name, end)) for name in "abc"]
    for waiter in names:
        assert waiters.wait(1, waiter)
    waiters.wait(2, names[0])
    waiters.leave(1, names[1])
    waiters.leave(3, names[1])
    waiters.tell(1, DONE)
    waiters.tell(1, DONE)
    assert told == [("a", DONE), ("c", DONE)]
    assert (len(waiters), waiters.of(1), waiters.of(2)) == (1, (), (names[0],))
    waiters.leave(2, names[0])
    assert len(waiters) == 0


def test_there_is_a_limit_for_each_visit(monkeypatch):
    """One more is not told anything, and whoever leaves makes room."""
    monkeypatch.setattr(waiters_module, "WAITERS_MAX", 2)
    waiters, told, late = Waiters(), [], []
    leaves = told.extend
    assert waiters.wait(1, told.append)
    assert waiters.wait(1, leaves)
    assert not waiters.wait(1, late.append)
    assert waiters.wait(2, late.append)
    waiters.leave(1, leaves)
    assert waiters.wait(1, told.append)
    waiters.tell(1, DONE)
    assert (told, late) == ([DONE, DONE], [])


async def test_a_node_that_ends_tells_all():
    """That there will be no answer, whatever they wait for."""
    waiters, told, future = Waiters(), [], FutureWaiter()
    waiters.wait(1, told.append)
    waiters.wait(2, told.append)
    waiters.wait(2, future)
    waiters.close()
    assert told == [None, None]
    assert future.future.cancelled()
    assert len(waiters) == 0


@pytest.mark.parametrize("told", [DONE, REFUSED, None])
async def test_a_future_has_an_answer_or_is_cancelled(told):
    """Told once more, or after its time, it stays as it is."""
    waiter = FutureWaiter()
    assert waiter.answer is None
    waiter(told)
    waiter(DONE)
    await asyncio.wait([waiter.future])
    assert waiter.answer is (told if told is DONE else None)
