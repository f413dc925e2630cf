"""Where clients are and whether they move, and whether all clusters go by one configuration: a
change of it is what moves clients.
"""

from __future__ import annotations

from dashboards.board import ALERTS_NOW, Board, Row
from dashboards.panels import ALARM, WARNING, Query, graph, now
from dashboards.promql import CLUSTER, FAILED, REFUSED, largest, total
from spillover.model.signals import clients, membership
from spillover.model.signals import node as signals

AT_A_GLANCE = Row(
    "Are all of one mind, and do clients move?",
    now(
        "Configurations", "How many different ones clusters go by: 1 when all agree.",
        f'count(count_values("id", {CLUSTER.of(membership.ID)}))',
        limits=[(2, WARNING)], width=4,
    ),
    now(
        "Superseded", "Configurations that lost against another one, in the time shown.",
        total(CLUSTER.increase(membership.SUPERSEDED)), limits=[(1, WARNING)], width=4,
    ),
    now(
        "Clients", "Clients that have a session, at all clusters together.",
        total(CLUSTER.of(clients.CLIENTS)), width=4,
    ),
    now(
        "Most at one", "Clients of the cluster that has most: 10 000 may be, unless set otherwise.",
        largest(CLUSTER.of(clients.CLIENTS)), limits=[(8000, WARNING), (10000, ALARM)], width=4,
    ),
    now(
        "Moves", "Clients per second that leave their cluster for another one.",
        total(CLUSTER.rate(clients.MOVES)), width=4,
    ),
    now(
        "Put off", "Sessions per second that are refused: the clients try again, or elsewhere.",
        total(CLUSTER.rate(clients.CONNECTS_REFUSED)), limits=[(0.1, WARNING)], width=4,
    ),
    ALERTS_NOW,
)  # fmt: skip

CLIENTS = Row(
    "Where are the clients?",
    graph(
        "How many does each cluster have?", "Clients that have a session there.",
        Query(total(CLUSTER.of(clients.CLIENTS), "cluster"), "{{cluster}}"),
        width=8, opens="cluster",
    ),
    graph(
        "From where do they move?",
        "Clients per second that leave for another cluster: after a change, or a drain.",
        Query(CLUSTER.rate(clients.MOVES), "{{cluster}}"), width=8, opens="cluster",
    ),
    graph(
        "Who puts them off?",
        "Sessions per second that were refused: too many at a time, or in all.",
        Query(CLUSTER.rate(clients.CONNECTS_REFUSED), "{{cluster}}"), width=8, opens="cluster",
    ),
)  # fmt: skip

CONFIGURATION = Row(
    "Do all go by the same configuration?",
    graph(
        "Which version does each cluster go by?",
        "One line where all agree; a cluster that stays behind is cut off, or of an older release.",
        Query(largest(CLUSTER.of(membership.VERSION), "cluster"), "{{cluster}}"),
        width=8, opens="cluster",
    ),
    graph(
        "When did it change?", "Configurations that clusters went over to, per minute.",
        Query(f"60 * {total(CLUSTER.rate(membership.CHANGES), 'cluster')}", "{{cluster}}"), width=8,
        opens="cluster",
    ),
    graph(
        "Whose change was lost?",
        "Configurations set at a cluster, in the time shown, that lost against another one.",
        Query(total(CLUSTER.increase(membership.SUPERSEDED), "cluster"), "{{cluster}}"),
        width=8, limits=[(1, WARNING)], opens="cluster",
    ),
)  # fmt: skip

MEANWHILE = Row(
    "Do requests suffer meanwhile?",
    graph(
        "How many fail or are turned away?",
        "Requests per second that failed, expired or were refused: no change is to cost any.",
        Query(total(CLUSTER.rate(signals.REQUESTS, FAILED), "cluster"), "{{cluster}}, failed"),
        Query(total(CLUSTER.rate(signals.REQUESTS, REFUSED), "cluster"), "{{cluster}}, refused"),
        unit="reqps", opens="cluster",
    ),
    graph(
        "Do nodes keep up with those who come?",
        "How late a timer rang at most, between two scrapes: connecting costs processor.",
        Query(largest(CLUSTER.of(signals.LOOP_LAG), "cluster"), "{{cluster}}"),
        unit="s", limits=[(0.1, WARNING), (0.25, ALARM)], opens="cluster",
    ),
)  # fmt: skip

BOARD = Board(
    name="clients",
    title="Spillover: clients and configuration",
    says="Where clients are, whether they move, and which configuration each cluster goes by.",
    scope=CLUSTER,
    choices=clients.CLIENTS,
    rows=(AT_A_GLANCE, CLIENTS, CONFIGURATION, MEANWHILE),
)
