"""A load while something breaks, and the account afterwards: what issue 3 asks of every fault.

With a key every request ends with one definite answer, and its effect is there at least once;
without one never more than once; the ledgers balance throughout, hold nothing within QUIET_S after
the fault is healed and the last client has its answer, and all nodes serve again.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from spillover.model.errors import PeerError
from support.waiting import slack

HEALED_S = 150.0
"""For a fault to come and be healed: for a burst to spread, and a node to start again."""
QUIET_S = 2.0
WATCH_S = 0.2
"""A look at a node costs it as much as several requests."""
HEALTHY_S = 5.0
"""For a stream of reports that was given up to be opened anew: at most a silence of 2.5 s and the
longest pause between attempts."""
SERVES_S = 10.0
"""For an answer of one that is well, on a machine that has much to do."""

NOT_DEFINITE = frozenset({"outcome_unknown", "unreachable", "wrong"})
NEVER_RUN = frozenset({"queue_full", "draining", "not_ready"})
SAID_BEFORE, SAID_AFTER = 300, 2000
"""Characters of a log that are told around what must not stand there."""
LOG_OF_A_FAULT_OF_OURS = ("Traceback", "internal error", "the ledger is off", "Task exception")

HOME_HELD = ("queued", "running", "away")
HOME_ENDS = ("done", "failed", "expired", "cancelled", *HOME_HELD)
FOREIGN_HELD = ("queued", "running", "handed_on")
FOREIGN_ENDS = ("answered", "cancelled", *FOREIGN_HELD)


class Bed(Protocol):
    """What is asked of a `support.faults.federation.Federation`."""

    clusters: Any
    effects: Any
    urls: Any

    def log(self, cluster: str) -> Any: ...
    async def call(
        self, cluster: str, method: str, path: str, body: Any = None, timeout_s: float = ...
    ) -> Any: ...
    async def state(self, cluster: str) -> Any: ...
    async def states(self, timeout_s: float = ...) -> Any: ...
    async def healthy(self, timeout_s: float) -> float: ...


@dataclass
class Reckoning:
    """What came of one load under one fault. `wrongs` says in words what must not be."""

    name: str
    told: list[Any]
    effects: Counter[str]
    wrongs: list[str] = field(default_factory=list)
    quiet_s: float = 0.0
    healthy_s: float = 0.0
    states_seen: int = 0

    def __post_init__(self) -> None:
        for one in self.told:
            times = self.effects[one.work]
            wrong = _wrong_if_keyed(one, times) if one.keyed else _wrong_if_unkeyed(one, times)
            if wrong:
                self.wrongs.append(f"{one.work} at {one.home}: {wrong} ({one})")

    def outcomes(self, *, keyed: bool) -> Counter[str]:
        return Counter(one.outcome for one in self.told if one.keyed is keyed)

    def ends(self, *, keyed: bool, but_at: str = "") -> set[str]:
        """The outcomes that there were, those left out that clients cancelled themselves, and
        those of one home."""
        return {
            one.outcome
            for one in self.told
            if one.keyed is keyed
            and one.home != but_at
            and not (one.cancels and one.outcome == "cancelled")
        }

    def doubled(self, *, keyed: bool) -> int:
        """How many requests had their effect more than once."""
        return sum(self.effects[one.work] > 1 for one in self.told if one.keyed is keyed)

    @property
    def figures(self) -> str:
        """One line for people."""
        keyed, unkeyed = (
            ", ".join(f"{count} {outcome}" for outcome, count in self.outcomes(keyed=k).items())
            for k in (True, False)
        )
        again = sum(one.attempts > 1 for one in self.told)
        replayed = sum(one.replayed for one in self.told)
        handed_on = sum(len(one.path) > 1 for one in self.told)
        return (
            f"{self.name:<34} keyed: {keyed} (effect twice {self.doubled(keyed=True)}, "
            f"sent again {again}, replayed {replayed}); unkeyed: {unkeyed} "
            f"(effect twice {self.doubled(keyed=False)}); run elsewhere {handed_on}; "
            f"ledgers at rest after {self.quiet_s:.2f} s, all well after {self.healthy_s:.2f} s"
        )


def _wrong_if_keyed(one: Any, times: int) -> str:
    if one.outcome in NOT_DEFINITE:
        return "no definite answer"
    if one.outcome == "cancelled" and not one.cancels:
        return "cancelled, which nobody wanted"
    return "done without an effect" if one.outcome == "done" and not times else ""


def _wrong_if_unkeyed(one: Any, times: int) -> str:
    if times > 1:
        return f"its effect {times} times"
    if one.outcome == "wrong":
        return "the answer to something else"
    if one.outcome == "done" and not times:
        return "done without an effect"
    return "refused, and run" if one.outcome in NEVER_RUN and times else ""


async def under(
    bed: Bed,
    name: str,
    load: Callable[[asyncio.Event], Awaitable[list[Any]]],
    fault: Callable[[], Awaitable[None]],
    limit_s: float = HEALED_S,
) -> Reckoning:
    """Let the load run while the fault comes and is healed: `fault` returns when it is, and the
    load goes on until the event that says so."""
    seen, healed = _Seen(), asyncio.Event()

    async def come_and_go() -> None:
        async with asyncio.timeout(limit_s):
            await fault()
        healed.set()

    watching = asyncio.create_task(_watch(bed, seen))
    try:
        async with asyncio.TaskGroup() as group:
            loading = group.create_task(_of(load(healed)))
            group.create_task(come_and_go())
        over_s = time.monotonic()
        wrongs = await _wrong_with_rest(bed)
        quiet_s = time.monotonic() - over_s
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    if not watching.cancelled():
        watching.result()  # a watch that ended by itself failed
    reckoning = Reckoning(name, loading.result(), _effects(bed), wrongs + seen.wrongs)
    reckoning.quiet_s, reckoning.states_seen = quiet_s, seen.count
    await _check_health(bed, reckoning)
    print(reckoning.figures)  # noqa: T201 - for pytest -s
    return reckoning


async def _of(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


@dataclass
class _Seen:
    """Of all looks at all nodes."""

    count: int = 0
    wrongs: list[str] = field(default_factory=list)


async def _watch(bed: Bed, seen: _Seen) -> None:
    """Each node apart: one that is frozen holds up no look at another."""
    await asyncio.gather(*(_watch_one(bed, cluster, seen) for cluster in bed.clusters))


async def _watch_one(bed: Bed, cluster: str, seen: _Seen) -> None:
    while True:
        state = await bed.state(cluster)
        if state is not None:
            seen.count += 1
            if not _is_balanced(state["ledger"]):
                seen.wrongs.append(f"{cluster} does not balance: {state['ledger']}")
        await asyncio.sleep(WATCH_S)


def _is_balanced(ledger: Any) -> bool:
    """The two balances of a ledger (`core.overflow.ledger`), written out."""
    home, foreign = ledger["home"], ledger["foreign"]
    return bool(
        home["accepted"] == sum(home[end] for end in HOME_ENDS)
        and foreign["received"] == sum(foreign[end] for end in FOREIGN_ENDS)
    )


async def _wrong_with_rest(bed: Bed) -> list[str]:
    """Wait until every node answers, balances, and has nothing in its hands."""
    quiet_s = QUIET_S * slack()
    limit_s = time.monotonic() + quiet_s
    while True:
        states = await bed.states(quiet_s)
        if all(map(_rests, states.values())):
            return []
        if time.monotonic() > limit_s:
            return [f"not at rest: {states}"]
        await asyncio.sleep(0.05)


def _rests(state: Any) -> bool:
    if state is None:
        return False
    home, foreign = state["ledger"]["home"], state["ledger"]["foreign"]
    held = sum(home[entry] for entry in HOME_HELD) + sum(foreign[entry] for entry in FOREIGN_HELD)
    return _is_balanced(state["ledger"]) and not (held or state["busy"] or state["queue_length"])


def _effects(bed: Bed) -> Counter[str]:
    return Counter(line.split()[0] for line in bed.effects.read_text().splitlines())


async def _check_health(bed: Bed, reckoning: Reckoning) -> None:
    try:
        reckoning.healthy_s = await bed.healthy(HEALTHY_S * slack())
    except TimeoutError:
        reckoning.wrongs.append(f"not well again: {await bed.states()}")
    for cluster in bed.clusters:
        work = {"payload": {"work": f"{reckoning.name} {cluster}".replace(" ", "_"), "hold_ms": 1}}
        with suppress(PeerError):
            status, _ = await bed.call(cluster, "POST", "/requests", work, SERVES_S)
            if status == 200:
                continue
        reckoning.wrongs.append(f"{cluster} does not serve")
    for cluster in bed.clusters:
        said = bed.log(cluster).read_text()
        for wrong in LOG_OF_A_FAULT_OF_OURS:
            before, found, after = said.partition(wrong)
            if found:
                told = f"{before[-SAID_BEFORE:]}{found}{after[:SAID_AFTER]}"
                reckoning.wrongs.append(f"{cluster} logs {wrong!r}: {told}")
