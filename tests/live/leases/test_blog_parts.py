"""The blog's rule piece by piece, without a Redis: how its member enters, leases that nobody
watches over, and what the store makes of answers that cross; and what any member has under way."""

import asyncio
import math
import os
from random import Random

import pytest

from spillover.core.leases import events as ev
from spillover.core.leases.machine import Phase
from spillover.core.leases.settings import MemberSettings
from spillover.live.leases import asks
from spillover.live.leases.blog import BlogMachine, UnwatchedLeases
from spillover.live.leases.blog_store import RedisBlogStore
from spillover.live.leases.renewal.clock import lease_now_s
from spillover.model.errors import InputError, StoreRefused, StoreUnreachable
from spillover.model.lease_times import LeaseTimes
from support.loop import turn
from support.scripted_redis import bulk, scripted_redis

LIMIT_S = 20.0


# --- entry ------------------------------------------------------------------------------------


def machine(**times):
    times = {"normal_lease_ms": 3_000.0, "min_grab_ms": 500.0, **times}
    settings = MemberSettings(node="a", partitions=3, times=LeaseTimes(**times))
    return BlogMachine(settings, Random(1))


@pytest.mark.parametrize("began", [False, True])
def test_a_member_that_is_not_one_yet_leaves_at_once(began):
    one = machine()
    if began:
        one.handle(ev.Started(), 10.0)
        one.handle(ev.AskFailed(ev.AskJoin(0, 10.0), "no way"), 10.0)
    assert one.handle(ev.Drain(), 10.1) == [ev.Finished()]
    assert (one.state, one.next_deadline()) == (Phase.FINISHED, math.inf)
    assert one.handle(ev.TimerFired(), 99.0) == []


# --- leases -----------------------------------------------------------------------------------


def test_leases_that_nobody_watches_over_last_until_they_are_given_back():
    """A stop has no end; epochs are 0, which counts as held."""
    leases = UnwatchedLeases(2)
    assert leases.kind == "none"
    leases.begin()
    first, second = (leases.grant(p, 0, lease_now_s() + 60.0) for p in (0, 1))
    leases.end()
    assert (first.is_over, second.is_over) == (False, False)
    leases.stop(0, 0, lease_now_s() - 1.0)
    assert (first.was_told, first.is_over) == (True, False)
    assert (second.was_told, second.is_over) == (False, False)
    leases.drop(0, 0)
    assert first.is_over
    assert not second.is_over
    leases.close()
    assert second.is_over
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(leases._memory.fd)


# --- the store --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("is_set", "stands", "winner"),
    [(1, "n1", "n1"), (1, None, "n1"), (1, "n2", "n1"), (0, "n2", "n2"), (0, None, "")],
)
async def test_whoever_set_the_mark_has_won_whatever_happened_since(is_set, stands, winner):
    """Between the two commands another one may clear it, and yet another one set it."""
    answers = {"HSETNX": b":%d\r\n" % is_set, "HGET": bulk(stands)}

    with scripted_redis(lambda words: answers[words[0]]) as server:
        url = server.url
        store = RedisBlogStore(url, "g", timeout_s=LIMIT_S)
        assert await store.set_grab_if_free(3, "n1") == winner
        await store.close()
        key = "{spillover:g}:grab"
        assert server.asked == [["HSETNX", key, "3", "n1"], ["HGET", key, "3"]]


# --- what is under way ------------------------------------------------------------------------


class Told:
    """Asks, and what came of them."""

    def __init__(self, operation):
        self.answers, self.failures = [], []
        self.asks = asks.Asks(
            {ev.AskJoin: operation},
            lambda ask, answer: self.answers.append((ask, answer)),
            lambda ask, error: self.failures.append((ask, error)),
        )


ASK = ev.AskJoin(3, 1.0)


def test_an_ask_is_answered_or_has_failed_and_a_bug_is_logged_in_full(caplog):
    async def story(error):
        async def operation(ask):
            await turn()
            if error is not None:
                raise error
            return ask.number

        told = Told(operation)
        told.asks.ask(ASK)
        await told.asks.close()
        await turn(0)
        assert told.asks._tasks == set()
        return told.answers, told.failures

    for known in (StoreUnreachable("away"), StoreRefused("no"), InputError("x", "", "bad")):
        assert asyncio.run(story(known)) == ([], [(ASK, known)])
    assert asyncio.run(story(None)) == ([(ASK, 3)], [])
    assert caplog.records == []
    bug = LookupError("a bug")
    assert asyncio.run(story(bug)) == ([], [(ASK, bug)])
    (record,) = caplog.records
    assert (record.getMessage(), record.exc_info[1]) == ("ask failed ask=AskJoin", bug)
