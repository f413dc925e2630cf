"""The search where an engine says what it runs and holds back."""

import pytest

from spillover.core.capacity.engine import EngineBound
from spillover.core.capacity.search import CapacitySearch
from spillover.model.engine_load import EngineLoad


def said(search, bound, bears, looks, now_s=0.0):
    """An engine that bears so many is asked for as many as may run, and says so at each look. It
    holds back what is more."""
    for look in range(looks):
        busy = search.limit
        running = min(busy, bears)
        load = EngineLoad(float(running), float(busy - running), running / 100.0)
        bound.said(load, search, busy, now_s + look)


def test_what_an_engine_holds_back_is_given_to_it_no_more():
    """After two looks no more run than it takes."""
    search, bound = CapacitySearch(1, 64, 64), EngineBound()
    said(search, bound, bears=8, looks=2)
    assert search.base == search.limit == 8


def test_an_engine_that_takes_more_gets_more_within_some_looks():
    """The search, for which more is always better here, is one step of a doubling behind."""
    search, bound = CapacitySearch(1, 64, 64), EngineBound()
    said(search, bound, bears=4, looks=2)
    for _ in range(5):
        search.base = search.limit = search.ceiling
        said(search, bound, bears=64, looks=1)
    assert search.ceiling == 64


def test_one_look_at_a_request_that_has_just_come_moves_nothing():
    search, bound = CapacitySearch(1, 64, 16), EngineBound()
    for _ in range(10):
        bound.said(EngineLoad(15.0, 1.0, 0.2), search, 16, 0.0)
        bound.said(EngineLoad(16.0, 0.0, 0.2), search, 16, 0.0)
        assert search.base == 16


def test_a_full_cache_is_no_room_for_more():
    search, bound = CapacitySearch(1, 64, 32), EngineBound()
    for look in range(2):
        bound.said(EngineLoad(12.0, 0.0, 0.97), search, 12, float(look))
    assert search.limit == 12
    bound.said(EngineLoad(12.0, 0.0, 0.92), search, 12, 3.0)
    assert search.ceiling == 12


def test_an_engine_that_says_nothing_of_what_runs_is_counted_here():
    """As in ORCA's header."""
    search, bound = CapacitySearch(1, 64, 32), EngineBound()
    for look in range(2):
        bound.said(EngineLoad(None, 20.0, 0.5), search, 32, float(look))
    assert search.limit == 12


@pytest.mark.parametrize("load", [EngineLoad(0.0, 1e6, 1.0), EngineLoad(1e6, 1e6, 0.0)])
def test_an_engine_that_lies_is_kept_within_the_bounds(load):
    search, bound = CapacitySearch(2, 64, 32), EngineBound()
    for look in range(20):
        bound.said(load, search, 32, float(look))
        assert 2 <= search.base <= search.ceiling <= 64
        assert search.limit <= search.ceiling


def test_what_is_not_heard_of_bounds_nothing():
    search, bound = CapacitySearch(1, 64, 64), EngineBound()
    said(search, bound, bears=4, looks=2)
    bound.said(None, search, 4, 20.0)
    assert search.ceiling == 64
    assert bound.load is None


def test_an_engine_that_others_use_too_leaves_as_many_as_it_runs():
    """Some of theirs always wait; what it runs goes up and down, and a look at none is no bound for
    good."""
    search, bound = CapacitySearch(1, 64, 8), EngineBound()
    for look in range(100):
        bound.said(EngineLoad(24.0 + 12.0 * (look % 2), 2.0, 0.5), search, 8, float(look))
        assert search.base == 8
    bound.said(EngineLoad(0.0, 2.0, 0.5), search, 8, 101.0)
    assert search.base == 8
    for look in range(2):
        bound.said(EngineLoad(0.0, 20.0, 0.5), search, 8, 102.0 + look)
    assert search.ceiling == 1
    bound.said(EngineLoad(30.0, 2.0, 0.5), search, 1, 105.0)
    assert search.ceiling == 30


def test_requests_that_are_seldom_in_the_engine_are_given_as_many_as_it_takes():
    """A tenth of their time, as ways are long or clients read slowly. An early look at requests
    that wait is forgotten."""
    search, bound = CapacitySearch(1, 64, 8), EngineBound()
    for look in range(2):
        bound.said(EngineLoad(1.0, 7.0, 0.1), search, 8, float(look))
    assert search.ceiling == 1
    for look in range(8):
        search.base = search.limit = search.ceiling
        in_it = float(search.limit // 10)
        bound.said(EngineLoad(in_it, 0.0, 0.1), search, search.limit, 2.0 + look)
    assert search.ceiling == 64
    for look in range(2):
        bound.said(EngineLoad(4.0, 2.0, 0.1), search, search.limit, 10.0 + look)
    assert search.ceiling == 62, "but for those that wait"
