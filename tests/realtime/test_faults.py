"""Links that are cut, lossy and slow, and processes that are frozen, or killed and started again,
in the middle of a burst.

What must hold under all of it is in `support.faults.reckoning`; here is what breaks, and that it
was felt. All are in one file, so that one worker has them and uses its federations again.
"""

import asyncio
import signal

import pytest

from support.faults import federation as federations
from support.faults.breaking import spoiled
from support.loop import until

HOME, RELAY, RUNNER = "a", "b", "c"

CUTS = {"there": ("ab", "bc"), "back": ("ba", "cb"), "both ways": ("ab", "ba", "bc", "cb")}
"""On the way from a through b to c; the one over d stays."""
ALL = ("ab", "ba", "bc", "cb", "cd", "dc", "da", "ad")

SILENCE_S = 6.0
"""Whoever says nothing for so long is given up by its neighbors, as soon as they get to it."""
LOOK_S = 0.1


def cut(ways, for_s):
    return spoiled(ways, for_s, {"cut": False}, cut=True)


def frozen(cluster, for_s):
    """SIGSTOP while it has work of its neighbors, and SIGCONT."""

    async def fault(ring):
        # Of those that are given up some have no key.
        await ring.holds_foreign(cluster, 4 if for_s > SILENCE_S else 2)
        ring.signal(cluster, signal.SIGSTOP)
        try:
            await asyncio.sleep(for_s)
            if for_s > SILENCE_S:
                await until(lambda: ring.is_given_up(cluster), every_s=LOOK_S)
        finally:
            ring.signal(cluster, signal.SIGCONT)

    return fault


@pytest.mark.parametrize("for_s", [2.0, 7.0])
def test_cut(endure, for_s):
    """One way, the other, and both. What waits 5 s for a cut link is lost; a neighbor that says
    nothing for as long is given up."""
    found = endure({f"cut {name} {for_s:g} s": cut(ways, for_s) for name, ways in CUTS.items()})
    for reckoning in found.values():
        assert reckoning.ends(keyed=True) == {"done"}
        unknown = reckoning.outcomes(keyed=False)["outcome_unknown"]
        if for_s < 5.0:
            assert (unknown, reckoning.doubled(keyed=True)) == (0, 0)


def test_frozen_for_less_than_the_silence_limit(endure):
    """1.5 s: its neighbors hand it nothing more and give nothing up; it is just late."""
    found = endure(
        {
            "relay frozen 1.5 s": frozen(RELAY, 1.5),
            "runner frozen 1.5 s": frozen(RUNNER, 1.5),
        }
    )
    for reckoning in found.values():
        assert reckoning.ends(keyed=True) == reckoning.ends(keyed=False) == {"done"}
        assert reckoning.doubled(keyed=True) == 0


def test_frozen_for_longer_than_the_silence_limit(endure):
    """7 s: some 5 s after its last sign of life what it holds is given up. It finds its requests
    gone when it goes on."""
    found = endure(
        {
            "relay frozen 7 s": frozen(RELAY, 7.0),
            "runner frozen 7 s": frozen(RUNNER, 7.0),
        }
    )
    for reckoning, cluster in zip(found.values(), (RELAY, RUNNER), strict=True):
        # The frozen one itself takes its pause for service time, and may refuse what waited.
        assert reckoning.ends(keyed=True, but_at=cluster) == {"done"}
        # With certificates a request leaves only on a connection that was answered on before: what
        # a burst hands to one that is frozen is decided again, and little can be lost with it.
        unknown = reckoning.outcomes(keyed=False)["outcome_unknown"]
        assert unknown + reckoning.doubled(keyed=True) > 0 or federations.IS_SECURE


def test_lossy_and_slow(endure):
    """A fifth of everything lost on all links; and all links slow for a while, 300 ms."""
    found = endure(
        {
            "loss 0.2": spoiled(ALL, 3.0, {"loss": 0.0}, loss=0.2),
            "slow 300 ms": spoiled(ALL, 1.0, {"delay_ms": 5.0}, delay_ms=300.0),
        }
    )
    lossy, slow = found.values()
    assert lossy.ends(keyed=True) == {"done"}
    assert lossy.outcomes(keyed=False)["outcome_unknown"] > 0
    assert slow.ends(keyed=True) == slow.ends(keyed=False) == {"done"}
    assert slow.doubled(keyed=True) == 0


def killed(cluster):
    """SIGKILL while the burst is everywhere, and a new life at the same address."""

    async def fault(ring):
        await ring.holds_foreign(RUNNER)
        await ring.holds_foreign(RELAY, 1)
        ring.kill(cluster)
        await asyncio.sleep(0.3)
        ring.spawn(cluster)
        await ring.healthy()

    return fault


def test_killed_and_started_again(endure):
    """A relay, a runner and a home: each loses all that it knew. Clients with a key ask its next
    life again, under the same name, and are answered."""
    victims = {"relay": RELAY, "runner": RUNNER, "home": HOME}
    found = endure({f"{role} killed": killed(cluster) for role, cluster in victims.items()})
    for role, cluster in victims.items():
        told = found[f"{role} killed"].told
        at_dead = [one for one in told if one.home == cluster]
        assert any(one.attempts > 1 and one.outcome == "done" for one in at_dead)
        assert any(one.outcome == "unreachable" for one in at_dead)
        assert [one for one in told if one.home != cluster and one.attempts != 1] == []
        reckoning = found[f"{role} killed"]
        assert reckoning.ends(keyed=True) == {"done"}
        assert reckoning.ends(keyed=False, but_at=cluster) <= {"done", "outcome_unknown"}
