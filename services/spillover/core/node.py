"""The machine of one cluster: a FIFO, m servers, and the decision to keep or to hand on.

Theory of operation. Every request that comes in is a *visit*. With a free server it starts at
once. Otherwise the policy decides, from the own queue and what neighbors last told, whether it
joins the queue or leaves for a neighbor. A visit that left comes back as an answer (passed on), as
a refusal (decided again, that neighbor left out), or not at all (decided again if the request has
a key, else its outcome is unknown: never run twice). A visit ends with exactly one Reply.

What bounds it: the queue by `queue_limit`, requests away by `away_limit`, and both together by the
sum, which is how long the queue can become when all that are away come back refused; hops by
`max_hops`; remembered decisions by `decisions_max`. A full or draining cluster refuses what
neighbors send and hands what clients send to a neighbor that accepts, if one does.

Not here: what a payload means, how bytes travel, what time it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from spillover.core import node_events as ev
from spillover.core.deadlines import Deadlines
from spillover.core.decider import Decider
from spillover.core.fifo import Fifo
from spillover.core.gossip import BEAT_S, Gossip
from spillover.core.ledger import Ledger
from spillover.core.neighbors import Neighbors
from spillover.core.node_settings import NodeSettings
from spillover.core.visit import State, Visit, count_states
from spillover.model.ids import ClusterId
from spillover.model.load import LoadReport
from spillover.model.request import Answer, Outcome, Refusal
from spillover.policy.acceptance import KEEP, accept_probability, neighborhood_reject_probability


class NodeMachine:
    """One cluster. `neighbors` are (id, one-way delay in seconds), in a fixed order."""

    def __init__(
        self,
        settings: NodeSettings,
        neighbors: Sequence[tuple[ClusterId, float]],
        random: Random,
        now_s: float,
    ) -> None:
        self.settings = settings
        self.draining = False
        self.free = settings.servers
        self.queue: Fifo[Visit] = Fifo()
        self.ledger = Ledger(settings.epoch)
        self.neighbors = Neighbors(
            [cluster for cluster, _ in neighbors],
            [delay_s for _, delay_s in neighbors],
            min(BEAT_S, settings.gossip_period_s),
        )
        self.decider = Decider(
            settings.policy,
            self.neighbors,
            random,
            servers=settings.servers,
            service_s=settings.service_s,
            decisions_max=settings.decisions_max,
        )
        self._gossip = Gossip(settings.gossip_period_s, random, now_s)
        self._visits: dict[int, Visit] = {}
        self._deadlines = Deadlines(self._visits)
        self._stuck: set[int] = set()
        self._away = 0
        self._out: list[Any] = []
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            ev.Arrived: self._arrived,
            ev.ServiceEnded: self._service_ended,
            ev.ForwardAnswered: self._forward_answered,
            ev.ForwardRefused: self._forward_refused,
            ev.ForwardLost: self._forward_lost,
            ev.Cancelled: self._cancelled,
            ev.Heard: self._heard,
            ev.LinkDown: self._link_down,
            ev.ReportAsked: self._report_asked,
            ev.Woke: self._woke,
            ev.Drain: self._drain,
            ev.Resume: self._resume,
        }

    # --- what the shell may ask ---------------------------------------------------------------

    @property
    def queue_length(self) -> int:
        """N: requests waiting, not those being served."""
        return len(self.queue)

    @property
    def busy(self) -> int:
        return self.settings.servers - self.free

    @property
    def stuck(self) -> int:
        """Servers still busy with work whose request has ended."""
        return len(self._stuck)

    @property
    def drained(self) -> bool:
        return self.draining and not self._visits and not self._stuck

    @property
    def accepting(self) -> bool:
        """Whether a neighbor's request would be accepted now."""
        has_room = self.free > 0 or len(self.queue) < self.settings.queue_limit
        return has_room and not self.draining

    @property
    def accept_probability(self) -> float:
        """P; 0 while draining or full, since then nothing is accepted whatever N is."""
        if not self.accepting:
            return 0.0
        return accept_probability(len(self.queue), self.settings.servers)

    @property
    def neighborhood_accept_probability(self) -> float:
        """R, from the newest that is known."""
        neighbors = self.neighbors
        return 1.0 - neighborhood_reject_probability(
            self.accept_probability, neighbors.accept, neighbors.known
        )

    def next_deadline(self) -> float:
        return min(self._deadlines.first_s(), self._gossip.next_s(), self.neighbors.next_silence_s)

    def handle(self, event: Any, now_s: float) -> list[Any]:
        self._handlers[type(event)](event, now_s)
        commands, self._out = self._out, []
        return commands

    def check(self) -> None:
        home, foreign = count_states(self._visits.values())
        self.ledger.check(home, foreign)
        running = home[State.RUNNING] + foreign[State.RUNNING]
        waiting = home[State.QUEUED] + foreign[State.QUEUED]
        away = home[State.AWAY] + foreign["handed_on"]
        assert self.free >= 0, "more requests run than there are servers"
        assert self.busy == running + len(self._stuck), (self.busy, running, self._stuck)
        assert len(self.queue) == waiting, (len(self.queue), waiting)
        assert not (self.free and waiting), "a request waits although a server is free"
        assert self._away == away <= self.settings.away_limit, (self._away, away)
        assert waiting + away <= self.settings.queue_limit + self.settings.away_limit
        assert all(self._visits[visit.ref] is visit for visit in self.queue)
        self.neighbors.check()

    # --- a request comes in -------------------------------------------------------------------

    def _arrived(self, event: ev.Arrived, now_s: float) -> None:
        visit = Visit(event.ref, event.request, event.origin, event.deadline_s, now_s)
        if self.draining:
            self._refuse(visit, Refusal.DRAINING)
        elif event.deadline_s <= now_s:
            self._accept(visit)
            self._end(visit, Outcome.EXPIRED, now_s)
        elif self.free:
            self._accept(visit)
            self._start_at_once(visit, now_s)
        else:
            self._place_new(visit, now_s)

    def _place_new(self, visit: Visit, now_s: float) -> None:
        """Keep, hand on, or refuse: no server is free and the request is not yet accepted."""
        may_keep = len(self.queue) < self.settings.queue_limit
        if not may_keep and not visit.is_home:
            self.decider.refused(visit, len(self.queue), now_s)
            self._refuse(visit, Refusal.QUEUE_FULL)
            return
        choice = self._choose(visit, now_s, may_keep=may_keep)
        if choice == KEEP and not may_keep:
            self._refuse(visit, Refusal.QUEUE_FULL)
            return
        self._accept(visit)
        self._place(visit, choice, now_s)

    def _place_again(self, visit: Visit, now_s: float) -> None:
        """Decide again, the neighbor that the request was away to left out."""
        visit.network_s += max(0.0, now_s - visit.since_s)
        visit.tried = (*visit.tried, visit.target)
        self._leave(visit)
        visit.state = State.ARRIVED
        if visit.deadline_s <= now_s:
            self._end(visit, Outcome.EXPIRED, now_s)
        elif self.free:
            self._start_at_once(visit, now_s)
        else:
            full = len(self.queue) >= self.settings.queue_limit
            choice = self._choose(visit, now_s, may_keep=not (full or self.draining))
            self._place(visit, choice, now_s)

    def _choose(self, visit: Visit, now_s: float, *, may_keep: bool) -> int:
        settings = self.settings
        # At a drain the visit stands in the queue: it does not wait for itself.
        waiting = len(self.queue) - (visit.state is State.QUEUED)
        return self.decider.choose(
            visit,
            waiting,
            now_s,
            may_keep=may_keep,
            may_forward=visit.request.hops < settings.max_hops
            and self._away < settings.away_limit
            and waiting + self._away < settings.queue_limit + settings.away_limit,
        )

    def _place(self, visit: Visit, choice: int, now_s: float) -> None:
        if choice == KEEP:
            self._enter(visit, State.QUEUED, now_s)
            visit.place = self.queue.append(visit)
            return
        self._enter(visit, State.AWAY, now_s)
        visit.target = choice
        onward = visit.request.onward(self.settings.cluster)
        self._out.append(ev.Forward(visit.ref, choice, onward, visit.deadline_s))

    def _accept(self, visit: Visit) -> None:
        """From here on the request is in the ledger, and ends with exactly one Reply."""
        self._visits[visit.ref] = visit
        self.ledger.accept(is_home=visit.is_home)
        self._deadlines.add(visit.deadline_s, visit.ref)
        self._out.append(ev.Accepted(visit.ref))

    def _refuse(self, visit: Visit, reason: Refusal) -> None:
        retry_after_s = (len(self.queue) + 1) * self.decider.service_s / self.settings.servers
        self._out.append(ev.Refuse(visit.ref, visit.origin, reason, retry_after_s))

    def _enter(self, visit: Visit, state: State, now_s: float) -> None:
        """Change the state, and the ledger with it."""
        self._leave(visit)
        visit.state = state
        visit.since_s = now_s
        if state is State.AWAY:
            self._away += 1
        self.ledger.enter(state, is_home=visit.is_home)

    def _leave(self, visit: Visit) -> None:
        if visit.state is State.ARRIVED:
            return
        if visit.state is State.AWAY:
            self._away -= 1
        self.ledger.leave(visit.state, is_home=visit.is_home)

    # --- servers ------------------------------------------------------------------------------

    def _start_at_once(self, visit: Visit, now_s: float) -> None:
        self.decider.started(visit, self.busy, now_s)
        self._start(visit, now_s)

    def _start(self, visit: Visit, now_s: float) -> None:
        if visit.deadline_s <= now_s:
            self._end(visit, Outcome.EXPIRED, now_s)
            return
        self.free -= 1
        self._enter(visit, State.RUNNING, now_s)
        self._out.append(ev.Start(visit.ref, visit.request, now_s, visit.deadline_s))

    def _service_ended(self, event: ev.ServiceEnded, now_s: float) -> None:
        self.free += 1
        if event.ref in self._stuck:
            self._stuck.remove(event.ref)
        else:
            self._finish(self._visits[event.ref], event, now_s)
        self._serve_queue(now_s)

    def _finish(self, visit: Visit, event: ev.ServiceEnded, now_s: float) -> None:
        delivery_s = self.settings.delivery_s
        outcome = event.outcome
        if now_s + delivery_s > visit.deadline_s:
            outcome, delivery_s = Outcome.EXPIRED, 0.0
        if event.outcome is Outcome.DONE:
            self.decider.served(event.service_s)
        answer = visit.answer(outcome, self.settings.cluster, event.problem)
        answer.service_s = event.service_s
        answer.network_s += delivery_s
        if outcome is Outcome.DONE:
            answer.result = event.result
        self._reply(visit, answer, delivery_s)

    def _serve_queue(self, now_s: float) -> None:
        while self.free and len(self.queue):
            visit = self.queue.popleft()
            visit.place = None
            # An emulated service ends at its ideal instant, handed in a little late: what joined
            # the queue in between starts when it joined, not before.
            start_s = max(now_s, visit.since_s)
            visit.queued_s += start_s - visit.since_s
            self._start(visit, start_s)

    # --- a forward comes back -----------------------------------------------------------------

    def _forward_answered(self, event: ev.ForwardAnswered, now_s: float) -> None:
        visit = self._visits.get(event.ref)
        if visit is None or visit.state is not State.AWAY:
            return
        answer = event.answer
        answer.queued_s += visit.queued_s
        answer.network_s += visit.network_s + event.leg_s
        answer.return_s += event.return_leg_s
        self._reply(visit, answer)

    def _forward_refused(self, event: ev.ForwardRefused, now_s: float) -> None:
        visit = self._visits.get(event.ref)
        if visit is not None and visit.state is State.AWAY:
            self._place_again(visit, now_s)

    def _forward_lost(self, event: ev.ForwardLost, now_s: float) -> None:
        visit = self._visits.get(event.ref)
        if visit is None or visit.state is not State.AWAY:
            return
        if visit.request.keyed:
            self._place_again(visit, now_s)
        else:
            problem = f"cluster {self.neighbors.ids[visit.target]} was lost before it answered"
            self._end(visit, Outcome.UNKNOWN, now_s, problem)

    # --- a visit ends -------------------------------------------------------------------------

    def _end(
        self, visit: Visit, outcome: Outcome, now_s: float, problem: str | None = None
    ) -> None:
        """End a visit without a result (expired, cancelled, unknown), wherever it is."""
        if visit.place is not None:
            self._unqueue(visit, now_s)
        elif visit.state is State.RUNNING:
            self._stuck.add(visit.ref)
            self._out.append(ev.Stop(visit.ref))
        elif visit.state is State.AWAY:
            visit.network_s += max(0.0, now_s - visit.since_s)
            if outcome is not Outcome.UNKNOWN:
                self._out.append(ev.Recall(visit.ref, visit.target))
        self._reply(visit, visit.answer(outcome, self.settings.cluster, problem))

    def _unqueue(self, visit: Visit, now_s: float) -> None:
        """Take a visit out of the queue without serving it."""
        assert visit.place is not None
        self.queue.discard(visit.place)
        visit.place = None
        visit.queued_s += max(0.0, now_s - visit.since_s)

    def _reply(self, visit: Visit, answer: Answer, delay_s: float = 0.0) -> None:
        self._leave(visit)
        del self._visits[visit.ref]
        self.ledger.end(answer.outcome, is_home=visit.is_home)
        self._out.append(ev.Reply(visit.ref, visit.origin, answer, delay_s))

    def _cancelled(self, event: ev.Cancelled, now_s: float) -> None:
        visit = self._visits.get(event.ref)
        if visit is not None:
            self._end(visit, Outcome.CANCELLED, now_s)

    # --- neighbors, time, operators -----------------------------------------------------------

    def _heard(self, event: ev.Heard, now_s: float) -> None:
        self.neighbors.heard(event.neighbor, event.report, now_s)

    def _link_down(self, event: ev.LinkDown, now_s: float) -> None:
        self.neighbors.lost(event.neighbor)

    def _report_asked(self, event: ev.ReportAsked, now_s: float) -> None:
        self._publish()

    def _woke(self, event: ev.Woke, now_s: float) -> None:
        while (ref := self._deadlines.pop_due(now_s)) is not None:
            self._end(self._visits[ref], Outcome.EXPIRED, now_s)
        if self.neighbors.next_silence_s <= now_s:
            self.neighbors.expire(now_s)
        if self._gossip.report_due(now_s):
            self._publish()
        if self._gossip.beat_due(now_s):
            self._out.append(ev.Beat())

    def _publish(self) -> None:
        report = LoadReport(
            epoch=self.settings.epoch,
            sequence=self._gossip.next_sequence(),
            accept_probability=self.accept_probability,
            neighborhood_accept_probability=self.neighborhood_accept_probability,
            queue_length=len(self.queue),
            servers=self.settings.servers,
            accepting=self.accepting,
        )
        self._out.append(ev.Publish(report))

    def _drain(self, event: ev.Drain, now_s: float) -> None:
        """P = 0 from now on; what waits goes to neighbors that accept, the rest is finished.
        Neighbors hear of it at once: whatever they still send would be refused."""
        self.draining = True
        self._publish()
        for visit in list(self.queue):
            choice = self._choose(visit, now_s, may_keep=False)
            if choice != KEEP:
                self._unqueue(visit, now_s)
                self._place(visit, choice, now_s)

    def _resume(self, event: ev.Resume, now_s: float) -> None:
        self.draining = False
        self._publish()
