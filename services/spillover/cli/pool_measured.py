"""The pool of a running node, with measured rates: requests of each type that came between two
looks at `/state`, and the work of a job as the node has learned it.

Not here: what is made of such a pool (`plan_tokens`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from spillover.cli.models.progress import OnProgress
from spillover.cli.node_calls import NodeCalls
from spillover.model.errors import InputError, RunError
from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType
from spillover.model.token_orders import LONGEST_AVAILABLE

STEP_S = 0.2
"""The bar of progress moves once in this time."""

UNLIKE = 1.1
"""Types whose jobs take so many times as long as others' are not alike."""


class _ServerState(msgspec.Struct):
    id: str
    rate: float
    state: str


class _ClassState(msgspec.Struct):
    id: str
    servers: tuple[str, ...]
    limit: int


class _TypeState(msgspec.Struct):
    id: str
    classes: tuple[str, ...]
    arrived: int
    work_ms: float


class PoolState(msgspec.Struct):
    """The fields of a node's pool that a measurement needs."""

    order: str
    servers: tuple[_ServerState, ...]
    classes: tuple[_ClassState, ...]
    types: tuple[_TypeState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A pool as it was measured: rates are in jobs per second."""

    pool: Pool
    """The pool with the types that came. A type counts by its load: its rate is that of jobs of
    mean work which are worth the same."""
    duration_s: float
    arrived: Mapping[str, int]
    """The number of clients' requests in that time, by type, for all types."""
    work_ms: Mapping[str, float]
    """How long a job takes alone on a server of rate 1, by type."""
    order: str
    closed: tuple[str, ...]
    """The servers that took no jobs at the end."""

    def as_dict(self) -> dict[str, Any]:
        """Returns what `plan tokens --json` says of it."""
        types = {
            kind: {
                "arrived": count,
                "rate": count / self.duration_s,
                "rate_standard_error": count**0.5 / self.duration_s,
                "work_ms": self.work_ms[kind],
            }
            for kind, count in self.arrived.items()
        }
        return {"duration_s": self.duration_s, "types": types}

    def remarks(self) -> list[str]:
        """Returns what a reader of the plan should know, a line each."""
        rates = ", ".join(
            f"{kind} {count / self.duration_s:.3g} +- {count**0.5 / self.duration_s:.2g} per s"
            for kind, count in self.arrived.items()
        )
        lines = [f"measured for {self.duration_s:.0f} s: {rates} (standard errors)"]
        works = [self.work_ms[kind.id] for kind in self.pool.types]
        if max(works) > UNLIKE * min(works):
            lines.append(
                "jobs of some types take longer than others': a type counts by its load, and "
                "shares over several types are of work, not of jobs"
            )
        if self.order != LONGEST_AVAILABLE:
            lines.append(f"the figures are of the order {LONGEST_AVAILABLE}; this is {self.order}")
        if self.closed:
            closed = ", ".join(self.closed)
            lines.append(f"counted as if they took jobs: {closed}")
        return lines


async def measure(url: str, duration_s: float, on_progress: OnProgress) -> Measured:
    """Returns the pool of the node there. Raises RunError if there is none to be measured."""
    now_s = asyncio.get_running_loop().time
    async with NodeCalls(url) as node:
        before, epoch = read(url, await node.state())
        began_s = now_s()
        while (left_s := began_s + duration_s - now_s()) > 0:
            await asyncio.sleep(min(STEP_S, left_s))
            if on_progress is not None:
                on_progress(now_s() - began_s)
        after, epoch_after = read(url, await node.state())
        duration_s = now_s() - began_s
    if epoch_after != epoch:
        raise RunError(f"the node at {url} has been started anew meanwhile: measure again")
    return measured(url, before, after, duration_s)


def read(url: str, state: Mapping[str, Any]) -> tuple[PoolState, Any]:
    """Returns what a `/state` says of the pool, and the epoch of the node."""
    if state.get("tokens") is None:
        raise RunError(f"the servers of cluster {state.get('cluster')} are alike: it has no tokens")
    try:
        return msgspec.convert(state["tokens"], PoolState), state["ledger"].get("epoch")
    except msgspec.ValidationError as error:
        raise RunError(f"the node at {url} tells too little of its pool: {error}") from None


def measured(url: str, before: PoolState, after: PoolState, duration_s: float) -> Measured:
    """Returns what came between two looks. Raises RunError if none did, or if what the node says
    is no pool."""
    had = {kind.id: kind.arrived for kind in before.types}
    arrived = {kind.id: kind.arrived - had.get(kind.id, 0) for kind in after.types}
    count = sum(arrived.values())
    if count <= 0 or min(arrived.values()) < 0:
        raise RunError(f"no client's request came to {url} in {duration_s:.0f} s: measure longer")
    work_ms = {kind.id: kind.work_ms for kind in after.types}
    mean_ms = sum(work_ms[kind] * came for kind, came in arrived.items()) / count
    if not mean_ms > 0:
        raise RunError(f"the node at {url} says that its jobs take no time")
    per_job = mean_ms / 1e3
    try:
        pool = Pool(
            name=url,
            servers=tuple(PoolServer(id=s.id, rate=s.rate / per_job) for s in after.servers),
            classes=tuple(
                PoolClass(id=c.id, servers=c.servers, tokens=c.limit) for c in after.classes
            ),
            types=tuple(
                PoolType(
                    id=kind.id,
                    rate=arrived[kind.id] / duration_s * kind.work_ms / mean_ms,
                    classes=kind.classes,
                )
                for kind in after.types
                if arrived[kind.id]
            ),
        )
    except InputError as error:
        raise RunError(f"what the node at {url} says is no pool: {error}") from None
    return Measured(
        pool=pool,
        duration_s=duration_s,
        arrived=arrived,
        work_ms=work_ms,
        order=after.order,
        closed=tuple(server.id for server in after.servers if server.state != "up"),
    )
