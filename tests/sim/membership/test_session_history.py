"""Random histories of clients with sessions, each checked after every event; and what the checker
says of machines that do something wrong.

`SPILLOVER_SOAK_S` in the environment makes the long test go on for about so long.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter

import pytest

from spillover.core.membership.client_session import ClientSession
from spillover.core.membership.session_events import Announced, Leave, NotReached, Parting
from support.histories.session_checker import Broken
from support.histories.sessions import SessionHistory

SOAK_S = float(os.environ.get("SPILLOVER_SOAK_S", "0"))
SHORT = 50
LONG = 150
NOTICED_WITHIN = 100
"""Histories."""

HAPPENS = {"change", "change while some wait", "died", "silent", "cut off", "broken", "drain"}


def play(seeds, soak_s=0.0, kind=ClientSession):
    """The histories of these seeds, and on as long as there is time. They are eventful, or they
    would prove little."""
    happened, requests, moves = Counter(), Counter(), 0
    seed, until_s = seeds.start, time.monotonic() + soak_s
    while seed < seeds.stop or time.monotonic() < until_s:
        told = SessionHistory(seed, kind).play()
        happened += told.happened
        requests += told.requests
        moves += told.moves
        seed += 1
    count = seed - seeds.start
    print(f"{count} histories", dict(happened), dict(requests), f"{moves} moves")  # noqa: T201
    assert min(happened[kind] for kind in HAPPENS) > 0.1 * count
    assert requests["done"] > 10 * count
    assert moves > 10 * count


def test_nothing_breaks_in_short():
    """As many as a check has time for."""
    play(range(SHORT))


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_nothing_breaks():
    """Every client comes to a server of the newest list, nobody spins, no node lets in too many."""
    play(range(SHORT, LONG), SOAK_S)


def test_the_same_seed_gives_the_same_history():
    """What is told of a broken one can be looked at again."""
    assert SessionHistory(7).play() == SessionHistory(7).play()
    assert SessionHistory(7).play() != SessionHistory(8).play()


# --- machines that do something wrong ------------------------------------------------------------


class Impatient(ClientSession):
    """Asks again at once where nobody is reached."""

    def handle(self, event, now_s):
        commands = super().handle(event, now_s)
        if isinstance(event, NotReached) and self.in_use is None and math.isfinite(self._again_s):
            self._again_s = now_s + 0.001
        return commands


class Deaf(ClientSession):
    """Does not hear of changes."""

    def handle(self, event, now_s):
        return [] if isinstance(event, Announced) else super().handle(event, now_s)


class Clinging(ClientSession):
    """Keeps the session that it has left."""

    def handle(self, event, now_s):
        return [one for one in super().handle(event, now_s) if not isinstance(one, Leave)]


class Resigned(ClientSession):
    """Stops where the first round has found nobody."""

    def handle(self, event, now_s):
        commands = super().handle(event, now_s)
        if isinstance(event, NotReached):
            self._again_s = math.inf
        return commands


class Leaping(ClientSession):
    """Leaves before it has another server."""

    def handle(self, event, now_s):
        commands = super().handle(event, now_s)
        if isinstance(event, Parting) and self._session is not None:
            commands.append(Leave(self._session))
        return commands


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Impatient, "spins"),
        (Deaf, "does not end"),
        (Clinging, "streams"),
        (Resigned, "has no session|wants|has had no server|after NotReached"),
        (Leaping, "and has a session at None"),
    ],
)
def test_the_checker_notices(kind, said):
    with pytest.raises(Broken, match=said):
        play(range(NOTICED_WITHIN), kind=kind)
