"""Links that are cut, and processes that are frozen, for less and for more than the silence limit.

What must hold under all of it is in `support.faults.reckoning`; here is what breaks, and that it
was felt.
"""

import asyncio
import signal

import pytest

from support.faults import federation as federations
from support.faults.breaking import spoiled
from support.loop import until

RELAY, RUNNER = "b", "c"

CUTS = {"there": ("ab", "bc"), "back": ("ba", "cb"), "both ways": ("ab", "ba", "bc", "cb")}
"""On the way from a through b to c; the one over d stays."""

SILENCE_S = 6.0
"""Whoever says nothing for so long is given up by its neighbors, as soon as they get to it."""
LOOK_S = 0.1


def cut(ways, for_s):
    return spoiled(ways, for_s, {"cut": False}, cut=True)


def frozen(cluster, for_s):
    """SIGSTOP while it has work of its neighbors, and SIGCONT."""

    async def fault(ring):
        await ring.holds_foreign(cluster)
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
