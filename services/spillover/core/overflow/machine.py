"""The machine of one cluster: a FIFO, m servers, and the decision to keep or to hand on.

Theory of operation. Every request that comes in is a *visit*. With a free server it starts at once.
Otherwise the policy decides, from the own queue and from what neighbors last reported, whether it
joins the queue or leaves for a neighbor. A visit that left comes back in one of three ways: as an
answer, which is passed on; as a refusal, so that it is decided again with that neighbor left out;
or not at all. Then it is decided again if the request has a key; otherwise its outcome is unknown,
and it never runs twice. A visit ends with exactly one Reply, or goes back undone to the neighbor
that sent it, as a Refuse.

Where answers pass through as they come (decision 0043), an answer that has begun makes its visit
*answering*. The visit then stays where it is until the answer ends, whatever its deadline; if the
answer breaks off, the visit ends as failed, since a part of the answer has been read.

Where work fails more than elsewhere (`health`), or the service asks to be left alone, work goes to
neighbors first, and a neighbor's work goes back.

These are the bounds: `held_limit_bytes` bounds all that the machine holds, `queue_limit` the queue,
and `away_limit` the requests away. The queue can become as long as both together, when all that are
away come back refused (up to as many again may be stranded at neighbors that are silent or fail).
`max_hops` bounds hops, and `records_max` what is remembered for `/explain`. A request to which
`admission` objects is refused if it comes from a neighbor, and handed on if it comes from a client
and a neighbor accepts.

What neighbors tell is within ranges (`model.ranges`), in which nothing here can raise. An error
that is raised all the same is a bug; at a node that runs, it costs the neighbor and not the node
(decision 0046).

Not here: what a payload means, how bytes travel, what time it is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from random import Random
from typing import Any

from spillover.core.affinity.sites import Sites
from spillover.core.overflow import asking, evidence
from spillover.core.overflow import events as ev
from spillover.core.overflow.admission import Admission
from spillover.core.overflow.check import check_node
from spillover.core.overflow.decider import Decider
from spillover.core.overflow.decisions import KEPT, REFUSED, STARTED, Decision
from spillover.core.overflow.facts import NodeFacts
from spillover.core.overflow.groups import Group, Groups
from spillover.core.overflow.health import WELL, Health
from spillover.core.overflow.history import (
    BEGAN,
    CANCEL_ASKED,
    FAILED_AT,
    FAILED_HERE,
    GIVEN_BACK,
    LEFT_IN_TIME,
    LOST_AT,
    NOT_STARTED,
    PULLED_BY,
    REFUSED_BY,
    WENT_AS_PROBE,
    Ending,
    Note,
)
from spillover.core.overflow.neighbor import Neighbor
from spillover.core.overflow.parting import Parting
from spillover.core.overflow.pool import ServerPool, SitePool
from spillover.core.overflow.pools import learned_servers, pool_of, pool_of_first, site_servers
from spillover.core.overflow.register import Register
from spillover.core.overflow.reporting import HEARTBEAT_S, Gossip
from spillover.core.overflow.session_ways import cheaper_there
from spillover.core.overflow.settings import Carried, NodeSettings
from spillover.core.overflow.visit import AWAY, QUEUED, RUNNING, Visit
from spillover.core.tokens.answers import NOT_RUN
from spillover.model.causes import Cause
from spillover.model.ids import ClusterId
from spillover.model.load import LoadNow
from spillover.model.request import DONE, FAILED, Answer, Outcome, Refusal
from spillover.model.unlike_servers import QUEUE
from spillover.policy.overflow.base import KEEP
from spillover.policy.overflow.choosers import BY_LOAD, ISOLATED
from spillover.policy.overflow.degradation import BAD, STALLED
from spillover.policy.overflow.lateness import GRACE_S
from spillover.policy.overflow.stranded import next_look_s

OFFERS_MAX = 16
"""The most waiting requests that are offered to a neighbor which has just reported. Each of its
answers then brings one more."""

UNTRIED = frozenset({Refusal.BLOCKED, Refusal.UNKNOWN_TYPE})
"""The objections for which a client's request is not offered to neighbors either."""

NOT_HERE = frozenset({Refusal.DEGRADED, Refusal.NO_SERVERS})
"""The objections for which a neighbor's request goes back to it: it can do better by itself."""

BROKE_OFF = "the answer broke off after it had begun"

REST_S_MIN = 0.05
"""The shortest rest. Why: each rest is told to all neighbors."""

REST_S_MAX = 60.0
"""The longest rest: after it what runs the work is tried again, whatever it has asked for."""


TOLD = (ev.ReportReceived, ev.WorkAsked, ev.NoWorkThere)
"""Events that are nothing but what a neighbor tells."""


class NodeMachine(NodeFacts):
    """The machine of one cluster. `neighbors` has the id and the one-way delay in seconds of each,
    in a fixed order; their handles count from 0 on. `servers` is made from the settings unless it
    is given."""

    spares_node = False
    """Whether a neighbor's message that makes the machine raise is dropped. The runner of a node
    sets it; simulations and tests are to see the error."""

    def __init__(
        self,
        settings: NodeSettings,
        neighbors: Sequence[tuple[ClusterId, float]],
        random: Random,
        now_s: float,
        servers: ServerPool | None = None,
    ) -> None:
        self.settings = settings
        self.carried = Carried()
        self.servers = servers = pool_of(settings, now_s) if servers is None else servers
        self._site = site_servers(servers)
        """The same pool as `servers`, if the site has several nodes; None where it has one."""
        self._learned = learned_servers(servers)
        """The same pool as `servers`, if the number of servers is learned; None where it is
        given."""
        self.register = Register(settings.epoch, settings.held_limit_bytes)
        self.groups = Groups(settings, servers, neighbors, HEARTBEAT_S, random, now_s)
        self._only = self.groups.only
        self.neighbors = self.groups.neighbors
        self.decider = Decider(
            settings.policy, self.neighbors, random, settings.records_max, settings.shadow
        )
        self.health = Health(asks=settings.asks)
        self.late_here = evidence.LateHere()
        self.admission = Admission(
            settings, self.servers, health=self.health, neighbors=self.neighbors, held=self.held
        )
        self.parting = Parting()
        self.sites = Sites() if settings.affinity else None
        """The places at neighbors, where the cluster has affinity."""
        self._gossip = Gossip(settings.gossip_period_s, random, now_s)
        self.home_load = self.groups.home_load
        self.pulling = self.groups.rest.pulling
        self.blocked = Counter[str]()
        self._use(settings.policy, settings.shadow)
        self._told_to_drain = False
        """Whether operators have told the node to drain."""
        self._down = False
        """Whether all servers are down, whatever is known of each."""
        self.truncated = 0
        self._doubtful = set()
        self._out: list[ev.Command] = []
        self._handlers = self._make_handlers()

    def _make_handlers(self) -> dict[type, Callable[[Any, float], None]]:
        return {
            ev.Arrived: self._arrived,
            ev.ResponseBegan: self._response_began,
            ev.ServiceEnded: self._service_ended,
            ev.NotStarted: self._not_started,
            ev.ServiceAsked: self._service_asked,
            ev.ForwardAnswered: self._forward_answered,
            ev.ForwardRefused: self._forward_refused,
            ev.ForwardLost: self._forward_lost,
            ev.Cancelled: self._cancelled,
            ev.CancelAsked: self._cancel_asked,
            ev.ReportReceived: self._heard,
            ev.WorkAsked: self._work_asked,
            ev.NoWorkThere: self._no_work_there,
            ev.LinkDown: self._link_down,
            ev.SiblingHeard: self._sibling_heard,
            ev.SiblingLost: self._sibling_lost,
            ev.ReportAsked: lambda _, now_s: self._publish(now_s),
            ev.TimerFired: self._woke if self._site is None else self._woke_at_site,
            ev.BytesMoving: lambda event, _: self.held.move(event.count, event.wanted),
            ev.HeldUp: self._held_up,
            ev.Drain: self._drain,
            ev.Resume: self._resume,
            ev.EngineSaid: self._engine_said,
            ev.ServersDown: self._servers_down,
            ev.ServersUp: self._servers_up,
            ev.TokensSet: self._tokens_set,
            ev.PolicySet: lambda event, _: self._use(event.policy, event.shadow),
            ev.Join: self._join,
            ev.Part: self._part,
            ev.DelayChanged: self._delay_changed,
            ev.SettingsChanged: self._settings_changed,
            ev.Removed: self._removed,
            ev.Restored: self._restored,
        }

    @property
    def leaves_to_siblings(self) -> bool:
        """Returns whether neighbors are to listen to another node of the site, since this one
        drains and another one does not. The reports of this node would be taken for the
        cluster's."""
        return self._site is not None and self.draining and self._site.others_stay

    def next_deadline(self) -> float:
        return min(
            self.register.next_s,
            self._gossip.next_s,
            self.admission.lame_until_s,
            self.neighbors.next_silence_s,
            self.servers.next_s,
            math.inf if self._site is None else self._site.siblings.next_deadline(),
        )

    def handle(self, event: ev.Event, now_s: float) -> list[ev.Command]:
        self.servers.now_s = now_s
        try:
            self._handlers[type(event)](event, now_s)
        except Exception as error:
            if not (self.spares_node and isinstance(event, TOLD)):
                raise
            self._distrust(event.neighbor, error)
            self.check()
        if self._site is not None:
            self._share_servers(self._site, now_s)
        if self._learned is not None and self._learned.believed != self.settings.servers:
            self._use_limits({"servers": self._learned.believed})
        commands, self._out = self._out, []
        return commands

    def check(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        check_node(self)

    # --- a request comes in -------------------------------------------------------------------

    def _arrived(self, event: ev.Arrived, now_s: float) -> None:
        origin, is_home = event.origin, event.origin == ev.HOME
        visit = Visit(event.ref, event.request, origin, is_home, event.deadline_s, now_s)
        visit.group = group = self._only or self.groups.of(event.request.type)
        if visit.is_home:
            self.home_load.arrivals += 1
            if group is not self._only:
                group.home_load.arrivals += 1
            if self.health.here.degraded:
                self.health.came(now_s)
        elif event.load is not None:
            visit.group.pulling.came(event.origin, pulled=event.pulled)
            visit.pulled = event.pulled
            self._heard_load(visit.group, event.origin, event.load, now_s)
        admission, held, size_bytes = self.admission, self.register.held, event.request.size_bytes
        if admission.draining and not visit.is_home:
            self._refuse_untried(visit, Refusal.DRAINING, now_s)
        elif (refusal := held.refusal(size_bytes, visit.is_home)) is not None:
            self._refuse_untried(visit, refusal, now_s)
        elif event.deadline_s <= now_s:
            self._accept(visit)
            self._end(visit, Outcome.EXPIRED, now_s)
        elif self.sites is not None and visit.is_home and self._leaves(visit, self.sites, now_s):
            pass
        elif (self.servers.may_start(visit) and not admission.emptying) and (
            not self.health.here.degraded or self._starts_here(visit, now_s)
        ):
            self._accept(visit)
            self._start(visit, now_s, at_once=True)
        else:
            self._place_new(visit, now_s)

    def _leaves(self, visit: Visit, sites: Sites, now_s: float) -> bool:
        """Hands a client's request on if it costs less at a place of a neighbor, and returns
        whether it did."""
        asked = visit.request.asked
        if asked is None or self._site is not None:  # others send to the same places by now
            return False
        away = cheaper_there(self, sites, asked, visit, now_s)
        if away is None:
            return False
        self._accept(visit)
        self.decider.left_for_place(visit, away.neighbor, self.servers, now_s, self.condition)
        visit.expected = sites.sent(asked, away, now_s)
        self._place(visit, away.neighbor, now_s)
        return True

    def _starts_here(self, visit: Visit, now_s: float) -> bool:
        """Returns whether a free server takes the visit, as one always does unless work fails here
        and goes elsewhere first. Then only a probe starts, which finds out whether work still
        fails."""
        if not self.admission.elsewhere_first:
            return True
        is_free, is_handed_on = self.is_free(visit), self._is_handed_on(visit)
        told = {"is_home": visit.is_home, "is_free": is_free, "is_handed_on": is_handed_on}
        if not self.health.may_probe(now_s, **told):
            return False
        self.health.probe(visit.ref)
        return True

    def _is_handed_on(self, visit: Visit) -> bool:
        """Returns whether a request has come from further away than a neighbor, or from one that is
        degraded."""
        origin = self.neighbors.by_handle.get(visit.origin)
        return len(visit.request.path) > 1 or (origin is not None and origin.degraded)

    def _place_new(self, visit: Visit, now_s: float) -> None:
        """Keeps, hands on or refuses a visit that no server takes at once and that is not yet
        accepted."""
        objection = self.admission.objection(visit, now_s)
        if not self.servers.is_alike and self.admission.blocks(visit):
            self.blocked[visit.request.type] += 1
        if (
            objection is not None
            and (not visit.is_home or objection in UNTRIED)
            and not (objection in NOT_HERE and self.admission.relay_hops)
        ):
            self._refuse_untried(visit, objection, now_s)
            return
        choice = self._choose(visit, now_s, objection)
        if choice == KEEP and objection is not None:
            self._refuse(visit, objection, now_s)
            return
        self._accept(visit)
        if choice != KEEP and objection is None and self._by_load and self.servers.waiting:
            visit = self._oldest_of(visit, choice, now_s)
        self._place(visit, choice, now_s)

    def _oldest_of(self, visit: Visit, choice: int, now_s: float) -> Visit:
        """Returns the visit that is handed on where the policy sends a client's new one away. It is
        the oldest that waits and is better off there, so that none is overtaken; the new one takes
        its place here."""
        decision = self.decider.log.last
        may_wait = self.servers.is_alike and visit.is_home
        if not may_wait or not isinstance(decision, Decision):
            return visit
        older = asking.first_to_go(self, visit, decision, now_s)
        if older is None:
            return visit
        self.decider.older_went(decision, older, self.neighbors.by_handle[choice].id)
        self._unqueue(older, now_s)
        self._place(visit, KEEP, now_s)
        return older

    def _come_back(self, visit: Visit, event: str, now_s: float) -> None:
        """Takes back a visit that was away and comes back without an answer."""
        self.decider.log.add(Note(now_s, visit.request.id, event, visit.target.id))
        self.register.come_back(visit, now_s)
        self._nothing_left_there(visit)
        if visit.target.ramp_since_s is not None:
            self.neighbors.pace(visit.target, now_s)

    def _nothing_left_there(self, visit: Visit) -> None:
        """Forgets that the session of a visit was expected where the visit was sent, since nothing
        came of it there."""
        if self.sites is not None and visit.request.asked is not None:
            self.sites.came_back(visit.request.asked, visit.expected)
            visit.expected = None

    def _place_again(self, visit: Visit, now_s: float, *, undone: bool = False) -> None:
        """Decides again about a visit, without the neighbors that had it.

        A visit that is too late ends, so that it does not make others late. One that the service
        here has just refused (`undone`) is tried elsewhere first; if that refusal is an answer that
        can be passed on, it is tried only elsewhere.
        """
        undone = undone or visit.refused_with is not None
        if visit.cancelling:
            self._end(visit, Outcome.CANCELLED, now_s)
        elif visit.deadline_s <= now_s:
            self._end(visit, Outcome.EXPIRED, now_s)
        elif (
            self.servers.may_start(visit)
            and not undone
            and (not self.health.here.degraded or self._starts_here(visit, now_s))
        ):
            self._start(visit, now_s, at_once=True)
        else:
            objection = self.admission.objection(visit, now_s)
            if not undone and self._has_its_place(visit, objection):
                self._wait_first(visit, now_s)
                return
            choice = self._choose(visit, now_s, objection, may_keep=not undone)
            if choice == KEEP and (undone or objection in NOT_HERE) and self._goes_back(visit):
                self._give_back(visit, now_s)
            elif choice == KEEP and self._has_answer(visit):
                self._pass_refusal(visit, now_s)
            elif choice == KEEP and objection is Refusal.TOO_LATE:
                self._end(visit, Outcome.EXPIRED, now_s, "no cluster can end it in time")
            else:
                self._place(visit, choice, now_s)

    def _wait_first(self, visit: Visit, now_s: float) -> None:
        """Has a visit wait first in the queue, since it is older than all that wait, or nearly
        so."""
        self.decider.note(visit, KEPT, self.servers, now_s, None, self.condition)
        self.register.enter(visit, QUEUED, now_s)
        self.servers.join(visit, first=True)

    def _choose(
        self, visit: Visit, now_s: float, objection: Refusal | None, *, may_keep: bool = True
    ) -> int:
        settings, servers = self.settings, self.servers
        may_keep = may_keep and objection is None and not self.admission.elsewhere_first
        if (
            may_keep
            and servers.has_seats
            and (
                servers.seats(visit)
                or (servers.on_block == QUEUE and not visit.group.fitting.resting)
            )
        ):
            self.decider.note(visit, KEPT, servers, now_s, None, self.condition)
            return KEEP
        group = visit.group
        load = group.home_load.at(now_s, group.fitting.departure_s) if self._tells_load else 0.0
        unreported = group.neighbors.unreported()
        own = group.estimates.own_load(visit, may_keep, load, now_s, unreported)
        beyond = max(0, servers.waiting - (visit.place is not None) - settings.queue_limit)
        is_roomy = self.register.away + beyond < settings.away_limit  # as it mostly is
        has_room = is_roomy or self.may_send_away(beyond)
        may_forward = has_room and len(visit.request.path) < settings.max_hops
        rank = 0.0
        if servers.down or not group.fitting.up:
            rank = math.inf
        elif self.health.here.degraded:
            rank = self.admission.rank
        elif self.admission.stalled:
            rank = STALLED
        return self.decider.choose(visit, own, now_s, objection, may_forward, rank, self.condition)

    def _place(self, visit: Visit, choice: int, now_s: float, *, pulled: bool = False) -> None:
        if choice == KEEP:
            if self.servers.may_start(visit):  # it was to go elsewhere, and nobody there takes it
                self._start(visit, now_s, at_once=True)
            else:
                self.register.enter(visit, QUEUED, now_s)
                self.servers.join(visit)
            return
        visit.target = target = self.neighbors.by_handle[choice]
        row = visit.group.neighbors.by_handle[choice]
        visit.missed, visit.promised = False, row.ahead + len(row.sent_s) <= 0
        self.register.enter(visit, AWAY, now_s)
        if target.ramp_since_s is not None:
            self.neighbors.pace(target, now_s)
        onward = visit.request.onward(self.settings.cluster)
        load = self._gossip.load_now(self, visit.group, now_s) if self._tells_load else None
        self._out.append(ev.Forward(visit.ref, choice, onward, visit.deadline_s, load, pulled))

    def _accept(self, visit: Visit) -> None:
        self.register.accept(visit)
        self._out.append(ev.Accepted(visit.ref))

    def _refuse_untried(self, visit: Visit, reason: Refusal, now_s: float) -> None:
        """Refuses a visit that is offered to no neighbor, so that there is no choice to record."""
        self.decider.note(visit, REFUSED, self.servers, now_s, reason, WELL)
        self._refuse(visit, reason, now_s)

    def _refuse(self, visit: Visit, reason: Refusal, now_s: float) -> None:
        group = visit.group
        retry_after_s = group.estimates.retry_after_s(visit, now_s)
        tells = self._tells_load and not visit.is_home
        load = self._gossip.load_now(self, group, now_s) if tells else None
        refuse = ev.Refuse(visit.ref, visit.origin, reason, retry_after_s, load)
        refuse.upstream_status = visit.service_said
        if reason is Refusal.UNKNOWN_TYPE:
            refuse.types = self.groups.types
        self._out.append(refuse)

    def _give_back(self, visit: Visit, now_s: float) -> None:
        """Gives a neighbor's request back undone: the neighbor decides again."""
        self.decider.log.add(Note(now_s, visit.request.id, GIVEN_BACK, visit.request.path[-1]))
        self.register.end(visit, None)
        self.health.forget(visit.ref)
        self._refuse(visit, Refusal.DEGRADED, now_s)

    # --- servers ------------------------------------------------------------------------------

    def _start(self, visit: Visit, now_s: float, *, at_once: bool = False) -> None:
        """Has a server take the visit; `at_once` says that it has not waited for one."""
        if at_once:
            self.decider.note(visit, STARTED, self.servers, now_s, None, self.health.state)
        if visit.deadline_s <= now_s:
            self._end(visit, Outcome.EXPIRED, now_s)
            return
        server = self.servers.occupy(visit)
        visit.group.started_s = now_s
        self.register.enter(visit, RUNNING, now_s)
        self._out.append(ev.Start(visit.ref, visit.request, now_s, visit.deadline_s, server))
        if not self.servers.is_alike:
            self.decider.granted(visit, self.servers.granted(visit.ref), now_s)

    def _service_ended(self, event: ev.ServiceEnded, now_s: float) -> None:
        servers, ref, outcome, again = self.servers, event.ref, event.outcome, False
        visit = self._visit_of(ref) if servers.stuck else self.register.visits[ref]
        if outcome is DONE:
            if event.said_no and self._learned is not None:
                servers.not_done(ref, failed=False)
            servers.vacate(ref)
            servers.refusals = 0
        else:
            again = self._not_done(visit, event, now_s)
        if visit is not None and not again:
            self._finish(visit, event, now_s)
            if not self.health.here.is_calm or outcome is FAILED:
                self._learn_from(visit, event, now_s)
        # What failed or was stopped says too little of how long a service takes, unless it took
        # longer than usual: then it only could have been more.
        if outcome is DONE or event.service_s > servers.service_s:
            servers.served(ref, event.service_s)
        if outcome is not DONE:
            self._serve_turned(now_s)
        elif servers.waiting or not servers.is_alike:
            self._serve_queue(now_s)
        if self._by_load:
            self._ask_for_work(now_s)

    def _not_done(self, visit: Visit | None, event: ev.ServiceEnded, now_s: float) -> bool:
        """Frees the server of work that has failed or was stopped. Returns whether the visit is
        decided again, as a probe is, which was sent to find out whether work still fails here."""
        servers, ref, outcome = self.servers, event.ref, event.outcome
        failed = outcome is FAILED and self.is_failure(event.upstream_status)
        servers.not_done(ref, failed=failed)
        if visit is None and self._learned is not None:
            self._learned.was_stopped(ref, event.service_s)
        if outcome in evidence.EVIDENCE:
            said = outcome if failed or outcome is not FAILED else Outcome.REJECTED
            servers.said(ref, said, event.problem)
        self._free_server(ref, now_s, servers.service_s - event.service_s if failed else 0.0)
        if visit is None:
            return False
        if visit.answering:
            self.truncated += outcome is FAILED and event.upstream_status is None
            return False
        again = failed and self.health.is_probe(ref) and self.is_free(visit)
        if again:
            self._learn_from(visit, event, now_s)
            self._try_elsewhere(visit, event, now_s)
        return again

    def _try_elsewhere(self, visit: Visit, event: ev.ServiceEnded, now_s: float) -> None:
        """Decides again about a probe that has failed; where nobody takes it, the failure is its
        answer."""
        self.register.leave(visit)
        self.health.forget(visit.ref)
        self._doubtful.add(visit.ref)
        choice = KEEP
        if visit.deadline_s > now_s:
            choice = self._choose(visit, now_s, Refusal.DEGRADED, may_keep=False)
        if choice == KEEP:
            self._finish(visit, event, now_s)
            return
        self.decider.log.add(Note(now_s, visit.request.id, FAILED_HERE, None, event.problem))
        self._place(visit, choice, now_s)

    def _not_started(self, event: ev.NotStarted, now_s: float) -> None:
        known = self.register.visits.get(event.ref)
        if known is not None and (known.answering or (event.may_have_run and known.may_have_run)):
            why = f"{BROKE_OFF}: {event.problem}" if known.answering else event.problem
            ended = ev.ServiceEnded(event.ref, FAILED, event.service_s, problem=why)
            ended.cause = event.cause
            self._service_ended(ended, now_s)
            return
        visit = self._visit_of(event.ref)
        if visit is not None:
            visit.may_have_run |= event.may_have_run
        pause_s = self.servers.refused_pause_s() if event.refused else 0.0
        busy_s = max(self.servers.service_s, pause_s) if event.refused else 0.0
        self.servers.not_done(event.ref, failed=event.refused)
        where = self.servers.said(event.ref, NOT_RUN, event.problem) if event.refused else None
        self._free_server(event.ref, now_s, busy_s - event.service_s)
        if event.retry_after_s:
            self._rest(event.ref, event.retry_after_s, now_s)
        if visit is not None:
            note = Note(now_s, visit.request.id, NOT_STARTED, None, event.problem, where)
            self.decider.log.add(note)
            self.register.leave(visit)
            self.health.forget(visit.ref)
            undone = self._undone(visit, event, now_s)
            self._place_again(visit, now_s, undone=undone)
        self._serve_turned(now_s)

    def _undone(self, visit: Visit, event: ev.NotStarted, now_s: float) -> bool:
        """Learns from work that was not done, and returns whether it is tried elsewhere first.
        Where servers are unlike, another one of them is tried before that."""
        is_news, visit.undone = visit.undone is None, event.problem
        visit.undone_by = event.cause
        if event.refused and not self.servers.is_alike:
            if self.servers.refused(visit):
                visit.refused_with = None
                return self.servers.resting or self.servers.down
            is_news, visit.refused_by_all = not visit.refused_by_all, True
        visit.refused_with = event.upstream_status
        # That one request is refused again and again says no more of the others, and nothing of
        # those for which other servers are there.
        others_go_on = asking.is_stranded(visit) and not self.servers.resting
        if event.refused and not others_go_on and (is_news or self.health.here.degraded):
            rest_s = min(event.retry_after_s or 0.0, REST_S_MAX)
            if evidence.learn(self, visit, now_s, failed=True, not_run=True, rest_s=rest_s):
                self._health_changed(now_s)
        return event.refused or self.servers.resting or self.servers.down

    def _visit_of(self, ref: int) -> Visit | None:
        """Returns the visit whose work is over; None if the visit had ended before its server
        became free."""
        if ref in self.servers.stuck:
            self.servers.stuck.remove(ref)
            return None
        return self.register.visits[ref]

    def _free_server(self, ref: int, now_s: float, cools_s: float) -> None:
        """Frees a server. One whose work has failed becomes free only when a success would have
        ended."""
        if cools_s > 0.0:
            self.servers.cool(ref, now_s + cools_s)
        else:
            self.servers.vacate(ref)

    def _rest(self, ref: int, pause_s: float, now_s: float) -> None:
        """Starts nothing for `pause_s`; what waits goes to neighbors that accept. Where servers are
        unlike, only the server of this visit rests, and what it alone serves goes
        (`_servers_changed`)."""
        if self.servers.rest(ref, now_s + min(max(pause_s, REST_S_MIN), REST_S_MAX)):
            self._publish(now_s)
            self._offer_all(list(self.servers), now_s)

    def _learn_from(self, visit: Visit, event: ev.ServiceEnded, now_s: float) -> None:
        """Learns from the end of work here how well the cluster is."""
        if event.outcome not in evidence.EVIDENCE:
            return
        self.servers.refusals = 0
        failed = event.outcome is FAILED
        if failed and not self.is_failure(event.upstream_status):
            return
        if evidence.learn(self, visit, now_s, failed=failed):
            self._health_changed(now_s)

    def _health_changed(self, now_s: float) -> None:
        """Tells neighbors of the health at once; what waits does not wait here if others are
        well."""
        self._publish(now_s)
        if self.admission.elsewhere_first:
            self._offer_all(list(self.servers), now_s)

    def _finish(self, visit: Visit, event: ev.ServiceEnded, now_s: float) -> None:
        delivery_s = self.settings.delivery_s
        outcome = event.outcome
        if now_s + delivery_s > visit.deadline_s:
            outcome, delivery_s = Outcome.EXPIRED, 0.0
        answer = visit.answer_of(event, outcome, self.settings.cluster, delivery_s)
        self._reply(visit, answer, now_s, delivery_s)

    def _serve_queue(self, now_s: float) -> None:
        while (visit := self.servers.pop()) is not None:
            # An emulated service ends at its ideal instant, handed in a little late: what joined
            # the queue in between starts when it joined, not before.
            start_s = max(now_s, visit.since_s)
            visit.queued_s += start_s - visit.since_s
            self._start(visit, start_s)

    def _unqueue(self, visit: Visit, now_s: float) -> None:
        """Takes a visit out of the queue without serving it."""
        self.servers.leave(visit)
        visit.queued_s += max(0.0, now_s - visit.since_s)

    # --- an answer begins ---------------------------------------------------------------------

    def _response_began(self, event: ev.ResponseBegan, now_s: float) -> None:
        """Keeps the visit where it is from now on. What its client sent is dropped: it is needed no
        more, and the answer may take long."""
        visit = self.register.visits.get(event.ref)
        if visit is None or visit.answering or visit.state not in (RUNNING, AWAY):
            return
        if visit.state is AWAY:
            visit.target.away.came_back_s = now_s
            if visit.target.held_back:
                evidence.give_again(self, visit.target)
            if now_s - visit.since_s > GRACE_S:
                evidence.notice_lateness(self, visit, now_s, 2.0 * event.leg_s)
            if not visit.target.sizes.is_calm:
                evidence.learn_of_size(visit, now_s)
        visit.answering = True
        visit.deadline_s = math.inf
        request = visit.request
        self.register.held.request_bytes -= request.size_bytes
        request.work, request.size_bytes = None, 0
        where = visit.target.id if visit.state is AWAY else None
        self.decider.log.add(Note(now_s, request.id, BEGAN, where))
        so_far = visit.so_far(event, self.settings.cluster)
        self._out.append(ev.Began(visit.ref, visit.origin, so_far))

    def _pass_refusal(self, visit: Visit, now_s: float) -> None:
        """Gives the client the answer with which the service here refused the work, as nobody else
        takes the work."""
        self.decider.log.add(Note(now_s, visit.request.id, BEGAN))
        so_far = visit.so_far(ev.ResponseBegan(visit.ref), self.settings.cluster)
        self._out.append(ev.Began(visit.ref, visit.origin, so_far))
        answer = visit.answer(FAILED, self.settings.cluster, visit.undone)
        answer.upstream_status, answer.cause = visit.refused_with, visit.undone_by
        self._reply(visit, answer, now_s)

    def _broken_off(self, visit: Visit, lost: ev.ForwardLost | None, now_s: float) -> None:
        """Ends a visit whose answer has lost its rest: the link has lost it, or the neighbor says
        why."""
        self.decider.log.add(Note(now_s, visit.request.id, LOST_AT, visit.target.id))
        self.truncated += not visit.cancelling
        visit.network_s += max(0.0, now_s - visit.since_s)
        outcome = Outcome.CANCELLED if visit.cancelling else FAILED
        why, cause = f"cluster {visit.target.id} was lost", Cause.NEIGHBOR
        if lost is not None and lost.problem:  # a neighbor says that it broke off, too
            told = lost.problem.removeprefix(f"{BROKE_OFF}: ")
            why = f"at cluster {visit.target.id}: {told}"
        if lost is not None and lost.cause not in (None, Cause.NODE):  # a node is one's own
            cause = lost.cause
        answer = visit.answer(outcome, self.settings.cluster, f"{BROKE_OFF}: {why}")
        answer.cause = Cause.CLIENT if visit.cancelling else cause
        self._reply(visit, answer, now_s)
        if visit.target.ramp_since_s is not None:
            self.neighbors.pace(visit.target, now_s)

    # --- a forward comes back -----------------------------------------------------------------

    def _forward_answered(self, event: ev.ForwardAnswered, now_s: float) -> None:
        visit = self.register.visits.get(event.ref)
        if visit is not None and visit.state is AWAY:  # else it was given up before
            answer, target = event.answer, visit.target
            target.away.came_back_s = now_s
            if target.held_back:
                evidence.give_again(self, target)
            way_s = event.leg_s - event.opening_s
            self.neighbors.took(target, way_s)
            if answer.load is not None:
                self._heard_load(visit.group, target.handle, answer.load, now_s)
            was_bad, outcome = target.rank >= BAD, answer.outcome
            failed = outcome is FAILED and self.is_failure(answer.upstream_status)
            if now_s - visit.since_s > GRACE_S:
                way_s += event.return_leg_s
                evidence.notice_lateness(self, visit, now_s, way_s, event.size_bytes)
            is_calm = target.there.is_calm and target.sizes.is_calm
            is_calm = is_calm and (outcome is DONE or outcome in evidence.EVIDENCE)
            if failed or not (is_calm or outcome is FAILED):
                evidence.learn_of(self, visit, outcome, now_s)
            if failed and was_bad and self._may_do_better(visit, now_s):
                self._come_back(visit, FAILED_AT, now_s)
                self._doubtful.add(visit.ref)
                self._place_again(visit, now_s)
                return
            if self.sites is not None and (asked := visit.request.asked) is not None:
                ran_by = self.neighbors.index.get(answer.path[-1])
                self.sites.answered(asked, visit.expected, ran_by, answer.ran)
            answer.queued_s += visit.queued_s
            answer.network_s += visit.network_s + event.leg_s
            answer.return_s += event.return_leg_s
            self._reply(visit, answer, now_s)
            if visit.target.ramp_since_s is not None:
                self.neighbors.pace(visit.target, now_s)
            if self.servers.waiting:
                self._offer_again(visit.target, now_s, 1)

    def _forward_refused(self, event: ev.ForwardRefused, now_s: float) -> None:
        visit = self.register.visits.get(event.ref)
        if visit is not None and visit.state is AWAY:
            if event.load is not None:
                self._heard_load(visit.group, visit.target.handle, event.load, now_s)
            if visit.answering:
                self._broken_off(visit, None, now_s)
                return
            if now_s - visit.since_s > GRACE_S:
                evidence.notice_lateness(self, visit, now_s)
            if event.upstream_status is not None:
                visit.refused_there = visit.target.id, event.upstream_status
            self._come_back(visit, REFUSED_BY, now_s)
            self._place_again(visit, now_s)

    def _forward_lost(self, event: ev.ForwardLost, now_s: float) -> None:
        visit = self.register.visits.get(event.ref)
        if visit is None or visit.state is not AWAY:
            return
        if visit.answering:
            self._broken_off(visit, event, now_s)
            return
        evidence.learn_missed(self, visit, now_s)
        self._lost_there(visit, now_s)

    def _lost_there(self, visit: Visit, now_s: float) -> None:
        """Takes back a visit that a neighbor will not answer: nobody knows whether it ran."""
        self._come_back(visit, LOST_AT, now_s)
        lost = f"cluster {visit.target.id} was lost before it answered"
        if visit.cancelling:
            self._end(visit, Outcome.CANCELLED, now_s, f"whether it ran is not known: {lost}")
        elif visit.request.keyed:
            self._doubtful.add(visit.ref)
            visit.was_lost(now_s)
            self._place_again(visit, now_s)
        else:
            self._end(visit, Outcome.UNKNOWN, now_s, lost)

    # --- a visit ends -------------------------------------------------------------------------

    def _end(
        self, visit: Visit, outcome: Outcome, now_s: float, problem: str | None = None
    ) -> None:
        """Ends a visit without a result (expired, cancelled, unknown), wherever it is."""
        had_place, was_away = visit.place is not None, visit.state is AWAY
        if had_place:
            self._unqueue(visit, now_s)
        elif visit.state is RUNNING:
            self.servers.stuck.add(visit.ref)
            if outcome is Outcome.EXPIRED and self._learned is not None:
                self._learned.late.add(visit.ref)
            self._out.append(ev.Stop(visit.ref))
        elif was_away:
            evidence.learn_missed(self, visit, now_s, evidence.chance_of(visit, now_s))
            self._nothing_left_there(visit)
            visit.network_s += max(0.0, now_s - visit.since_s)
            self._out.append(ev.Recall(visit.ref, visit.target.handle))
        is_late = outcome is Outcome.EXPIRED
        stranded = is_late and had_place and (self.servers.down or not visit.group.fitting.up)
        if is_late and problem is None:
            problem = visit.why_late(stranded=stranded)
        answer = visit.answer(outcome, self.settings.cluster, problem)
        if is_late:
            answer.upstream_status = visit.service_said
            answer.cause = visit.why_expired(stranded=stranded)
            is_begun = visit.may_have_run or visit.state in (RUNNING, AWAY)
            answer.has_not_run = not is_begun and visit.ref not in self._doubtful
        self._reply(visit, answer, now_s)
        if was_away and visit.target.ramp_since_s is not None:
            self.neighbors.pace(visit.target, now_s)
        if had_place and not self.servers.is_alike:
            self._serve_queue(now_s)  # it may have had a token

    def _reply(self, visit: Visit, answer: Answer, now_s: float, delay_s: float = 0.0) -> None:
        self.register.end(visit, answer.outcome)
        if self._doubtful:
            self._doubtful.discard(visit.ref)
        if self.health.here.degraded:
            self.health.forget(visit.ref)
        ended = Ending(
            now_s,
            visit.request.id,
            answer.outcome,
            answer.path,
            answer.queued_s,
            answer.network_s,
            answer.service_s,
            answer.problem,
            answer.upstream_status,
        )
        self.decider.log.add_end(ended)
        # What has expired is not waited for any more where it came from.
        tells = self._tells_load and not visit.is_home and answer.outcome in evidence.EVIDENCE
        answer.load = self._gossip.load_now(self, visit.group, now_s) if tells else None
        self._out.append(ev.Reply(visit.ref, visit.origin, answer, delay_s))

    def _cancelled(self, event: ev.Cancelled, now_s: float) -> None:
        if (visit := self.register.visits.get(event.ref)) is not None:
            self._end(visit, Outcome.CANCELLED, now_s)

    def _cancel_asked(self, event: ev.CancelAsked, now_s: float) -> None:
        if (visit := self.register.visits.get(event.ref)) is None:
            return
        if visit.state is not AWAY or visit.answering:  # what has begun surely ran
            self._end(visit, Outcome.CANCELLED, now_s)
        elif not visit.cancelling:
            visit.cancelling = True
            self.decider.log.add(Note(now_s, visit.request.id, CANCEL_ASKED, visit.target.id))
            self._out.append(ev.AskCancel(visit.ref, visit.target.handle))

    # --- work is asked for --------------------------------------------------------------------

    def _use(self, policy: str, shadow: str | None) -> None:
        """Decides by this policy from now on, and asks the shadow along. If either goes by the
        load, neighbors are told the load with every message, so that the shadow sees what it would
        see."""
        self.decider.use(policy, shadow)
        self._by_load = self.admission.bounds_foreign = policy in BY_LOAD
        self.register.looks = self._by_load
        self._tells_load = self._by_load or shadow in BY_LOAD
        # Of unlike servers each group of types would have a way of its own.
        self.admission.hands_on = policy != ISOLATED and self.servers.is_alike
        for group in self.groups.all:
            group.neighbors.loads_count = self._by_load

    def _heard_load(self, group: Group, handle: int, load: LoadNow, now_s: float) -> None:
        """Takes in the load that came with a neighbor's request, answer or refusal. Only the row of
        that neighbor changes."""
        try:
            group.neighbors.heard_load(handle, load, now_s)
        except Exception as error:
            if not self.spares_node:
                raise
            self._distrust(handle, error)

    def _distrust(self, handle: int, error: Exception) -> None:
        """Drops all that this neighbor has told, as if it had been silent. What was done so far
        holds, and is carried out."""
        self.groups.forget(handle)
        self.neighbors.lost(handle)
        self._out.append(ev.Distrust(handle, error))

    def _ask_for_work(self, now_s: float) -> None:
        """Asks neighbors for work for idle servers, where their queues may be worth the way."""
        if self.neighbors.by_handle:
            self._out.extend(asking.questions(self, self._gossip, now_s))

    def _no_work_there(self, event: ev.NoWorkThere, now_s: float) -> None:
        group = self.groups.by_id.get(event.group)
        if group is None or event.neighbor not in self.neighbors.by_handle:
            return
        group.neighbors.heard_load(event.neighbor, event.load, now_s)
        group.pulling.had_nothing(event.neighbor, group.fitting.departure_s, now_s)
        if self._by_load:
            self._ask_for_work(now_s)

    def _work_asked(self, event: ev.WorkAsked, now_s: float) -> None:
        """Hands the oldest request that is better off at the asking neighbor to it, as any
        forward."""
        group, handle = self.groups.by_id.get(event.group), event.neighbor
        if group is None or (neighbor := self.neighbors.by_handle.get(handle)) is None:
            return
        group.neighbors.heard_load(handle, event.load, now_s)
        visit = asking.work_for(self, group, handle, now_s) if self._by_load else None
        if visit is None:
            load = self._gossip.load_now(self, group, now_s)
            self._out.append(ev.NoWork(handle, load, event.group))
            return
        self._let_go(visit, neighbor, PULLED_BY, now_s)

    def _look_again(self, visit: Visit, now_s: float) -> None:
        """Looks again at a visit whose time has partly or wholly run out. If it waits and would be
        late here by what is known now, it goes where it is in time."""
        if visit.deadline_s <= now_s:
            self._end(visit, Outcome.EXPIRED, now_s)
            return
        due_s = next_look_s(visit.came_s, visit.deadline_s, now_s)
        self.register.look_again(visit, due_s)
        if visit.place is not None and self._by_load:
            neighbor = asking.in_time_at(self, visit, now_s)
            if neighbor is not None:
                self._let_go(visit, neighbor, LEFT_IN_TIME, now_s)

    def _let_go(self, visit: Visit, neighbor: Neighbor, why: str, now_s: float) -> None:
        """Hands on a visit that waits, whatever the policy said when it came."""
        self.decider.log.add(Note(now_s, visit.request.id, why, neighbor.id))
        self._unqueue(visit, now_s)
        visit.group.neighbors.sent(neighbor.handle, now_s, visit.request.size_bytes)
        self._place(visit, neighbor.handle, now_s, pulled=why == PULLED_BY)
        if not self.servers.is_alike:
            self._serve_queue(now_s)  # it may have had a token

    # --- other nodes of the site --------------------------------------------------------------

    def _sibling_heard(self, event: ev.SiblingHeard, now_s: float) -> None:
        if (site := self._site) is None:
            return
        try:
            site.siblings.heard(event.sibling, event.message, now_s)
        except Exception as error:
            if not self.spares_node:
                raise
            site.siblings.lost(event.sibling, now_s)
            self._out.append(ev.DistrustSibling(event.sibling, error))
            self._share_servers(site, now_s)
            self.check()

    def _sibling_lost(self, event: ev.SiblingLost, now_s: float) -> None:
        if self._site is not None:
            self._site.siblings.lost(event.sibling, now_s, is_dead=event.is_dead)

    def _woke_at_site(self, event: ev.TimerFired, now_s: float) -> None:
        assert self._site is not None
        self._site.siblings.woke(now_s)
        self._woke(event, now_s)

    def _share_with(self, nodes: int, now_s: float) -> None:
        """Shares the servers with so many nodes from now on. If this node was the only one so far,
        it has all servers at first."""
        if self._site is not None:
            self._site.siblings.use_nodes(nodes, now_s)
        else:
            self._site = pool_of_first(self.servers, self.settings, nodes, now_s)
            self._handlers[ev.TimerFired] = self._woke_at_site

    def _share_servers(self, site: SitePool, now_s: float) -> None:
        """Serves the queue with servers that siblings have given, and gives them those that are
        idle."""
        siblings, admission = site.siblings, self.admission
        is_usual = not (site.down or site.resting or admission.draining)
        if is_usual and site.note(now_s):
            return
        if site.take_share():
            self._serve_turned(now_s)
        self.home_load.elsewhere = siblings.load
        demand = site.demand(self.home_load.own, leaves=admission.draining)
        siblings.demands(demand, now_s, gives_all=admission.emptying)
        if site.take_share():
            self._serve_turned(now_s)
        for one in siblings.take():
            self._out.append(ev.TellSibling(one.to, one.message))

    # --- neighbors, time, operators -----------------------------------------------------------

    def _heard(self, event: ev.ReportReceived, now_s: float) -> None:
        if self.neighbors.heard(event.neighbor, event.report, now_s):
            self._publish(now_s)  # it sends nothing here before it knows that it is heard
        if (neighbor := self.neighbors.by_handle.get(event.neighbor)) is not None:
            report = event.report
            if self.sites is not None and report is not None and report is neighbor.report:
                before_s = now_s - 2.0 * neighbor.way_s
                self.sites.heard(event.neighbor, report.epoch, report.places, before_s)
            if neighbor.ramp_since_s is not None:
                self.neighbors.pace(neighbor, now_s)
            for visit in evidence.look_for_late(self, neighbor, now_s):
                self._out.append(ev.Recall(visit.ref, neighbor.handle))
                self._lost_there(visit, now_s)
            self._offer_again(neighbor, now_s, OFFERS_MAX)
            if neighbor.invited and self._by_load and self.servers.waiting:
                self._try_there(neighbor, now_s)

    def _try_there(self, neighbor: Neighbor, now_s: float) -> None:
        """Has a request that waits find out whether work still fails at a neighbor that asks for
        that, or is on trial. Else nobody would before the next request comes, and that may be long,
        if servers here are stuck."""
        report, on_trial = neighbor.report, neighbor.there.degraded and not neighbor.degraded
        asks = on_trial or self.admission.stalled or (report is not None and report.invites)
        if asks and not (self.health.here.degraded or self.servers.down):
            visit = asking.probe_for(self, neighbor.handle, now_s)
            if visit is not None:
                self._let_go(visit, neighbor, WENT_AS_PROBE, now_s)

    def _join(self, event: ev.Join, now_s: float) -> None:
        """Takes a neighbor in. It is unknown until it reports, and hears of us once it listens."""
        there = self.neighbors.index.get(event.cluster)
        if there is not None and there in self.parting:
            self.parting.end(there)
            self.neighbors.part(there, parting=False)
            self._delay_changed(ev.DelayChanged(there, event.delay_s), now_s)
            return
        if (objection := self.neighbors.objection_to(event.cluster)) is not None:
            self._out.append(ev.JoinRefused(event.cluster, objection))
            return
        neighbor = self.neighbors.join(event.cluster, event.delay_s)
        if event.ramp:
            self.neighbors.by_handle[neighbor].ramp_since_s = math.inf
        self.groups.neighbors_changed()
        self.decider.neighbors_changed()
        self._out.append(ev.Connect(neighbor, event.cluster))

    def _part(self, event: ev.Part, now_s: float) -> None:
        """Begins to part from a neighbor. It is given nothing more, and leaves once neither has
        anything of the other."""
        if event.neighbor in self.neighbors.by_handle:
            self.parting.begin(event.neighbor, now_s)
            self.neighbors.part(event.neighbor, parting=True)
            self.groups.forget(event.neighbor)

    def _leave(self, neighbor: int, now_s: float) -> None:
        """Takes a neighbor out. Requests that it has sent are answered all the same. Requests that
        are away there come back as its link says, and are decided again without it."""
        self.neighbors.leave(neighbor)
        if self.sites is not None:
            self.sites.left(neighbor)
        self.parting.end(neighbor)
        self.groups.neighbors_changed()
        self.decider.neighbors_changed()
        self.groups.forget(neighbor)
        self._out.append(ev.Disconnect(neighbor))
        self._publish(now_s)

    def _delay_changed(self, event: ev.DelayChanged, now_s: float) -> None:
        row = self.neighbors.by_handle.get(event.neighbor)
        if row is not None and row.delay_s != event.delay_s:
            self.neighbors.use_delay(event.neighbor, event.delay_s)

    def _held_up(self, event: ev.HeldUp, now_s: float) -> None:
        self.neighbors.excuse(event.late_s)
        if self._site is not None:
            self._site.siblings.excuse(event.late_s)

    def _link_down(self, event: ev.LinkDown, now_s: float) -> None:
        self.groups.forget(event.neighbor)
        if self.neighbors.lost(event.neighbor):
            self._publish(now_s)

    def _woke(self, event: ev.TimerFired, now_s: float) -> None:
        while (visit := self.register.pop_due(now_s)) is not None:
            if not visit.answering:
                self._look_again(visit, now_s)
        rested = False
        if self.servers.next_s <= now_s:
            rested = self.servers.wake(now_s)
            self._serve_turned(now_s)
        silent = self.neighbors.next_silence_s <= now_s and self.neighbors.expire(now_s)
        if self._gossip.report_due(now_s) or silent or rested:
            self._publish(now_s)
            if self._by_load:
                self._ask_for_work(now_s)
        if self._gossip.beat_due(now_s):
            self._out.append(ev.Heartbeat())
        if self.admission.lame_until_s <= now_s:
            self._judge_drain(now_s)
        if self.parting.is_awaited:
            for neighbor in self.parting.over(self, now_s):
                self._leave(neighbor, now_s)

    def _publish(self, now_s: float) -> None:
        self.health.tick(now_s)
        self.admission.invites = self.health.invites(now_s)
        self.admission.stalled = evidence.is_stalled(self, now_s)
        self._out.append(ev.Publish(self._gossip.report(self, now_s)))
        if self.health.wants_to_ask(now_s):
            self._out.append(ev.AskService())

    def _service_asked(self, event: ev.ServiceAsked, now_s: float) -> None:
        self.health.asked(now_s, is_well=event.is_well)

    def _drain(self, event: ev.Drain, now_s: float) -> None:
        """Begins to drain, and tells neighbors at once: whatever they still send would be
        refused."""
        self._told_to_drain = True
        self._judge_drain(now_s, event.lame_duck_s)

    def _resume(self, event: ev.Resume, now_s: float) -> None:
        self._told_to_drain = False
        self._judge_drain(now_s)

    def _removed(self, event: ev.Removed, now_s: float) -> None:
        self.parting.is_removed = True
        self._judge_drain(now_s, event.lame_duck_s)

    def _restored(self, event: ev.Restored, now_s: float) -> None:
        self.parting.is_removed = False
        self._judge_drain(now_s)

    def _judge_drain(self, now_s: float, lame_duck_s: float = math.inf) -> None:
        drains = self._told_to_drain or self.parting.is_removed
        self.admission.drain(now_s, lame_duck_s, drains=drains)
        self._publish(now_s)
        if self.admission.emptying:
            self._offer_all(list(self.servers), now_s)

    def _settings_changed(self, event: ev.SettingsChanged, now_s: float) -> None:
        """Goes by other limits. Requests that are here beyond them stay until they end."""
        news = {name: told for name, told in asdict(event).items() if told is not None}
        is_learned, is_alike = self._learned is not None, self.servers.is_alike
        if (is_learned and "nodes" in news) or ("servers" in news and (is_learned or not is_alike)):
            self._out.append(ev.SettingsRefused("the servers here are unlike, or learned"))
            return
        if "servers" in news:
            self.servers.resize(news["servers"])
        if "nodes" in news:
            self._share_with(news["nodes"], now_s)
        self._use_limits(news)
        self._serve_queue(now_s)
        self._publish(now_s)

    def _use_limits(self, news: dict[str, Any]) -> None:
        self.settings = replace(self.settings, **news)
        self.admission.use(self.settings)
        self.held.use(self.settings.held_limit_bytes)
        held_bytes = self.held.request_bytes
        self.carried = Carried(self.register.away, len(self.register.visits), held_bytes)

    def _engine_said(self, event: ev.EngineSaid, now_s: float) -> None:
        if self._learned is not None:
            self._learned.engine_said(event.load)
            self._serve_queue(now_s)

    def _servers_down(self, event: ev.ServersDown, now_s: float) -> None:
        """Starts nothing until the servers are up. What waits goes to neighbors, or waits until its
        deadline."""
        self._turn_servers(event.server, now_s, up=False)

    def _servers_up(self, event: ev.ServersUp, now_s: float) -> None:
        if event.server is None:  # else it is that server's rest that ends
            self.servers.end_rest()  # what is there again has not asked for it
        self._turn_servers(event.server, now_s, up=True)

    def _turn_servers(self, server: int | None, now_s: float, *, up: bool) -> None:
        if server is None:
            self._down = not up
        else:
            self.servers.server_changed(server, up, now_s)
        self._servers_changed(now_s)

    def _tokens_set(self, event: ev.TokensSet, now_s: float) -> None:
        self.servers.set_tokens(event.limits, event.servers_in)
        self._servers_changed(now_s)

    def _serve_turned(self, now_s: float) -> None:
        """Serves the queue, where a server may have left off by itself or may take jobs again."""
        (self._servers_changed if self.servers.has_turned() else self._serve_queue)(now_s)

    def _servers_changed(self, now_s: float) -> None:
        """Serves what can start now, and offers neighbors what no server here fits."""
        down = self._down or not any(group.fitting.up for group in self.groups.all)
        self.servers.down = down
        self._serve_queue(now_s)
        self._publish(now_s)
        self._offer_all([one for one in self.servers if down or asking.is_stranded(one)], now_s)

    def _offer_all(self, visits: list[Visit], now_s: float) -> None:
        for visit in visits:
            self._offer(visit, now_s)
        if visits and not self.servers.is_alike:
            self._serve_queue(now_s)  # what has left may have had a token

    def _offer_again(self, neighbor: Neighbor, now_s: float, count: int) -> None:
        """Offers what waits to a neighbor that accepts, where nothing starts here or all is to
        leave. That includes requests which the neighbor refused before: so they leave as fast as
        the neighbor answers, however rarely it reports."""
        if not (self.servers.waiting and neighbor.accepting):
            return
        leaving = self.admission.emptying or self.servers.down or self.admission.elsewhere_first
        if leaving or not self.servers.is_alike:
            offered = asking.to_offer(self.servers, neighbor, count, now_s, every=leaving)
            self._offer_all(offered, now_s)

    def _offer(self, visit: Visit, now_s: float) -> None:
        if self.servers.down or not visit.group.fitting.up:
            objection = Refusal.NO_SERVERS
        else:
            elsewhere_first = self.admission.elsewhere_first or visit.group.fitting.resting
            objection = Refusal.DEGRADED if elsewhere_first else Refusal.DRAINING
        if (choice := self._choose(visit, now_s, objection)) != KEEP:
            self._unqueue(visit, now_s)
            self._place(visit, choice, now_s)
        elif objection in NOT_HERE and self._goes_back(visit):
            self._unqueue(visit, now_s)
            self._give_back(visit, now_s)
