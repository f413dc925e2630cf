"""The distributed queue: who has objects, who waits for them, and what comes back."""

from __future__ import annotations

from dashboards.board import ALERTS_NOW, Board, Row
from dashboards.panels import ALARM, WARNING, Query, graph, now
from dashboards.promql import FIRING, NODE, largest, number, total
from spillover.model.signals import queue as signals

OBJECTS, TAKES, OFFERS = 'what="object"', 'what="take"', 'what="offer"'
REFUSED = 'outcome!="accepted"'

AT_A_GLANCE = Row(
    "Is anything wrong right now?",
    now(
        "Alerts", "How many of the alerts in alerts.yaml are firing.",
        number(FIRING), limits=[(1, ALARM)],
    ),
    now("Producers", "Producers that answer Prometheus.", number(NODE.of(signals.BUFFERS))),
    now("Buffered", "Objects that wait for a consumer.", total(NODE.of(signals.BUFFERED))),
    now("Granted", "Objects given and not acknowledged.", total(NODE.of(signals.GRANTED))),
    now(
        "Dead", "Objects that were granted too often in vain.", total(NODE.of(signals.DEAD)),
        limits=[(1, ALARM)],
    ),
    now(
        "Oldest object", "How long the object waits that waits longest.",
        largest(NODE.of(signals.OLDEST, OBJECTS)), unit="s", limits=[(60, WARNING), (300, ALARM)],
    ),
    now(
        "Producers that wait", "Calls of producers that wait for a place.",
        total(NODE.of(signals.OFFERS_WAITING)), limits=[(1, WARNING)],
    ),
    now(
        "In memory alone", "Producers whose objects are lost with their process.",
        number(f"{NODE.of(signals.DURABLE)} == 0"), limits=[(1, WARNING)],
    ),
    ALERTS_NOW,
)  # fmt: skip

OBJECTS_ROW = Row(
    "Where are the objects?",
    graph(
        "How many wait for a consumer?",
        "Objects buffered, by producer, and those of them that rest since they were not handled.",
        Query(NODE.of(signals.BUFFERED), "{{node}}"),
        Query(NODE.of(signals.RESTING), "{{node}} rest"), width=8,
    ),
    graph(
        "How full are the buffers?", "Objects buffered for each place.",
        Query(f"{NODE.of(signals.BUFFERED)} / {NODE.of(signals.BUFFERS)}", "{{node}}"),
        unit="percentunit", width=8,
    ),
    graph(
        "How long does the oldest wait?", "Age of the object that waits longest, by producer.",
        Query(NODE.of(signals.OLDEST, OBJECTS), "{{node}}"),
        unit="s", width=8, limits=[(60, WARNING), (300, ALARM)],
    ),
    graph(
        "Who has taken in how much?", "Objects taken in, per second.",
        Query(NODE.rate(signals.PRODUCED), "{{node}}"), width=8,
    ),
    graph(
        "Who is rid of how much?", "Objects acknowledged, per second.",
        Query(NODE.rate(signals.ACKNOWLEDGED), "{{node}}"), width=8,
    ),
    graph(
        "How many are in consumers' hands?", "Objects granted and not yet acknowledged.",
        Query(NODE.of(signals.GRANTED), "{{node}}"), width=8,
    ),
)  # fmt: skip

PRODUCERS = Row(
    "Do producers get rid of theirs?",
    graph(
        "How many wait for a place?", "Calls of producers that wait while the buffer is full.",
        Query(NODE.of(signals.OFFERS_WAITING), "{{node}}"), width=8,
    ),
    graph(
        "How long do they wait?", "The call that waits longest for a place.",
        Query(NODE.of(signals.OLDEST, OFFERS), "{{node}}"), unit="s", width=8,
    ),
    graph(
        "What is refused?", "Objects that were not taken, per second, by why.",
        Query(
            total(NODE.rate(signals.OFFERS_ENDED, REFUSED), "node", "outcome"),
            "{{node}} {{outcome}}",
        ),
        width=8,
    ),
)  # fmt: skip

CONSUMERS = Row(
    "Do consumers find objects?",
    graph(
        "How long do they wait?", "99 of 100 calls that came to an object waited less.",
        Query(NODE.quantile(0.99, signals.WAIT, "node"), "{{node}}"), unit="s", width=6,
    ),
    graph(
        "How many calls wait?", "Calls of consumers that are held, and the longest wait of one.",
        Query(NODE.of(signals.TAKES), "{{node}}"),
        Query(NODE.of(signals.OLDEST, TAKES), "{{node}} longest, s"), width=6,
    ),
    graph(
        "What becomes of calls?", "Calls of consumers, per second, by end.",
        Query(total(NODE.rate(signals.TAKES_ENDED), "outcome"), "{{outcome}}"), width=6,
    ),
    graph(
        "What becomes of probes?", "Probes that came to a producer, per second.",
        Query(total(NODE.rate(signals.PROBES), "outcome"), "{{outcome}}"), width=6,
    ),
    graph(
        "How many probes wait?", "Probes that are parked at empty producers.",
        Query(NODE.of(signals.PARKED), "{{node}}"), width=6,
    ),
    graph(
        "What comes back?", "Grants that ended without an acknowledgement, per second.",
        Query(NODE.rate(signals.RETURNED), "{{node}}"), width=6,
    ),
    graph(
        "What is dead?", "Objects that were granted too often in vain.",
        Query(NODE.of(signals.DEAD), "{{node}}"), width=6, limits=[(1, ALARM)],
    ),
    graph(
        "How many bytes are sent?", "Bytes of objects sent to consumers, per second.",
        Query(NODE.rate(signals.SENT_BYTES), "{{node}}"), unit="Bps", width=6,
    ),
)  # fmt: skip

PROCESSES = Row(
    "Are the producers well?",
    graph(
        "How much memory do objects take?", "Bytes in memory, of those that are allowed.",
        Query(NODE.of(signals.HELD_BYTES), "{{node}}"),
        Query(NODE.of(signals.HELD_LIMIT), "{{node}} allowed"), unit="bytes", width=8,
    ),
    graph(
        "How much processor does it take?", "Seconds of processor per second; 1 is a whole core.",
        Query(
            NODE.process("rate(process_cpu_seconds_total[$__rate_interval])", signals.BUFFERS),
            "{{node}}",
        ),
        width=8,
    ),
    graph(
        "How much memory does the process take?", "Resident memory of the producer.",
        Query(NODE.process("process_resident_memory_bytes", signals.BUFFERS), "{{node}}"),
        unit="bytes", width=8,
    ),
)  # fmt: skip

BOARD = Board(
    name="queue",
    title="Spillover: distributed queue",
    says="The distributed queue: who has objects, who waits for them, and what comes back.",
    scope=NODE,
    choices=signals.BUFFERS,
    rows=(AT_A_GLANCE, OBJECTS_ROW, PRODUCERS, CONSUMERS, PROCESSES),
)
