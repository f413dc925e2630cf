"""The pool in worked examples: the notes' trace, both disciplines, servers that come and go."""

from __future__ import annotations

import pytest

from support.unlike_pools import DrivenPool, Visit, pool_of

TWO = ({"A": 1, "B": 1}, {"A": ("A", 2), "B": ("B", 2)}, {"x": "A B", "y": "B"})


def driven(servers, classes=None, types=None, delivery_s=0.0, **options):
    return DrivenPool(pool_of(servers, classes, types, **options), delivery_s=delivery_s)


def own_load(pool, type_, ref=99):
    return pool.servers.own_load(Visit(ref, type_), True, 0.0, 0.0, ())


def test_the_trace_of_the_notes():
    """A token that is free does not help a job that it does not fit; the older release goes
    first."""
    pool = driven(*TWO)
    assert [pool.arrive(1, "x"), pool.arrive(2, "y"), pool.arrive(3, "y")] == ["A", "B", "B"]
    assert pool.arrive(4, "y") == "blocked"
    pool.leave(4)
    assert pool.arrive(5, "x") == "A"
    pool.end(2)
    pool.end(1)
    assert [pool.arrive(6, "x"), pool.arrive(7, "x")] == ["B", "A"]


# --- servers come and go ------------------------------------------------------------------------


def test_a_server_that_is_back_gets_few_jobs_where_another_can_take_them():
    """As many as it has served since, and one."""
    pool = driven({"A": 1, "B": 1}, {"all": ("A B", 8)})
    pool.put(A=False)
    pool.put(A=True)
    assert [pool.arrive(ref) for ref in range(4)] == ["A", "B", "B", "B"]
    pool.end(0)
    assert [pool.arrive(ref) for ref in range(4, 7)] == ["A", "A", "B"]
    pool.change("B", False)
    assert pool.arrive(7) == "A", "there is no other"


def test_a_server_that_fails_more_than_others_is_left_alone():
    """Its tokens are out; it is tried again after a while, with one job at first."""
    pool = driven({"A": 1, "B": 1}, {"A": ("A", 3), "B": ("B", 3)}, {"x": "A B"})
    ref = 0
    while pool.servers.servers[0].state == "up":
        ref += 1
        assert ref < 20
        pool.at(ref / 10)
        if pool.arrive(ref, "x") == "A":
            pool.end(ref, "failed")
        else:
            pool.end(ref)
    assert [pool.arrive(100 + k, "x") for k in range(4)] == ["B", "B", "B", "blocked"]
    again_s = pool.servers.next_s
    assert pool.wake(again_s) == [103]
    pool.end(103, "failed")
    assert pool.servers.servers[0].state == "degraded"
    assert pool.servers.next_s - again_s > 1.5
    pool.wake(pool.servers.next_s)
    for ref in range(200, 220):
        assert pool.arrive(ref, "x") == "A", "B is full"
        pool.end(ref)
    assert pool.counts("A")["available"] == 3


def test_it_is_held_against_what_one_of_the_others_fails_not_all_of_them():
    """A third of the work fails on each, then all on one: that the others' add up to a whole is no
    reason to spare it."""
    names = "ABCD"
    pool = driven(dict.fromkeys(names, 1), {one: (one, 3) for one in names}, {"x": "A B C D"})
    jobs = dict.fromkeys(names, 0)
    for ref in range(1, 200):
        server = pool.at(ref / 10).arrive(ref, "x")
        jobs[server] += 1
        is_bad = jobs[server] % 3 == 0 or (server == "A" and ref > 100)
        pool.end(ref, "failed" if is_bad else "done")
    assert [server.state for server in pool.servers.servers] == ["degraded", "up", "up", "up"]


def test_where_all_fail_none_is_left_alone():
    pool = driven({"A": 1, "B": 1}, {"A": ("A", 3), "B": ("B", 3)}, {"a": "A", "b": "B"})
    for ref in range(0, 400, 2):
        pool.wake(ref / 10)
        pool.arrive(ref, "a")
        pool.arrive(ref + 1, "b")
        states = {server.state for server in pool.servers.servers}
        assert states == {"up"} or ref < 100, "at first it is not known that all do"
        for running in list(pool.servers.jobs_by_ref):
            pool.end(running, "failed")


def test_the_only_server_of_a_type_goes_on_however_well_others_do():
    pool = driven({"A": 1, "B": 1}, {"A": ("A", 3), "B": ("B", 3)}, {"a": "A", "b": "A B"})
    for ref in range(0, 100, 2):
        pool.at(ref / 10)
        pool.arrive(ref, "a")
        pool.arrive(ref + 1, "b")
        pool.end(ref, "failed")
        pool.end(ref + 1)
        assert pool.servers.servers[0].state == "up"


# --- what is told -------------------------------------------------------------------------------


def test_a_grant_says_what_was_taken_and_what_else_was_there():
    pool = driven(*TWO)
    pool.at(2.0).arrive(1, "x")
    granted = pool.servers.granted(1).as_dict()
    assert granted == {
        "token": "A-1",
        "class": "A",
        "server": "A",
        "available_releases": 3,
        "available_ms": 2000.0,
        "others": [{"class": "B", "available_releases": 2}],
        "others_count": 1,
    }
    pool.end(1)
    for ref, token in ((2, "B-1"), (3, "A-2"), (4, "B-2"), (5, "A-1")):
        pool.at(3.0).arrive(ref, "x")
        assert pool.servers.granted(ref).token == token
    assert pool.servers.granted(5).as_dict()["available_releases"] == 0


def test_what_policies_are_told_of_a_group():
    """N counts jobs beyond one for each server that fits, wherever they are."""
    pool = driven(
        {"big": 4, "small": 1}, {"c": ("big", 6), "d": ("small", 2)}, {"x": "c", "y": "c d"}
    )
    told = own_load(pool, "y")
    assert (told.queue_length, told.servers, told.service_s) == (0, 2, 0.4)
    assert told.departure_s == pytest.approx(0.2)
    assert own_load(pool, "x")[1:4] == (1, True, 0.25)
    for ref in range(6):
        assert pool.arrive(ref, "x") == "big"
    assert own_load(pool, "x").queue_length == 5
    assert own_load(pool, "y").queue_length == 4
    assert pool.arrive(6, "x") == "blocked"
    assert own_load(pool, "x").queue_length == 6
    waits = pool.servers.own_load(pool.visits[6], True, 0.0, 0.0, ())
    assert waits.queue_length == 5, "it does not wait for itself"
    pool.put(big=False)
    assert own_load(pool, "x")[1:3] == (1, False)
    assert pool.arrive(7, "x") == "blocked"
    assert own_load(pool, "y")[:2] == (0, 1), "what waits for the big one does not wait for this"


def test_estimates_go_by_the_rates_of_the_servers_that_fit():
    """Short lines tell nothing; a long one takes as long as those servers need for it."""
    pool = driven({"big": 4, "small": 1}, types={"x": "big", "y": "small"}, delivery_s=0.5)
    for type_, rate in (("x", 4), ("y", 1)):
        visit = Visit(0, type_)
        assert pool.servers.stay_s(visit, 0.0) == 0.0
        for ref in range(4):
            pool.arrive(100 * rate + ref, type_)
        assert pool.servers.stay_s(visit, 0.0) == pytest.approx((3 + 1) / rate + 1 / rate + 0.5)
        assert pool.servers.retry_after_s(visit, 0.0) == pytest.approx((3 + 1) / rate)
    pool.arrive(404, "x")
    pool.end(400, "stopped")
    pool.rest(400, 2.0)
    assert pool.servers.retry_after_s(Visit(0, "x"), 0.5) == pytest.approx(1.5 + 1.0)
    assert pool.servers.stay_s(Visit(0, "x"), 0.5) == pytest.approx(1.5 + 1.0 + 0.25 + 0.5)


def test_work_is_learned_from_how_it_was_shared():
    """Two jobs at a time on a server of rate 2: each had half of it."""
    pool = driven({"A": 2}, {"A": ("A", 2)})
    for round_ in range(400):
        pool.at(3.0 * round_).arrive(2 * round_)
        pool.arrive(2 * round_ + 1)
        pool.at(3.0 * round_ + 3.0).end(2 * round_, service_s=3.0)
        pool.end(2 * round_ + 1, service_s=3.0)
    assert own_load(pool, "default").service_s == pytest.approx(1.5, rel=1e-3)
    one = driven({"A": 2}, discipline="fcfs")
    for ref in range(400):
        one.arrive(ref)
        one.end(ref, service_s=3.0)
    assert own_load(one, "default").service_s == pytest.approx(3.0, rel=1e-3)


def test_state_tells_servers_classes_and_types():
    pool = driven(*TWO)
    for ref in range(6):
        pool.arrive(ref, "y")
    pool.put(A=False)
    told = pool.servers.told()
    assert (told["jobs"], told["blocked"], told["unaccounted"]) == (2, 4, 0)
    assert [one["state"] for one in told["servers"]] == ["out", "up"]
    assert told["classes"][0]["out"] == 2
    assert {one["id"]: one["blocked"] for one in told["types"]} == {"x": 0, "y": 4}
    assert [one["work_ms"] for one in told["types"]] == [1000.0, 1000.0], "as guessed: a second"


def test_a_stuck_server_is_not_counted_on():
    pool = driven({"A": 1, "B": 1}, {"A": ("A", 1), "B": ("B", 2)})
    for ref in (1, 2):
        pool.arrive(ref)
    assert pool.servers.working == 2
    pool.servers.stuck.update((1, 2))
    assert pool.servers.working == 1, "B has a place left"


def test_what_is_told_of_the_cluster_is_of_the_servers_that_take_jobs():
    """Also of all types together: a server that is out is not counted, and comes back."""
    pool = driven({"A": 1, "B": 1}, {"A": ("A", 2), "B": ("B", 2)})
    pool.put(A=False)
    assert (pool.servers.working, pool.servers.idle, pool.servers.ready) == (1, 1, True)
    assert pool.servers.departure_s == 1.0
    assert [pool.arrive(ref) for ref in (1, 2, 3)] == ["B", "B", "blocked"]
    assert pool.servers.ahead == 2, "one runs beside the first, one waits"
    assert own_load(pool, "default").queue_length == 2
    pool.put(A=True)
    assert (pool.servers.working, pool.servers.departure_s) == (2, 0.5)


def test_of_seats_those_of_neighbors_are_told_and_an_engaged_server_is_not_ready():
    """One after another: a token for a server that works is a seat, not a start."""
    pool = driven({"A": 1}, {"A": ("A", 4)}, discipline="fcfs")
    fitting = pool.servers.fitting(0)
    assert fitting.ready
    places = [pool.arrive(ref, is_home=ref != 2) for ref in (1, 2, 3)]
    assert places == ["A", "seat", "seat"]
    assert (fitting.waiting, fitting.waiting_foreign, pool.servers.waiting_foreign) == (2, 1, 1)
    assert (fitting.ready, fitting.idle) == (False, 0)
