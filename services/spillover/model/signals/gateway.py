"""The metrics of requests that pass a node's doors, and of the services behind it, as data; see
`model.signals.node`. Methods, classes of status, causes and ends are fixed sets, routes and
upstreams those of the configuration. All carry the label `cluster` besides those listed."""

from __future__ import annotations

from spillover.model.signals.signal import Signal

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""Methods with a label of their own; all others count as `other`."""

STATUSES = ("none", "1xx", "2xx", "3xx", "4xx", "5xx", "other")
"""Classes of status; none stands for a client that had gone before it was answered."""

OTHER = "other"

HTTP_REQUESTS = Signal(
    "spillover_http_requests_total",
    "counter",
    "Requests of clients, at POST /requests and at the door of a service behind the cluster, by "
    "method, by the configured route that fits (other: none) and by class of status",
    ("method", "route", "status"),
)
HTTP_RECEIVED_BYTES = Signal(
    "spillover_http_received_bytes_total",
    "counter",
    "Bytes of the bodies of those requests",
    ("route",),
)
HTTP_SENT_BYTES = Signal(
    "spillover_http_sent_bytes_total",
    "counter",
    "Bytes of the bodies of the answers to them, problems of the node left out",
    ("route",),
)
FAILURES = Signal(
    "spillover_failures_total",
    "counter",
    "Requests of clients that were accepted and not done, by how they ended and why",
    ("outcome", "cause"),
)
UPSTREAM_REQUESTS = Signal(
    "spillover_upstream_requests_total",
    "counter",
    "Requests sent to a service behind this node, by what they came to there; stopped: the node "
    "wanted the answer no longer, at a deadline or since the client had left",
    ("upstream", "end"),
)
UPSTREAM_UP = Signal(
    "spillover_upstream_up", "gauge", "1 while a service behind this node can be reached",
    ("upstream",),
)  # fmt: skip
AFFINITY_BYTES = Signal(
    "spillover_affinity_bytes_total",
    "counter",
    "Bytes of requests sent to a service behind this node, where the cluster has affinity, by "
    "whether the service was expected to have them of the same session (reused) or not (missing)",
    ("upstream", "part"),
)
RESULTS_UNFETCHED = Signal(
    "spillover_results_unfetched",
    "gauge",
    "Answers of asynchronous requests that nobody has fetched: they are lost when the node ends",
)
RESULTS_LOST = Signal(
    "spillover_results_lost_total",
    "counter",
    "Answers of asynchronous requests that were dropped before anybody had fetched them: kept for "
    "result_ttl_s (expired), for want of room (no_room), or the node ended (node_ended)",
    ("why",),
)
