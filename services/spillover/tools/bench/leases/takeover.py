"""From the death of a member without a word until all that it held runs elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from spillover.model.errors import RunError
from spillover.tools.bench.leases.cluster import Cluster
from spillover.tools.bench.leases.ownership import Report
from spillover.tools.bench.leases.server import new_group, own_redis
from spillover.tools.bench.leases.settings import BLOG, GUARDED, TIMES
from spillover.tools.bench.model import Figure, Row, Side, Stage

if TYPE_CHECKING:
    from spillover.tools.bench.session import Session

CASE = "takeover after kill -9, all partitions"
BOUND = "bound"
BOUND_S = (TIMES.max_lease_ms + TIMES.normal_lease_ms + TIMES.longest_wait_ms) / 1000.0
"""A maximum lease from the last renewal, a period until the next survey, and the longest wait."""
MEMBERS, PARTITIONS = 4, 32
EVEN_WITHIN_S = 30.0
TAKEN_WITHIN_S = 30.0


async def measure_takeover(session: Session) -> None:
    """Measures takeovers: each member is a process of its own; one of them is killed at some
    instant of its period."""
    random = Random(f"{session.plan.seed}/takeover")
    seeds = count(session.plan.seed)
    with own_redis(session) as server:

        def side(rule: str, name: str) -> Side:
            async def measure() -> tuple[float]:
                return (await take_over(server.url, rule, instant_s(random), next(seeds)),)

            return Side(name, measure)

        figure = Figure(CASE, "s")
        await session.compare([figure], side(GUARDED, "guarded rule"), side(BLOG, "blog rule"))
    add_bound(session)


def instant_s(random: Random) -> float:
    """Returns some instant of a member's period, since its beginning."""
    return random.random() * TIMES.normal_lease_ms / 1000.0


def add_bound(session: Session) -> None:
    """Notes a row of ours beside the bound, and whether it is kept."""
    ours = next(row for row in session.rows if row.case == CASE)
    bound = Row(case=CASE, unit="s", values=ours.values, peer=BOUND, peer_values=(BOUND_S,))
    session.add(bound)
    session.note(
        f"{CASE}: {PARTITIONS} partitions on {MEMBERS} processes; the bound is maximum lease + "
        f"period + longest wait; {_verdict(ours.values)}"
    )
    session.note(
        "takeover by the blog's rule: silence is a vote, so that no lease has to run out, and a "
        "member that is merely slow loses what it holds, too"
    )


def _verdict(took_s: Sequence[float]) -> str:
    """Whether each was within the bound."""
    verdict = "met" if max(took_s) <= BOUND_S else "NOT met"
    return f"longest of {len(took_s)}: {max(took_s):.2f} s: {verdict}"


async def take_over(url: str, rule: str, phase_s: float, seed: int) -> float:
    """Returns how long it takes, in s. Raises RunError if the group never comes to that."""
    async with Cluster(
        url, new_group(), rule, hosts=MEMBERS, members=MEMBERS, partitions=PARTITIONS, seed=seed
    ) as cluster:
        cluster.begin()
        victim = cluster.nodes[0]
        if not await cluster.until(lambda: _is_served(cluster, rule), EVEN_WITHIN_S):
            raise RunError(f"{rule}: {cluster.served_once} of {PARTITIONS} partitions are served")
        await asyncio.sleep(phase_s)
        orphans = cluster.held_by(victim)
        killed_s = cluster.kill(0)

        def is_taken() -> bool:
            return all(cluster.runs_elsewhere(partition, victim) for partition in orphans)

        if not await cluster.until(is_taken, TAKEN_WITHIN_S):
            raise RunError(f"{rule}: not all of a dead member's partitions run again")
        return took_s(cluster.reports(), orphans, killed_s)


def took_s(reports: Iterable[Report], orphans: Iterable[int], killed_s: float) -> float:
    """Returns how long it took from then on until all of these ran once more, by the first that
    each was said to."""
    owned = set(orphans)
    taken: dict[int, float] = {}
    for report in reports:
        if report.partition in owned and report.runs and report.at_s > killed_s:
            taken.setdefault(report.partition, report.at_s)
    return max(taken.values()) - killed_s


def _is_served(cluster: Cluster, rule: str) -> bool:
    """Even; by the blog's rule it may never be, so there all that runs at one member will do."""
    if rule == GUARDED:
        return cluster.is_even
    return cluster.served_once == PARTITIONS and bool(cluster.held_by(cluster.nodes[0]))


STAGE = Stage((CASE,), measure_takeover)
