"""Random fault schedules, for `--faults random:SEED` and for sweeps over seeds. All is healed by
the end, so that what must hold after the last fault can be checked.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from spillover.model.faults import (
    IN,
    OUT,
    ClusterFault,
    Direction,
    Fault,
    FaultSchedule,
    LinkFault,
    TokensFault,
)
from spillover.model.ids import ClusterId
from spillover.model.topology import Topology
from spillover.model.unlike_servers import UnlikeServers

TROUBLES_MIN = 2
TROUBLES_MAX = 6
"""At most so many things go wrong in one schedule; each is mended by a fault of its own."""

LASTS_SHARE_MAX = 0.5
"""One of them lasts at most this share of the duration."""

_CLUSTER_TROUBLES = (
    *("crash", "pause", "slow", "clock", "failing"),
    *("swallows", "late", "hangs"),
)
_SITE_TROUBLES = ("drain", "apart")
"""Troubles of one or two of several nodes, which are more often those of a cluster."""

_LINK_TROUBLES = 3 * ("cut", "link")
"""Cuts and bad links come nearly as often as all that can happen to a cluster."""
_SERVER_TROUBLES = ("down", "server slow", "server failing", "out")
_POOL_TROUBLES = (*_SERVER_TROUBLES, "tokens")
"""Troubles of one of several unlike servers, and those that an operator makes with servers and
tokens."""

_TOKENS_MAX = 6


def random_faults(topology: Topology, seed: int, duration_s: float) -> FaultSchedule:
    """Returns two to six troubles, drawn from the seed, in a run that lasts `duration_s`."""
    random = Random(f"{seed}/random faults")
    faults: list[Fault] = []
    busy: set[object] = set()
    """What has its trouble already: one at a time for each cluster, server, class and direction."""
    kinds = _CLUSTER_TROUBLES + (_LINK_TROUBLES if topology.links else ())
    pools = [(cluster.id, cluster.pool) for cluster in topology.clusters if cluster.pool]
    kinds += _POOL_TROUBLES if pools else ()
    sites = {
        cluster.id: cluster.node_count for cluster in topology.clusters if cluster.node_count > 1
    }
    kinds += _SITE_TROUBLES if sites else ()
    for _ in range(random.randint(TROUBLES_MIN, TROUBLES_MAX)):
        begins_s = random.random() * duration_s * (1.0 - LASTS_SHARE_MAX)
        ends_s = begins_s + random.random() * duration_s * LASTS_SHARE_MAX
        kind = random.choice(kinds)
        if kind in _POOL_TROUBLES:
            cluster, pool = random.choice(pools)
            of_server = kind in _SERVER_TROUBLES
            ids = [each.id for each in (pool.servers if of_server else pool.classes)]
            one = random.choice(ids)
            if (cluster, of_server, one) not in busy:
                busy.add((cluster, of_server, one))
                faults += _of_pool(random, kind, (cluster, one), pool, begins_s, ends_s)
        elif kind in _SITE_TROUBLES:
            cluster = random.choice([*sites])
            if cluster not in busy:
                busy.add(cluster)
                faults += _of_site(random, kind, cluster, sites[cluster], begins_s, ends_s)
        elif kind in _CLUSTER_TROUBLES:
            cluster = random.choice(topology.cluster_ids)
            if cluster not in busy:
                busy.add(cluster)
                of_all = _of_cluster(random, kind, cluster, begins_s, ends_s)
                node = random.randint(1, sites[cluster]) if cluster in sites else None
                faults += [replace(fault, node=node) for fault in of_all]
        else:
            directions = _directions(random, topology)
            if busy.isdisjoint(directions):
                busy.update(directions)
                faults += _of_link(random, kind, directions, begins_s, ends_s)
    faults.sort(key=lambda fault: fault.at_s)
    schedule = FaultSchedule(f"random:{seed}", tuple(faults))
    schedule.check(topology)
    return schedule


def _of_pool(
    random: Random,
    kind: str,
    place: tuple[ClusterId, str],
    pool: UnlikeServers,
    begins_s: float,
    ends_s: float,
) -> list[Fault]:
    """Returns the faults of one trouble at a cluster, or at one of its servers or classes."""
    cluster, one = place
    if kind.startswith("server "):
        of_one = _of_cluster(random, kind.removeprefix("server "), cluster, begins_s, ends_s)
        return [replace(fault, server=one) for fault in of_one]
    if kind == "down":
        return [
            ClusterFault(at_s=at_s, action=action, cluster=cluster, server=one)
            for at_s, action in ((begins_s, "down"), (ends_s, "up"))
        ]

    def fault(at_s: float, **values: Any) -> Fault:
        return TokensFault(at_s=at_s, action="tokens", cluster=cluster, **values)

    if kind == "out":
        said = ((begins_s, OUT), (ends_s, IN))
        return [fault(at_s, servers=((one, word),)) for at_s, word in said]
    (usual,) = (each.tokens for each in pool.classes if each.id == one)
    return [
        fault(begins_s, classes=((one, random.randint(1, _TOKENS_MAX)),)),
        fault(ends_s, classes=((one, usual or 1),)),
    ]


def _of_site(
    random: Random, kind: str, cluster: ClusterId, nodes: int, begins_s: float, ends_s: float
) -> list[Fault]:
    """Returns the faults of one trouble of the nodes of a cluster."""
    one, other = random.sample(range(1, nodes + 1), 2)
    if kind == "drain":
        return [
            ClusterFault(at_s=at_s, action=action, cluster=cluster, node=one)
            for at_s, action in ((begins_s, "drain"), (ends_s, "undrain"))
        ]
    ends = ClusterId(f"{cluster}/{one}"), ClusterId(f"{cluster}/{other}")
    return _of_link(random, "cut", (ends, ends[::-1]), begins_s, ends_s)


def _of_cluster(
    random: Random, kind: str, cluster: ClusterId, begins_s: float, ends_s: float
) -> list[ClusterFault]:
    def fault(at_s: float, action: str, **values: Any) -> ClusterFault:
        return ClusterFault(at_s=at_s, action=action, cluster=cluster, **values)

    if kind == "slow":
        factor = 2.0 ** random.uniform(0.5, 3.0)
        return [fault(begins_s, kind, factor=factor), fault(ends_s, kind, factor=1.0)]
    if kind == "clock":
        # Beyond what a healthy quartz does, and a wall clock that somebody sets.
        rate, offset_ms = random.uniform(0.9, 1.1), random.uniform(-60_000, 60_000)
        return [
            fault(begins_s, kind, rate=rate, offset_ms=offset_ms),
            fault(ends_s, kind, rate=1.0),
        ]
    if kind == "failing":
        bad = {
            "share": random.uniform(0.1, 1.0),
            "fail_ms": random.uniform(0, 20),
            "status": random.choice((500, 503)),
            "retry_after_ms": random.choice((0.0, random.uniform(0, 2000))),
        }
        return [fault(begins_s, kind, **bad), fault(ends_s, kind, share=0.0)]
    if kind == "late":
        late_ms = random.uniform(0, 5000)
        return [fault(begins_s, kind, late_ms=late_ms), fault(ends_s, kind, late_ms=0.0)]
    if kind in {"swallows", "hangs"}:
        share = random.uniform(0.1, 1.0)
        return [fault(begins_s, kind, share=share), fault(ends_s, kind, share=0.0)]
    return [fault(begins_s, kind), fault(ends_s, "restart" if kind == "crash" else "resume")]


def _of_link(
    random: Random, kind: str, directions: tuple[Direction, ...], begins_s: float, ends_s: float
) -> list[Fault]:
    def fault(at_s: float, action: str, **values: float) -> Fault:
        return LinkFault(at_s=at_s, action=action, directions=directions, **values)

    bad = {}
    if kind == "link":
        bad = {
            "delay_ms": random.uniform(0, 150),
            "jitter_ms": random.uniform(0, 100),
            "loss": random.choice((0.0, random.uniform(0, 0.3))),
            "duplicate": random.choice((0.0, random.uniform(0, 0.5))),
            "reorder": random.choice((0.0, random.uniform(0, 0.5))),
        }
    return [fault(begins_s, kind, **bad), fault(ends_s, "heal")]


def _directions(random: Random, topology: Topology) -> tuple[Direction, ...]:
    a, b = random.choice(topology.links).between
    return random.choice((((a, b),), ((b, a),), ((a, b), (b, a))))
