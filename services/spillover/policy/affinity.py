"""The formulas of affinity: what it costs to run a request where its session has not run.

A *place* is anything that keeps what it has done: an inference engine with a prefix cache, a server
with a scene loaded. Work is counted in units of what makes it (tokens, bytes, requests). What a
place need not do again is *reusable* there, and what it has to do is a *miss*. Decision 0051 has
what each formula was weighed against.
"""

from __future__ import annotations

WEIGHT_MAX = 12.0
"""The largest number of times that a miss counts. A federation that is surely overloaded should not
let one request wait for ever for the sake of those behind it."""


def miss_weight(busy: float) -> float:
    """Returns how many times a miss counts where places are busy for the share `busy` of their
    time. Work that is done again delays all that comes behind it, and the more so the less idle
    time is left to make up for it."""
    return min(WEIGHT_MAX, 1.0 / max(1.0 - busy, 1e-9))


def cost_s(wait_s: float, way_s: float, missing: float, work_per_s: float, weight: float) -> float:
    """Returns what a request at a place costs all of them: its wait, its way, and the work that is
    `missing` there."""
    return wait_s + way_s + weight * missing / work_per_s
