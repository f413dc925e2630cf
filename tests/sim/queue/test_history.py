"""Random histories of the distributed queue with faults, each checked after every event.

`SPILLOVER_QUEUE_HISTORIES` in the environment says how many, and `SPILLOVER_QUEUE_SEED` from which
seed on: 100 000 of them take a core about a quarter of an hour.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from spillover.sim.queue.history import History

COUNT = int(os.environ.get("SPILLOVER_QUEUE_HISTORIES", "2000"))
FIRST = int(os.environ.get("SPILLOVER_QUEUE_SEED", "0"))
SHORT = 200

TROUBLES = {
    *("killed", "stands still", "vanishes", "cut off", "loss", "delay", "disk full", "clock"),
    "drains",
}


def play(first, count):
    """That many histories. They are eventful, or they would prove little."""
    troubles, seen, offered, accepted, handled = Counter(), Counter(), 0, 0, 0
    for seed in range(first, first + count):
        told = History(seed).play()
        troubles += told.troubles
        seen += told.seen
        offered += told.offered
        accepted += told.accepted
        handled += told.handled
    assert troubles.keys() == TROUBLES
    assert min(troubles.values()) > 0.1 * count
    assert 0.6 * offered < accepted < handled
    for kind in ("OfferAnswered", "ProbeNotSent", "Extended", "Nacked", "NotStored", "TakeGone"):
        assert seen[kind] > 0.1 * count, kind
    assert seen["Bury"] > 0.02 * count


def test_nothing_breaks_in_short():
    """As many as a check has time for."""
    play(0, SHORT)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_nothing_breaks():
    """Conservation, order, no double grant, nothing lost, nobody stranded."""
    play(FIRST + SHORT, COUNT)


def test_the_same_seed_gives_the_same_history():
    """What is told of a broken one can be looked at again."""
    assert History(7).play() == History(7).play()
    assert History(7).play() != History(8).play()
