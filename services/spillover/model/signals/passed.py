"""Every metric that a node through which requests pass has besides those of all nodes, as data. All
carry the label `cluster` besides those listed."""

from __future__ import annotations

from spillover.model.signals.node import DURATION_BUCKETS_S
from spillover.model.signals.signal import Signal

PASSED_RESPONSES = Signal(
    "spillover_passed_responses_total",
    "counter",
    "Answers that had begun to pass, those for neighbors too, by how they ended: what is truncated "
    "broke off, what is cancelled nobody wanted any more",
    ("end",),
)
PASSED_HEAD = Signal(
    "spillover_passed_head_seconds",
    "histogram",
    "Receipt at the home to the head of the answer, requests of clients whose answer has begun",
    buckets=DURATION_BUCKETS_S,
)
PASSING = Signal("spillover_passing", "gauge", "Answers that pass now, those for neighbors too")
