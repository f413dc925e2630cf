"""What a group costs that has come to rest, and what it takes to get there from nothing.

One run of a side is a group's whole life: all members begin at once, and once each partition runs
at one of them and the counts are even, Redis is asked what it does in some seconds.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spillover.tools.bench.display import number
from spillover.tools.bench.leases.cluster import Cluster
from spillover.tools.bench.leases.hosts import LOCKS
from spillover.tools.bench.leases.readings import Reading, read_redis, trees_cpu_s
from spillover.tools.bench.leases.server import looking_at, new_group, own_redis
from spillover.tools.bench.leases.settings import BLOG, GUARDED, TIMES, hold_against
from spillover.tools.bench.model import BenchPlan, Row, Stage

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from spillover.tools.bench.session import Session

MEMBERS, PARTITIONS = 50, 1000
MEMBERS_QUICK, PARTITIONS_QUICK = 12, 240
MEMBERS_PER_HOST = 10
EVEN_WITHIN_S = {GUARDED: 60.0, BLOG: 5.0, LOCKS: 5.0}
"""Fifty members start fifty processes more, which two cores take long to do; what rests is
measured at rest. The blog's rule never rests: after this it is as it will be."""
SETTLE_S = 1.5
"""Longer than one period: what was won last has been renewed, and all marks are gone."""

TRIPS = "at rest: round trips"
REDIS_CPU = "at rest: CPU of Redis"
NETWORK = "at rest: bytes to and from Redis"
MEMBER_CPU = "at rest: CPU of a member"
EVEN = "from nothing: time until even"
MOVES = "from nothing: moves"
SPENT = "from nothing: round trips until even"
UNITS = {
    TRIPS: "1/s",
    REDIS_CPU: "% of a core",
    NETWORK: "kB/s",
    MEMBER_CPU: "CPU-ms/s",
    EVEN: "s",
    MOVES: "moves",
    SPENT: "round trips",
}
LIMITS = {TRIPS: 200.0, REDIS_CPU: 10.0}
"""For `MEMBERS` and `PARTITIONS`."""

PEERS = {BLOG: "blog rule", LOCKS: "redis-py Lock for each partition"}
RULES = (GUARDED, *PEERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One run of a side."""

    figures: dict[str, float]
    was_even: bool
    served_once: int
    calls_per_s: dict[str, float]


async def measure_holding(session: Session) -> None:
    """Measures our rule, the blog's, and locks: in turn, the order turned round on every other
    run."""
    members = int(session.plan.of(MEMBERS, MEMBERS_QUICK))
    partitions = int(session.plan.of(PARTITIONS, PARTITIONS_QUICK))
    lives: dict[str, list[Life]] = {rule: [] for rule in RULES}
    with own_redis(session) as server:
        for run in range(session.plan.runs):
            session.say_run(TRIPS, run)
            for rule in rules_in(run):
                seed = session.plan.seed + run
                life = await live(session, server.url, rule, members, partitions, seed)
                lives[rule].append(life)
    _add_rows(session, lives)
    _add_notes(session, lives, members, partitions)


def rules_in(run: int) -> Sequence[str]:
    """Returns the rules in the order in which they have their turn in that run."""
    return RULES[::-1] if run % 2 else RULES


def window_s(plan: BenchPlan) -> float:
    """Returns for how long a group at rest is looked at."""
    return plan.of(4.0, 1.5)


async def live(
    session: Session, url: str, rule: str, members: int, partitions: int, seed: int
) -> Life:
    """Runs a group from its beginning to its end, on an empty Redis."""
    cluster = Cluster(
        url,
        new_group(),
        rule,
        hosts=hosts_for(members),
        members=members,
        partitions=partitions,
        seed=seed,
    )
    async with looking_at(url) as client:
        await client.flushall()
        async with cluster:
            before = await read_redis(client)
            began_s = cluster.begin()
            was_even = await cluster.until(lambda: cluster.is_even, EVEN_WITHIN_S[rule])
            spent = (await read_redis(client)).since(before)
            even_s = cluster.replay().even_since_s
            await settle()
            rest, members_cpu_s = await at_rest(client, cluster.pids, window_s(session.plan))
            cluster.check()
            ownership = cluster.replay()
    figures = at_rest_figures(rest, members_cpu_s, members) | {
        EVEN: even_s - began_s if even_s is not None else EVEN_WITHIN_S[rule],
        MOVES: float(ownership.moves),
        SPENT: float(spent.round_trips),
    }
    return Life(
        figures=figures,
        was_even=was_even,
        served_once=ownership.served_once,
        calls_per_s=calls_per_s(rest),
    )


def at_rest_figures(rest: Reading, members_cpu_s: float, members: int) -> dict[str, float]:
    """Returns the figures of what was between two readings, and of the CPU time that so many
    members took meanwhile."""
    return {
        TRIPS: rest.trips_per_s,
        REDIS_CPU: rest.cpu_percent,
        NETWORK: rest.moved_kb_per_s,
        MEMBER_CPU: members_cpu_s / members / rest.at_s * 1000.0,
    }


def calls_per_s(rest: Reading) -> dict[str, float]:
    """Returns how often each command was called, of those that were."""
    return {name: count / rest.at_s for name, count in rest.calls.items() if count > 0}


def hosts_for(members: int) -> int:
    """Returns how many processes there are for so many members."""
    return -(-members // MEMBERS_PER_HOST)


async def settle() -> None:
    """Waits until what was won last has been renewed."""
    await asyncio.sleep(SETTLE_S)


async def at_rest(client: Redis, pids: list[int], for_s: float) -> tuple[Reading, float]:
    """Returns what Redis does in that time, and the CPU time of these processes and theirs in s."""
    members_s = trees_cpu_s(pids)
    before = await read_redis(client)
    await asyncio.sleep(for_s)
    reading = (await read_redis(client)).since(before)
    return reading, trees_cpu_s(pids) - members_s


def _add_rows(session: Session, lives: dict[str, list[Life]]) -> None:
    for case, unit in UNITS.items():
        if not session.wants(case):
            continue
        values = {rule: [life.figures[case] for life in lives[rule]] for rule in lives}
        if case in LIMITS and not session.plan.quick:
            hold_against(session, case, unit, values[GUARDED], LIMITS[case])
        for rule, peer in PEERS.items():
            row = Row(
                case=case,
                unit=unit,
                values=tuple(values[GUARDED]),
                peer=peer,
                peer_values=tuple(values[rule]),
            )
            session.add(row)


def _add_notes(
    session: Session, lives: dict[str, list[Life]], members: int, partitions: int
) -> None:
    hosts = hosts_for(members)
    session.note(
        f"{members} members, {partitions} partitions, maximum lease "
        f"{TIMES.max_lease_ms / 1000:g} s, renewed each {TIMES.renewal_period_ms / 1000:g} s; "
        f"{hosts} processes host the members, each of which has its own connections and, by our "
        f"rule, its own renewing process; all on {os.cpu_count()} cores"
    )
    session.note(
        "a round trip is one read of Redis from a client: a script, a command or a pipeline; a "
        "message to a subscriber is none"
    )
    asked = (members + 2) * partitions * 1000.0 / TIMES.normal_lease_ms
    session.note(
        f"by the blog's rule each partition is challenged once a period and all members answer: "
        f"calculated, {number(asked)} round trips/s; what is shown is what they managed"
    )
    for rule, of_rule in lives.items():
        calls = ", ".join(
            f"{name} {count:.0f}/s"
            for name, count in sorted(of_rule[-1].calls_per_s.items(), key=lambda one: -one[1])[:6]
        )
        session.note(f"{rule}, at rest, as Redis counts (within scripts, too): {calls}")
        late = sum(not life.was_even for life in of_rule)
        if late:
            served = min(life.served_once for life in of_rule)
            session.note(
                f"{rule}: in {late} of {len(of_rule)} runs not even after "
                f"{EVEN_WITHIN_S[rule]:g} s, which stands for its time; at the end as few as "
                f"{served} of {partitions} partitions ran at one member and no other"
            )


STAGE = Stage(tuple(UNITS), measure_holding)
