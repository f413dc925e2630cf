"""The memory of the overflow kernel: flat arrays of records, made from a topology.

Layout only. A *link* here is one cluster's end of a link: entry l of the link arrays belongs to
the cluster x that owns it, is about the neighbor y at its far end, and holds what x knows of y.
The links of a cluster stand together, in the order of `Topology.neighbors`. A *slot* is one
request that is under way; when it has ended the slot is used again.
"""

from __future__ import annotations

from array import array
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spillover.core.overflow.neighbor import SENDS_MAX
from spillover.core.overflow.settings import NodeSettings
from spillover.model.ids import ClusterId
from spillover.model.topology import Topology
from spillover.policy.overflow.admission import foreign_waiting_max
from spillover.policy.overflow.choosers import BY_LOAD, POLICY_NAMES
from spillover.sim.engine.world import stream

Records: TypeAlias = NDArray[Any]

NOBODY = -1
"""Stands in place of a slot: the end of a queue or of a list."""

NEVER = 2**62
"""The number of a report that is not made."""

UNLIMITED = 2**62
"""How many neighbors' requests may wait where few need not be."""

TWISTER_WORDS = 624

SLOTS_AT_FIRST = 1024

TRIED_SHIFT = 5
TRIED_MASK = 31
"""Neighbor y is bit `y & TRIED_MASK` of word `y >> TRIED_SHIFT` of `Under.tried`."""

RUN = np.dtype(
    [
        ("policy", "i8"), ("max_hops", "i8"), ("deadline_s", "f8"), ("period_s", "f8"),
        ("next_arrival", "i8"), ("next_expiry", "i8"), ("ended", "i8"), ("end_s", "f8"),
        ("heap_size", "i8"), ("made", "i8"), ("slots_free", "i8"),
        ("reports", "i8"), ("events", "i8"), ("now_s", "f8"), ("now_made", "i8"),
        ("look_s", "f8"),
    ]
)  # fmt: skip
"""The counters of a run; one record. `policy` is a place in POLICY_NAMES, `now_made` the number of
the event that is handled, and before `look_s` nothing that waits is looked at again."""

CLUSTER = np.dtype(
    [
        ("servers", "i8"), ("free", "i8"),
        ("waiting", "i8"), ("first", "i8"), ("last", "i8"), ("longest", "i8"), ("away", "i8"),
        ("waiting_foreign", "i8"),
        ("queue_limit", "i8"), ("foreign_limit", "i8"), ("away_limit", "i8"),
        ("foreign_waiting_max", "i8"),
        ("work_s", "f8"), ("delivery_s", "f8"),
        ("service_s", "f8"), ("variance_s2", "f8"), ("served", "i8"),
        ("links_from", "i8"), ("links_to", "i8"),
        ("sequence", "i8"), ("ring_from", "i8"), ("ring_mask", "i8"), ("twister_at", "i8"),
        ("told", "i8"), ("came", "i8"), ("rate_hz", "f8"), ("rated_s", "f8"), ("load", "f8"),
        ("asking", "i8"), ("started_s", "f8"),
    ]
)  # fmt: skip
"""`work_s` is what a service takes, `service_s` and `variance_s2` what has been seen of it;
`sequence` numbers the last report made, the newest `ring_mask` + 1 of which, a
power of two, are in a ring of `reports`. `told` numbers all that has told the load, reports
included; `came` counts home requests since `rated_s`, when `rate_hz` was last brought up to date,
and `load` with it; `asking` is how many neighbors are asked for
work, and a service last began at `started_s`."""

LINK = np.dtype(
    [
        ("owner", "i8"), ("peer", "i8"), ("mirror", "i8"), ("seen", "i8"), ("hears_from", "i8"),
        ("told", "i8"), ("sends_from", "i8"), ("asked", "?"), ("empty", "i8"), ("ask_s", "f8"),
    ]
)  # fmt: skip
"""`mirror` is the same link at the peer, `seen` the number of the peer's report held, and
`hears_from` the first own report that says this peer is heard. `told` is the number of what has
told the peer's load, `sends_from` the place in `sends` of the oldest. `asked` says that a question
for work is not answered yet; there was nothing `empty` times in a row, and the next question does
not leave before `ask_s`."""

REPORT = np.dtype(
    [
        ("at_s", "f8"), ("made", "i8"), ("accept", "f8"), ("near", "f8"),
        ("waiting", "i8"), ("accepting", "?"),
        ("told", "i8"), ("ahead", "i8"), ("load", "f8"), ("departure_s", "f8"), ("residual", "f8"),
    ]
)  # fmt: skip

LOAD = np.dtype([("told", "i8"), ("ahead", "i8"), ("load", "f8"), ("accepting", "?")])
"""The part of a message about its sender's load: `model.load.LoadNow`."""

SLOT = np.dtype(
    [
        ("request", "i8"), ("state", "i8"), ("expired", "?"), ("outcome", "i8"),
        ("depth", "i8"), ("away", "i8"), ("next", "i8"), ("before", "i8"), ("kind", "i8"),
        ("hops", "i8"),
        ("since_s", "f8"), ("queued_s", "f8"), ("work_s", "f8"), ("deadline_s", "f8"),
        ("total_s", "f8"), ("look_s", "f8"),
    ]
)  # fmt: skip
"""`depth` is the place in the path of the cluster concerned, `away` how many clusters of the path
count the request among those away, `next` and `before` are its neighbors in a queue. Where it
waits it is looked at again at `look_s`; that is its deadline, if it is not."""

EVENT = np.dtype([("at_s", "f8"), ("made", "i8"), ("what", "i8")])


class Table(NamedTuple):
    """The known states of neighbors, by link: the arrays that policies read, and their buffers. To
    policies these are sequences of numbers, which arrays are without saying so: hence Any.
    """

    delays_s: Any
    known: Any
    accepting: Any
    accept: Any
    reject_near: Any
    lengths: Any
    servers: Any
    departure_s: Any
    residual: Any
    eligible: Any
    weights: Any


class Under(NamedTuple):
    """Requests under way, by slot, and the heap of what is to come. All grow together."""

    slots: Records
    path: NDArray[np.int32]
    """[slot, depth]: the clusters visited, the home first."""
    legs: NDArray[np.int32]
    """[slot, depth]: the link by which the request left that cluster."""
    network_s: NDArray[np.float64]
    """[slot, depth]: what refusals have cost the visit there."""
    tried: NDArray[np.int64]
    """[slot, word]: a bit for each neighbor that has refused the present visit."""
    free: NDArray[np.int32]
    heap: Records


class Requests(NamedTuple):
    """All requests in order of arrival: what comes, and what has come of it."""

    time_s: NDArray[np.float64]
    home: NDArray[np.int32]
    work_s: NDArray[np.float64]
    """Not a number: what the server takes. Empty: that goes for all."""
    slot: NDArray[np.int32]
    outcome: NDArray[np.int8]
    system_time_ms: NDArray[np.float64]
    hops: NDArray[np.int16]


class ByLoad(NamedTuple):
    """The arrays that only a policy needs that goes by the load (`choosers.BY_LOAD`): more of
    `Table`, by link, and of `Under`."""

    ahead: Any
    load: Any
    told_s: Any
    overload: Any
    sure_drain: Any
    first_departure: Any
    unreported: Any
    sends: NDArray[np.float64]
    """[link, place]: a ring of when requests left by that link, `unreported` of them."""
    asks: Records
    """What a question for work tells, by the link of who is asked."""
    nothings: Records
    """What the answer tells that there is nothing, by the link of who has asked."""
    pulled: NDArray[np.bool_]
    """[slot, depth]: whether that cluster has asked for it."""
    came_s: NDArray[np.float64]
    """[slot, depth]: when it came to that cluster."""
    told: Records
    """What comes with a request that is on its way, by slot."""


class KernelState(NamedTuple):
    """All that the kernel is given."""

    run: Records
    clusters: Records
    links: Records
    table: Table
    reports: Records
    twisters: NDArray[np.uint32]
    under: Under
    requests: Requests
    kind_s: NDArray[np.float64]
    """Service times of unlike servers behind one queue, shortest first; empty where alike."""
    kind_free: NDArray[np.int64]
    by_load: ByLoad | None
    """None where the policy does not go by the load. The kernel is compiled once for each type, and
    what concerns the load is given this field as an argument: only where an argument is None does
    numba leave out what depends on it. In one kernel for both all other policies took twice as
    long: whatever the state holds is handed over, array by array, at each call of an `inner`."""


def make_state(topology: Topology, requests: Requests, seed: int) -> KernelState:
    """Returns the state before anything has happened, with the streams that the full engine draws
    from."""
    run = np.zeros(1, RUN)
    run["policy"] = POLICY_NAMES.index(topology.policy)
    run["max_hops"] = min(topology.max_hops, len(topology.clusters) - 1)
    run["deadline_s"] = topology.default_deadline_ms / 1e3
    run["period_s"] = topology.gossip_period_ms / 1e3
    run["look_s"] = np.inf
    clusters, links, delays_s, reports = _federation(topology)
    twisters = np.empty((len(clusters), TWISTER_WORDS), np.uint32)
    for x, cluster in enumerate(topology.clusters):
        # By way of an array: numpy takes several times as long for a tuple.
        state = array("I", stream(seed, f"node/{cluster.id}").getstate()[1])
        twisters[x] = np.frombuffer(state, np.uintc)[:-1]
        clusters["twister_at"][x] = state[-1]
    degree_max = int((clusters["links_to"] - clusters["links_from"]).max())
    run["slots_free"] = SLOTS_AT_FIRST
    by_load = topology.policy in BY_LOAD
    events_besides = _events_besides(clusters, links)
    depths, words = int(run["max_hops"][0]) + 2, 1 + (degree_max >> TRIED_SHIFT)
    under = _make_under(SLOTS_AT_FIRST, depths, words, events_besides)
    return KernelState(
        run,
        clusters,
        links,
        _make_table(delays_s, clusters["servers"][links["peer"]]),
        reports,
        twisters,
        under,
        requests,
        kind_s=np.empty(0),
        kind_free=np.empty(0, np.int64),
        by_load=_make_by_load(len(links), SLOTS_AT_FIRST, depths) if by_load else None,
    )


def _make_table(delays_s: NDArray[np.float64], servers: NDArray[np.int64]) -> Table:
    """Returns what is known before anything was heard."""
    links = len(delays_s)
    return Table(
        delays_s=delays_s,
        known=np.zeros(links, np.bool_),
        accepting=np.zeros(links, np.bool_),
        accept=np.zeros(links),
        reject_near=np.ones(links),
        lengths=np.zeros(links, np.int64),
        servers=servers,
        departure_s=np.zeros(links),
        residual=np.ones(links),
        eligible=np.zeros(links, np.bool_),
        weights=np.zeros(links),
    )


def _make_by_load(links: int, slots: int, depths: int) -> ByLoad:
    return ByLoad(
        ahead=np.zeros(links, np.int64),
        load=np.zeros(links),
        told_s=np.full(links, -np.inf),
        # Written with the first load: nobody that has not told one is asked.
        overload=np.ones(links),
        sure_drain=np.ones(links),
        first_departure=np.ones(links),
        unreported=np.zeros(links, np.int64),
        sends=np.zeros((links, SENDS_MAX)),
        asks=np.zeros(links, LOAD),
        nothings=np.zeros(links, LOAD),
        pulled=np.zeros((slots, depths), np.bool_),
        came_s=np.zeros((slots, depths)),
        told=np.zeros(slots, LOAD),
    )


def _events_besides(clusters: Records, links: Records) -> int:
    """Returns how much can be to come besides requests: reports, and over each link its first, a
    question for work and the answer that there is none."""
    return len(clusters) + 3 * len(links)


def grown(state: KernelState) -> KernelState:
    """Returns the same state with room for twice as many requests under way."""
    run, old = state.run, state.under
    had = len(old.slots)
    events_besides = _events_besides(state.clusters, state.links)
    new = _make_under(2 * had, old.path.shape[1], old.tried.shape[1], events_besides)
    of_new: Any  # arrays, of several types
    for of_old, of_new in zip(old[:-2], new[:-2], strict=True):
        of_new[:had] = of_old
    free = int(run["slots_free"][0])
    new.free[:free] = old.free[:free]
    new.free[free : free + had] = np.arange(had, 2 * had)
    run["slots_free"] += had
    events = int(run["heap_size"][0])
    new.heap[:events] = old.heap[:events]
    by_load = state.by_load
    if by_load is not None:
        # What the second half holds is written before it is read.
        by_load = by_load._replace(
            pulled=np.concatenate((by_load.pulled, by_load.pulled)),
            came_s=np.concatenate((by_load.came_s, by_load.came_s)),
            told=np.concatenate((by_load.told, by_load.told)),
        )
    return state._replace(under=new, by_load=by_load)


def _make_under(slots: int, depths: int, words: int, events_besides: int) -> Under:
    return Under(
        slots=np.zeros(slots, SLOT),
        path=np.zeros((slots, depths), np.int32),
        legs=np.zeros((slots, depths), np.int32),
        network_s=np.zeros((slots, depths)),
        tried=np.zeros((slots, words), np.int64),
        free=np.arange(slots, dtype=np.int32),
        heap=np.zeros(slots + events_besides, EVENT),
    )


def _federation(topology: Topology) -> tuple[Records, Records, NDArray[np.float64], Records]:
    """Clusters, links with their delays, and an empty ring of reports for each cluster."""
    ends = _link_ends(topology)
    clusters = np.zeros(len(topology.clusters), CLUSTER)
    place: dict[tuple[int, int], int] = {}
    ring_from = 0
    for x, own in enumerate(ends):
        settings = NodeSettings.of(topology, topology.cluster_ids[x])
        # Reports on the way to the farthest neighbor, each out of turn included, all fit.
        farthest_s = max((delay_s for _, delay_s in own), default=0.0)
        room = 4 + len(own) + int(farthest_s / settings.gossip_period_s)
        ring_size = 1 << (room - 1).bit_length()
        row = clusters[x]
        row["servers"] = row["free"] = settings.servers
        row["first"] = row["last"] = NOBODY
        row["queue_limit"] = settings.queue_limit
        row["foreign_limit"] = settings.foreign_limit
        row["away_limit"] = settings.away_limit
        by_load = settings.policy in BY_LOAD
        row["foreign_waiting_max"] = foreign_waiting_max(settings.servers) if by_load else UNLIMITED
        row["work_s"] = row["service_s"] = settings.service_s
        row["delivery_s"] = settings.delivery_s
        row["links_from"], row["links_to"] = len(place), len(place) + len(own)
        row["ring_from"], row["ring_mask"] = ring_from, ring_size - 1
        ring_from += ring_size
        place |= {(x, y): len(place) + index for index, (y, _) in enumerate(own)}
    links = np.zeros(len(place), LINK)
    for (x, y), at in place.items():
        row = links[at]
        row["owner"], row["peer"], row["mirror"] = x, y, place[y, x]
        row["hears_from"] = NEVER
    delays_s = np.array([delay_s for own in ends for _, delay_s in own], np.float64)
    return clusters, links, delays_s, np.zeros(ring_from, REPORT)


def _link_ends(topology: Topology) -> list[list[tuple[int, float]]]:
    """Returns, for each cluster, its neighbors' places among the clusters, and the delays in
    seconds."""
    place: dict[ClusterId, int] = {c: x for x, c in enumerate(topology.cluster_ids)}
    ends: list[list[tuple[int, float]]] = [[] for _ in place]
    for link in topology.links:
        a, b = (place[end] for end in link.between)
        ends[a].append((b, link.delay_ms / 1e3))
        ends[b].append((a, link.delay_ms / 1e3))
    return ends
