"""The test of whether a cluster's work fails more than others' (Wald's sequential test, Page's
cumulative sum), and the choice of the cluster that gets the work then.

Two hypotheses about the work of a cluster are weighed against each other, one ended request at a
time. `usual` is the share of the same clients' work that fails at the best place that it can reach:
where all of it fails everywhere, no cluster is worse than another.

* *well*: of what succeeds elsewhere, at most SHARE_WELL fails here;
* *worse*: SHARE_WORSE of it fails here.

The logarithm of their likelihood ratio is added up, and never falls below 0 (E. S. Page, 1954): so
what was long ago counts for nothing, and a change is found after about as few failures as can be.
With `usual` 0 a failure adds ln 3 and a success takes ln 2 away: DEGRADED_AT is reached by four
failures in a row. At a constant share of failures it takes on average 30 requests at 0.4, 360 at
0.2, 8 000 at 0.1 and 120 000 at 0.05 (drawn, seed 1).

The way back is a run of successes that what was seen before makes unlikely: five in a row where all
failed, some thirty where a fifth did. So nothing goes back and forth at a constant share.

Not here: what is known of whom, and what follows from it (`core.overflow`).
"""

from __future__ import annotations

import math

SHARE_WELL = 0.2
SHARE_WORSE = 0.6

DEGRADED_AT = 3.8 * math.log(3.0)
"""The sum at which a cluster is degraded: four failures in a row, within seconds."""

UNPROVEN = 2.0 * math.log(3.0)
"""The sum that a cluster starts with: one that has never worked is degraded after two failures."""

FORGET_S = 30.0
"""The time in which the sum halves: failures that are minutes apart do not add up."""

BY_CHANCE = 1.0 / 10_000.0
"""The probability that nothing has changed at which a run of successes ends a degradation."""

RUN_MIN = 5
RUN_MAX = 30
"""The longest run that ends a degradation. Where so little fails that it would be longer, 30 in a
row say enough."""

ANOTHERS_FAULT = 1.0 / 20.0
"""The probability that all kinds of requests fail alike, given the successes of the others, at
which one kind is held to be at fault."""

BAD = 100.0
"""The rank of a cluster whose work fails, to which the failing share is added. Clusters of lower
rank can have work done: one of rank 0 does it well, and others are as many hops from one that
does."""

SAME = 0.25
"""Ranks that differ by no more are alike: shares are measured by a few requests."""

STALLED = BAD + 1.0 - 2.0 * SAME
"""The rank of a cluster whose servers are all held for too long. It is no better than a place that
fails three quarters of its work, and better than one where all fails."""

_SUCCESS = math.log((1.0 - SHARE_WORSE) / (1.0 - SHARE_WELL))


def evidence(failed: bool, usual: float) -> float:
    """Returns the logarithm of P(outcome | worse) / P(outcome | well); 0 for a failure where all
    work fails."""
    if not failed:
        return _SUCCESS
    succeeds = 1.0 - usual
    return math.log((usual + succeeds * SHARE_WORSE) / (usual + succeeds * SHARE_WELL))


def weighed(
    total: float, failed: bool, usual: float, since_last_s: float, weight: float = 1.0
) -> float:
    """Returns the sum after one more outcome, `since_last_s` after the one before, that counts
    `weight` times."""
    faded = total * math.exp2(-since_last_s / FORGET_S)
    return max(0.0, faded + weight * evidence(failed, usual))


def run_needed(failures: int, ends: int, by_chance: float = BY_CHANCE) -> int:
    """Returns how many successes in a row are too many to come by chance, where `failures` of
    `ends` failed. Two more ends are counted than there were, since a few failures do not say that
    all work fails."""
    succeeds = 1.0 - failures / (ends + 2.0)
    return math.ceil(math.log(by_chance) / math.log(succeeds)) if succeeds < 1.0 else RUN_MAX


def degraded_rank(share: float, hops: int) -> float:
    """Returns how good a place for work a degraded cluster is: the lower the better, 0 being one
    that is well. It hands on to one that is well, so many hops away, or fails this share of
    work."""
    return float(hops) if hops else BAD + share
