"""The metrics of one producer of the distributed queue. Label `node` is the producer."""

from __future__ import annotations

from spillover.model.signals.signal import Signal

WAIT_BUCKETS_S = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0,
    300.0, 600.0, 1800.0, 3600.0,
)  # fmt: skip
"""The buckets reach from an object that is there to a consumer that has nothing to do for an
hour."""

BUFFERED = Signal("spillover_queue_buffered", "gauge", "Objects that wait for a consumer")
GRANTED = Signal("spillover_queue_granted", "gauge", "Objects granted and not yet acknowledged")
DEAD = Signal("spillover_queue_dead", "gauge", "Objects that were granted too often in vain")
RESTING = Signal(
    "spillover_queue_resting",
    "gauge",
    "Buffered objects that were given back as not handled, and are not given again yet",
)
BUFFERS = Signal("spillover_queue_buffers", "gauge", "Places for objects")
PARKED = Signal("spillover_queue_parked_probes", "gauge", "Probes that wait here for an object")
TAKES = Signal("spillover_queue_takes", "gauge", "Consumers' calls that are held here")
OFFERS_WAITING = Signal(
    "spillover_queue_producers_waiting", "gauge", "Producers that wait for a place"
)
HELD_BYTES = Signal("spillover_queue_held_bytes", "gauge", "Bytes of objects in memory")
HELD_LIMIT = Signal(
    "spillover_queue_held_limit_bytes", "gauge", "With so many in memory, producers wait"
)
DURABLE = Signal("spillover_queue_durable", "gauge", "1 if objects outlive the process")
OLDEST = Signal(
    "spillover_queue_oldest_seconds",
    "gauge",
    "How long those wait that wait longest: an object, an offer, a take, a probe",
    ("what",),
)
PRODUCED = Signal("spillover_queue_produced_total", "counter", "Objects taken in")
ACKNOWLEDGED = Signal("spillover_queue_acknowledged_total", "counter", "Objects acknowledged")
RETURNED = Signal(
    "spillover_queue_returned_total", "counter", "Grants that ended without an acknowledgement"
)
SENT_BYTES = Signal("spillover_queue_sent_bytes_total", "counter", "Bytes of objects sent")
PROBES = Signal(
    "spillover_probes_total", "counter", "What became of probes that came here", ("outcome",)
)
TAKES_ENDED = Signal(
    "spillover_queue_takes_total", "counter", "What became of consumers' calls", ("outcome",)
)
OFFERS_ENDED = Signal(
    "spillover_queue_offers_total", "counter", "What became of objects offered", ("outcome",)
)
WAIT = Signal(
    "spillover_queue_take_wait_seconds",
    "histogram",
    "How long consumers' calls waited for an object",
    buckets=WAIT_BUCKETS_S,
)
