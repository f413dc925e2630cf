"""Partition leases: how long to wait, who may take what, the next epoch, the fewest moves.

The source document ("Algorithm for distributed load balancing of batch processing", 2015) lets
latency decide: whoever answers a challenge first has the partition. It says itself that this fails
where nodes are busy. Two flaws, and what the guarded rule does about them:

* A holder whose answer is late by more than the difference of the waits loses what it serves. Here
  the wait only spreads contenders; the counts *stored in Redis* decide, and silence is no vote:
  only a lease that has run out is.
* With waits of (a - 1/2) d and (c + 1/2) d a holder of a = c + 1 partitions ties with its rival,
  and a swap that evens out nothing is as likely as not. Here stored counts must differ by two.

Step 2 prints each wait twice, and differently: the holder's as (a - 1/2) d in its sentence and
(a - 1) d in parentheses, the rival's as (c + 1) d in its sentence and (c + 1/2) d in parentheses.
The second flaw belongs to the reading in halves. Both sentences, or both parentheses, leave half
a delay between holder and rival at a = c + 1 and at a = c + 2: no ties, but the first flaw remains
and is met by half the lateness. `WAIT_READINGS` has all three.

Counts here are of *intended* owners: a partition that was won and is being handed over counts for
the winner. The difference of two alone would not give the fewest moves (9, 1, 2: the third node
gets a third partition, and could then lose it to the second), so giver and receiver are also held
against their targets: `may_give`, `may_receive`. Each grab that both allow brings the total one
closer to even, never less, so that their number is exactly `minimum_moves`; and they imply the
difference of two.

The times are in `model.lease_times`; the state machine that uses all this is not here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

WAIT_READINGS = {"halves": (0.5, 0.5), "sentences": (0.5, 1.0), "parentheses": (1.0, 0.5)}
"""The readings of step 2 of the blog's rule: the delays that the holder takes off and the rival
adds."""

EPOCH_MAX = 999_999_999_999_999
"""The largest epoch. Why: fifteen digits are exact in Lua, and a longer number is not read
there."""

LOAD_SMOOTHING = 0.25
"""The weight of a new measurement (KCL 3: 0.5; measurements here are reported in steps, which are
taken up to a quarter as often by this: decision 0023)."""

LOAD_BAND = 0.1
"""Nodes within this share of the mean load are even (KCL 3 takes the same)."""

LOAD_DAMPING = 0.7
"""A move closes at most this share of the gap between two nodes (KCL 3: 0.6 to 0.8)."""

LOAD_LEAST = 1.0
"""The least work of a partition, in units of work per normal lease time: one whose handler reports
nothing, or that idles, is still one partition. Among such, loads are counts."""

LOAD_STEP = 0.25
"""A reported load stays as it is until the measured one strays from it by more than this share:
measurements that are wrong by up to 11 % either way ((1 + 0.11) / (1 - 0.11) < 1.25) never change
it, so that they cannot move anything."""

LOAD_STALE_LEASES = 2.0
"""The number of maximum leases after which a load that was not reported anew is not known any
more."""

PERIODS_TO_EVEN = 4
"""The number of normal lease times, roughly, in which a newcomer gets its share; see
`move_budget`."""


def holder_wait_ms(held: int, held_delay_ms: float, less: float = 0.5) -> float:
    """Returns (a - 1/2) d: the wait of the node that serves the partition (step 2)."""
    return (held - less) * held_delay_ms if held > 0 else 0.0


def rival_wait_ms(held: float, held_delay_ms: float, more: float = 0.5) -> float:
    """Returns (c + 1/2) d: the wait of a node that does not serve the partition (step 2)."""
    return (held + more) * held_delay_ms


def spread_wait_ms(held: float, held_delay_ms: float, longest_ms: float) -> float:
    """Returns the guarded rule's wait: the rival's, up to `longest_ms`, as it decides nothing."""
    return min(rival_wait_ms(held, held_delay_ms), longest_ms)


def is_abandoned(since_challenge_ms: float, max_lease_ms: float) -> bool:
    """Returns whether a challenge that was silent for so long counts as one of a node that died in
    the middle (step 1). It measures the channel, not the life of a node: a lost message looks the
    same (errata).
    """
    return since_challenge_ms > max_lease_ms


def next_epoch(previous: int, store_clock_ms: int) -> int:
    """Returns the fencing number of a new owner. It grows with each owner, even after the store
    lost its data. A number behind EPOCH_MAX follows none that was ever given, and begins anew."""
    epoch = max(previous + 1, store_clock_ms)
    return epoch if epoch <= EPOCH_MAX else store_clock_ms


def may_receive(held: int, above: int, partitions: int, nodes: int) -> bool:
    """Returns whether one more partition brings a node closer to its target.

    `above` is the number of living nodes that hold more than partitions // nodes: no more than the
    remainder of that division may.
    """
    floor = partitions // nodes
    return held < floor or (held == floor and above < partitions % nodes)


def may_give(held: int, above: int, partitions: int, nodes: int) -> bool:
    """Returns whether a node has one more than its target; `above` as in `may_receive`."""
    floor = partitions // nodes
    return held > floor + 1 or (held == floor + 1 and above > partitions % nodes)


def may_grab_free(
    held: int, above: int, partitions: int, nodes: int, free_for_ms: float, patience_ms: float
) -> bool:
    """Returns whether a node may take a partition that nobody holds or whose lease is over, by the
    guarded rule: within its own share; above it only if nobody with a claim has taken it for
    `patience_ms`."""
    return may_receive(held, above, partitions, nodes) or free_for_ms >= patience_ms


def may_grab_held(
    holder_held: int,
    held: int,
    above: int,
    partitions: int,
    nodes: int,
    resident_ms: float,
    min_residency_ms: float,
    moved_lately: int,
    budget: int,
) -> bool:
    """Returns whether a node may take a partition whose holder lives, by the guarded rule.
    `holder_held` and `held` are the stored counts of holder and challenger, `resident_ms` how long
    the partition has been where it is, `moved_lately` how many the challenger got within one normal
    lease time."""
    return (
        holder_held - held >= 2
        and may_give(holder_held, above, partitions, nodes)
        and may_receive(held, above, partitions, nodes)
        and resident_ms >= min_residency_ms
        and moved_lately < budget
    )


def move_budget(partitions: int, nodes: int) -> int:
    """Returns how many partitions that run elsewhere a node may take in one normal lease time:
    at least one, and a quarter of an even share, so that large groups even out as fast as small
    ones."""
    share = -(-partitions // nodes)
    return max(1, -(-share // PERIODS_TO_EVEN))


def smoothed_load(before: float, measured: float) -> float:
    """Returns a partition's load as it counts: a quarter of what is measured now, the rest what
    was."""
    return before + LOAD_SMOOTHING * (measured - before)


def told_load(told: float, smoothed: float) -> float:
    """Returns the load that a holder tells of a partition, if it told `told` before: the same,
    unless the load has changed by more than noise changes it."""
    return smoothed if abs(smoothed - told) > max(LOAD_STEP * told, LOAD_LEAST) else told


def fair_load(loads: Sequence[float], nodes: int) -> float:
    """Returns what each node has if loads are shared out evenly; a partition of more than that
    fills a node by itself, and what is left is for the others: their mean."""
    total, left = sum(loads), nodes
    most, fair = math.inf, total / left
    while True:
        filling = [load for load in loads if fair < load <= most]
        if not filling:
            return fair
        # Fewer than the nodes that are left: each is above their mean.
        total -= sum(filling)
        left -= len(filling)
        most, fair = fair, total / left


def load_band(mean: float, floor: float) -> float:
    """Returns how far from the mean load of the living nodes a node may be without anything moving.

    A share of the mean alone would make jitter move partitions while there is little to do, so that
    it is at least `floor`.
    """
    return max(LOAD_BAND * mean, floor)


def may_shift_load(
    giver: float, receiver: float, load: float, mean: float, band: float, least: float
) -> bool:
    """Returns whether a partition of this load may move from one node to another, in load-weighted
    mode (the document's last paragraph). The nodes' loads are `giver` and `receiver`; `least` is
    that of the least loaded node.

    A partition leaves only a node above the band. It goes only to a node that stays within the band
    or, where partitions are too large for that, to the least loaded. The move may close only a
    damped part of the gap: so a small error of measurement does not turn the gap around, and the
    receiver does not give the same back, which would have to close more than all of the gap that is
    then. Each such move lessens the sum of the squares of the loads by 2 load (giver - receiver -
    load), so that moves come to an end. Partitions without load stay: they even out nothing.
    """
    return (
        load > 0.0
        and giver > mean + band
        and (receiver + load <= mean + band or receiver <= least)
        and load <= LOAD_DAMPING * (giver - receiver)
    )


def may_take_load(
    own: float,
    least: float,
    load: float,
    mean: float,
    band: float,
    free_for_ms: float,
    patience_ms: float,
) -> bool:
    """Returns whether a node (`own`) may take a partition that nobody holds, in load-weighted mode:
    if that leaves the node within the band, or the node has the least load of all (`least`); any
    node may, if nobody has taken it for `patience_ms`."""
    return own + load <= mean + band or own <= least or free_for_ms >= patience_ms


def best_shift(
    loads: Sequence[float], giver: float, receiver: float, mean: float, band: float, least: float
) -> int:
    """Returns which of the giver's partitions leaves the two nodes closest together; -1 if none may
    move.

    `loads` are those of the giver's partitions; the first of equals is taken.
    """
    best = -1
    best_gap = 0.0
    for i in range(len(loads)):
        if may_shift_load(giver, receiver, loads[i], mean, band, least):
            gap = abs(giver - receiver - 2.0 * loads[i])
            if best < 0 or gap < best_gap:
                best = i
                best_gap = gap
    return best


def minimum_moves(counts: Sequence[int], alive: Sequence[bool]) -> int:
    """Returns the fewest moves that make the living even: all of the dead's, and what exceeds a
    target.

    `counts[i]` partitions at node i before; none move where nobody lives.
    """
    partitions = 0
    nodes = 0
    for i in range(len(counts)):
        partitions += counts[i]
        if alive[i]:
            nodes += 1
    if nodes == 0:
        return 0
    floor = partitions // nodes
    moves = 0
    above = 0
    for i in range(len(counts)):
        if not alive[i]:
            moves += counts[i]
        elif counts[i] > floor:
            moves += counts[i] - floor
            above += 1
    return moves - min(above, partitions % nodes)
