"""Every metric of a node as data. Collectors and dashboards read this list; no other place names a
metric. All carry the label `cluster` besides those listed.
"""

from __future__ import annotations

from spillover.model.signals.signal import LOOP_LAG as LOOP_LAG  # noqa: PLC0414 - nodes have it too
from spillover.model.signals.signal import Signal

DURATION_BUCKETS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0,
)  # fmt: skip
"""The buckets reach from the cost of a queue at rest to work of an hour: a quantile beyond the last
one shows as the last one."""

HOP_BUCKETS = (0, 1, 2, 3, 4, 5, 6, 8, 12, 16)


QUEUE_LENGTH = Signal("spillover_queue_length", "gauge", "Requests waiting, N")
SERVERS = Signal("spillover_servers", "gauge", "Servers of the cluster, m")
SERVERS_BELIEVED = Signal(
    "spillover_servers_believed",
    "gauge",
    "Servers that are believed to be best, where their number is learned; else those there are",
)
SERVERS_MOVES = Signal(
    "spillover_servers_moves_total",
    "counter",
    "Times that another number of servers turned out to be better, where it is learned",
)
SERVERS_BUSY = Signal("spillover_servers_busy", "gauge", "Servers that are occupied")
SERVERS_STUCK = Signal(
    "spillover_servers_stuck", "gauge", "Servers occupied by work whose request has ended"
)
DEGRADED = Signal(
    "spillover_degraded", "gauge", "1 while so much of the work fails that neighbors are to do it"
)
FAILED_SHARE = Signal(
    "spillover_failed_share", "gauge", "Share of the work run here of late that failed"
)
RESTING = Signal(
    "spillover_resting",
    "gauge",
    "1 while what runs the work has asked to be left alone (429 or 503 with Retry-After)",
)
ACCEPT_PROBABILITY = Signal("spillover_accept_probability", "gauge", "P of the cluster")
NEIGHBORHOOD_ACCEPT_PROBABILITY = Signal(
    "spillover_neighborhood_accept_probability", "gauge", "R of the cluster"
)
NEIGHBOR_STATE_AGE = Signal(
    "spillover_neighbor_state_age_seconds",
    "gauge",
    "Age of the newest report of a neighbor; absent before the first one",
    ("neighbor",),
)
REQUESTS = Signal(
    "spillover_requests_total", "counter", "Requests of clients by how they ended", ("outcome",)
)
REFUSALS = Signal(
    "spillover_refusals_total",
    "counter",
    "Requests of clients that were refused, by why; too_late: past its deadline once its turn came",
    ("reason",),
)
FORWARDS = Signal(
    "spillover_forwards_total",
    "counter",
    "Requests handed to a neighbor by what came back",
    ("neighbor", "outcome"),
)
FORWARDS_MISSED = Signal(
    "spillover_forwards_missed_total",
    "counter",
    "Requests that a neighbor lost, or answered later than its load promised, if at all",
    ("neighbor",),
)
NEIGHBOR_AVOIDED = Signal(
    "spillover_neighbor_avoided",
    "gauge",
    "1 while a neighbor is given nothing since requests from here fail or are lost there",
    ("neighbor",),
)
HANDED = Signal(
    "spillover_handed_total",
    "counter",
    "Requests handed to a neighbor by how that came about: push, or pull where it had asked",
    ("neighbor", "by"),
)
ASKS = Signal(
    "spillover_asks_total",
    "counter",
    "Times that idle servers asked a neighbor for work, by what came of it",
    ("outcome",),
)
FOREIGN_WAITING = Signal(
    "spillover_foreign_waiting", "gauge", "Requests of neighbors that wait in the queue"
)
FOREIGN_WAITING_LIMIT = Signal(
    "spillover_foreign_waiting_limit", "gauge", "How many requests of neighbors may wait"
)
HOME_LOAD = Signal(
    "spillover_home_load",
    "gauge",
    "What the own clients bring, as a share of what the cluster can do",
)
NEIGHBOR_LOAD_AGE = Signal(
    "spillover_neighbor_load_age_seconds",
    "gauge",
    "Time since a neighbor told its load, in a report or with anything else",
    ("neighbor",),
)
SHADOW_DECISIONS = Signal(
    "spillover_shadow_decisions_total",
    "counter",
    "Decisions at which a shadow was asked along, by whether it would have done the same",
    ("shadow", "same"),
)
SHADOW_SECONDS = Signal(
    "spillover_shadow_seconds_total",
    "counter",
    "Estimated seconds by which its other choices are sooner (saved) or later (lost)",
    ("shadow", "estimate"),
)
SHARED_CONNECTIONS = Signal(
    "spillover_shared_connections",
    "gauge",
    "Connections that requests handed to neighbors (caller) or by them (callee) share",
    ("end",),
)
SHARED_FRAMES = Signal(
    "spillover_shared_frames_total", "counter", "Frames on shared connections", ("way",)
)
SHARED_UNSENT_BYTES = Signal(
    "spillover_shared_unsent_bytes", "gauge", "Bytes that wait to leave on shared connections"
)
PEER_REFUSED = Signal(
    "spillover_peer_messages_refused_total",
    "counter",
    "Messages of a neighbor, or of another node of the cluster, that were dropped: beyond what is"
    " declared of them, or (raised) since the machine raised; the log says why",
    ("neighbor", "message"),
)
RECEIVED = Signal(
    "spillover_received_total",
    "counter",
    "Requests that a neighbor handed over by how they ended here",
    ("neighbor", "outcome"),
)
SYSTEM_TIME = Signal(
    "spillover_system_time_seconds",
    "histogram",
    "Receipt at the home to end of service, requests of clients that were done",
    buckets=DURATION_BUCKETS_S,
)
QUEUE_WAIT = Signal(
    "spillover_queue_wait_seconds",
    "histogram",
    "Time in queues on the whole path, requests of clients that were done",
    buckets=DURATION_BUCKETS_S,
)
HOPS = Signal(
    "spillover_hops",
    "histogram",
    "Times forwarded, requests of clients that were done",
    buckets=HOP_BUCKETS,
)
PASSED_RESPONSES = Signal(
    "spillover_passed_responses_total",
    "counter",
    "Answers that had begun to pass through, by how they ended; truncated: broken off",
    ("end",),
)
PASSED_HEAD = Signal(
    "spillover_passed_head_seconds",
    "histogram",
    "From a request that passes through, here, to the head of its answer",
    buckets=DURATION_BUCKETS_S,
)
SPANS = Signal(
    "spillover_spans_total",
    "counter",
    "Spans of traces, with --otel; dropped: for want of room, failed: the collector took them not",
    ("outcome",),
)
HELD_BYTES = Signal(
    "spillover_held_bytes",
    "gauge",
    "Bytes of requests under way, of what is being read or given, and of answers that are kept",
)
HELD_LIMIT_BYTES = Signal(
    "spillover_held_limit_bytes", "gauge", "How many bytes the cluster may hold"
)
KEPT_BYTES = Signal(
    "spillover_kept_bytes", "gauge", "The part of the held bytes that gives way: kept answers"
)
LEDGER_IMBALANCE = Signal(
    "spillover_ledger_imbalance", "gauge", "Requests the ledger is off by; anything but 0 is a bug"
)
LEDGER = Signal("spillover_ledger", "gauge", "Entries of the ledger", ("side", "entry"))
