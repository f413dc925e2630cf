"""A soak of random histories of pools of unlike servers: no token is lost or doubled, whatever goes
wrong, and all else that must hold of a pool does (`spillover.sim.overflow.pool_checker`).

`SPILLOVER_SOAK_S` in the environment makes it go on for about so long, up to ALL of them. The first
of all that have ever been played is seed 0.
"""

import os
import time
from collections import Counter

import pytest

from spillover.core.overflow import events as ev
from spillover.model.request import Outcome, Refusal
from support.pool_histories import History

SOAK_S = float(os.environ.get("SPILLOVER_SOAK_S", "0"))
ALL = 100_000


def played(seeds, until_s=float("inf")):
    """What has happened in these histories, as far as time allows. Raises Broken, which names the
    seed."""
    seen = Counter()
    for seed in seeds:
        if time.monotonic() > until_s:
            break
        history = History(seed)
        history.play()
        seen.update(history.seen)
        seen["histories"] += 1
    return seen


def test_nothing_breaks_in_random_histories():
    """Some dozens."""
    played(range(25))


def test_who_goes_without_a_server_may_be_overtaken_at_it():
    """Histories in which a request waits for another server than the one that has refused it."""
    played([3719, 53878])


@pytest.mark.slow
def test_nothing_breaks_in_many_random_histories():
    """More of them; they are eventful, or they would prove little."""
    seen = played(range(100, 160))
    if SOAK_S:
        played(range(160, ALL), time.monotonic() + SOAK_S)
    troubles = ("crash", "pause", "down", "slow", "failing", "clock", "cut", "drain", "tokens")
    events = (ev.NotStarted, ev.ServersDown, ev.TokensSet, ev.ForwardAnswered, ev.ForwardRefused)
    events = [event.__name__ for event in (*events, ev.Cancelled, ev.CancelAsked, ev.WorkAsked)]
    outcomes = (Outcome.DONE, Outcome.FAILED, Outcome.EXPIRED, Outcome.CANCELLED, "lost")
    refusals = (Refusal.BLOCKED, Refusal.UNKNOWN_TYPE, Refusal.NO_SERVERS, Refusal.TOO_LATE)
    for what in (*troubles, *events, *outcomes, *refusals):
        assert seen[what] >= 2, (what, seen)
    assert seen[Outcome.DONE] > 5 * seen["histories"]
