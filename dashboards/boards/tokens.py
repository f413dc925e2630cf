"""The pools of unlike servers: tokens by class, jobs by server, and what each type of jobs gets."""

from __future__ import annotations

from dashboards.board import ALERTS_NOW, Board, Row
from dashboards.panels import ALARM, WARNING, Query, graph, now
from dashboards.promql import CLUSTER, FAILED, REFUSED, largest, number, total
from spillover.model.signals import tokens as signals

CLASS = ("cluster", "class")
SERVER = ("cluster", "server")
TYPE = ("cluster", "type")

DONE = 'outcome="done"'

AT_A_GLANCE = Row(
    "Are there tokens, and servers to run on?",
    now(
        "Tokens held", "The share of all tokens that jobs hold.",
        f"{total(CLUSTER.of(signals.TOKENS_HELD))} / {total(CLUSTER.of(signals.TOKENS_LIMIT))}",
        unit="percentunit", limits=[(0.8, WARNING), (0.97, ALARM)], width=5,
    ),
    now(
        "Classes without a token", "Classes of which no token is available now.",
        number(f"{CLUSTER.of(signals.TOKENS_AVAILABLE)} == 0"),
        limits=[(1, WARNING)], width=5,
    ),
    now(
        "Blocked", "Requests per second that come and find no token.",
        total(CLUSTER.rate(signals.BLOCKED)), unit="reqps", limits=[(0.1, WARNING)], width=5,
    ),
    now(
        "Servers that take nothing", "Servers of pools that are out, down, resting or degraded.",
        number(f"{CLUSTER.of(signals.SERVER_UP)} == 0"), limits=[(1, ALARM)], width=5,
    ),
    now(
        "Tokens off by", "Tokens that are lost or held twice: anything but 0 is a bug.",
        largest(CLUSTER.of(signals.TOKENS_UNACCOUNTED)), limits=[(1, ALARM)], width=4,
    ),
    ALERTS_NOW,
)  # fmt: skip

CLASSES = Row(
    "Where are the tokens?",
    graph(
        "How many tokens are available?", "By class: at 0 a job of a type that joins it may block.",
        Query(total(CLUSTER.of(signals.TOKENS_AVAILABLE), *CLASS), "{{cluster}} {{class}}"),
        width=8,
    ),
    graph(
        "How many do jobs hold?", "By class, those too that retire when they come back.",
        Query(total(CLUSTER.of(signals.TOKENS_HELD), *CLASS), "{{cluster}} {{class}}"),
        width=8,
    ),
    graph(
        "How many may there be?", "Limits by class, as the topology or an operator has set them.",
        Query(total(CLUSTER.of(signals.TOKENS_LIMIT), *CLASS), "{{cluster}} {{class}}"),
        width=8,
    ),
)  # fmt: skip

SERVERS = Row(
    "What do the servers do?",
    graph(
        "How many jobs has each?", "Jobs on a server at a time: under ps they share it.",
        Query(total(CLUSTER.of(signals.SERVER_JOBS), *SERVER), "{{cluster}} {{server}}"),
    ),
    graph(
        "Which take jobs?",
        "1 for a server that does; 0 while it is out, down, resting or degraded.",
        Query(total(CLUSTER.of(signals.SERVER_UP), *SERVER), "{{cluster}} {{server}}"),
        top=1,
    ),
)  # fmt: skip

TYPES = Row(
    "What does each type of requests get?",
    graph(
        "How many are there?", "Requests of the own clients per second, by type.",
        Query(total(CLUSTER.rate(signals.TYPE_REQUESTS), *TYPE), "{{cluster}} {{type}}"),
        unit="reqps", width=8,
    ),
    graph(
        "How many find no token?", "Requests per second that come here and are blocked, by type.",
        Query(total(CLUSTER.rate(signals.BLOCKED), *TYPE), "{{cluster}} {{type}}"),
        unit="reqps", width=8,
    ),
    graph(
        "How many come to nothing?", "Requests per second that were refused or failed, by type.",
        Query(total(CLUSTER.rate(signals.TYPE_REQUESTS, REFUSED), *TYPE),
              "{{cluster}} {{type}} refused"),
        Query(total(CLUSTER.rate(signals.TYPE_REQUESTS, FAILED), *TYPE),
              "{{cluster}} {{type}} failed"),
        unit="reqps", width=8,
    ),
    graph(
        "How long do they wait?", "Mean time in queues of requests that were done, by type.",
        Query(
            f"{total(CLUSTER.rate(signals.TYPE_QUEUE_WAIT), *TYPE)} / "
            f"{total(CLUSTER.rate(signals.TYPE_REQUESTS, DONE), *TYPE)}",
            "{{cluster}} {{type}}",
        ),
        unit="s",
    ),
    graph(
        "How long do they take?", "Mean system time of requests that were done, by type.",
        Query(
            f"{total(CLUSTER.rate(signals.TYPE_SYSTEM_TIME), *TYPE)} / "
            f"{total(CLUSTER.rate(signals.TYPE_REQUESTS, DONE), *TYPE)}",
            "{{cluster}} {{type}}",
        ),
        unit="s",
    ),
)  # fmt: skip

BOARD = Board(
    name="tokens",
    title="Spillover: unlike servers",
    says="Pools of unlike servers: their tokens, their servers, and what types of requests get.",
    scope=CLUSTER,
    choices=signals.TOKENS_LIMIT,
    rows=(AT_A_GLANCE, CLASSES, SERVERS, TYPES),
)
