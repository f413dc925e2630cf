"""What a cluster of the kernel admits, learns and chooses.

Choosing is the policy functions, compiled. `core.overflow.admission` and `core.overflow.decider`
are objects, which cannot be compiled: their two formulas stand here once more, operation by
operation in the same order, with the constants of the core; `tests/sim/fast` holds them against the
core's.
"""

from __future__ import annotations

import math
from typing import Any

from spillover.core.overflow.admission import FOREIGN_SHARE, SPREAD
from spillover.core.overflow.decider import GUESS_WEIGHT, OUTLIER, SERVICE_WEIGHT
from spillover.model.errors import InputError
from spillover.policy.overflow.acceptance import choose_isolated, choose_paper, choose_two_choice
from spillover.policy.overflow.choosers import CHOOSERS
from spillover.sim.fast.compile import inlined, inner
from spillover.sim.fast.overflow.draws import draw
from spillover.sim.fast.overflow.reporting import refresh
from spillover.sim.fast.overflow.state import TRIED_MASK, TRIED_SHIFT, KernelState

PAPER = list(CHOOSERS).index("paper")
TWO_CHOICE = list(CHOOSERS).index("two-choice")
_POLICIES = ("isolated", "paper", "two-choice")

FREE = 0
"""No objection: the request may join the queue."""
QUEUE_FULL = 1
TOO_LATE = 2


def check_policy(policy: str) -> None:
    """Raise InputError unless the kernel knows this policy; a new one is a line in `choose`."""
    if policy not in _POLICIES:
        names = ", ".join(_POLICIES)
        expected = f"expected one of {names} with --engine fast, got {policy!r}: use --engine full"
        raise InputError("--policy", "", expected)


@inlined
def stay_s(cluster: Any, waiting: int) -> float:
    """How long a request that joins now will be here, with a margin (`core.overflow.admission`)."""
    servers = cluster.servers
    services = math.sqrt((waiting + 1) / servers**2 + 1)
    spread_s = SPREAD * math.sqrt(cluster.variance_s2) * services
    wait_s = (waiting + servers) * cluster.service_s / servers
    return float(wait_s + cluster.service_s + spread_s + cluster.delivery_s)


@inlined
def objection(cluster: Any, depth: int, left_s: float) -> int:
    """Why a request with `left_s` seconds left should not join the queue, or FREE. Depth 0 is its
    home, where it may use the whole queue and all of its time."""
    is_home = depth == 0
    waiting = cluster.waiting
    if waiting >= (cluster.queue_limit if is_home else cluster.foreign_limit):
        return QUEUE_FULL
    if waiting >= cluster.servers:
        share = 1.0 if is_home else FOREIGN_SHARE
        if stay_s(cluster, waiting) > share * left_s:
            return TOO_LATE
    return FREE


@inlined
def learn(cluster: Any, service_s: float) -> None:
    """A server took this time: move the running mean and variance (`core.overflow.decider`)."""
    cluster.served += 1
    weight = max(SERVICE_WEIGHT, 1.0 / (cluster.served + GUESS_WEIGHT))
    usual_s = cluster.service_s + math.sqrt(cluster.variance_s2)
    counted_s = min(service_s, OUTLIER * usual_s) if usual_s != 0.0 else service_s
    off_s = counted_s - cluster.service_s
    cluster.service_s += off_s * weight
    grown_s2 = cluster.variance_s2 + off_s * off_s * weight
    cluster.variance_s2 = (1.0 - weight) * grown_s2


@inner
def mark_eligible(s: KernelState, slot: int, x: int) -> None:
    """Neighbors that accept, have not refused this visit, and have not had the request."""
    cluster, under, table = s.clusters[x], s.under, s.table
    depth = under.slots[slot].depth
    for link in range(cluster.links_from, cluster.links_to):
        refresh(s, link)
        eligible = table.accepting[link]
        for back in range(depth):
            if under.path[slot, back] == s.links[link].peer:
                eligible = False
        y = link - cluster.links_from
        if (under.tried[slot, y >> TRIED_SHIFT] >> (y & TRIED_MASK)) & 1:
            eligible = False
        table.eligible[link] = eligible


@inner
def choose(s: KernelState, slot: int, x: int, problem: int) -> int:
    """The neighbor to hand the request to, by its place among the neighbors of x, or KEEP;
    `problem` is what speaks against its joining the queue."""
    cluster, table, run = s.clusters[x], s.table, s.run[0]
    start, stop = cluster.links_from, cluster.links_to
    room = cluster.queue_limit + cluster.away_limit
    if (
        s.under.slots[slot].depth < run.max_hops
        and cluster.away < cluster.away_limit
        and cluster.waiting + cluster.away < room
    ):
        mark_eligible(s, slot, x)
    else:
        table.eligible[start:stop] = False
    arguments = (
        cluster.waiting,
        cluster.servers,
        problem == FREE,
        cluster.service_s,
        table.reject_near[start:stop],
        table.lengths[start:stop],
        table.delays_s[start:stop],
        table.eligible[start:stop],
        table.weights[start:stop],
        draw(s, x),
    )
    if run.policy == PAPER:
        return choose_paper(*arguments)
    if run.policy == TWO_CHOICE:
        return choose_two_choice(*arguments)
    return choose_isolated(*arguments)
