"""Random histories of clients with sessions, each checked after every event.

`SPILLOVER_SOAK_S` in the environment makes the long test go on for about so long.
"""

import os
import time
from collections import Counter

import pytest

from support.histories.sessions import SessionHistory

SOAK_S = float(os.environ.get("SPILLOVER_SOAK_S", "0"))
HISTORIES = 30

HAPPENS = {"change", "change while some wait", "died", "silent", "cut off", "broken", "drain"}


def play(seeds, soak_s=0.0):
    """The histories of these seeds, and on as long as there is time. They are eventful, or they
    would prove little."""
    happened, requests, moves = Counter(), Counter(), 0
    seed, until_s = seeds.start, time.monotonic() + soak_s
    while seed < seeds.stop or time.monotonic() < until_s:
        told = SessionHistory(seed).play()
        happened += told.happened
        requests += told.requests
        moves += told.moves
        seed += 1
    count = seed - seeds.start
    print(f"{count} histories", dict(happened), dict(requests), f"{moves} moves")  # noqa: T201
    assert min(happened[kind] for kind in HAPPENS) > 0.1 * count
    assert requests["done"] > 10 * count
    assert moves > 10 * count


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_nothing_breaks():
    """Every client comes to a server of the newest list, nobody spins, no node lets in too many."""
    play(range(HISTORIES), SOAK_S)
