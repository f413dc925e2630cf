"""Partition leases: who holds what, and whether it stays so."""

from __future__ import annotations

from dashboards.board import ALERTS_NOW, Board, Row
from dashboards.panels import ALARM, WARNING, Query, graph, heat, listing, now
from dashboards.promql import FIRING, NODE, RATE, largest, number, total
from spillover.model.signals import leases as signals
from spillover.model.signals.signal import LOOP_LAG

RECENTLY = "1h"
"""A partition that had an owner within this time should have one."""

TROUBLE = 'event=~"lost|fenced|renewed_late|redis_down"'

AT_A_GLANCE = Row(
    "Is anything wrong right now?",
    now(
        "Alerts", "How many of the alerts in alerts.yaml are firing.",
        number(FIRING), limits=[(1, ALARM)],
    ),
    now("Members", "Members that answer Prometheus.", number(NODE.of(signals.HELD))),
    now(
        "Partitions held", "Partitions that the members hold altogether.",
        total(NODE.of(signals.HELD)),
    ),
    now(
        "Without an owner", "Partitions that had an owner within the last hour and have none now.",
        number(
            f"group by (job, partition) (max_over_time({NODE.of(signals.EPOCH)}[{RECENTLY}])) "
            f"unless group by (job, partition) ({NODE.of(signals.EPOCH)})"
        ),
        limits=[(1, ALARM)],
    ),
    now(
        "Held twice", "Partitions of which two members say that they hold them.",
        number(f"count by (job, partition) ({NODE.of(signals.EPOCH)}) > 1"), limits=[(1, ALARM)],
    ),
    now(
        "Moves", "Partitions that came to a member within the last hour.",
        total(NODE.increase(signals.MOVES, over=RECENTLY)),
    ),
    now(
        "Latest renewals", "How late the latest of 100 renewals was sent in the last 5 minutes.",
        NODE.quantile(0.99, signals.RENEW_LAG, over="5m"),
        unit="s", limits=[(1, WARNING), (5, ALARM)],
    ),
    now(
        "Without Redis", "Members that Redis did not answer last.",
        number(f"{NODE.of(signals.REDIS_UP)} == 0"), limits=[(1, ALARM)],
    ),
    ALERTS_NOW,
)  # fmt: skip

OWNERS = Row(
    "Who holds what?",
    graph(
        "How many partitions does each member hold?",
        "Partitions held, stacked: a step of the sum is a partition without an owner.",
        Query(NODE.of(signals.HELD), "{{node}}"), stacked=True,
    ),
    listing(
        "Who holds which partition, and under which epoch?",
        "Partitions held now; an epoch is about the Redis clock in ms at which it was given.",
        largest(NODE.of(signals.EPOCH), "partition", "node", "job"),
        columns={"partition": "Partition", "node": "Member", "Value": "Epoch", "job": "Job"},
    ),
)  # fmt: skip

MOVES = Row(
    "Does it stay so?",
    graph(
        "Who gets partitions?", "Partitions that came to each member, per minute.",
        Query(f"60 * {NODE.rate(signals.MOVES)}", "{{node}}"), width=8,
    ),
    graph(
        "Which partitions change hands most?",
        "New epochs of the ten partitions that had most of them in the last 15 minutes.",
        Query(
            "topk(10, changes(("
            f"{largest(NODE.of(signals.EPOCH), 'job', 'partition')})[15m:30s]))",
            "{{partition}}",
        ),
        width=8, limits=[(3, WARNING)],
    ),
    graph(
        "What went wrong, and where?",
        "Leases lost, handlers fenced, renewals late and Redis away, per minute.",
        Query(
            f"60 * {total(NODE.rate(signals.EVENTS, TROUBLE), 'node', 'event')}",
            "{{node}} {{event}}",
        ),
        width=8,
    ),
)  # fmt: skip

RENEWALS = Row(
    "Are leases renewed in time?",
    graph(
        "How late are renewals?", "How late renewals are sent: 99 of 100 are less late than this.",
        Query(NODE.quantile(0.99, signals.RENEW_LAG, "node"), "{{node}}"),
        unit="s", width=8, limits=[(1, WARNING), (5, ALARM)],
    ),
    heat(
        "How is their lateness spread?", "Renewals that were so late, over all members.",
        total(NODE.increase(signals.RENEW_LAG, suffix="_bucket", over=RATE), "le"),
        unit="s", width=8,
    ),
    graph(
        "Does Redis answer?", "1 where Redis answered the member last, 0 where it did not.",
        Query(NODE.of(signals.REDIS_UP), "{{node}}"), width=8, top=1,
    ),
)  # fmt: skip

HANDLERS = Row(
    "Are the members well?",
    graph(
        "Do handlers fail?", "Handlers that raised, per minute: their partitions are given away.",
        Query(f"60 * {NODE.rate(signals.HANDLER_FAILURES)}", "{{node}}"), width=6,
    ),
    graph(
        "How late does the member's clock ring?",
        "Largest delay of its event loop between two scrapes.",
        Query(NODE.of(LOOP_LAG), "{{node}}"),
        unit="s", width=6, limits=[(0.1, WARNING), (0.25, ALARM)],
    ),
    graph(
        "How much processor does it take?", "Seconds of processor per second; 1 is a whole core.",
        Query(
            NODE.process("rate(process_cpu_seconds_total[$__rate_interval])", signals.HELD),
            "{{node}}",
        ),
        width=6,
    ),
    graph(
        "How much memory does it take?", "Resident memory of the member.",
        Query(NODE.process("process_resident_memory_bytes", signals.HELD), "{{node}}"),
        unit="bytes", width=6,
    ),
)  # fmt: skip

BOARD = Board(
    name="leases",
    title="Spillover: leases",
    says="Partition leases: who holds what, whether it stays so, and whether renewals keep up.",
    scope=NODE,
    choices=signals.HELD,
    rows=(AT_A_GLANCE, OWNERS, MOVES, RENEWALS, HANDLERS),
)
