"""Random histories of the distributed queue with faults, each checked after every event.

`SPILLOVER_SOAK_S` in the environment makes the long test go on for about so long: 100 000 histories
take a core 12 minutes.
"""

import os
import time
from collections import Counter

import pytest

from support.histories.queues import History

SOAK_S = float(os.environ.get("SPILLOVER_SOAK_S", "0"))
HISTORIES = 60

TROUBLES = {
    *("killed", "stands still", "vanishes", "cut off", "loss", "delay", "disk full", "clock"),
    "drains",
}


def play(seeds, soak_s=0.0):
    """The histories of these seeds, and on as long as there is time. They are eventful, or they
    would prove little."""
    troubles, seen, offered, accepted, handled = Counter(), Counter(), 0, 0, 0
    seed, until_s = seeds.start, time.monotonic() + soak_s
    while seed < seeds.stop or time.monotonic() < until_s:
        told = History(seed).play()
        troubles += told.troubles
        seen += told.seen
        offered += told.offered
        accepted += told.accepted
        handled += told.handled
        seed += 1
    count = seed - seeds.start
    assert troubles.keys() == TROUBLES
    assert min(troubles.values()) > 0.1 * count
    assert 0.6 * offered < accepted < handled
    for kind in ("OfferAnswered", "ProbeNotSent", "Extended", "Nacked", "NotStored", "TakeGone"):
        assert seen[kind] > 0.1 * count, kind
    assert seen["Bury"] > 0.02 * count


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_nothing_breaks():
    """Conservation, order, no double grant, nothing lost, nobody stranded."""
    play(range(HISTORIES), SOAK_S)
