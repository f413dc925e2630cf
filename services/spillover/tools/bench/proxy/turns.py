"""Turns of all ways in a run, and what the ends of them used meanwhile: where an end was busy all
the time it was the limit, not the way.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from spillover.tools.bench.model import Row
from spillover.tools.bench.proxy.readers import Readers
from spillover.tools.bench.proxy.ways import Service, Way
from spillover.tools.bench.session import Session
from spillover.tools.bench.usage import CpuUse

BUSY_SHARE = 0.9
T = TypeVar("T")


async def turns(
    session: Session, case: str, ways: Sequence[Way], measure: Callable[[Way], Awaitable[T]]
) -> dict[str, list[T]]:
    """Returns what each way gives on each run, by its name. The order of the ways is turned round
    on every other run."""
    taken: dict[str, list[T]] = {way.name: [] for way in ways}
    for run in range(session.plan.runs):
        session.say_run(case, run)
        for way in reversed(ways) if run % 2 else ways:
            taken[way.name].append(await measure(way))
    return taken


def add_rows(session: Session, case: str, unit: str, values: Mapping[str, Sequence[float]]) -> None:
    """Note ours beside each of the others."""
    if not session.wants(case):
        return
    (_, ours), *others = values.items()
    if not others:
        session.add(Row(case=case, unit=unit, values=tuple(ours)))
    for name, theirs in others:
        session.add(
            Row(case=case, unit=unit, values=tuple(ours), peer=name, peer_values=tuple(theirs))
        )


class Ends:
    """The service and the clients, while something is measured."""

    def __init__(self, session: Session, service: Service, readers: Readers) -> None:
        self._session = session
        self._processes = {"service": [service.pid], "clients": [readers.pid]}
        self.begin()

    def begin(self) -> None:
        self._began_s = time.monotonic()
        self._use = CpuUse(self._processes)

    def look(self, case: str, way: Way) -> None:
        """Note which of them had hardly a moment left."""
        took_s = time.monotonic() - self._began_s
        for told in busy(self._use.used_s(), took_s):
            self._session.note(f"{case}, {way.name}: {told}")


def busy(used_s: Mapping[str, float], took_s: float) -> list[str]:
    """Returns what is to be said of those that used a core nearly all the time."""
    return [
        f"the {name} of the benchmark took a core: they, not it, are the limit"
        for name, seconds in used_s.items()
        if seconds / took_s > BUSY_SHARE
    ]
