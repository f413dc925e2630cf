"""Users at all five sites while one of them comes to harm, and the account afterwards.

Half of them have keys, and do as real ones would: when the connection fails they send the same
request again under the same key. The others send once. What breaks is in the tests.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from spillover.live.http1.client import HttpClient
from spillover.model.errors import PeerError
from support.loop import until

PATIENCE_S = 40.0
PAUSE_FIRST_S, PAUSE_LONGEST_S = 0.1, 1.0
LOOK_S = 0.1
STATE_S = 1.0
"""A site that is frozen answers nothing, and holds up no look at another."""

RATES: Mapping[str, float] = {"a": 220.0, "b": 20.0, "c": 20.0, "d": 20.0, "e": 20.0}
"""Per second: at a, which serves 125 of them itself, it is a burst."""

HOME_HELD = ("queued", "running", "away")
HOME_ENDS = ("done", "failed", "expired", "cancelled", *HOME_HELD)
FOREIGN_HELD = ("queued", "running", "handed_on")
FOREIGN_ENDS = ("answered", "cancelled", *FOREIGN_HELD)

now_s = time.monotonic


@dataclass(slots=True)
class Told:
    """One request, and its end as its user saw it. `outcome`: done, the reason of a problem,
    or unreachable."""

    name: str
    home: str
    keyed: bool
    sent_s: float
    ended_s: float = float("inf")
    outcome: str = "unreachable"
    attempts: int = 0
    path: tuple[str, ...] = ()


@dataclass
class SiteLoad:
    """`async with SiteLoad(urls) as load`: users all the time, until `end()`; ledgers are watched
    as long. `told` has whatever was sent."""

    urls: Mapping[str, str]
    rates: Mapping[str, float] = field(default_factory=lambda: RATES)
    told: list[Told] = field(default_factory=list)
    imbalances: list[str] = field(default_factory=list)
    looks: Counter[str] = field(default_factory=Counter)

    async def __aenter__(self) -> Self:
        self._mark = uuid.uuid4().hex[:8]
        self._ended = asyncio.Event()
        self._over = asyncio.Event()
        self._clients = {home: HttpClient(url) for home, url in self.urls.items()}
        self._talks: set[asyncio.Task[None]] = set()
        self._senders = [asyncio.create_task(self._send(home)) for home in self.urls]
        self._watchers = [asyncio.create_task(self._watch(home)) for home in self.urls]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ended.set()
        self._over.set()
        tasks = [*self._senders, *self._watchers, *self._talks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in self._clients.values():
            await client.close()

    async def end(self) -> None:
        """Nobody comes any more; until all have their answers."""
        self._ended.set()
        await asyncio.gather(*self._senders)
        await asyncio.gather(*self._talks)

    async def until(self, condition: Any, limit_s: float, what: str) -> float:
        """How long it took until that was so; `condition()` may have to be awaited."""
        began_s = now_s()
        await until(condition, limit_s, what, every_s=0.02)
        return now_s() - began_s

    async def moment(self, for_s: float) -> None:
        """Let the load go on for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(for_s):
                await self._over.wait()

    # --- users --------------------------------------------------------------------------------

    async def _send(self, home: str) -> None:
        began_s = now_s()
        for index in itertools.count():
            at_s = began_s + index / self.rates[home]
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, at_s - now_s())):
                    await self._ended.wait()
            if self._ended.is_set():
                return
            told = Told(f"{self._mark}-{home}-{index}", home, index % 2 == 0, now_s())
            self.told.append(told)
            talk = asyncio.create_task(self._talk(told))
            self._talks.add(talk)
            talk.add_done_callback(self._talks.discard)

    async def _talk(self, told: Told) -> None:
        headers = [(b"Idempotency-Key", told.name.encode())] if told.keyed else []
        body = json.dumps({"payload": {"work": told.name}}).encode()
        pause_s = PAUSE_FIRST_S
        while True:
            rest_s = max(0.1, told.sent_s + PATIENCE_S - now_s())
            told.attempts += 1
            try:
                response = await self._clients[told.home].request(
                    "POST", "/requests", headers=headers, body=body, timeout_s=rest_s
                )
            except PeerError:
                if not told.keyed or rest_s < pause_s + 0.1:
                    break
            else:
                answer = json.loads(response.body)
                told.outcome = answer.get("reason", "done")
                told.path = tuple(answer.get("path", ()))
                # Not taken, so it did not run: anybody may send it again.
                if response.status != 503 or rest_s < pause_s + 0.1:
                    break
            await self.moment(pause_s)
            pause_s = min(2 * pause_s, PAUSE_LONGEST_S)
        told.ended_s = now_s()

    # --- ledgers ------------------------------------------------------------------------------

    async def _watch(self, cluster: str) -> None:
        while not self._over.is_set():
            state = await self.state(cluster)
            if state is not None:
                self.looks[cluster] += 1
                if not _is_balanced(state["ledger"]):
                    self.imbalances.append(f"{cluster}: {state['ledger']}")
            await self.moment(LOOK_S)

    async def state(self, cluster: str) -> Any:
        return await self._ask(cluster, "/state")

    async def federation(self, cluster: str) -> Any:
        """All clusters as seen from that one, or None."""
        found = await self._ask(cluster, "/federation")
        return None if found is None else found["clusters"]

    async def _ask(self, cluster: str, path: str) -> Any:
        limit_s = 3 * STATE_S if path == "/federation" else STATE_S
        try:
            response = await self._clients[cluster].request("GET", path, timeout_s=limit_s)
        except PeerError:
            return None
        return json.loads(response.body) if response.status == 200 else None

    async def sees(self, cluster: str, **alive: bool) -> bool:
        """Whether it has its neighbors for alive or not, as said."""
        state = await self.state(cluster)
        found = {each["id"]: each["alive"] for each in state["neighbors"]} if state else {}
        return alive.items() <= found.items()

    async def rests(self) -> bool:
        """Every ledger balances, and nobody has anything in hands."""
        states = [await self.state(cluster) for cluster in self.urls]
        return all(state is not None and _rests(state) for state in states)

    # --- the account --------------------------------------------------------------------------

    def sent(self, from_s: float, to_s: float = float("inf")) -> list[Told]:
        """Those whose user came and had an answer between these instants."""
        return [one for one in self.told if one.sent_s >= from_s and one.ended_s <= to_s]

    def outcomes(self, *, keyed: bool, homes: str) -> Counter[str]:
        return Counter(one.outcome for one in self.told if one.keyed is keyed and one.home in homes)


def _is_balanced(ledger: Any) -> bool:
    """The two balances of a ledger (`core.overflow.ledger`), written out."""
    home, foreign = ledger["home"], ledger["foreign"]
    return bool(
        home["accepted"] == sum(home[end] for end in HOME_ENDS)
        and foreign["received"] == sum(foreign[end] for end in FOREIGN_ENDS)
    )


def _rests(state: Any) -> bool:
    home, foreign = state["ledger"]["home"], state["ledger"]["foreign"]
    held = sum(home[entry] for entry in HOME_HELD) + sum(foreign[entry] for entry in FOREIGN_HELD)
    return _is_balanced(state["ledger"]) and not (held or state["busy"] or state["queue_length"])
