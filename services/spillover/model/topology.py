"""A topology: the clusters, the capacity of each, and the links that join them. Its values are
checked against each other. `spillover.inputs` reads them from YAML, and has the built-in ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, NoReturn

from spillover.model.addresses import is_host_and_port
from spillover.model.certified_names import check_names
from spillover.model.engine_load import EngineSource
from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.limits import above, at_least, check_limits, within
from spillover.model.ranges import CLUSTER_PATTERN, VERSION_MAX
from spillover.model.routes import Route, check_routes
from spillover.model.server_bounds import ServerBounds
from spillover.model.service_statuses import PROBE, is_failure
from spillover.model.session_source import SessionSource
from spillover.model.token_orders import LONGEST_AVAILABLE
from spillover.model.type_groups import TypeGroups
from spillover.model.unlike_servers import (
    FCFS,
    OVERFLOW,
    PS,
    JobType,
    Server,
    ServerClass,
    UnlikeServers,
)
from spillover.model.upstream_urls import metrics_pages
from spillover.model.work_source import WorkSource

CLUSTER_ID = re.compile(CLUSTER_PATTERN)
"""The form of cluster ids, plain ones only: they end up in headers, labels, file names and option
values."""

HANDLERS_KNOWN = (
    "sleep, spin, python:MODULE:FUNCTION, http:URL[,URL...], proxy:URL[,URL...] or "
    "dask:ADDRESS:MODULE:FUNCTION"
)
"""The handlers that a cluster may have, for messages."""

DEFAULT_POLICY = "adaptive"
"""The policy of a topology that names none."""

MEMORY_LIMIT_BYTES_MIN = 64 * 1024 * 1024
"""The least limit of a worker process: it takes some 25 MB before it has imported the handler's
module."""

HELD_LIMIT_BYTES_MIN = 65_536
"""The least limit of held bytes: less would hold no more than a few requests."""

NODES_MAX = 16
"""The most nodes of a cluster: each tells all others what it has to do."""

CLIENT_IDLE_MS_MIN = 60_000.0
"""The least time for idle connections: neighbors and clients of ours keep them for up to 30 s."""

PASS_HOST, URL_HOST = "pass", "url"
"""The values of a cluster's `host` besides a name."""

OF_PASSING = (
    *("proxy_url", "host", "passed_body_limit_bytes", "routes", "trusted_proxies"),
    *("passed_idle_ms", "passed_stall_ms", "passed_total_ms"),
)
"""Fields of a cluster that have a meaning with a `proxy:` handler alone."""

NOT_RUN_STATUSES = (429, 503)
"""The statuses of a service behind `http:` that surely has not done the work, unless a cluster says
otherwise (RFC 6585, section 4; RFC 9110, section 15.6.4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """One of several nodes of a cluster."""

    url: str
    """The address at which clients reach this node, and neighbors and the other nodes of its
    cluster unless it has a `peer_url`."""
    proxy_url: str | None = None
    """With a `proxy:` handler: where clients of the service reach this node."""
    peer_url: str | None = None
    """The address at which neighbors and the other nodes of its cluster reach it, if not at
    `url`."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """One cluster: a FIFO, and behind it `servers` equal servers or a pool of unlike ones.

    Its parts are checked against each other where it becomes part of a topology.
    """

    id: ClusterId
    """The name of the cluster, unique in the federation. It stands in paths, logs and metrics."""
    servers: Annotated[int | tuple[Server, ...] | ServerBounds, at_least(1)]
    """The number of requests that run here at the same time: m of the formulas. Or a list of
    servers that are unlike in speed, in handler, or in the types of requests that they may run. Or
    `auto`, or `{min: 2, max: 32}`, with an `http:` or `proxy:` handler: the number is learned from
    what the service does, between 1 and 64, or these bounds."""
    servers_from: EngineSource | None = None
    """With servers that are learned: engines say what they run and hold, and no more requests run
    than they take on. `{metrics: URL}`: the metrics page of vLLM or SGLang. `{orca: true}`: a
    header of answers. What is not heard of for 15 s counts no more, and the number is learned as
    without.

    Why: an engine that holds requests back says so sooner than its rate does. Without a page the
    rate tells it all the same."""
    classes: tuple[ServerClass, ...] = ()
    """The classes of a list of servers say which servers share requests, and how many requests at a
    time. A request starts when it takes a token of a class that its type may join, in the `order`
    given. Every server is in a class.

    Why: without it each server is a class of its own, with its id and one token, so that a request
    goes to the server that has been idle longest."""
    types: tuple[JobType, ...] = ()
    """The types of a list of servers say which types of requests run here, and on which classes.
    Requests of other types go to neighbors that serve them; where none does they get 422
    `unknown_type`.

    Why: without it there is one type, `default`, that may join all classes. Requests that do not
    say their type are of it."""
    on_block: str = OVERFLOW
    """The fate of a request that finds no token, with a list of servers. `overflow`: it waits here
    or goes to a neighbor, as the policy says. `queue`: it waits here. `refuse`: it gets 429
    `blocked`.

    Why: it is what clusters with equal servers do."""
    discipline: str = PS
    """The order in which a server of a list runs the requests that hold its tokens. `ps` (processor
    sharing): all at once. `fcfs` (first come, first served): one after another; the others wait.

    Why: services that answer several requests at a time share their machine among them. With one
    token for each server there is no difference."""
    order: str = LONGEST_AVAILABLE
    """The available token that a request takes, with a list of servers. `longest-available`: the
    one that has lain there longest. `least-loaded`: one of the class with the fewest requests for
    its speed, which other types need least; that blocks fewer requests.

    Why: what the longest available one blocks is known exactly (`spillover plan tokens`)."""
    service_ms: Annotated[float, at_least(0)] = 40.0
    """Service time of the handlers sleep and spin; a payload may override it. In a list of servers
    it is the time that a request takes alone on a server of rate 1. For other handlers it is only
    the first guess of the mean service time.

    Why: the service time of the paper's experiments. The guess matters for the first few requests
    only, since the node then uses the mean of what it has measured."""
    handler: str = "sleep"
    """The handler of requests, on servers that have none of their own.

    Why: it needs nothing installed, so that a topology without handlers can be tried at once."""
    workers: str = "thread"
    """The place where synchronous python handlers run: `thread` or `process`.

    Why: threads start at once and share what the handler has loaded. Choose processes for
    handlers that compute in Python, since threads of one process take turns."""
    memory_limit_bytes: Annotated[int | None, at_least(MEMORY_LIMIT_BYTES_MIN)] = None
    """The most memory that a worker process may take, itself included; a handler that wants more
    fails.

    Why: only you know what your handler needs, and a limit that is too low breaks good work."""
    kill_after_ms: Annotated[float | None, at_least(0)] = None
    """A worker process that has not returned so long after its result ceased to be wanted is
    killed, and its server free. Not set: the server stays busy until the process returns.

    Why: killing is safe only for handlers that leave nothing half done."""
    delivery_ms: Annotated[float, at_least(0)] = 0.0
    """Added to every request on its way from queue to server; does not occupy the server.

    Why: a real handler brings its own way. The value is for emulated federations; the paper's
    have 6 ms."""
    queue_limit: Annotated[int, at_least(0)] = 10_000
    """The number of requests that may wait here. Requests of neighbors may use nine tenths of it.
    Beyond it a request goes to a neighbor that accepts; where none does, the client gets 429
    `queue_full`.

    Why: deadlines refuse hopeless requests long before the queue is that long. The limit only has
    to bound the memory that small payloads take."""
    held_limit_bytes: Annotated[int | None, at_least(HELD_LIMIT_BYTES_MIN)] = None
    """The number of bytes of payloads and answers that the cluster holds at most; each of several
    nodes holds its part. Not set: for each node a share of the memory that it may take. Beyond it a
    client gets 429 `queue_full`.

    Why: a node that runs out of memory loses everything that it holds."""
    not_run_statuses: tuple[int, ...] | None = None
    """Statuses by which an `http:` or `proxy:` service says that it surely has not done the work.
    Such an answer is held back, and the request goes to another URL, to a neighbor or back into the
    queue; the service is left alone for as long as its Retry-After asks. Where nobody else takes
    the request, a client of a `proxy:` service gets the held answer. Not set: 429 and 503 of an
    `http:` service; none of a `proxy:` one, so that each of its answers is passed on at once, a 503
    that it gives while it loads its model, too: list 503 to have that request go elsewhere.

    Why: 503 means that nearly everywhere. 429 does so of a service of your own; of an API for many
    clients it is mostly one client's own limit. Add 404 or 401 where your service can only answer
    so because it is deployed badly; other 4xx count as the client's fault."""
    failure_statuses: tuple[int, ...] | None = None
    """Statuses of an `http:` or `proxy:` service that are held against this cluster: if it fails
    more than others, work goes to its neighbors. Not set: all from 500 to 599 but 501 and 505.
    Those from 400 to 499 never are.

    Why: 501 and 505 say what a service does not do, and every other service of its kind would say
    the same. Leave out what yours answers to single requests that are at fault."""
    probe: str | None = None
    """With an `http:` or `proxy:` handler and equal servers: a request such as `GET /health` by
    which the node asks the service itself whether it is well again, about once a second while the
    cluster is degraded. Clients' requests are tried there again after an answer from 200 to 299,
    and not before. Not set: clients' requests find out, those with keys or few.

    Why: only you know whether such an answer means that the work can be done."""
    affinity: str | None = None
    """With an `http:` or `proxy:` handler: the part of a request that names its session. Requests
    go to the URL where their session ran before, here or at a neighbor with `affinity`, unless the
    wait there costs more than doing again elsewhere what that one still has. `header:NAME` or
    `cookie:NAME` of requests for a `proxy:` handler; `json:FIELD` of a body; or `prefix`: the
    messages of a conversation up to the first one of the user. Not set: the least busy URL gets a
    request, and a neighbor only what has to wait for a server here.

    Why: only you know which requests find something of each other, in a cache or loaded."""
    work: WorkSource | None = None
    """The part of a request that its time grows with. How long it runs is learned from that, for
    each type apart, and what waits is counted in time instead of requests: in the waits that
    decisions go by, in what neighbors are told, ask for and may send. `bytes`: the size of the
    body. `{header: NAME}`: a number in a header of requests for a `proxy:` handler. `{json: FIELD,
    prompt: FIELD}`: a number in a field of a body that is a JSON object, the length of another
    field, or both. `1`, or not set: requests are counted. With equal servers and one node.

    Why: only you know what says how long a request takes. Where all take about as long, a count
    says as much."""
    url: str | None = None
    """The address at which clients reach the node. `spillover node` listens there unless `--bind`
    says otherwise.

    Why: `spillover up` and the deployments choose addresses by themselves. Nodes that are started
    one by one need it, for themselves and for their neighbors."""
    client_idle_ms: Annotated[float | None, at_least(CLIENT_IDLE_MS_MIN)] = None
    """The time for which the node keeps a client's connection on which nothing is asked, at its
    `url` and `proxy_url`. Not set: 620 000.

    Why: it must be longer than a balancer in front keeps it, or the node closes connections that
    a request is just being sent on. Clouds' balancers keep them for up to 600 s."""
    proxy_url: str | None = None
    """With a `proxy:` handler: where clients of the service reach its cluster, at any method and
    path. `spillover node` listens there unless `--proxy-bind` says otherwise.

    Why: `spillover up` chooses addresses by itself. The API of the node stays at its `url`."""
    host: str | None = None
    """With a `proxy:` handler: which `Host` the service gets. `pass`, or not set: the client's.
    `url`: that of the URL which the request goes to. Or a name, HOST[:PORT], which a service behind
    `https` has to prove to be, too. `X-Forwarded-Host` has the client's in any case.

    Why: services make links to themselves by it. One that goes by name, such as an ingress, answers
    404 or 421 to names that it does not know: give it its own."""
    trusted_proxies: tuple[str, ...] | None = None
    """With a `proxy:` handler: addresses and networks (`10.0.0.0/8`) of the balancers and proxies
    whose `Forwarded` and `X-Forwarded-...` headers are told on to the service. Of all others what
    they say is dropped, and the service hears the address that they come from. Not set: everybody
    is believed.

    Why: only you know what stands before the node, and a service behind a balancer that sets them
    needs them. Set it where clients reach the node themselves."""
    passed_body_limit_bytes: Annotated[int, at_least(0)] = 8_388_608
    """With a `proxy:` handler: how large the body of a request may be. Larger ones get 413.

    Why: it is read whole before it is decided where the request runs. 8 MiB is a prompt of a
    million tokens."""
    passed_idle_ms: Annotated[float, above(0)] = 300_000.0
    """With a `proxy:` handler: an answer that has begun is broken off when nothing more of it has
    come for so long. Looked at each second, at each cluster on its way.

    Why: a service that sends events also sends something in between, mostly twice a minute. One
    that died without a word must not keep its server for ever."""
    passed_stall_ms: Annotated[float, above(0)] = 60_000.0
    """With a `proxy:` handler: an answer that has begun is broken off when its client has read
    nothing of it for so long, while more of it waits.

    Why: whoever reads nothing for a minute has mostly gone, and holds a server all the while."""
    passed_total_ms: Annotated[float | None, above(0)] = None
    """With a `proxy:` handler: an answer that has begun is broken off after so long, however it
    comes. Not set: it may take as long as it likes.

    Why: only you know how long an answer may be."""
    routes: tuple[Route, ...] = ()
    """With a `proxy:` handler: what is known of requests by their path and method, where they do
    not say it themselves. The first one that fits counts.

    Why: a service needs none. Without one a request has the type and the deadline that its
    `Spillover-Type` and `Spillover-Deadline-Ms` say, or the usual ones."""
    nodes: Annotated[int | tuple[ClusterNode, ...], within(1, NODES_MAX)] = 1
    """The nodes of the cluster: processes that share its servers and act as one. A number, where
    `spillover up` chooses addresses and for the simulator, or a list of their addresses. Each needs
    a server at least, or a token where servers are unlike. While nodes run, others come and go at
    the end of the list.

    Why: one process is enough for most sites. Several go on when one dies, and use several
    cores."""
    peer_url: str | None = None
    """The address at which neighbors reach it, if not at `url`.

    Why: one port is enough while clients and neighbors share a network. Set it where clients
    must not reach what nodes say to each other."""

    @cached_property
    def is_checked(self) -> bool:
        """Returns whether it has been part of a topology. Then its parts fit together, and are not
        looked at again as that changes."""
        return False

    @property
    def node_count(self) -> int:
        return len(self.nodes) if isinstance(self.nodes, tuple) else self.nodes

    def at(self, node: int) -> Cluster:
        """Returns the cluster as one of its nodes sees it, with the addresses of that node."""
        if not isinstance(self.nodes, tuple):
            return self
        one = self.nodes[node - 1]
        return replace(self, url=one.url, proxy_url=one.proxy_url, peer_url=one.peer_url)

    @property
    def places(self) -> tuple[ClusterNode, ...]:
        """Returns the addresses of its nodes, in their order; none where they have none yet."""
        if isinstance(self.nodes, tuple):
            return self.nodes
        if self.url is None:
            return ()
        return (ClusterNode(url=self.url, proxy_url=self.proxy_url, peer_url=self.peer_url),)

    @property
    def held_part_bytes(self) -> int | None:
        """Returns how many bytes one of its nodes holds at most; None where that is not said."""
        limit_bytes = self.held_limit_bytes
        return None if limit_bytes is None else limit_bytes // self.node_count

    @property
    def peer_urls(self) -> tuple[str, ...]:
        """Returns the addresses at which neighbors reach its nodes, in their order."""
        each = [self.at(node) for node in range(1, self.node_count + 1)]
        urls = [one.peer_url or one.url for one in each]
        return tuple([url for url in urls if url is not None])

    @property
    def server_count(self) -> int:
        """Returns how many servers there are, to begin with where that is learned."""
        if isinstance(self.servers, ServerBounds):
            return self.servers.start
        return len(self.servers) if isinstance(self.servers, tuple) else self.servers

    @property
    def bounds(self) -> ServerBounds | None:
        """Returns the bounds of the number of servers; None where it is not learned."""
        return self.servers if isinstance(self.servers, ServerBounds) else None

    @property
    def server_count_max(self) -> int:
        """Returns how many servers there are at most, as long as nobody changes that."""
        return self.server_count if self.bounds is None else self.bounds.max

    @cached_property
    def pool(self) -> UnlikeServers | None:
        """Returns the pool of unlike servers; None where the servers are alike.

        Raises InputError, the first time, where its parts do not fit together.
        """
        if not isinstance(self.servers, tuple):
            return None
        parts = self.servers, self.classes, self.types
        return UnlikeServers.of(*parts, self.on_block, self.discipline, self.order)

    def problem_with_nodes(self, count: int) -> str | None:
        """Returns why so many nodes, or processes, cannot share the servers; None if they can."""
        pool = self.pool
        what, most = ("servers", self.server_count) if pool is None else ("tokens", pool.tokens)
        if count > most:
            return f"expected at most as many as {what} ({most}), got {count}: each needs one"
        if count > 1 and pool is not None and not pool.runs_one_by_tokens:
            each = "each server has one token, of a class of its own"
            return f"expected one with discipline {FCFS}, unless {each}"
        return None

    @property
    def passes(self) -> bool:
        """Returns whether requests pass through to a service as they are (decision 0043)."""
        return all(handler.startswith("proxy:") for handler in self.handlers.values())

    @cached_property
    def trusted_networks(self) -> tuple[IPv4Network | IPv6Network, ...] | None:
        """Returns who is believed what it says of the way of a request; None for everybody. Raises
        ValueError for what is no network."""
        told = self.trusted_proxies
        return None if told is None else tuple(ip_network(one) for one in told)

    @property
    def statuses_not_run(self) -> tuple[int, ...]:
        """Returns by which statuses a service says that it surely has not done the work."""
        if self.not_run_statuses is not None:
            return self.not_run_statuses
        return () if self.passes else NOT_RUN_STATUSES

    @property
    def has_service(self) -> bool:
        """Returns whether some server is in front of a service that speaks HTTP."""
        return any(one.startswith(("http:", "proxy:")) for one in self.handlers.values())

    @property
    def counts_work(self) -> bool:
        """Returns whether requests say how large they are, and what waits is counted by that."""
        sources = [self.work, *(route.work for route in self.routes)]
        return any(source is not None and not source.counted for source in sources)

    @property
    def weighs_between_sites(self) -> bool:
        """Returns whether what is missing where a session has not run is weighed between this
        cluster and its neighbors, too. One node of several does not know what the others send to
        the same services."""
        return self.affinity is not None and self.node_count == 1 and self.pool is None

    def is_failure(self, status: int | None) -> bool:
        """Returns whether what a service has failed with this status is held against the cluster;
        None where it did not answer."""
        return is_failure(status, self.failure_statuses)

    @property
    def handlers(self) -> dict[str, str]:
        """Returns the handlers that run requests here, by the field that says so."""
        if not isinstance(self.servers, tuple):
            return {"handler": self.handler}
        said = [
            (f"servers[{index}].handler", server.handler)
            if server.handler
            else ("handler", self.handler)
            for index, server in enumerate(self.servers)
        ]
        return dict(said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A bidirectional link; `delay_ms` is one way, for forwards, answers and reports."""

    between: tuple[ClusterId, ClusterId]
    """The two clusters that may hand requests to each other."""
    delay_ms: Annotated[float, at_least(0)] = 0.0
    """The delay of the link one way. Nodes delay every message between the two clusters by it. In
    production the network has its own delay, so that 0 is right there; see operations.md.

    Why: a node must not slow down a real network unless told so."""


@dataclass(frozen=True, slots=True)
class Neighbor:
    """The other end of a link as one cluster sees it."""

    id: ClusterId
    delay_ms: float
    url: str | None
    """The address of the node that is called first."""
    more_urls: tuple[str, ...] = ()
    """The addresses of the others, in the order in which they are tried."""


@dataclass(frozen=True, kw_only=True)
class Topology:
    """A federation of clusters. Construction checks every relation between the parts.

    Raises InputError naming the field; readers of files put the file's name in front.
    """

    name: str
    """The name of the federation in logs and consoles.

    Why: a file mostly has the name already."""
    version: Annotated[int, within(0, VERSION_MAX)] = 0
    """The version of the configuration, where it is changed while nodes run. `spillover config get`
    writes it, and `config set` goes by it.

    Why: a federation whose configuration was never changed has no versions."""
    clusters: tuple[Cluster, ...]
    """The clusters of the federation."""
    links: tuple[Link, ...] = ()
    """The links between clusters that hand requests to each other.

    Why: a cluster without links works alone, which is a valid start."""
    policy: str = DEFAULT_POLICY
    """The rule by which a cluster decides to keep a request or to hand it on. The built-in
    topologies say `paper`, the rule of Lai and Polak.

    Why: requests wait least under it, it needs no tuning, and it bears old reports (decision
    0037)."""
    shadow: str | None = None
    """A policy that is asked along at each decision and has no say. `/explain` tells what it would
    have chosen, and metrics how often that differs and what it would have gained.

    Why: it costs processor time, and is of use only to somebody who thinks of another policy."""
    gossip_period_ms: Annotated[float, at_least(1)] = 50.0
    """How often at most a cluster reports to its neighbors. It reports only if there is news, and
    gives a sign of life four times a second anyway.

    Why: the paper's value. It is near one service time of the paper's requests, and costs 5 ms of
    processor time per link direction and second."""
    max_hops: Annotated[int, at_least(0)] = 16
    """The number of times that a request may be handed on; after that it stays where it is. No
    request visits a cluster twice.

    Why: requests of the largest published federation, 20 clusters, took at most 7 hops. 16 leaves
    room and still ends a journey in a faulty federation."""
    default_deadline_ms: Annotated[float, at_least(1)] = 60_000.0
    """The deadline of requests that come without `Spillover-Deadline-Ms`.

    Why: most clients and proxies give up after a minute, and nobody should work for a client
    that has gone."""
    payload_limit_bytes: Annotated[int, at_least(1)] = 1_048_576
    """The largest body of a request. Larger ones get 413 `too_large`.

    Why: 1 MiB is enough for JSON that describes work. Larger data belongs into a store that the
    payload points to, since each hop carries the payload."""
    result_ttl_s: Annotated[float, at_least(0)] = 300.0
    """The time for which the home remembers the answers of keyed and asynchronous requests.

    Why: longer than clients usually keep retrying, short enough to bound memory."""
    result_limit: Annotated[int, at_least(0)] = 100_000
    """The number of such answers that the home remembers; the oldest go first.

    Why: at 300 s it allows 333 such requests a second. An entry takes about 1 KiB besides its
    result, so that small results take about 100 MB at most."""
    client_connects_per_s: Annotated[float, above(0)] = 100.0
    """The number of clients that a cluster lets in per second, of those that want a session. Others
    get 503 `reconnect_limit` and try again, or elsewhere.

    Why: after a change or a failure many come at once, and each costs as much as some requests."""
    client_connects_burst: Annotated[int, at_least(1)] = 50
    """The number of clients that each node of a cluster lets in at once, of those that want a
    session.

    Why: half a second's worth, so that a small crowd is served elsewhere at once when its node
    dies."""
    client_sessions_max: Annotated[int, at_least(0)] = 10_000
    """The number of clients that may have a session at a cluster, at all its nodes together. Others
    get 503 `too_many_clients`.

    Why: each holds a connection and some 20 KB, so that they take 200 MB at most."""
    is_named: bool = field(default=True, compare=False)
    """False where `name` is only that of the file: then it is no name for a federation."""

    def __post_init__(self) -> None:
        check_limits(self, "topology")
        _check_clusters(self.clusters)
        _check_links(self.links, {cluster.id for cluster in self.clusters})
        _ = self.type_groups  # too many are refused now
        if self.is_secure:
            self._check_secure()

    @cached_property
    def type_groups(self) -> TypeGroups:
        return TypeGroups.of({cluster.id: cluster.pool for cluster in self.clusters})

    @property
    def is_secure(self) -> bool:
        """Returns whether nodes call each other by `https`, and prove who they are."""
        return any(url.startswith("https:") for c in self.clusters for url in c.peer_urls)

    def _check_secure(self) -> None:
        if not self.is_named:
            _fail("name", "expected a name, since certificates between nodes have it")
        check_names(self.name, self.cluster_ids)
        for index, cluster in enumerate(self.clusters):
            name = "url" if cluster.peer_url is None else "peer_url"
            name = "nodes" if isinstance(cluster.nodes, tuple) else name
            for url in cluster.peer_urls:
                if not url.startswith("https:"):
                    expected = "expected https:// between all nodes or between none"
                    _fail(f"clusters[{index}].{name}", f"{expected}, got {url}")

    @property
    def cluster_ids(self) -> tuple[ClusterId, ...]:
        return tuple(cluster.id for cluster in self.clusters)

    def cluster(self, cluster_id: str) -> Cluster:
        for cluster in self.clusters:
            if cluster.id == cluster_id:
                return cluster
        known = ", ".join(self.cluster_ids)
        raise InputError(
            self.name, "cluster", f"no cluster {cluster_id!r}; expected one of {known}"
        )

    def neighbors(self, cluster_id: str, node: int = 1) -> tuple[Neighbor, ...]:
        """Returns the clusters linked to this one, in the order of the links. Of several nodes each
        begins with another one of a neighbor's."""
        found = []
        for link in self.links:
            a, b = link.between
            if cluster_id in (a, b):
                other = self.cluster(b if cluster_id == a else a)
                urls = other.peer_urls or (None,)
                first = (node - 1) % len(urls)
                more = tuple([url for url in urls[first + 1 :] + urls[:first] if url is not None])
                found.append(Neighbor(other.id, link.delay_ms, urls[first], more))
        return tuple(found)

    def with_policy(self, policy: str) -> Topology:
        return replace(self, policy=policy)

    def with_urls(self, urls: Mapping[ClusterId, str]) -> Topology:
        clusters = tuple(replace(c, url=urls.get(c.id, c.url)) for c in self.clusters)
        return replace(self, clusters=clusters)

    def stretched(self, time_scale: float) -> Topology:
        """Returns the same federation with every duration multiplied by `time_scale`."""
        clusters = tuple(
            replace(
                c,
                service_ms=c.service_ms * time_scale,
                delivery_ms=c.delivery_ms * time_scale,
                kill_after_ms=None if c.kill_after_ms is None else c.kill_after_ms * time_scale,
            )
            for c in self.clusters
        )
        links = tuple(replace(link, delay_ms=link.delay_ms * time_scale) for link in self.links)
        return replace(
            self,
            clusters=clusters,
            links=links,
            gossip_period_ms=self.gossip_period_ms * time_scale,
            default_deadline_ms=self.default_deadline_ms * time_scale,
        )


def _check_clusters(clusters: tuple[Cluster, ...]) -> None:
    if not clusters:
        _fail("clusters", "expected at least one cluster, got none")
    seen: set[str] = set()
    urls: set[str | None] = set()
    for index, cluster in enumerate(clusters):
        field = f"clusters[{index}]"
        if not CLUSTER_ID.fullmatch(cluster.id):
            expected = "expected 1 to 63 of A-Z a-z 0-9 . _ -"
            _fail(f"{field}.id", f"{expected}, got {cluster.id!r}")
        if cluster.id in seen:
            _fail(f"{field}.id", f"expected ids that differ, got {cluster.id!r} twice")
        seen.add(cluster.id)
        for place, name, url in urls_of(cluster):
            if url in urls:
                _fail(f"{field}.{place}{name}", f"expected urls that differ, got {url} twice")
            urls.add(url)
        if not cluster.is_checked:
            _check_cluster(field, cluster)
            cluster.__dict__["is_checked"] = True


def urls_of(cluster: Cluster) -> Iterator[tuple[str, str, str]]:
    """Yields each url of a cluster, after the place and the name of its field."""
    owners: list[tuple[str, Cluster | ClusterNode]] = [("", cluster)]
    if isinstance(cluster.nodes, tuple):
        owners += [(f"nodes[{index}].", node) for index, node in enumerate(cluster.nodes)]
    for place, owner in owners:
        for name in ("url", "peer_url", "proxy_url"):
            url = getattr(owner, name)
            if url is not None:
                yield place, name, url


def _check_nodes(field: str, cluster: Cluster) -> None:
    """Raise InputError for nodes that cannot share the servers, or have no addresses."""
    count = cluster.node_count
    if isinstance(cluster.nodes, tuple):
        if not 1 <= count <= NODES_MAX:
            _fail(f"{field}.nodes", f"expected 1 to {NODES_MAX} nodes, got {count}")
        _check_addresses(field, cluster, cluster.nodes)
    if count == 1:
        return
    for name in ("url", "peer_url", "proxy_url"):
        if not isinstance(cluster.nodes, tuple) and getattr(cluster, name) is not None:
            expected = "expected none beside several nodes: nodes can be a list of their urls"
            _fail(f"{field}.{name}", expected)
    if cluster.bounds is not None:
        _fail(f"{field}.nodes", "expected one node where servers are learned")
    if (problem := cluster.problem_with_nodes(count)) is not None:
        _fail(f"{field}.nodes", problem)
    part_bytes = cluster.held_part_bytes
    if part_bytes is not None and part_bytes < HELD_LIMIT_BYTES_MIN:
        expected = f"expected at least {HELD_LIMIT_BYTES_MIN} for each of {count} nodes"
        _fail(f"{field}.held_limit_bytes", f"{expected}, got {cluster.held_limit_bytes}")


def _check_addresses(field: str, cluster: Cluster, nodes: tuple[ClusterNode, ...]) -> None:
    """Raise InputError for addresses of nodes that the handler does not need, or lacks."""
    for name in ("url", "peer_url", "proxy_url"):
        if getattr(cluster, name) is not None:
            _fail(f"{field}.{name}", "expected none beside a list of nodes, which have theirs")
    for index, node in enumerate(nodes):
        if (node.proxy_url is not None) == cluster.passes:
            continue
        expected = "expected only along with a proxy: handler"
        if cluster.passes:
            expected = "expected a proxy_url, since the cluster has a proxy: handler"
        _fail(f"{field}.nodes[{index}].proxy_url", expected)


def _check_cluster(field: str, cluster: Cluster) -> None:
    """Raise InputError for faults that do not depend on other clusters."""
    if cluster.workers not in ("thread", "process"):
        _fail(f"{field}.workers", f"expected thread or process, got {cluster.workers!r}")
    _check_processes(field, cluster)
    _check_not_run_statuses(field, cluster)
    _check_failures(field, cluster)
    _check_affinity(field, cluster)
    _check_work(field, cluster)
    _check_passing(field, cluster)
    check_limits(cluster, "topology", f"{field}.")
    _check_pool(field, cluster)
    _check_nodes(field, cluster)
    _check_bounds(field, cluster)


def _check_bounds(field: str, cluster: Cluster) -> None:
    bounds = cluster.bounds
    _check_servers_from(field, cluster)
    if bounds is None:
        return
    check_limits(bounds, "topology", f"{field}.servers.")
    if bounds.min > bounds.max:
        expected = f"expected at least min ({bounds.min}), got {bounds.max}"
        _fail(f"{field}.servers.max", expected)
    if not cluster.has_service:
        expected = "expected a number: it is learned only of an http: or proxy: handler"
        _fail(f"{field}.servers", expected)


def _check_servers_from(field: str, cluster: Cluster) -> None:
    source = cluster.servers_from
    if source is None:
        return
    if cluster.bounds is None:
        _fail(f"{field}.servers_from", "expected only along with servers that are learned")
    if source.metrics is None and not source.orca:
        _fail(f"{field}.servers_from", "expected metrics or orca")
    try:
        metrics_pages(source.metrics)
    except ValueError as error:
        _fail(f"{field}.servers_from.metrics", str(error))


def _check_pool(field: str, cluster: Cluster) -> None:
    try:
        pool = cluster.pool
    except InputError as error:
        _fail(f"{field}.{error.field}", error.expected)
    if pool is not None:
        return
    plain = Cluster(id=cluster.id, servers=cluster.servers)
    for name in ("classes", "types", "on_block", "discipline", "order"):
        if getattr(cluster, name) != getattr(plain, name):
            _fail(f"{field}.{name}", "expected only along with a list of servers")


def _check_not_run_statuses(field: str, cluster: Cluster) -> None:
    field, statuses = f"{field}.not_run_statuses", cluster.not_run_statuses
    if statuses is None:
        return
    for status in statuses:
        if not 400 <= status <= 599:
            _fail(field, f"expected statuses from 400 to 599, got {status}")
    if len(set(statuses)) < len(statuses):
        _fail(field, "expected statuses that differ")
    if not cluster.has_service:
        _fail(field, "expected only along with an http: or proxy: handler")


def _check_failures(field: str, cluster: Cluster) -> None:
    """Raise InputError for faults in the statuses that count against a cluster, and in its
    probe."""
    for name in ("failure_statuses", "probe"):
        if getattr(cluster, name) is not None and not cluster.has_service:
            _fail(f"{field}.{name}", "expected only along with an http: or proxy: handler")
    for status in cluster.failure_statuses or ():
        if not 500 <= status <= 599:
            _fail(f"{field}.failure_statuses", f"expected statuses from 500 to 599, got {status}")
    if cluster.probe is None:
        return
    if not PROBE.fullmatch(cluster.probe):
        _fail(f"{field}.probe", f"expected a method and a path, GET /health, got {cluster.probe!r}")
    if isinstance(cluster.servers, tuple):
        _fail(f"{field}.probe", "expected only along with equal servers")


def _check_affinity(field: str, cluster: Cluster) -> None:
    if cluster.affinity is None:
        return
    if not cluster.has_service:
        _fail(f"{field}.affinity", "expected only along with an http: or proxy: handler")
    try:
        source = SessionSource.of(cluster.affinity)
    except ValueError as error:
        _fail(f"{field}.affinity", str(error))
    if not (source.is_in_body or cluster.passes):
        expected = "expected json:FIELD or prefix: requests have headers with a proxy: handler"
        _fail(f"{field}.affinity", expected)


def _check_work(field: str, cluster: Cluster) -> None:
    """Raise InputError for sources of work that requests cannot have here."""
    if not cluster.counts_work:
        return
    told = [(f"{field}.work", cluster.work)]
    told += [(f"{field}.routes[{at}].work", one.work) for at, one in enumerate(cluster.routes)]
    for where, source in told:
        if source is None:
            continue
        if (expected := source.fault()) is not None:
            _fail(where, expected)
        if source.header is not None and not cluster.passes:
            _fail(where, "expected no header: requests have headers with a proxy: handler")
        if isinstance(cluster.servers, tuple) or cluster.node_count > 1:
            _fail(where, "expected only along with equal servers and one node")


def _check_passing(field: str, cluster: Cluster) -> None:
    proxied = [handler for handler in cluster.handlers.values() if handler.startswith("proxy:")]
    if proxied and not cluster.passes:
        _fail(f"{field}.handler", "expected proxy: for all servers of a cluster, or for none")
    plain = Cluster(id=cluster.id, servers=cluster.servers)
    for name in OF_PASSING:
        if not proxied and getattr(cluster, name) != getattr(plain, name):
            _fail(f"{field}.{name}", "expected only along with a proxy: handler")
    host = cluster.host or (PASS_HOST if cluster.host is None else "")
    if host not in (PASS_HOST, URL_HOST) and not is_host_and_port(host):
        expected = f"expected {PASS_HOST}, {URL_HOST} or HOST[:PORT]"
        _fail(f"{field}.host", f"{expected}, got {host!r}")
    try:
        _ = cluster.trusted_networks
    except ValueError as error:
        _fail(f"{field}.trusted_proxies", f"expected ADDRESS or NETWORK/BITS: {error}")
    try:
        check_routes(cluster.routes, are_alike=not isinstance(cluster.servers, tuple))
    except InputError as error:
        _fail(f"{field}.{error.field}", error.expected)


def _check_processes(field: str, cluster: Cluster) -> None:
    with_python = any(handler.startswith("python:") for handler in cluster.handlers.values())
    in_processes = cluster.workers == "process" and with_python
    for name in ("memory_limit_bytes", "kill_after_ms"):
        if getattr(cluster, name) is not None and not in_processes:
            expected = "expected only along with workers: process and a python handler"
            _fail(f"{field}.{name}", expected)


def _check_links(links: tuple[Link, ...], known: set[ClusterId]) -> None:
    seen: set[frozenset[str]] = set()
    for index, link in enumerate(links):
        field = f"links[{index}]"
        for end in link.between:
            if end not in known:
                names = ", ".join(sorted(known))
                _fail(f"{field}.between", f"expected cluster ids ({names}), got {end!r}")
        if link.between[0] == link.between[1]:
            _fail(f"{field}.between", f"expected two clusters, got {link.between[0]!r} twice")
        pair = frozenset(link.between)
        if pair in seen:
            _fail(f"{field}.between", f"expected one link per pair, got {sorted(pair)} twice")
        seen.add(pair)
        check_limits(link, "topology", f"{field}.")


def _fail(field: str, expected: str) -> NoReturn:
    raise InputError("topology", field, expected)
