"""The pages that the cold routes show, as pydantic models: they check a page and describe it in the
OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from spillover import __version__
from spillover.apps.node.pool_view import Count, Milliseconds, TokensState, tokens_state
from spillover.core.overflow.decisions import describe
from spillover.core.overflow.knowledge import NeighborView
from spillover.core.overflow.pools import learned_servers, sized_servers, unlike_servers
from spillover.core.overflow.shadow import Shadow
from spillover.live.overflow.configured import Configured
from spillover.live.overflow.recent import REFUSED, WINDOW_S, RecentEnds
from spillover.live.overflow.shared_connection import SharedCounts
from spillover.live.overflow.shell import NodeShell
from spillover.model.ids import ClusterId, RequestId, name_of
from spillover.model.request import Outcome
from spillover.model.topology import CLUSTER_ID, Topology

DELAY_MS_MAX = 60_000.0

ClusterName = Annotated[str, Field(pattern=rf"^(?:{CLUSTER_ID.pattern})$")]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class LinkState(BaseModel):
    """The changes that an operator has made to the way to a neighbor."""

    delay_ms: Milliseconds
    loss: Share
    cut: bool


class NeighborState(BaseModel, extra="allow"):
    """The beliefs of a node about a neighbor, and their age; null before the first report."""

    id: ClusterName
    url: str | None
    accept_probability: Share
    neighborhood_accept_probability: Share
    queue_length: Count
    age_ms: Milliseconds | None
    alive: bool
    delay_ms: Milliseconds = 0.0
    """The one-way delay in milliseconds, as the topology has it."""
    way_ms: Milliseconds = 0.0
    """The time in milliseconds that a request takes there, as measured; `delay_ms` until one was
    answered."""
    forwards: Count = 0
    """The number of requests handed to it since the start, whatever came back."""
    pulls: Count = 0
    """The number of those requests for which it had asked."""
    came_back: dict[str, Count] = {}
    """The number of those requests by how they ended: answered, refused, lost or recalled. The
    others are away."""
    ahead: int = 0
    """The number of requests that wait there, less its idle servers, as it last reported."""
    load: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0
    """The work that its own clients bring, as a share of its capacity, as it last reported."""
    load_age_ms: Milliseconds | None = None
    """The time in milliseconds since it reported these two, in a report or with another message;
    null if it never has."""
    link: LinkState | None = None
    """The changes that an operator has made to the way there; null where nobody has made any."""
    degraded: bool = False
    """True if it is given no work since work fails there, by its own word or by requests from
    here."""
    avoided: bool = False
    """True if it is given no work because of requests from here that failed, were lost, or came
    back too late."""
    missed: Count = 0
    """The number of `forwards` that were lost there, or answered later than its load promised, if
    at all."""
    disagreement: str | None = None
    """The difference between the two topologies on what the clusters share, or that another node is
    at the neighbor's address; null as far as they agree."""


class TurnedAwayState(BaseModel):
    """A cluster that lately took this one for its neighbor, and the reason why it was turned
    away."""

    id: ClusterName
    reason: str
    age_s: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]


class LedgerState(BaseModel):
    """The two balances: accepted = sum of the other home entries, received = of the foreign."""

    epoch: int
    home: dict[str, int]
    foreign: dict[str, int]


class RecentState(BaseModel, extra="allow"):
    """The clients' requests that ended in the last seconds. The quantiles are of the system times
    of those that were done, to within 5 %; null where none was."""

    window_s: float = WINDOW_S
    done: Count = 0
    failed: Count = 0
    rejected: Count = 0
    expired: Count = 0
    refused: Count = 0
    p50_ms: Milliseconds | None = None
    p99_ms: Milliseconds | None = None


class ShadowState(BaseModel):
    """A policy that is asked along and has no say, and what its choices would have come to since
    the start."""

    policy: str
    same: Count
    """The number of decisions at which it would have done the same."""
    other: Count
    saved_ms: Milliseconds
    """The estimated time that its other choices would save: the sum over those that are sooner."""
    lost_ms: Milliseconds
    """The estimated time that its other choices would lose: the sum over those that are later."""


class AsksState(BaseModel):
    """The number of times that idle servers here asked a neighbor for work, by the answer."""

    work: Count = 0
    nothing: Count = 0
    no_answer: Count = 0
    under_way: Count = 0


class SharedState(BaseModel):
    """The connections that requests between neighbors share: those by which they are handed over
    from here, those by which they come, and the bytes that have not left."""

    caller: Count = 0
    callee: Count = 0
    unsent_bytes: Count = 0


class ClientsState(BaseModel):
    """The clients of a node: those that have a session there, and since its start those that have
    left for another server, and those that were not let in."""

    connected: Count = 0
    moved_away: Count = 0
    put_off: Count = 0


class ConfigurationState(BaseModel, extra="allow"):
    """The configuration that a node goes by. `by` is the cluster whose node took it; null where it
    is that of the node's own file."""

    version: Count = 0
    by: str | None = None
    superseded: Count | None = None
    """The version of a configuration that was taken here and lost against another; null where none
    has."""
    removed: bool = False
    """True if the configuration no longer has this cluster: it drains, and waits to be ended."""

    @classmethod
    def of(cls, configured: Configured) -> ConfigurationState:
        stamp, lost = configured.stamp, configured.superseded
        return cls(
            version=stamp.version,
            by=stamp.cluster or None,
            superseded=None if lost is None else lost.version,
            removed=configured.removed,
        )


class SiteState(BaseModel):
    """The nodes of a cluster of several, as one of them knows them. `servers`, `busy` and
    `queue_length` of the page are of the cluster; its other counts are of this node."""

    node: Count
    """The number of this node."""
    nodes: Count
    """The number of nodes of the cluster."""
    members: list[Count]
    """The nodes that share its servers now."""
    share: Count
    """The number of servers that are this node's now."""
    busy: Count
    """The number of these servers that are occupied."""
    queue_length: Count
    """The number of requests that wait at this node."""


class EngineState(BaseModel, extra="allow"):
    """The load that engines report, all together; null where they do not report it."""

    running: Annotated[float, Field(ge=0.0)] | None
    waiting: Annotated[float, Field(ge=0.0)] | None
    """The number of requests that they hold back."""
    held: Share | None
    """The used share of the cache that is fullest."""


class LearnedState(BaseModel, extra="allow"):
    """The search for the number of servers. `servers` of the page is the number that is believed to
    be best."""

    limit: Count
    """The number of requests that may run at this instant: the believed number, or one that is
    tried."""
    min: Count
    max: Count
    found: bool
    """True if the last large steps from the believed number have led to nothing better."""
    moves: Count
    """The number of times since the start that another number has turned out to be better."""
    rate_per_s: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] | None
    """The number of requests per second that come to a good end while as many run as may, as last
    measured; null before that."""
    ceiling: Count
    """The number of requests that may run at most for now, by the engines' reports."""
    engine: EngineState | None = None
    """The last report of the engines; null where none is listened to."""


class WorkTypeState(BaseModel, extra="allow"):
    """The knowledge of how long requests of one type run."""

    requests: Count
    """The number of requests that were learned from."""
    mean_ms: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    error: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    """The mean distance of expected and real times, as a share of the mean time."""
    counted_error: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    """The same, if each was expected to take the mean time. If that is no larger, requests of the
    type are counted."""


class WorkState(BaseModel, extra="allow"):
    """The waiting work, where requests state their sizes."""

    waiting_ms: Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
    """The time in milliseconds for which one server would be busy with it."""
    unread: Count
    """The number of requests whose sizes could not be read: they count as the mean."""
    types: dict[str, WorkTypeState]


class NodeState(BaseModel, extra="allow"):
    """The state of one cluster now. Other versions of a node may tell more."""

    cluster: ClusterName
    url: str | None
    servers: Count
    busy: Count
    queue_length: Count
    accept_probability: Share
    neighborhood_accept_probability: Share
    policy: str
    shadow: ShadowState | None = None
    """The policy that is asked along; null where none is."""
    version: str
    configuration: ConfigurationState = ConfigurationState()
    site: SiteState | None = None
    """The nodes of the cluster; null where it has one."""
    learned: LearnedState | None = None
    """The search for the number of servers; null where that is given."""
    work: WorkState | None = None
    """The waiting work, where requests state their sizes; null where requests are counted."""
    draining: bool
    lame_duck: bool = False
    """True while the cluster drains but still serves clients as ever, until balancers know of
    it."""
    drained: bool
    forwards: Count
    """The number of requests handed to neighbors since the start, whatever came back."""
    pulls: Count = 0
    """The number of those requests for which neighbors had asked."""
    asks: AsksState = AsksState()
    home_load: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.0
    """The work that the own clients bring, as a share of the cluster's capacity: above 1, it is too
    much."""
    foreign_waiting: Count = 0
    """The number of neighbors' requests that wait here."""
    foreign_waiting_limit: Count = 0
    """The largest number of neighbors' requests that may wait here."""
    answered: Count = 0
    """The number of clients' requests that are done, since the start."""
    system_time_sum_ms: Milliseconds = 0.0
    """The sum of the system times of those requests, in milliseconds."""
    failed: Count = 0
    """The number of clients' requests that failed or whose outcome is unknown, since the start."""
    rejected: Count = 0
    """The number of clients' requests that the handler refused as their clients' fault."""
    expired: Count = 0
    """The number of clients' requests that were accepted and not done by their deadlines."""
    refused: Count = 0
    """The number of clients' requests that were not accepted."""
    recent: RecentState = RecentState()
    degraded: bool = False
    """True if so much of the work run here fails that neighbors give the cluster nothing and do its
    own."""
    health: str = "well"
    """The health of the cluster: well; degraded; recovering, so degraded until a moment ago and
    loaded step by step; resting, as the service has asked to be left alone for `rest_ms`."""
    rest_ms: Milliseconds = 0.0
    failed_share: Share = 0.0
    """The share of the work run here of late that failed."""
    stuck: Count = 0
    """The number of servers still busy with work whose request has ended."""
    held_bytes: Count = 0
    """The bytes of requests under way, of messages being read or given, and of kept answers."""
    held_limit_bytes: Count = 0
    kept_bytes: Count = 0
    """The part of the held bytes that gives way to requests: that of kept answers."""
    down: bool = False
    """True if nothing can be run here for now: all upstreams of the handler are gone."""
    shared: SharedState = SharedState()
    clients: ClientsState = ClientsState()
    tokens: TokensState | None = None
    """The pool of unlike servers; null where the servers are alike."""
    neighbors: list[NeighborState]
    turned_away: list[TurnedAwayState] = []
    ledger: LedgerState


class Explanation(BaseModel):
    """The decisions taken here about one request, oldest first, and all that happened to it here in
    between. `at_ms` counts from the first of these."""

    id: str
    cluster: str
    decisions: list[dict[str, Any]]
    story: list[dict[str, Any]] = []


class Unreachable(BaseModel):
    """A cluster that did not answer in time. `last_seen_s` is the age of its newest report at any
    cluster that did; null without one."""

    unreachable: bool = True
    last_seen_s: float | None


class FederationLink(BaseModel):
    """A link as the topology has it; `delay_ms` is one way."""

    between: tuple[str, str]
    delay_ms: float


class FederationFlow(BaseModel):
    """The requests that `cluster` has handed to `neighbor` since it started, and how they ended;
    the others are away."""

    cluster: str
    neighbor: str
    pushed: Count
    """The number that `cluster` handed on by its own decision."""
    pulled: Count
    """The number that it handed on because the neighbor had an idle server, and asked."""
    answered: Count
    refused: Count
    lost: Count
    recalled: Count


class FederationState(BaseModel):
    """All clusters that are known of, by id, the links between them, and the flows over these, as
    reported by the clusters that could be reached."""

    clusters: dict[str, NodeState | Unreachable]
    links: list[FederationLink]
    flows: list[FederationFlow] = []


def _drain_state(shell: NodeShell) -> dict[str, bool]:
    machine = shell.machine
    is_waited_at = shell.site is not None and shell.site.asks_others  # for other nodes
    told = {"draining": machine.draining, "drained": machine.drained and not is_waited_at}
    return told | {"lame_duck": machine.lame_duck}


def _learned_state(shell: NodeShell) -> LearnedState | None:
    servers = learned_servers(shell.machine.servers)
    if servers is None:
        return None
    search, load = servers.search, servers.engine.load
    return LearnedState(
        limit=servers.total,
        min=search.least,
        max=search.most,
        found=search.is_found,
        moves=search.moves,
        rate_per_s=search.rate_per_s,
        ceiling=search.ceiling,
        engine=None if load is None else EngineState(**load._asdict()),
    )


def _work_state(shell: NodeShell) -> WorkState | None:
    servers = sized_servers(shell.machine.servers)
    if servers is None:
        return None
    line = servers.line
    types = {
        kind: WorkTypeState(
            requests=told.requests,
            mean_ms=told.mean_s * 1e3,
            error=told.error,
            counted_error=told.counted_error,
        )
        for kind, told in line.expected.told().items()
    }
    return WorkState(waiting_ms=line.waiting_s * 1e3, unread=line.expected.unread, types=types)


def _site_state(shell: NodeShell) -> SiteState | None:
    if shell.site is None:
        return None
    siblings = shell.site.siblings
    return SiteState(
        node=siblings.number,
        nodes=siblings.nodes,
        members=sorted(siblings.members),
        share=siblings.own.share,
        busy=shell.machine.servers.busy,
        queue_length=shell.machine.queue_length,
    )


def node_state(shell: NodeShell, now_s: float) -> NodeState:
    """Returns the page `/state` for this instant."""
    machine, metrics = shell.machine, shell.metrics
    answered, system_time_sum_s = metrics.answered
    pool = unlike_servers(shell.machine.servers)
    return NodeState(
        cluster=shell.cluster.id,
        url=shell.cluster.url,
        servers=machine.servers.site_total,
        busy=machine.servers.site_busy,
        queue_length=machine.servers.site_waiting,
        accept_probability=machine.accept_probability,
        neighborhood_accept_probability=machine.neighborhood_accept_probability,
        policy=machine.policy,
        version=__version__,
        configuration=ConfigurationState.of(shell.neighborhood.configured),
        **_drain_state(shell),
        shadow=_shadow_state(machine.decider.shadow),
        forwards=sum(metrics.forwards_left.values()),
        pulls=sum(metrics.pulls_left.values()),
        asks=AsksState(**machine.pulling.ends, under_way=machine.pulling.coming),
        home_load=machine.home_load.load,
        foreign_waiting=machine.servers.waiting_foreign,
        foreign_waiting_limit=machine.admission.foreign_waiting_limit,
        answered=answered,
        system_time_sum_ms=system_time_sum_s * 1e3,
        failed=metrics.ended(Outcome.FAILED, Outcome.UNKNOWN),
        rejected=metrics.ended(Outcome.REJECTED),
        expired=metrics.ended(Outcome.EXPIRED),
        refused=metrics.ended(REFUSED),
        recent=_recent_state(metrics.recent.read()),
        degraded=machine.health.degraded,
        health=machine.condition,
        rest_ms=machine.servers.rest_s(now_s) * 1e3,
        failed_share=machine.health.failed_share(now_s),
        stuck=len(machine.servers.stuck),
        held_bytes=shell.room.held_bytes,
        held_limit_bytes=machine.held.limit_bytes,
        kept_bytes=shell.room.kept.kept_bytes,
        down=machine.servers.down,
        shared=_shared_state(metrics.shared),
        clients=_clients_state(metrics.count_clients()),
        tokens=None if pool is None else tokens_state(shell, pool),
        site=_site_state(shell),
        learned=_learned_state(shell),
        work=_work_state(shell),
        neighbors=_neighbor_states(shell, now_s),
        turned_away=[
            TurnedAwayState(id=cluster, reason=why, age_s=age_s)
            for cluster, (why, age_s) in shell.neighborhood.peers.turned_away().items()
        ],
        ledger=LedgerState.model_validate(machine.ledger.as_dict()),
    )


def _shared_state(counts: SharedCounts) -> SharedState:
    ends = {end: len(connections) for end, connections in counts.open.items()}
    return SharedState(**ends, unsent_bytes=counts.unsent_bytes)


def _clients_state(counts: tuple[int, int, int]) -> ClientsState:
    connected, moved_away, put_off = counts
    return ClientsState(connected=connected, moved_away=moved_away, put_off=put_off)


def _shadow_state(shadow: Shadow | None) -> ShadowState | None:
    if shadow is None:
        return None
    return ShadowState(**shadow.as_dict())


def _recent_state(recent: RecentEnds) -> RecentState:
    return RecentState(
        done=recent.done,
        failed=recent.failed,
        rejected=recent.rejected,
        expired=recent.expired,
        refused=recent.refused,
        p50_ms=_milliseconds(recent.p50_s),
        p99_ms=_milliseconds(recent.p99_s),
    )


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e3, 3)


def _neighbor_states(shell: NodeShell, now_s: float) -> list[NeighborState]:
    """Returns the states of the neighbors, with the urls that clients use. Urls that neighbors use
    are not shown."""
    topology = shell.topology
    return [
        NeighborState(
            id=view.id,
            url=_url_of(topology, view.id),
            accept_probability=view.accept_probability,
            neighborhood_accept_probability=view.neighborhood_accept_probability,
            queue_length=view.queue_length,
            age_ms=None if view.age_s is None else view.age_s * 1e3,
            alive=view.alive,
            delay_ms=round(view.delay_s * 1e3, 6),
            way_ms=round(max(0.0, view.way_s) * 1e3, 6),
            forwards=shell.metrics.forwards_left[view.handle],
            pulls=shell.metrics.pulls_left[view.handle],
            came_back=shell.metrics.came_back(view.id),
            ahead=view.ahead,
            load=view.load,
            load_age_ms=None if view.load_age_s is None else view.load_age_s * 1e3,
            link=link_state(shell, view),
            disagreement=shell.neighborhood.peers.agreements[view.handle].disagreement,
            degraded=view.degraded,
            avoided=view.avoided,
            missed=view.missed,
        )
        for view in shell.machine.neighbors.view(now_s)
    ]


def _url_of(topology: Topology, cluster: ClusterId) -> str | None:
    """Returns the url of a cluster; None where the topology no longer has it."""
    return topology.cluster(cluster).url if cluster in topology.cluster_ids else None


def link_state(shell: NodeShell, neighbor: NeighborView) -> LinkState | None:
    """Returns what is emulated on a link; None where the link is as the topology has it."""
    delay_s, loss, cut = shell.neighborhood.emulated[neighbor.handle].faults
    delay_ms = round(delay_s * 1e3, 6)
    if not loss and not cut and delay_ms == round(neighbor.delay_s * 1e3, 6):
        return None
    return LinkState(delay_ms=delay_ms, loss=loss, cut=cut)


def explanation(shell: NodeShell, request_id: RequestId) -> Explanation | None:
    """Returns what happened to a request here; None where nothing of it is remembered. A request
    that came too late to be decided about has an end all the same."""
    log = shell.machine.decider.log
    story = shell.machine.decider.log.tell(request_id)
    if not story:
        return None
    return Explanation(
        id=name_of(request_id),
        cluster=shell.cluster.id,
        decisions=[describe(decision) for decision in log.of(request_id)],
        story=[_in_short(record) for record in story],
    )


def _in_short(record: dict[str, Any]) -> dict[str, Any]:
    """Returns a record of the story; decisions are told in full elsewhere."""
    if record["event"] != "decided":
        return record
    return {name: record[name] for name in ("at_ms", "event", "outcome", "neighbor")}
