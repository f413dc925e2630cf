"""Every metric of a lease member as data, as `model.signals.node` has those of a
node. All carry the label `node` besides those listed.
"""

from __future__ import annotations

from spillover.model.signals.signal import LOOP_LAG, Signal

LAG_BUCKETS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0,
)  # fmt: skip
"""The buckets reach from a wake-up at rest to the default maximum lease."""

HELD = Signal("spillover_lease_held", "gauge", "Partitions held")
MOVES = Signal(
    "spillover_lease_moves_total",
    "counter",
    "Partitions that came here, from another member or from nobody",
)
EPOCH = Signal("spillover_lease_epoch", "gauge", "Epoch of each partition held", ("partition",))
RENEW_LAG = Signal(
    "spillover_lease_renew_lag_seconds",
    "histogram",
    "How late renewals were sent",
    buckets=LAG_BUCKETS_S,
)
EVENTS = Signal(
    "spillover_lease_events_total", "counter", "Lines of the event log, by event", ("event",)
)
HANDLER_FAILURES = Signal(
    "spillover_lease_handler_failures_total", "counter", "Handlers that raised"
)
REDIS_UP = Signal("spillover_lease_redis_up", "gauge", "Whether Redis answered the member last")

LEASE_SIGNALS = (HELD, MOVES, EPOCH, RENEW_LAG, EVENTS, HANDLER_FAILURES, REDIS_UP, LOOP_LAG)
