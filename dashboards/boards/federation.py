"""The board to open first: all clusters at once, and who helps whom."""

from __future__ import annotations

from dashboards.board import ALERTS_NOW, Board, Row
from dashboards.panels import ALARM, WARNING, Query, graph, matrix, now
from dashboards.promql import (
    CLUSTER,
    FAILED,
    FIRING,
    REFUSED,
    TARGETS,
    largest,
    least,
    number,
    total,
)
from spillover.model.signals import node as signals
from spillover.model.signals import tls

ANSWERED = 'outcome="answered"'
NOT_ANSWERED = 'outcome!="answered"'
SERVED_AT_HOME = 'le="0.0"'

AT_A_GLANCE = Row(
    "Is anything wrong right now?",
    now(
        "Alerts", "How many of the alerts in alerts.yaml are firing.",
        number(FIRING), limits=[(1, ALARM)], width=4,
    ),
    now(
        "Silent nodes", "How many nodes and lease members do not answer Prometheus.",
        number(f"{TARGETS} == 0"), limits=[(1, ALARM)], width=4,
    ),
    now(
        "Degraded clusters", "Clusters whose work fails so often that neighbors do it instead.",
        total(largest(CLUSTER.of(signals.DEGRADED), "cluster")), limits=[(1, ALARM)], width=4,
    ),
    now(
        "Failing", "Requests per second that failed or expired: clients got 502 or 504.",
        total(CLUSTER.rate(signals.REQUESTS, FAILED)),
        unit="reqps", limits=[(0.001, WARNING), (0.1, ALARM)], width=4,
    ),
    now(
        "Turned away", "Requests per second that clients were refused.",
        total(CLUSTER.rate(signals.REQUESTS, REFUSED)),
        unit="reqps", limits=[(0.001, ALARM)], width=4,
    ),
    now(
        "Slowest 1 %", "System time that 99 of 100 requests stay under, in the last moments.",
        CLUSTER.quantile(0.99, signals.SYSTEM_TIME),
        unit="s", limits=[(5, WARNING), (30, ALARM)], width=4,
    ),
    now(
        "Waiting per server",
        "Requests in queues for each server there is: under 1 is a quiet day, a burst makes some.",
        f"{total(CLUSTER.of(signals.QUEUE_LENGTH))} / {total(CLUSTER.of(signals.SERVERS))}",
        limits=[(2, WARNING), (10, ALARM)], width=4,
    ),
    now(
        "Servers busy", "The share of all servers that is occupied: at 1 every further one waits.",
        f"{total(CLUSTER.of(signals.SERVERS_BUSY))} / {total(CLUSTER.of(signals.SERVERS))}",
        unit="percentunit", limits=[(0.85, WARNING), (0.97, ALARM)], width=4,
    ),
    now(
        "Most failing", "Share of the work of one cluster that failed of late, where it is worst.",
        largest(CLUSTER.of(signals.FAILED_SHARE)),
        unit="percentunit", limits=[(0.01, WARNING), (0.2, ALARM)], width=4,
    ),
    now(
        "Least R", "R of the cluster that has the least help to hope for: near 0 there is none.",
        least(CLUSTER.of(signals.NEIGHBORHOOD_ACCEPT_PROBABILITY)),
        unit="percentunit", limits=[(0.1, WARNING), (0.5, "green")], lowest=ALARM, width=4,
    ),
    now(
        "Oldest report", "Age of the newest report of the neighbor heard least recently.",
        largest(CLUSTER.of(signals.NEIGHBOR_STATE_AGE)),
        unit="s", limits=[(1, WARNING), (5, ALARM)], width=4,
    ),
    now(
        "Ledgers off by", "Requests lost or counted twice, at worst: anything but 0 is a bug.",
        largest(CLUSTER.of(signals.LEDGER_IMBALANCE)), limits=[(1, ALARM)], width=4,
    ),
    ALERTS_NOW,
)  # fmt: skip

QUEUES = Row(
    "Where does work wait?",
    graph(
        "How long is each queue?", "Requests that wait, N, by cluster.",
        Query(total(CLUSTER.of(signals.QUEUE_LENGTH), "cluster"), "{{cluster}}"), opens="cluster",
    ),
    graph(
        "How busy are the servers of each cluster?", "The share of its servers that is occupied.",
        Query(
            f"{total(CLUSTER.of(signals.SERVERS_BUSY), 'cluster')}"
            f" / {total(CLUSTER.of(signals.SERVERS), 'cluster')}",
            "{{cluster}}",
        ),
        unit="percentunit", top=1, opens="cluster",
    ),
)  # fmt: skip

FAILING = Row(
    "Which clusters fail, and who suffers?",
    graph(
        "Which share of its work fails?",
        "Of the work run in the cluster of late, its neighbors' too; what clients did wrong aside.",
        Query(largest(CLUSTER.of(signals.FAILED_SHARE), "cluster"), "{{cluster}}"),
        unit="percentunit", top=1, width=8, opens="cluster",
    ),
    graph(
        "Which clusters are degraded?",
        "1 while so much of its work fails that neighbors give it nothing and do its own.",
        Query(largest(CLUSTER.of(signals.DEGRADED), "cluster"), "{{cluster}}"),
        Query(largest(CLUSTER.of(signals.RESTING), "cluster"), "{{cluster}} rests"),
        top=1, width=8, opens="cluster",
    ),
    graph(
        "Whose clients' requests fail?",
        "Requests per second that failed or expired, wherever they ran, by home cluster.",
        Query(total(CLUSTER.rate(signals.REQUESTS, FAILED), "cluster"), "{{cluster}}"),
        unit="reqps", width=8, opens="cluster",
    ),
)  # fmt: skip

WILLING = Row(
    "Who would take more?",
    graph(
        "Would the cluster itself keep one more? (P)",
        "Acceptance probability of each cluster: 1 is idle enough, 0 is full or draining.",
        Query(least(CLUSTER.of(signals.ACCEPT_PROBABILITY), "cluster"), "{{cluster}}"),
        unit="percentunit", top=1, opens="cluster",
    ),
    graph(
        "Would it or a neighbor? (R)",
        "Neighborhood acceptance probability: near 0 everybody around is full, too.",
        Query(least(CLUSTER.of(signals.NEIGHBORHOOD_ACCEPT_PROBABILITY), "cluster"), "{{cluster}}"),
        unit="percentunit", top=1, opens="cluster",
    ),
)  # fmt: skip

FLOWS = Row(
    "Who helps whom?",
    graph(
        "How much flows between clusters?",
        "Requests per second that a neighbor took over and answered.",
        Query(
            total(CLUSTER.rate(signals.FORWARDS, ANSWERED), "cluster", "neighbor"),
            "{{cluster}} → {{neighbor}}",
        ),
        unit="reqps", opens="cluster",
    ),
    matrix(
        "From whom to whom, in the time shown?",
        "Requests handed over: from the cluster of the row to the one of the column.",
        total(CLUSTER.increase(signals.FORWARDS, ANSWERED), "cluster", "neighbor"),
        rows="cluster", columns="neighbor", width=6,
    ),
    graph(
        "Which share of requests leaves home?",
        "Of the requests of its own clients, those that another cluster served.",
        Query(
            f"1 - {CLUSTER.rate(signals.HOPS, SERVED_AT_HOME, suffix='_bucket')} / ignoring (le) "
            f"{CLUSTER.rate(signals.HOPS, suffix='_count')}",
            "{{cluster}}",
        ),
        unit="percentunit", top=1, width=6, opens="cluster",
    ),
    graph(
        "Which forwards come back with nothing?",
        "Per second: refused by the neighbor, lost with it, or recalled by the client.",
        Query(
            total(CLUSTER.rate(signals.FORWARDS, NOT_ANSWERED), "cluster", "neighbor", "outcome"),
            "{{cluster}} → {{neighbor}} {{outcome}}",
        ),
        unit="reqps", width=24, opens="cluster",
    ),
)  # fmt: skip

TIMES = Row(
    "How long do requests take?",
    graph(
        "What does a client of the federation see?",
        "System time, from receipt at the home to the end of service, of requests that were done.",
        Query(CLUSTER.quantile(0.5, signals.SYSTEM_TIME), "half are faster"),
        Query(CLUSTER.quantile(0.9, signals.SYSTEM_TIME), "90 of 100 are faster"),
        Query(CLUSTER.quantile(0.99, signals.SYSTEM_TIME), "99 of 100 are faster"),
        Query(CLUSTER.mean(signals.SYSTEM_TIME), "mean"),
        unit="s",
    ),
    graph(
        "Whose clients wait longest?", "System time that 99 of 100 stay under, by home cluster.",
        Query(CLUSTER.quantile(0.99, signals.SYSTEM_TIME, "cluster"), "{{cluster}}"),
        unit="s", opens="cluster",
    ),
)  # fmt: skip

ENDS = Row(
    "What becomes of requests?",
    graph(
        "How do they end?", "Requests of clients per second, by how they ended.",
        Query(total(CLUSTER.rate(signals.REQUESTS), "outcome"), "{{outcome}}"),
        unit="reqps", stacked=True, width=8,
    ),
    graph(
        "Who turns clients away?", "Refused requests per second, by cluster.",
        Query(total(CLUSTER.rate(signals.REQUESTS, REFUSED), "cluster"), "{{cluster}}"),
        unit="reqps", width=8, opens="cluster",
    ),
    graph(
        "Why are clients turned away?", "Refused requests per second, by the reason given.",
        Query(total(CLUSTER.rate(signals.REFUSALS), "reason"), "{{reason}}"),
        unit="reqps", stacked=True, width=8,
    ),
)  # fmt: skip

TRUST = Row(
    "Do the clusters hear each other, and can their numbers be trusted?",
    graph(
        "How old is what they know of each other?",
        "Age of the newest report: a neighbor silent for a second gets nothing more.",
        Query(
            largest(CLUSTER.of(signals.NEIGHBOR_STATE_AGE), "cluster", "neighbor"),
            "{{cluster}} of {{neighbor}}",
        ),
        unit="s", width=8, limits=[(1, WARNING), (5, ALARM)], opens="cluster",
    ),
    graph(
        "How late do the nodes' clocks ring?",
        "Largest delay of the event loop between two scrapes: high means too little processor.",
        Query(largest(CLUSTER.of(signals.LOOP_LAG), "cluster"), "{{cluster}}"),
        unit="s", width=8, limits=[(0.1, WARNING), (0.25, ALARM)], opens="cluster",
    ),
    graph(
        "Does every ledger balance?", "Requests by which a ledger is off: 0, or there is a bug.",
        Query(largest(CLUSTER.of(signals.LEDGER_IMBALANCE), "cluster"), "{{cluster}}"),
        width=8, limits=[(1, ALARM)], opens="cluster",
    ),
)  # fmt: skip

CERTIFICATES = Row(
    "Will clusters that have certificates still believe each other?",
    graph(
        "How long do certificates hold?",
        "Days that are left: the node's own certificate, the first sent along (chain), the first "
        "CA it trusts.",
        Query(
            f"({least(CLUSTER.of(tls.NOT_AFTER), 'cluster', 'of')} - time()) / 86400",
            "{{of}} of {{cluster}}",
        ),
        unit="d", opens="cluster", limits=[(0, ALARM), (14, WARNING), (30, "green")],
    ),
    graph(
        "Who is not believed, and why?",
        "Handshakes that fail per second, by who began them (in: others, out: the node) and why.",
        Query(
            total(CLUSTER.rate(tls.HANDSHAKE_FAILURES), "cluster", "side", "reason"),
            "{{cluster}} {{side}}: {{reason}}",
        ),
        unit="cps", opens="cluster",
    ),
)  # fmt: skip

BOARD = Board(
    name="federation",
    title="Spillover: federation",
    says="All clusters at once: where work waits, who helps whom, what clients see.",
    scope=CLUSTER,
    choices=signals.SERVERS,
    rows=(AT_A_GLANCE, QUEUES, FAILING, WILLING, FLOWS, TIMES, ENDS, TRUST, CERTIFICATES),
)
