"""Looking at all clusters of a running testbed, again and again, and checking their ledgers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

import msgspec

from spillover.live.http1.client import HttpClient
from spillover.model.errors import PeerError
from spillover.model.ids import ClusterId

ASK_WITHIN_S, LOOK_S = 2.0, 0.05
HELD = {"home": ("queued", "running", "away"), "foreign": ("queued", "running", "handed_on")}
"""The entries of each side of a ledger that say that a request is held."""


class Sampler:
    """Asks every cluster for `/state`. A ledger that does not balance, at any look, is counted."""

    def __init__(self, urls: Mapping[ClusterId, str]) -> None:
        self._clients = {cluster: HttpClient(url) for cluster, url in urls.items()}
        self.imbalances = 0
        self.states: dict[str, dict[str, Any]] = {}
        """The newest state of each cluster."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients.values():
            await client.close()

    async def look(self) -> None:
        """Asks all at once. A cluster that does not answer keeps its last state."""
        asked = [
            client.request("GET", "/state", timeout_s=ASK_WITHIN_S)
            for client in self._clients.values()
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for cluster, answer in zip(self._clients, answers, strict=True):
            if isinstance(answer, PeerError):
                continue
            if isinstance(answer, BaseException):
                raise answer
            state = self.states[cluster] = msgspec.json.decode(answer.body)
            home, foreign = state["ledger"]["home"], state["ledger"]["foreign"]
            # The two balances of a ledger (`core.overflow.ledger`).
            balanced = sum(home.values()) == 2 * home["accepted"]
            balanced = balanced and sum(foreign.values()) == 2 * foreign["received"]
            self.imbalances += not balanced

    async def look_forever(self, period_s: float, on_look: Callable[[], None]) -> None:
        """Looks every `period_s`, and tells after each look."""
        next_s = time.monotonic()
        while True:
            await self.look()
            on_look()
            next_s = max(next_s + period_s, time.monotonic())
            await asyncio.sleep(next_s - time.monotonic())

    async def quiet(self, within_s: float, sides: tuple[str, ...] = tuple(HELD)) -> bool:
        """Returns whether no cluster holds a request any more, on these sides of its ledger: the
        client's answer can overtake a relay's ledger."""
        limit_s = time.monotonic() + within_s
        while True:
            await self.look()
            ledgers = [state["ledger"] for state in self.states.values()]
            if not any(
                one[side][entry] for one in ledgers for side in sides for entry in HELD[side]
            ):
                return True
            if time.monotonic() > limit_s:
                return False
            await asyncio.sleep(LOOK_S)
