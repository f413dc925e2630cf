"""Looking at all clusters of a running testbed, again and again, and checking their ledgers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from spillover.live.http.client import HttpClient
from spillover.model.errors import PeerError
from spillover.model.ids import ClusterId
from spillover.tools.demo.model import Sample

ASK_WITHIN_S = 2.0


class Sampler:
    """Asks every cluster for `/state`. A ledger that does not balance, at any look, is counted."""

    def __init__(self, urls: Mapping[ClusterId, str]) -> None:
        self._clients = {cluster: HttpClient(url) for cluster, url in urls.items()}
        self.imbalances = 0
        self.states: dict[str, dict[str, Any]] = {}
        """The newest state of each cluster."""

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()

    async def look(self) -> None:
        """Asks all at once. A cluster that does not answer keeps its last state."""
        answers = await asyncio.gather(
            *(
                client.request("GET", "/state", timeout_s=ASK_WITHIN_S)
                for client in self._clients.values()
            ),
            return_exceptions=True,
        )
        for cluster, answer in zip(self._clients, answers, strict=True):
            if isinstance(answer, PeerError):
                continue
            if isinstance(answer, BaseException):
                raise answer
            state = msgspec.json.decode(answer.body)
            self.states[cluster] = state
            self.imbalances += not is_balanced(state["ledger"])

    async def look_forever(self, period_s: float, on_look: Callable[[], None]) -> None:
        """Look every `period_s`, and tell after each look."""
        next_s = time.monotonic()
        while True:
            await self.look()
            on_look()
            next_s = max(next_s + period_s, time.monotonic())
            await asyncio.sleep(next_s - time.monotonic())

    def sample(self, time_s: float) -> Sample:
        """Returns the newest states as one sample."""
        states = self.states
        return Sample(
            time_s=time_s,
            queue_length={c: s["queue_length"] for c, s in states.items()},
            accept_probability={c: s["accept_probability"] for c, s in states.items()},
            neighborhood_accept_probability={
                c: s["neighborhood_accept_probability"] for c, s in states.items()
            },
            forwards={c: s["forwards"] for c, s in states.items()},
        )


def is_balanced(ledger: dict[str, Any]) -> bool:
    """Returns whether the two equations of contract section 4 hold."""
    home, foreign = ledger["home"], ledger["foreign"]
    return bool(
        sum(home.values()) == 2 * home["accepted"]
        and sum(foreign.values()) == 2 * foreign["received"]
    )
