"""A job that one server surely has not done goes to another, and a server that asks to be left
alone is, by itself."""

from __future__ import annotations

import pytest

from support.unlike_pools import DrivenPool, pool_of


def pool(classes=None, types=None, **options):
    """Two servers, each of a class with two tokens, that both serve all."""
    classes = {"p": ("p", 2), "q": ("q", 2)} if classes is None else classes
    return DrivenPool(pool_of({"p": 1, "q": 1}, classes, types, **options))


def test_it_waits_for_another_server_that_is_full_and_nobody_waits_behind_it():
    """Its own class has a token all the time, which those take that came later."""
    one = pool()
    assert [one.arrive(ref) for ref in (1, 2, 3, 4)] == ["p", "q", "p", "q"]
    assert one.end(1, "refused") == []
    assert one.servers.waiting == 1
    assert one.arrive(5) == "p"
    assert one.arrive(6) == "blocked"
    assert one.end(3) == [6], "the older one waits for q"
    assert one.end(2) == [1]
    assert one.started[-1] == (1, "q")


# --- rests ----------------------------------------------------------------------------------------


def test_a_server_that_asks_to_be_left_alone_takes_nothing_until_then():
    """The others go on. Then it comes back in a slow start."""
    one = pool()
    assert one.arrive(1) == "p"
    one.end(1, "refused")
    assert not one.rest(1, 5.0)
    assert one.servers.servers[0].state == "resting"
    assert (one.counts("p")["out"], one.servers.next_s) == (2, 5.0)
    assert [one.arrive(ref) for ref in (2, 3)] == ["q", "blocked"]
    assert one.wake(4.9) == []
    assert one.wake(5.0) == [3]
    assert (one.counts("p")["held"], one.counts("p")["out"]) == (1, 1)


def test_of_two_rests_that_a_server_asks_for_the_longer_one_counts():
    one = pool()
    assert [one.arrive(ref) for ref in (1, 2, 3)] == ["p", "q", "p"]
    for ref, until_s in ((1, 9.0), (3, 3.0)):
        one.end(ref, "refused")
        one.rest(ref, until_s)
    one.wake(3.0)
    assert one.servers.servers[0].state == "resting"
    one.wake(9.0)
    assert one.servers.servers[0].state == "up"


def test_what_is_there_again_has_not_asked_for_it():
    one = pool()
    one.arrive(1)
    one.end(1, "refused")
    one.rest(1, 5.0)
    one.change("p", False)
    one.change("p", True)
    assert one.servers.servers[0].state == "up"


def test_the_last_one_has_all_rest_until_the_first_comes_back():
    one = pool()
    for ref, until_s in ((1, 9.0), (2, 3.0)):
        server = one.arrive(ref)
        one.end(ref)
        assert server == ("p", "q")[ref - 1]
        assert one.rest(ref, until_s) is (ref == 2)
    assert (one.servers.resting, one.servers.rest_until_s) == (True, 3.0)


@pytest.mark.parametrize("second", ["rests", "is out"])
def test_what_only_one_that_rests_serves_waits_for_it(second):
    """It is not counted on, nor are neighbors' jobs taken. Nobody waits for what is out."""
    one = pool(types={"x": "p", "y": "q"})
    one.arrive(1, "x")
    one.end(1)
    one.rest(1, 5.0)
    fitting = one.servers.fitting(0)
    assert (fitting.up, fitting.working, fitting.idle, fitting.ready) == (1, 0, 0, False)
    assert fitting.rest_s(2.0) == 3.0
    assert one.arrive(2, "x") == "blocked"
    assert one.servers.retry_after_s(one.visits[2], 2.0) >= 3.0
    assert one.arrive(3, "y") == "q", "it has nothing to do with that"
    if second == "is out":
        one.put(p=False)
        assert (fitting.up, fitting.rest_s(2.0)) == (0, 0.0)
        assert one.wake(5.0) == []
    else:
        assert one.wake(5.0) == [2]
        assert (fitting.up, fitting.working, fitting.rest_s(5.0)) == (1, 1, 0.0)
