"""The metrics of a node that has API tokens, by tenant: those that are configured, at most
TENANTS_SHOWN_MAX of them, and OTHER for the rest. All carry the label `cluster` besides."""

from __future__ import annotations

from spillover.model.signals.signal import Signal

TENANTS_SHOWN_MAX = 100
OTHER = "other"

TENANT_QUEUED = Signal(
    "spillover_tenant_queued",
    "gauge",
    "Requests of a tenant that have not left the queue",
    ("tenant",),
)
TENANT_RUNNING = Signal(
    "spillover_tenant_running",
    "gauge",
    "Requests of a tenant that have left the queue, here or to a neighbor, and have not ended",
    ("tenant",),
)
TENANT_REQUESTS = Signal(
    "spillover_tenant_requests_total",
    "counter",
    "Requests of a tenant that its quota let through",
    ("tenant",),
)
TENANT_LIMITED = Signal(
    "spillover_tenant_limited_total",
    "counter",
    "Requests of a tenant that its quota refused, by the limit",
    ("tenant", "limit"),
)
