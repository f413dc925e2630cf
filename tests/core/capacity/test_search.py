"""The search for how many requests a service bears, against services of known rates that are asked
without a pause.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.core.capacity.search import CapacitySearch
from support.few import examples

Rate = Callable[[int], float]


def peak(best: int) -> Rate:
    """Returns a service whose rate falls as fast beyond `best` as it rises before."""
    return lambda number: 10.0 * (number if number <= best else best * best / number)


def flat(best: int) -> Rate:
    """Returns a service that does no more, and no less, beyond `best`."""
    return lambda number: 10.0 * min(number, best)


class Asked:
    """A service with more requests than it can take, whose services end at random."""

    def __init__(self, search: CapacitySearch, random: Random) -> None:
        self.search, self.random = search, random
        self.now_s = 0.0
        self.done = 0.0

    def run(
        self, rate: Rate, time_s: float, *, fails: float = 0.0, waiting: int = 1_000
    ) -> list[int]:
        """Returns the limits of this time, one for each end of a service."""
        found, until_s = [], self.now_s + time_s
        self.search.is_full(self.now_s)
        while self.now_s < until_s:
            limit = self.search.limit
            self.now_s += self.random.expovariate(rate(limit))
            is_good = self.random.random() >= fails
            self.done += is_good
            self.search.ended(limit, waiting, 1.0, self.now_s, is_good=is_good)
            self.search.is_full(self.now_s)
            found.append(limit)
        return found


@pytest.mark.parametrize("best", [4, 64])
def test_a_peak_is_found_and_kept_to(best: int) -> None:
    search = CapacitySearch(1, 64, 8)
    asked, rate = Asked(search, Random(1)), peak(best)
    asked.run(rate, 30.0)
    assert best / 1.5 <= search.base <= best * 1.5
    asked.done = 0.0
    asked.run(rate, 60.0)
    assert asked.done / 60.0 >= 0.8 * rate(best)


def test_even_services_that_begin_together_do_not_hide_that_more_are_borne() -> None:
    """The first that ends of those that began together tells nothing of their rate."""
    search, now_s, ends = CapacitySearch(1, 64, 8), 0.0, list[float]()
    while now_s < 150.0:
        bears = 8 if now_s < 60.0 else 32
        while len(ends) < search.limit:
            ends.append(now_s + 0.1 * max(1.0, (len(ends) + 1) / bears) ** 2)
        search.is_full(now_s)
        now_s = min(ends)
        ends.remove(now_s)
        search.ended(len(ends) + 1, 1, 0.0, now_s, is_good=True)
    assert search.base > 20


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_larger_number_that_does_much_worse_is_left_before_its_measurement_ends(
    seed: int,
) -> None:
    """Once the base is found: whoever runs at such a number waits the longer for it. What ran
    before has to end first, and a few services show the rest."""
    search = CapacitySearch(1, 64, 8)
    asked = Asked(search, Random(seed))

    def worse_beyond(number: int) -> float:
        return 10.0 * number if number <= 8 else 20.0

    asked.run(worse_beyond, 60.0)
    tried = [len(list(ends)) for limit, ends in groupby(asked.run(worse_beyond, 60.0)) if limit > 8]
    assert sum(tried) / len(tried) < 19.0, "whole measurements take more than 20"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_service_that_bears_one_at_a_time_is_found_within_hundreds_of_services(
    seed: int,
) -> None:
    search = CapacitySearch(1, 64, 8)
    Asked(search, Random(seed)).run(peak(1), 60.0)
    assert search.base <= 2


def test_a_service_that_changes_is_followed() -> None:
    search = CapacitySearch(1, 64, 8)
    asked = Asked(search, Random(1))
    for best in (4, 32, 8):
        asked.run(peak(best), 60.0)
        assert best / 1.5 <= search.base <= best * 1.5, best


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_as_many_as_may_all_the_while_is_enough_to_try_others_sooner(seed: int) -> None:
    """Deadlines, and neighbors that take what does not fit, keep queues short."""
    search = CapacitySearch(1, 64, 8)
    asked = Asked(search, Random(seed))
    asked.run(peak(8), 20.0, waiting=1)
    while not search.is_found:
        asked.run(peak(8), 0.1, waiting=1)
    limits = asked.run(peak(64), 3.0, waiting=1)
    assert set(limits) != {search.base}, "36 measurements take 7 s"


def test_a_service_that_does_no_less_beyond_is_given_enough() -> None:
    search = CapacitySearch(1, 64, 8)
    asked, rate = Asked(search, Random(1)), flat(16)
    asked.run(rate, 30.0)
    asked.done = 0.0
    asked.run(rate, 30.0)
    assert asked.done / 30.0 >= 0.9 * rate(16)


def test_a_service_that_always_fails_moves_nothing() -> None:
    search = CapacitySearch(1, 64, 8)
    limits = Asked(search, Random(1)).run(flat(64), 60.0, fails=1.0)
    assert set(limits) == {8}


def test_a_service_that_fails_at_random_is_found_all_the_same() -> None:
    search = CapacitySearch(1, 64, 8)
    Asked(search, Random(1)).run(peak(24), 60.0, fails=0.3)
    assert 24 / 1.5 <= search.base <= 24 * 1.5


def test_a_number_at_which_nothing_comes_to_a_good_end_is_given_up() -> None:
    """As where all are late there: it is known to be worse after one measurement."""
    search = CapacitySearch(1, 64, 8)
    asked, limits = Asked(search, Random(1)), list[int]()
    while asked.now_s < 60.0:
        fails = 1.0 if search.limit > 8 else 0.0
        limits += asked.run(flat(8), 0.01, fails=fails)
    assert search.base in {7, 8}
    assert search.is_found
    assert sum(limit > 8 for limit in limits) < 0.2 * len(limits)


def test_without_demand_nothing_moves() -> None:
    search, now_s = CapacitySearch(1, 64, 8), 0.0
    for _ in range(1_000):
        now_s += 0.01
        search.ended(3, 0, 1.0, now_s, is_good=True)  # never as many as may
    assert (search.base, search.limit, search.moves) == (8, 8, 0)


def test_what_is_tried_and_not_used_is_given_up() -> None:
    search = CapacitySearch(1, 64, 8)
    asked, rate = Asked(search, Random(1)), flat(64)
    while search.limit == search.base:
        asked.run(rate, 0.05)
    now_s, base = asked.now_s, search.base
    for _ in range(1_000):
        now_s += 0.05
        search.ended(2, 0, 1.0, now_s, is_good=True)
    assert search.limit == search.base == base


@settings(max_examples=examples(50))
@given(
    st.integers(1, 50),
    st.integers(0, 50),
    st.lists(st.tuples(st.floats(0.0, 2.0), st.booleans(), st.booleans()), max_size=300),
)
def test_the_limit_stays_within_the_bounds_whatever_happens(
    least: int, more: int, ends: list[tuple[float, bool, bool]]
) -> None:
    search, now_s = CapacitySearch(least, least + more, 8), 0.0
    for pause_s, is_full, is_good in ends:
        if is_full:
            search.is_full(now_s)
        now_s += pause_s
        search.ended(
            search.limit if is_full else 0, 20 if is_full else 0, 1.0, now_s, is_good=is_good
        )
        assert least <= search.base <= least + more
        assert least <= search.limit <= least + more


def test_when_clients_begin_to_bring_more_others_are_tried_at_once() -> None:
    search = CapacitySearch(1, 64, 8)
    asked = Asked(search, Random(1))
    asked.run(peak(4), 60.0, waiting=0)
    asked.run(peak(32), 5.0, waiting=1_000)
    assert search.base >= 16


def stopped(search: CapacitySearch, ends: int) -> None:
    """So many services in a row are stopped, while as many run as may."""
    for number in range(ends):
        search.is_full(0.1 * number)
        now_s = 0.1 * (number + 1)
        search.ended(64, 100, 1.0, now_s, is_good=False, is_stopped=True)


def test_a_base_at_which_deadlines_end_all_is_halved() -> None:
    search = CapacitySearch(2, 64, 8)
    stopped(search, 8 + 2 * 16)
    assert (search.base, search.limit) == (4, 4)
    stopped(search, 1_000)
    assert search.base == 2, "the least"
