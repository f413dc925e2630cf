"""One cluster from close by: where `federation` says that something is wrong with it."""

from __future__ import annotations

from dashboards.board import Board, Row
from dashboards.panels import ALARM, WARNING, Query, bars, graph, heat, now
from dashboards.promql import CLUSTER, FAILED, RATE, REFUSED, largest, least, total
from spillover.model.signals import clients, gateway, membership, sizes, tenants
from spillover.model.signals import node as signals

HELD = 'entry=~"queued|running|away|handed_on"'
"""Entries of the ledger that are requests here or on their way, not ended ones."""

OTHERWISE = 'same="false"'
REUSED = 'part="reused"'

AT_A_GLANCE = Row(
    "Is it well right now?",
    now(
        "Degraded", "1 while so much of its work fails that neighbors are to do it.",
        largest(CLUSTER.of(signals.DEGRADED)), limits=[(1, ALARM)], width=4,
    ),
    now(
        "Work that fails", "Share of the work run here of late that failed.",
        largest(CLUSTER.of(signals.FAILED_SHARE)),
        unit="percentunit", limits=[(0.01, WARNING), (0.2, ALARM)], width=4,
    ),
    now(
        "Failing", "Requests of its clients per second that failed or expired, wherever they ran.",
        total(CLUSTER.rate(signals.REQUESTS, FAILED)),
        unit="reqps", limits=[(0.001, WARNING), (0.1, ALARM)], width=4,
    ),
    now(
        "Turned away", "Requests of its clients per second that were refused.",
        total(CLUSTER.rate(signals.REQUESTS, REFUSED)),
        unit="reqps", limits=[(0.001, ALARM)], width=4,
    ),
    now(
        "Waiting", "Requests in its queue, N.",
        total(CLUSTER.of(signals.QUEUE_LENGTH)), limits=[(20, WARNING), (200, ALARM)], width=4,
    ),
    now(
        "Servers busy", "The share of its servers that is occupied.",
        f"{total(CLUSTER.of(signals.SERVERS_BUSY))} / {total(CLUSTER.of(signals.SERVERS))}",
        unit="percentunit", limits=[(0.85, WARNING), (0.97, ALARM)], width=4,
    ),
    now(
        "Servers stuck", "Servers that still run what nobody waits for any more.",
        total(CLUSTER.of(signals.SERVERS_STUCK)), limits=[(1, ALARM)], width=4,
    ),
    now(
        "P", "Acceptance probability: 0 is full or draining.",
        least(CLUSTER.of(signals.ACCEPT_PROBABILITY)),
        unit="percentunit", limits=[(0.1, WARNING), (0.5, "green")], lowest=ALARM, width=4,
    ),
    now(
        "R", "Neighborhood acceptance probability: near 0 nobody around can help.",
        least(CLUSTER.of(signals.NEIGHBORHOOD_ACCEPT_PROBABILITY)),
        unit="percentunit", limits=[(0.1, WARNING), (0.5, "green")], lowest=ALARM, width=4,
    ),
    now(
        "Oldest report", "Age of the newest report of the neighbor heard least recently.",
        largest(CLUSTER.of(signals.NEIGHBOR_STATE_AGE)),
        unit="s", limits=[(1, WARNING), (5, ALARM)], width=4,
    ),
    now(
        "Loop lag", "How late a timer rang, at most, since the last scrape.",
        largest(CLUSTER.of(signals.LOOP_LAG)),
        unit="s", limits=[(0.1, WARNING), (0.25, ALARM)], width=4,
    ),
    now(
        "Ledger off by", "Requests lost or counted twice: anything but 0 is a bug.",
        largest(CLUSTER.of(signals.LEDGER_IMBALANCE)), limits=[(1, ALARM)], width=4,
    ),
)  # fmt: skip

QUEUE = Row(
    "Does work wait, and how long?",
    graph(
        "How long is the queue?", "Requests that wait, N.",
        Query(total(CLUSTER.of(signals.QUEUE_LENGTH), "cluster"), "{{cluster}}"),
        Query(
            total(CLUSTER.of(sizes.WAITING_WORK), "cluster"), "{{cluster}}: seconds of one server"
        ),
        width=8,
    ),
    graph(
        "How long do its clients' requests wait?",
        "Time in queues on the whole path, also at clusters that helped.",
        Query(CLUSTER.quantile(0.5, signals.QUEUE_WAIT), "half wait less"),
        Query(CLUSTER.quantile(0.99, signals.QUEUE_WAIT), "99 of 100 wait less"),
        Query(CLUSTER.mean(signals.QUEUE_WAIT), "mean"),
        unit="s", width=8,
    ),
    heat(
        "How are the waits spread?", "Requests that waited so long, by time in queues.",
        total(CLUSTER.increase(signals.QUEUE_WAIT, suffix="_bucket", over=RATE), "le"),
        unit="s", width=8,
    ),
)  # fmt: skip

SERVERS = Row(
    "Do the servers keep up?",
    graph(
        "What are the servers doing?",
        "Servers there are now, those believed best where that is learned, busy, and stuck ones.",
        Query(total(CLUSTER.of(signals.SERVERS), "cluster"), "there are"),
        Query(total(CLUSTER.of(signals.SERVERS_BELIEVED), "cluster"), "believed"),
        Query(
            total(CLUSTER.increase(signals.SERVERS_MOVES, over=RATE), "cluster"),
            "better ones found",
        ),
        Query(total(CLUSTER.of(signals.SERVERS_BUSY), "cluster"), "busy"),
        Query(total(CLUSTER.of(signals.SERVERS_STUCK), "cluster"), "stuck"),
        width=8,
    ),
    graph(
        "What do the engines say?",
        "Requests that engines run and hold back, and how many may run there at most for that.",
        Query(total(CLUSTER.of(sizes.ENGINE_REQUESTS), "state"), "{{state}}"),
        Query(total(CLUSTER.of(sizes.SERVERS_CEILING), "cluster"), "at most"),
        Query(total(CLUSTER.of(signals.SERVERS_BELIEVED), "cluster"), "believed"),
        width=8,
    ),
    graph(
        "How full are their caches, and do their pages come?",
        "Share of its cache that the fullest engine uses, and looks at pages per second by end.",
        Query(largest(CLUSTER.of(sizes.ENGINE_HELD), "cluster"), "cache of {{cluster}}"),
        Query(total(CLUSTER.rate(sizes.ENGINE_LOOKS), "end"), "{{end}}"),
        width=8,
    ),
    graph(
        "How well is it known how long requests run?",
        "Mean error, as a share of the mean: by what requests say, and if all counted alike; and "
        "requests per second that say nothing.",
        Query(largest(CLUSTER.of(sizes.WORK_ERROR), "type", "by"), "{{type}} by {{by}}"),
        Query(total(CLUSTER.rate(sizes.WORK_UNREAD), "cluster"), "unread"),
        width=8,
    ),
    graph(
        "How much of what they run fails?",
        "Share of the work run here; 1 while it is degraded; 1 while its backend wants rest.",
        Query(largest(CLUSTER.of(signals.FAILED_SHARE), "cluster"), "fails"),
        Query(largest(CLUSTER.of(signals.DEGRADED), "cluster"), "degraded"),
        Query(largest(CLUSTER.of(signals.RESTING), "cluster"), "rests"),
        unit="percentunit", top=1, width=8,
    ),
    graph(
        "How willing is it, and its neighborhood?",
        "P of the cluster, and R of the cluster with its neighbors.",
        Query(least(CLUSTER.of(signals.ACCEPT_PROBABILITY), "cluster"), "P"),
        Query(least(CLUSTER.of(signals.NEIGHBORHOOD_ACCEPT_PROBABILITY), "cluster"), "R"),
        unit="percentunit", top=1, width=8,
    ),
)  # fmt: skip

CLIENTS = Row(
    "What do its clients see?",
    graph(
        "How do their requests end?", "Requests of its own clients per second, by how they ended.",
        Query(total(CLUSTER.rate(signals.REQUESTS), "outcome"), "{{outcome}}"),
        unit="reqps", stacked=True, width=8,
    ),
    graph(
        "Why are they turned away?", "Refused requests of its clients per second, by reason.",
        Query(total(CLUSTER.rate(signals.REFUSALS), "reason"), "{{reason}}"),
        unit="reqps", stacked=True, width=8,
    ),
    graph(
        "How long do they take?", "System time, of requests that were done.",
        Query(CLUSTER.quantile(0.5, signals.SYSTEM_TIME), "half are faster"),
        Query(CLUSTER.quantile(0.9, signals.SYSTEM_TIME), "90 of 100 are faster"),
        Query(CLUSTER.quantile(0.99, signals.SYSTEM_TIME), "99 of 100 are faster"),
        Query(CLUSTER.mean(signals.SYSTEM_TIME), "mean"),
        unit="s", width=8,
    ),
)  # fmt: skip

TENANTS = Row(
    "Where it has API tokens: what do its tenants use?",
    graph(
        "How much has each under way?", "Requests of its clients by tenant: queued and running.",
        Query(
            f"{total(CLUSTER.of(tenants.TENANT_QUEUED), 'tenant')} + "
            f"{total(CLUSTER.of(tenants.TENANT_RUNNING), 'tenant')}",
            "{{tenant}}",
        ),
        stacked=True, width=8,
    ),
    graph(
        "How much does each ask for?", "Requests per second by tenant that quotas let through.",
        Query(total(CLUSTER.rate(tenants.TENANT_REQUESTS), "tenant"), "{{tenant}}"),
        unit="reqps", stacked=True, width=8,
    ),
    graph(
        "Whose quota is used up?", "Requests per second that quotas refused, by tenant and limit.",
        Query(
            total(CLUSTER.rate(tenants.TENANT_LIMITED), "tenant", "limit"), "{{tenant}}: {{limit}}"
        ),
        unit="reqps", width=8,
    ),
)  # fmt: skip

DOORS = Row(
    "How are its clients answered, and why does their work fail?",
    graph(
        "Which answers do they get?",
        "Requests per second by class of status; none: the client had gone.",
        Query(total(CLUSTER.rate(gateway.HTTP_REQUESTS), "status"), "{{status}}"),
        unit="reqps", stacked=True, width=8,
    ),
    graph(
        "What do they ask for?", "Requests per second by method and configured route.",
        Query(
            total(CLUSTER.rate(gateway.HTTP_REQUESTS), "method", "route"), "{{method}} {{route}}"
        ),
        unit="reqps", stacked=True, width=8,
    ),
    graph(
        "How much is sent there and back?", "Bytes of bodies per second by route.",
        Query(total(CLUSTER.rate(gateway.HTTP_RECEIVED_BYTES), "route"), "{{route}}, received"),
        Query(total(CLUSTER.rate(gateway.HTTP_SENT_BYTES), "route"), "{{route}}, sent"),
        unit="Bps", width=8,
    ),
    graph(
        "Why is their work not done?", "Accepted requests that were not done, per second.",
        Query(
            total(CLUSTER.rate(gateway.FAILURES), "outcome", "cause"), "{{outcome}}, {{cause}}"
        ),
        unit="reqps", stacked=True, width=8,
    ),
    graph(
        "What do the services behind it make of them?",
        "Requests to each service per second, by what they came to there.",
        Query(total(CLUSTER.rate(gateway.UPSTREAM_REQUESTS), "upstream", "end"),
              "{{upstream}}, {{end}}"),
        unit="reqps", width=8,
    ),
    graph(
        "Can they be reached?", "1 while a service behind it can be.",
        Query(least(CLUSTER.of(gateway.UPSTREAM_UP), "cluster", "upstream"), "{{upstream}}"),
        width=4,
    ),
    graph(
        "Do sessions find what is theirs?",
        "Share of the bytes sent to each service that it was expected to have, with affinity.",
        Query(
            f"{total(CLUSTER.rate(gateway.AFFINITY_BYTES, REUSED), 'upstream')} / "
            f"{total(CLUSTER.rate(gateway.AFFINITY_BYTES), 'upstream')}",
            "{{upstream}}",
        ),
        unit="percentunit", width=8,
    ),
    graph(
        "Are results fetched?", "Results that wait for somebody, and those dropped before.",
        Query(total(CLUSTER.of(gateway.RESULTS_UNFETCHED), "cluster"), "wait"),
        Query(total(CLUSTER.increase(gateway.RESULTS_LOST, over=RATE), "why"), "lost: {{why}}"),
        width=4,
    ),
)  # fmt: skip

PASSED = Row(
    "What passes through it, of a service behind it?",
    graph(
        "How do the answers end?",
        "Answers that had begun, per second; a truncated one was broken off.",
        Query(total(CLUSTER.rate(signals.PASSED_RESPONSES), "end"), "{{end}}"),
        unit="reqps", stacked=True, width=12,
    ),
    graph(
        "How long until an answer begins?",
        "From the request here to the head of its answer, in the mean; 0 where nothing passes.",
        Query(
            f"{total(CLUSTER.rate(signals.PASSED_HEAD, suffix='_sum'))} / "
            f"clamp_min({total(CLUSTER.rate(signals.PASSED_HEAD, suffix='_count'))}, 0.001)",
            "mean",
        ),
        unit="s", width=12,
    ),
)  # fmt: skip

NEIGHBORS = Row(
    "Who are its neighbors to it?",
    graph(
        "How old is what it knows of each?",
        "Age of the newest report: silent for a second, a neighbor gets nothing more.",
        Query(
            largest(CLUSTER.of(signals.NEIGHBOR_STATE_AGE), "cluster", "neighbor"),
            "{{neighbor}}",
        ),
        unit="s", width=6, limits=[(1, WARNING), (5, ALARM)],
    ),
    graph(
        "What does it hand to each?", "Forwards per second, by what came back.",
        Query(
            total(CLUSTER.rate(signals.FORWARDS), "neighbor", "outcome"),
            "to {{neighbor}}, {{outcome}}",
        ),
        unit="reqps", width=6,
    ),
    graph(
        "What does it get from each?", "Requests that neighbors handed over, by how they ended.",
        Query(
            total(CLUSTER.rate(signals.RECEIVED), "neighbor", "outcome"),
            "from {{neighbor}}, {{outcome}}",
        ),
        unit="reqps", width=6,
    ),
    graph(
        "Which lose what they are given?",
        "Forwards per second that were lost or came back too late; 1 while a neighbor is avoided.",
        Query(total(CLUSTER.rate(signals.FORWARDS_MISSED), "neighbor"), "{{neighbor}}"),
        Query(
            largest(CLUSTER.of(signals.NEIGHBOR_AVOIDED), "cluster", "neighbor"),
            "{{neighbor}} is avoided",
        ),
        width=6,
    ),
)  # fmt: skip

LOADS = Row(
    "Does it push, does it pull, and what would another policy do?",
    graph(
        "What leaves because it is pushed, and what because a neighbor asked?",
        "Forwards per second to each neighbor; it pulls what it had asked for.",
        Query(total(CLUSTER.rate(signals.HANDED), "neighbor", "by"), "to {{neighbor}}, {{by}}"),
        unit="reqps", width=8,
    ),
    graph(
        "What comes of asking for work?",
        "Questions of idle servers to neighbors per second: work, nothing, or no answer.",
        Query(total(CLUSTER.rate(signals.ASKS), "outcome"), "{{outcome}}"),
        unit="reqps", width=8,
    ),
    graph(
        "How many requests of neighbors wait?", "Those that wait here, and how many of them may.",
        Query(total(CLUSTER.of(signals.FOREIGN_WAITING), "cluster"), "wait"),
        Query(largest(CLUSTER.of(signals.FOREIGN_WAITING_LIMIT), "cluster"), "may wait"),
        width=8,
    ),
    graph(
        "How much do its own clients bring?", "As a share of what it can do: above 1 is too much.",
        Query(largest(CLUSTER.of(signals.HOME_LOAD), "cluster"), "home load"),
        unit="percentunit", width=6, limits=[(0.95, WARNING), (1.2, ALARM)],
    ),
    graph(
        "How old is the load that it knows of each?",
        "Time since a neighbor told its load, in a report or with anything else.",
        Query(
            largest(CLUSTER.of(signals.NEIGHBOR_LOAD_AGE), "cluster", "neighbor"),
            "{{neighbor}}",
        ),
        unit="s", width=6,
    ),
    graph(
        "How often would the shadow do something else?",
        "Share of decisions at which the policy that is asked along would have differed.",
        Query(
            f"{total(CLUSTER.rate(signals.SHADOW_DECISIONS, OTHERWISE), 'shadow')} / "
            f"{total(CLUSTER.rate(signals.SHADOW_DECISIONS), 'shadow')}",
            "{{shadow}}",
        ),
        unit="percentunit", top=1, width=6,
    ),
    graph(
        "What would the shadow gain?",
        "Estimated seconds that requests would be sooner, or later, per second; by its choices.",
        Query(
            total(CLUSTER.rate(signals.SHADOW_SECONDS), "shadow", "estimate"),
            "{{shadow}}, {{estimate}}",
        ),
        width=6,
    ),
)  # fmt: skip

HOPS = Row(
    "How far do its requests travel?",
    bars(
        "How many made how many hops, in the time shown?",
        "Requests of its clients that were done, by times forwarded: 0 is served at home.",
        total(CLUSTER.increase(signals.HOPS, suffix="_bucket"), "le"),
    ),
    graph(
        "How many hops on average?", "Times forwarded: mean, and what 99 of 100 stay under.",
        Query(CLUSTER.mean(signals.HOPS), "mean"),
        Query(CLUSTER.quantile(0.99, signals.HOPS), "99 of 100 make fewer"),
    ),
)  # fmt: skip

SESSIONS = Row(
    "Where are its clients?",
    graph(
        "How many have a session here?", "Clients that follow the federation from this node.",
        Query(total(CLUSTER.of(clients.CLIENTS), "cluster"), "{{cluster}}"),
    ),
    graph(
        "How many leave or are put off?",
        "Per second: clients that moved to another server, and sessions that were refused.",
        Query(CLUSTER.rate(clients.MOVES), "moved"),
        Query(CLUSTER.rate(clients.CONNECTS_REFUSED), "put off"),
    ),
)  # fmt: skip

PROCESS = Row(
    "Is the process well?",
    graph(
        "Where are the requests it holds?",
        "Ledger: home requests queued, running or away, and those of neighbors.",
        Query(
            total(CLUSTER.of(signals.LEDGER, HELD), "cluster", "side", "entry"),
            "{{side}} {{entry}}",
        ),
        width=6,
    ),
    graph(
        "How late does its clock ring?", "Largest delay of the event loop between two scrapes.",
        Query(largest(CLUSTER.of(signals.LOOP_LAG), "cluster"), "loop lag"),
        unit="s", width=6, limits=[(0.1, WARNING), (0.25, ALARM)],
    ),
    graph(
        "How much processor does it take?", "Seconds of processor per second; 1 is a whole core.",
        Query(
            CLUSTER.process(
                "rate(process_cpu_seconds_total[$__rate_interval])", signals.SERVERS
            ),
            "{{cluster}}",
        ),
        width=6, limits=[(0.8, WARNING), (0.95, ALARM)],
    ),
    graph(
        "How much memory does it take?",
        "Resident memory of the node, what requests and answers take of it, and what they may.",
        Query(CLUSTER.process("process_resident_memory_bytes", signals.SERVERS), "{{cluster}}"),
        Query(total(CLUSTER.of(signals.HELD_BYTES), "cluster"), "held"),
        Query(total(CLUSTER.of(signals.KEPT_BYTES), "cluster"), "of it, kept answers"),
        Query(total(CLUSTER.of(signals.HELD_LIMIT_BYTES), "cluster"), "may be held"),
        unit="bytes", width=6,
    ),
    graph(
        "Do its traces reach the collector?",
        "Spans per second by what became of them; dropped found no place, failed was not taken.",
        Query(total(CLUSTER.rate(signals.SPANS), "outcome"), "{{outcome}}"),
        stacked=True, width=12,
    ),
    graph(
        "What do requests to and from its neighbors share?",
        "Connections by the end that the cluster has of them, frames per second, and bytes that"
        " wait to leave: many of them mean a way that is too narrow, or a neighbor that is slow.",
        Query(
            total(CLUSTER.of(signals.SHARED_CONNECTIONS), "cluster", "end"),
            "connections, {{end}}",
        ),
        Query(total(CLUSTER.rate(signals.SHARED_FRAMES), "way"), "frames {{way}}"),
        Query(total(CLUSTER.of(signals.SHARED_UNSENT_BYTES), "cluster"), "bytes unsent"),
        width=12,
    ),
    graph(
        "What do its neighbors say that is not taken?",
        "Per second: messages and configurations that are beyond what is declared of them.",
        Query(
            total(CLUSTER.rate(signals.PEER_REFUSED), "neighbor", "message"),
            "{{neighbor}} {{message}}",
        ),
        Query(CLUSTER.rate(membership.REFUSED), "configuration"),
        width=12,
    ),
)  # fmt: skip

BOARD = Board(
    name="cluster",
    title="Spillover: one cluster",
    says="One cluster from close by: its queue, servers, clients, neighbors and process.",
    scope=CLUSTER,
    choices=signals.SERVERS,
    chooses_one=True,
    rows=(
        *(AT_A_GLANCE, QUEUE, SERVERS, CLIENTS, DOORS, TENANTS, NEIGHBORS, LOADS),
        *(PASSED, HOPS, SESSIONS, PROCESS),
    ),
)
