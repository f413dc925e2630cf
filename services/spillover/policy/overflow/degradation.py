"""Whether a cluster's work fails more than others': Wald's sequential test, Page's cumulative sum.

Two hypotheses about the work of a cluster are weighed against each other, one ended request at a
time. `usual` is the share of the same clients' work that fails elsewhere: where all of it fails
everywhere, no cluster is worse than another.

* *well*: of what succeeds elsewhere, at most SHARE_WELL fails here;
* *worse*: SHARE_WORSE of it fails here.

The logarithm of their likelihood ratio is added up, and never falls below 0 (E. S. Page, 1954): so
what was long ago counts for nothing, and a change is found after about as few failures as can be.
With `usual` 0 a failure adds ln 3 and a success takes ln 2 away: DEGRADED_AT is reached by four
failures in a row. At a constant share of failures it takes on average 30 requests at 0.4, 360 at
0.2, 8 000 at 0.1 and 120 000 at 0.05 (drawn, seed 1).

Not here: what follows from it, and how a cluster becomes well again (`core.overflow.health`).
"""

from __future__ import annotations

import math

SHARE_WELL = 0.2
SHARE_WORSE = 0.6

DEGRADED_AT = 3.8 * math.log(3.0)
"""The sum from which on a cluster is degraded: four failures in a row, within seconds."""

UNPROVEN = 2.0 * math.log(3.0)
"""The sum that a cluster starts with: one that has never worked is degraded after two."""

FORGET_S = 30.0
"""Time in which the sum halves: failures that are minutes apart do not add up."""

_SUCCESS = math.log((1.0 - SHARE_WORSE) / (1.0 - SHARE_WELL))


def evidence(failed: bool, usual: float) -> float:
    """Returns the logarithm of P(outcome | worse) / P(outcome | well); 0 for a failure where all
    fails."""
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
