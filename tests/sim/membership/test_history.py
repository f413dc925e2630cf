"""Random histories of configurations that change, each checked after every event.

`SPILLOVER_SOAK_S` in the environment makes the long test go on for about so long: 100 000 histories
take a core half an hour. SPILLOVER_HISTORIES is how many it plays at least, and
SPILLOVER_HISTORIES_FIRST the seed of the first, to go on where another soak ended.
"""

import os
import time
from collections import Counter

import pytest

from support.histories.configurations import History

SOAK_S = float(os.environ.get("SPILLOVER_SOAK_S", "0"))
FIRST = int(os.environ.get("SPILLOVER_HISTORIES_FIRST", "0"))
LONG = int(os.environ.get("SPILLOVER_HISTORIES", "30"))

HAPPENS = {
    *("add", "remove", "add_link", "remove_link", "settings", "taken"),
    *("started", "ended", "died", "restarted", "cut"),
}


def play(seeds, soak_s=0.0):
    """The histories of these seeds, and on as long as there is time. They are eventful, or they
    would prove little."""
    happened, requests, versions = Counter(), Counter(), Counter()
    seed, until_s = seeds.start, time.monotonic() + soak_s
    while seed < seeds.stop or time.monotonic() < until_s:
        told = History(seed).play()
        happened += told.happened
        requests += told.requests
        versions[told.versions] += 1
        seed += 1
    count = seed - seeds.start
    told = f"{count} histories from seed {seeds.start}"
    print(told, dict(happened), dict(requests), dict(versions))  # noqa: T201
    assert happened.keys() >= HAPPENS
    assert min(happened[kind] for kind in HAPPENS) > 0.1 * count
    assert requests["forwarded"] > 2 * count
    assert requests["done"] > 10 * count
    assert versions[1] > 0.95 * count


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_nothing_breaks():
    """One configuration at the end, its links at both ends, nothing lost by a change."""
    play(range(FIRST, FIRST + LONG), SOAK_S)
