"""The checker of pools sees what it is there for: each planted bug is found, by itself."""

from __future__ import annotations

from collections import deque

import pytest

from spillover.core.overflow.machine import NodeMachine
from spillover.core.tokens.bucket import Bucket, Token
from spillover.core.tokens.servers import TokenServers
from spillover.sim.overflow.checkers import Broken
from spillover.sim.overflow.pool_checker import PoolChecker
from support.pool_histories import History


def broken(seeds=range(60)):
    """Random histories until something breaks; what is told then."""
    for seed in seeds:
        try:
            History(seed).play()
        except Broken as found:
            return str(found)
    return None


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """The pool does not check itself: what is found is found from outside."""
    monkeypatch.setattr(NodeMachine, "check", lambda _: None)
    monkeypatch.setattr(TokenServers, "check", lambda _: None)


def test_a_token_that_is_lost(monkeypatch):
    """One that a job gives back is put nowhere, now and then."""
    give_back, given = Bucket.give_back, []

    def forgetful(bucket, token, holder, served, now_s):
        given.append(token)
        if len(given) % 5:
            return give_back(bucket, token, holder, served, now_s)
        token.holder = None
        return True

    monkeypatch.setattr(Bucket, "give_back", forgetful)
    assert "is lost or doubled" in broken()


def test_a_token_that_is_doubled(monkeypatch):
    """It comes back although it has not left."""
    seize = Bucket.seize

    def careless(bucket, kind, holder):
        token = seize(bucket, kind, holder)
        twin = Token(token.id, kind)
        twin.number = bucket.next_number
        bucket._release(bucket._classes[kind], twin, 0.0)
        return token

    monkeypatch.setattr(Bucket, "seize", careless)
    assert "is lost or doubled" in broken()


def test_a_limit_that_nobody_has_set(monkeypatch):
    """An operator's word has no effect."""
    monkeypatch.setattr(Bucket, "set_limit", lambda *_: None)
    assert "not of what was said" in broken()


def test_the_shortest_available(monkeypatch):
    """The tokens of a class leave in the wrong order, and so does what is oldest."""

    def last(bucket, kind, holder):
        entry = bucket._classes[kind]
        entry.available = deque(reversed(entry.available))
        return seize(bucket, kind, holder)

    seize = Bucket.seize
    monkeypatch.setattr(Bucket, "seize", last)
    assert "is there for longer" in broken()


def test_one_that_waits_beside_a_token(monkeypatch):
    """What was released is looked at once in a while only."""
    first, asked = TokenServers._first_blocked, []

    def lazy(servers):
        asked.append(servers)
        return first(servers) if len(asked) % 3 else None

    monkeypatch.setattr(TokenServers, "_first_blocked", lazy)
    assert "waits beside an available token" in broken()


def test_a_server_that_is_out(monkeypatch):
    """Taken out, it takes jobs all the same."""
    monkeypatch.setattr(TokenServers, "put_in", lambda *_: None)
    assert "which is out" in broken()


def test_a_server_that_is_down(monkeypatch):
    """Nobody listens when its handler says so."""
    monkeypatch.setattr(TokenServers, "server_changed", lambda *_: None)
    assert "which is down" in broken()


@pytest.mark.slow
def test_a_server_that_rests(monkeypatch):
    """It takes jobs all the same."""

    def rest(pool, _, until_s):
        pool.servers[pool._freed.server].rest_until_s = until_s
        return False

    monkeypatch.setattr(TokenServers, "rest", rest)
    assert "which is resting" in broken(range(400))


def test_one_that_goes_without_servers_that_have_not_refused_it(monkeypatch):
    """Each refusal counts as one of all but the last server."""
    refused = TokenServers.refused

    def by_others(pool, visit):
        others = refused(pool, visit)
        visit.refused_on = tuple(range(pool.total - 1))
        return others

    monkeypatch.setattr(TokenServers, "refused", by_others)
    assert "goes without servers that have not refused it" in broken(range(400))


def test_two_at_a_time_where_it_is_one_after_another(monkeypatch):
    """Every server counts as idle."""
    monkeypatch.setattr(TokenServers, "_is_engaged", lambda *_: False)
    assert "beside another job" in broken()


def test_a_type_that_is_not_served(monkeypatch):
    """The checker is told of a type less than the pool has."""
    init = PoolChecker.__init__

    def without_one(checker, pool, servers):
        init(checker, pool, servers)
        checker._joins.popitem()

    monkeypatch.setattr(PoolChecker, "__init__", without_one)
    told = broken()
    assert "which its type may not join" in told or "of a type that is not served here" in told


@pytest.mark.slow
def test_the_pool_as_it_is():
    """Or what the others find would prove little."""
    assert broken(range(40)) is None
