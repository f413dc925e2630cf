"""Every metric that a node with a pool of unlike servers has besides those of all nodes, as
data. All carry the label `cluster` besides those listed.
"""

from __future__ import annotations

from spillover.model.signals.signal import Signal

TOKENS_AVAILABLE = Signal(
    "spillover_tokens_available", "gauge", "Tokens that a job could take now", ("class",)
)
TOKENS_HELD = Signal("spillover_tokens_held", "gauge", "Tokens that jobs hold", ("class",))
TOKENS_LIMIT = Signal(
    "spillover_tokens_limit",
    "gauge",
    "Tokens of the class, those of servers that are out too",
    ("class",),
)
TOKENS_UNACCOUNTED = Signal(
    "spillover_tokens_unaccounted",
    "gauge",
    "Tokens that no job holds and that are not in the bucket; anything but 0 is a bug",
)
BLOCKED = Signal(
    "spillover_blocked_total", "counter", "Requests that came and found no token", ("type",)
)
SERVER_JOBS = Signal("spillover_server_jobs", "gauge", "Jobs on a server of the pool", ("server",))
SERVER_UP = Signal(
    "spillover_server_up",
    "gauge",
    "1 while a server of the pool takes jobs; 0 while it is out, down, resting or degraded",
    ("server",),
)
TYPE_REQUESTS = Signal(
    "spillover_type_requests_total",
    "counter",
    "Requests of clients by type and by how they ended, where servers are unlike",
    ("type", "outcome"),
)
TYPE_QUEUE_WAIT = Signal(
    "spillover_type_queue_wait_seconds_total",
    "counter",
    "Time in queues on the whole path, requests of clients that were done",
    ("type",),
)
TYPE_SYSTEM_TIME = Signal(
    "spillover_type_system_time_seconds_total",
    "counter",
    "Receipt at the home to end of service, requests of clients that were done",
    ("type",),
)
