"""What a site remembers of sessions, beside a twin that forgets by the book."""

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.core.affinity.memory import SLIGHT, WAYS, Claim, Ran, SessionMemory, Worth

NAMES = st.integers(1, 30)
WORK = st.integers(1, 1000).map(float)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("note"), NAMES, st.integers(0, 3), WORK),
        st.tuples(st.just("forget"), NAMES, st.integers(0, 3), WORK),
    ),
    max_size=60,
)


class Twin:
    """The last two runs of the sessions that ran last, in a dictionary."""

    def __init__(self, limit):
        self.limit = limit
        self.runs = OrderedDict()

    def note(self, session, ran):
        before = self.runs.get(session, [])
        others = [one for one in before if one.place != ran.place]
        if len(others) == 2 and others[0].work < SLIGHT * others[1].work:
            others.reverse()
        here = [one for one in before if one.place == ran.place and ran.work < SLIGHT * one.work]
        self.runs[session] = [*(here or [ran]), *others[:1]]
        self.runs.move_to_end(session)
        if len(self.runs) > self.limit:
            self.runs.popitem(last=False)

    def forget(self, session, place, work):
        before = self.runs.get(session, [])
        left = [one for one in before if one.place != place or work < SLIGHT * one.work]
        if before and not left:
            del self.runs[session]
        elif left != before:
            self.runs[session] = left
            self.runs.move_to_end(session)


@given(STEPS, st.integers(1, WAYS))
def test_a_memory_of_one_set_remembers_what_its_twin_does(steps, limit):
    """Runs, claims and what makes room are equal after each step."""
    memory, twin, taken = SessionMemory(limit), Twin(limit), 0.0
    for step, session, place, work in steps:
        if step == "note":
            taken += work
            known = {one.place: one for one in twin.runs.get(session, [])}.get(place)
            claim = memory.note(session, place, work, taken)
            expected = known and Claim(taken - work - known.taken, min(known.work, work))
            assert claim == expected
            twin.note(session, Ran(place, work, taken))
        else:
            memory.forget(session, place, work)
            twin.forget(session, place, work)
        for name in range(1, 31):
            assert memory.runs(name) == tuple(twin.runs.get(name, []))


def test_what_comes_to_nothing_pushes_nobody_out():
    """A flood of sessions whose requests are refused: those that ran are all remembered."""
    memory = SessionMemory(512)
    kept = range(1, 257)
    for session in kept:
        memory.note(session, 0, 1.0, 1.0)
    for session in range(1_000, 20_000):
        memory.note(session, 1, 1.0, 2.0)
        memory.forget(session, 1, 1.0)
    assert all(memory.runs(session) for session in kept)


def test_of_a_full_memory_those_that_come_to_nothing_push_out_one_of_each_set():
    memory = SessionMemory(4 * WAYS)
    for session in range(1, 4 * WAYS + 1):
        memory.note(session, 0, 1.0, 1.0)
    for session in range(1_000, 2_000):
        memory.note(session, 1, 1.0, 2.0)
        memory.forget(session, 1, 1.0)
    assert sum(memory.runs(one) != () for one in range(1, 4 * WAYS + 1)) == 4 * (WAYS - 1)


def test_small_requests_of_a_session_change_nothing_of_where_its_work_is():
    """Questions at its place, at others, and such as fail: it goes by what it did before."""
    memory, large = SessionMemory(), Ran(0, 1e6, 1e6)
    memory.note(7, *large)
    for place in (0, 1, 2, 3, 0):
        memory.note(7, place, 1.0, 1e6 + 9.0)
        assert large in memory.runs(7)
        memory.forget(7, 0, 1.0)
        assert large in memory.runs(7)
    assert memory.reusable(memory.runs(7)[0], 1e6, 1e6 + 9.0) == 1e6
    memory.forget(7, 0, 1e6)
    assert large not in memory.runs(7)


def test_small_requests_teach_little_of_what_is_reused():
    """What they take is not for their work; also where sessions have no others."""
    memory = SessionMemory()
    for number in range(2_000):
        memory.learn(Claim(1e3, 1.0), 0.0)
        if number % 4 == 0:
            memory.learn(Claim(1e3, 1e6), 0.9e6)
    assert memory.worth.of(1e3) == pytest.approx(0.9, abs=0.05)


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1)), max_size=50), st.floats(0, 1e9))
def test_an_older_memory_is_never_worth_more(answers, age):
    """Whatever answers say, worth falls with age and is a share."""
    worth = Worth()
    for told_age, share in answers:
        before = worth.of(told_age)
        worth.learn(told_age, share)
        assert abs(worth.of(told_age) - share) <= abs(before - share)
    ages = sorted([age, *(told_age for told_age, _ in answers)])
    shares = [worth.of(one) for one in ages]
    assert shares == sorted(shares, reverse=True)
    assert all(0.0 <= share <= 1.0 for share in shares)


def test_worth_finds_after_how_much_work_places_forget():
    """Places keep the last 1,000 of work: only older memories become worthless."""
    worth = Worth()
    for number in range(2_000):
        age = 10.0 + number * 7_919 % 5_000
        worth.learn(age, 1.0 if age < 1_000 else 0.0)
    assert worth.of(500.0) > 0.95
    assert worth.of(2_000.0) < 0.05


def test_a_request_goes_where_its_session_ran_until_the_wait_there_costs_more():
    """The wait that is borne grows with the weight of a miss."""
    memory = SessionMemory()
    memory.note(7, 1, 1_000.0, 1_000.0)

    def choose(wait_s, weight, session=7):
        places = [(0, 0.0, 0.0, 1_000.0, 0.0), (1, wait_s, 0.0, 1_000.0, 1e3)]
        return memory.cheapest(session, 1_000.0, places, weight).place

    assert [choose(0.9, 1.0), choose(1.1, 1.0), choose(1.9, 2.0), choose(2.1, 2.0)] == [1, 0, 1, 0]
    assert choose(0.1, 12.0, session=8) == 0
    assert memory.cheapest(7, 1.0, [], 1.0) is None


@pytest.mark.parametrize("limit", [1, 17, 500])
def test_no_more_sessions_are_remembered_than_the_limit(limit):
    memory = SessionMemory(limit)
    for session in range(1, 2_000):
        memory.note(session, 0, 1.0, float(session))
    assert sum(memory.runs(session) != () for session in range(1, 2_000)) <= limit
    assert memory.runs(1_999) == (Ran(0, 1.0, 1_999.0),)
