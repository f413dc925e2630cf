"""Every metric of nodes whose requests say how large they are, or whose engines say what they run.
All carry the label `cluster` besides those listed.
"""

from __future__ import annotations

from spillover.model.signals.signal import Signal

SERVERS_CEILING = Signal(
    "spillover_servers_ceiling",
    "gauge",
    "Servers at most for now, by what engines say, where their number is learned",
)
ENGINE_REQUESTS = Signal(
    "spillover_engine_requests",
    "gauge",
    "Requests that engines say they run, and hold back (waiting)",
    ("state",),
)
ENGINE_HELD = Signal(
    "spillover_engine_held_share", "gauge", "Share of its cache that the fullest engine uses"
)
ENGINE_LOOKS = Signal(
    "spillover_engine_looks_total",
    "counter",
    "Looks at engines' metrics pages: read, unread (nothing known stands there) or failed",
    ("end",),
)
WAITING_WORK = Signal(
    "spillover_waiting_work_seconds",
    "gauge",
    "Time that what waits is expected to take on one server, where work is counted",
)
WORK_ERROR = Signal(
    "spillover_work_error",
    "gauge",
    "Mean distance of expected and real service times, as a share of the mean, where work is "
    "counted: by what requests say, or if each was expected to take the mean time",
    ("type", "by"),
)
WORK_UNREAD = Signal(
    "spillover_work_unread_total",
    "counter",
    "Requests that said nothing of their size that could be read, where work is counted",
)
