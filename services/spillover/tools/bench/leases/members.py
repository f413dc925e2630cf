"""How the cost at rest grows with the members: the partitions stay, each member holds fewer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from spillover.tools.bench.leases.cluster import Cluster
from spillover.tools.bench.leases.holding import (
    EVEN_WITHIN_S,
    PARTITIONS,
    at_rest,
    hosts_for,
    settle,
)
from spillover.tools.bench.leases.server import looking_at, new_group, own_redis
from spillover.tools.bench.leases.settings import GUARDED
from spillover.tools.bench.model import Row, Stage

if TYPE_CHECKING:
    from spillover.tools.bench.session import Session

COUNTS = (10, 50, 100)
TRIPS = {f"round trips, {members} members": members for members in COUNTS}
REDIS_CPU = {f"CPU of Redis, {members} members": members for members in COUNTS}
WINDOW_S = 2.0
PEER = f"{COUNTS[0]} members"


async def measure_members(session: Session) -> None:
    """Measures one group for each number, looked at several times; ratios are to the fewest
    members."""
    if session.plan.quick:
        session.note("quick: no groups of other sizes")
        return
    add_rows(session, {members: await _at_rest(session, members) for members in COUNTS})


def add_rows(session: Session, found: Mapping[int, Sequence[tuple[float, float]]]) -> None:
    """Notes rows of what was found with so many members, each beside the fewest."""
    fewest = found[COUNTS[0]]
    for cases, unit, at in ((TRIPS, "1/s", 0), (REDIS_CPU, "% of a core", 1)):
        for case, members in cases.items():
            if not session.wants(case) or not found[members]:
                continue
            is_first = members == COUNTS[0] or not fewest
            row = Row(
                case=case,
                unit=unit,
                values=tuple(one[at] for one in found[members]),
                peer=None if is_first else PEER,
                peer_values=() if is_first else tuple(one[at] for one in fewest),
            )
            session.add(row)


async def _at_rest(session: Session, members: int) -> list[tuple[float, float]]:
    """Round trips a second, and % of a core of Redis: as many times as there are runs, or not at
    all for a group that does not come to rest."""
    found = []
    with own_redis(session) as server:
        cluster = Cluster(
            server.url,
            new_group(),
            GUARDED,
            hosts=hosts_for(members),
            members=members,
            partitions=PARTITIONS,
            seed=session.plan.seed,
        )
        async with looking_at(server.url) as client, cluster:
            cluster.begin()
            if not await cluster.until(lambda: cluster.is_even, 2.0 * EVEN_WITHIN_S[GUARDED]):
                session.note(f"{members} members had not come to rest in time: left out")
                return []
            await settle()
            for run in range(session.plan.runs):
                session.say_run(f"{members} members", run)
                rest, _ = await at_rest(client, [], WINDOW_S)
                found.append((rest.trips_per_s, rest.cpu_percent))
    return found


STAGE = Stage((*TRIPS, *REDIS_CPU), measure_members)
