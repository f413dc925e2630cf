"""The machine of one member of a lease group: the source document's steps, guarded by the counts.

Theory of operation. A member joins, gives signs of life, and looks at both hashes once a period.
What it finds free or unevenly spread it challenges, waits (step 2) and grabs (step 3); the store
refuses what evens out nothing: counts, or the loads that holders measure. Who serves a partition
that another has won stops its handler while it keeps the lease, then releases it; the winner takes
it as soon as it is free, with the next epoch. Nobody is ever robbed of a lease that lasts, and
silence decides nothing.

A holder goes by its own clock: the last renewal that came back was sent at some instant, and the
lease lasts from there, less a margin. After that the handler is fenced, whatever the store says.
So a store that is away for less than that changes nothing, and for longer stops everything.

All messages are hints. Answers may be lost, come twice or late: what they leave open is seen at the
next survey, or ends with a lease or a mark. After data loss the renewals write anew what is held.

Not here: sockets and clocks; who may take what (`policy.leases`, asked here before challenging and
by the store before granting). What is served is in `core.leases.holdings`, what is wanted in
`core.leases.claims`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Any

from spillover.core.leases import events as ev
from spillover.core.leases.agenda import MemberAgenda
from spillover.core.leases.check import check_leases
from spillover.core.leases.claims import Claims
from spillover.core.leases.holdings import Holdings
from spillover.core.leases.loads import OwnLoads
from spillover.core.leases.records import Joined, Survey
from spillover.core.leases.settings import MemberSettings

LEAVE_SHARE = 0.1
"""A drain waits this share of the shutdown time for renewals to end, and for the store to hear
of it: only then do the others count without this member."""

LEAVE_TIMES_MAX = 2.0
"""So many shutdown times after a drain, nobody is told any more that something is free: the store
must be away, and leases run out by themselves."""

RENEWALS, ASKS = "renewals", "asks"

HINTED_POLLS_MAX = 4
"""Hints lead to at most so many surveys within a period, or within the shutdown time."""


class Phase(Enum):
    """The phase of a member, as `/state` shows it."""

    NEW = "new"
    JOINING = "joining"
    WAITING = "waiting for another member of the same id"
    MEMBER = "member"
    LEAVING = "leaving"
    FINISHED = "finished"


class LeaseMember:
    """One member; `random` draws phases, jitter and choices among equals."""

    def __init__(self, settings: MemberSettings, random: Random) -> None:
        self._agenda = agenda = MemberAgenda(settings, random)
        self.settings = settings
        self.state = Phase.NEW
        self._problems: dict[str, str] = {}
        """The store's errors for the last asks, by RENEWALS and by ASKS. One does not speak for the
        other: a replica can be read, and a slow store be written to."""
        self.era: str | None = None
        self.holdings = Holdings(agenda)
        self.claims = Claims(agenda, self.holdings)
        self._loads = OwnLoads(agenda, self.holdings) if settings.balance == "load" else None
        self._now_s = -math.inf
        self._answered_s = {RENEWALS: -math.inf, ASKS: -math.inf}
        """When the store was last heard of."""
        self._refused_s = math.inf
        """The instant since which another member of the same id has been in the way."""
        self._polled_s = -math.inf
        self._poll_due_s = math.inf
        self._join_number = 0
        self._leave_number = 0
        self._has_left = False
        self._leave_to_s = math.inf
        self._handlers = self._handlers_of()
        self._answers = self._answers_of()

    def _handlers_of(self) -> dict[type, Callable[[Any, float], None]]:
        return {
            ev.Started: self._started,
            ev.Answered: self._answered,
            ev.AskFailed: self._ask_failed,
            ev.RenewalAnswered: self._renewal_answered,
            ev.LeasesSeen: lambda event, _: self.holdings.seen(event.leases),
            ev.RenewalFailed: lambda event, _: self._store_failed(
                RENEWALS, event.problem, event.sent_s
            ),
            ev.RenewalsEnded: self._renewals_ended,
            ev.Challenged: self._challenged,
            ev.Allocated: self._allocated,
            ev.Resubscribed: lambda _, now_s: self._poll_soon(now_s),
            ev.HandlerEnded: self._handler_ended,
            ev.HandlerHung: self._handler_hung,
            ev.WorkMeasured: self._work_measured,
            ev.Drain: self._drain,
            ev.TimerFired: lambda _, __: None,
        }

    def _answers_of(self) -> dict[type, Callable[[Any, Any, float], None]]:
        return {
            ev.AskJoin: self._joined,
            ev.AskLeave: lambda ask, _, now_s: self._left(ask.number, now_s),
            ev.AskSurvey: self._surveyed,
            ev.AskGrab: self.claims.grabbed,
            ev.AskActivate: self.claims.activated,
            ev.AskWanted: self.holdings.looked,
            ev.AskDrain: lambda _, __, ___: None,
            ev.AskRelease: lambda ask, released, _: self.holdings.released(ask, released),
        }

    @property
    def is_down(self) -> bool:
        """Returns whether renewals or asks found no store when last tried."""
        return bool(self._problems)

    @property
    def problem(self) -> str | None:
        """Returns what was said then."""
        return next(iter(self._problems.values()), None)

    def handle(self, event: ev.Event, now_s: float) -> list[ev.Command]:
        """Returns the commands that follow from an event. What was due before it happens first: a
        member that slept fences itself before it hears anything, except what its renewals have
        brought. They come from another process, which may have kept everything while this one was
        too busy to hear of it: a shell that is late hands in `LeasesSeen` before any other event.
        """
        now_s = self._now_s = max(now_s, self._now_s)
        if self.state is Phase.FINISHED:
            return []
        if not isinstance(event, ev.RenewalAnswered | ev.LeasesSeen):
            self._agenda.run_due(now_s)
        self._handlers[type(event)](event, now_s)
        if self.claims.missed:
            self.claims.missed = False
            self._poll_soon(now_s)
        # What that made due at this very instant, so that none is left behind it.
        self._agenda.run_due(now_s)
        self._finish_if_empty()
        return self._agenda.take_commands()

    def next_deadline(self) -> float:
        return self._agenda.first_s()

    def check(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        check_leases(self.holdings, self.claims, self._now_s, self.settings.partitions)
        if self.state in {Phase.NEW, Phase.JOINING, Phase.WAITING}:
            assert not self.holdings.held, "a partition is held by no member"
            assert not self.claims.claims, "a partition is claimed by no member"
        if self.state is Phase.FINISHED:
            assert not self.holdings.held, "a partition is held by a member that has left"

    # --- join ----------------------------------------------------------------------------------

    def _started(self, event: ev.Started, now_s: float) -> None:
        del event
        if self.state is Phase.NEW:
            self.state = Phase.JOINING
            self._join(now_s)

    def _join(self, now_s: float) -> None:
        """Ask to join, and again if no answer comes."""
        if self.state not in {Phase.JOINING, Phase.WAITING}:
            return
        ask = self._agenda.ask(ev.AskJoin, now_s)
        self._join_number = ask.number
        self._join_at(now_s + self._agenda.normal_s)

    def _join_at(self, due_s: float) -> None:
        self._agenda.at(due_s, self._join_again, self._join_number)

    def _join_again(self, number: int, now_s: float) -> None:
        if number == self._join_number:
            self._join(now_s)

    def _joined(self, ask: ev.AskJoin, answer: Joined, now_s: float) -> None:
        if self.state not in {Phase.JOINING, Phase.WAITING}:
            return
        if answer.ok:
            self.state = Phase.MEMBER
            self.era = answer.era
            self._refused_s = math.inf
            self.claims.open = True
            self._agenda.command(ev.BeginRenewals())
            self._poll_at(now_s + self._agenda.random.random() * self._agenda.min_grab_s)
        elif ask.number == self._join_number:
            self._wait_for_other(answer.other_alive_ms / 1000.0, now_s)

    def _wait_for_other(self, alive_s: float, now_s: float) -> None:
        """Another process of this id lives, or died without a word: within one maximum lease it
        is known which. One that is about to count as dead by then, by the store's clock, is waited
        for: it has not renewed."""
        self.state = Phase.WAITING
        self._refused_s = min(self._refused_s, now_s)
        agenda = self._agenda
        limit_s = self._refused_s + agenda.max_lease_s
        spare_s = agenda.max_lease_s * (1.0 - agenda.entitled_share)
        asks_s = now_s + max(alive_s, agenda.held_delay_s)
        if now_s < limit_s:
            self._join_at(min(asks_s, limit_s))
        elif alive_s <= spare_s and now_s < limit_s + spare_s:
            self._join_at(asks_s)
        else:
            self._finish(
                f"another member with the id {agenda.node} is alive, and has been all along"
            )

    # --- surveys -------------------------------------------------------------------------------

    def _poll_at(self, due_s: float) -> None:
        self._poll_due_s = due_s
        self._agenda.at(due_s, self._poll)

    def _poll(self, now_s: float) -> None:
        if self.state is not Phase.MEMBER or now_s < self._poll_due_s:
            return
        self._polled_s = now_s
        if self._loads is None:
            self._agenda.ask(ev.AskSurvey, now_s)
        else:
            self._agenda.command(ev.MeasureWork())
        self._poll_at(now_s + self._agenda.period_s())

    def _work_measured(self, event: ev.WorkMeasured, now_s: float) -> None:
        """Where loads count, a survey tells of the own ones on the same way."""
        if self._loads is not None and self.state is Phase.MEMBER:
            self._loads.measured(event.work, now_s)
            self._agenda.ask(ev.AskSurvey, now_s, self._loads.told())

    def _surveyed(self, ask: ev.AskSurvey, survey: Survey, now_s: float) -> None:
        if self._loads is not None and survey.loads is not None:
            self._loads.surveyed(survey.loads)
        self.claims.surveyed(ask, survey, now_s)

    def _poll_soon(self, now_s: float) -> None:
        """Something may have changed: look sooner than once a period, but not all at once, and
        not at every hint."""
        if self.state is not Phase.MEMBER:
            return
        agenda = self._agenda
        gap_s = min(agenda.normal_s, agenda.max_shutdown_s) / HINTED_POLLS_MAX
        due_s = max(now_s, self._polled_s + gap_s) + agenda.random.random() * agenda.held_delay_s
        if due_s < self._poll_due_s:
            self._poll_at(due_s)

    # --- answers, and none ---------------------------------------------------------------------

    def _answered(self, event: ev.Answered, now_s: float) -> None:
        self._store_answered(ASKS, now_s)
        self._answers[type(event.ask)](event.ask, event.answer, now_s)

    def _ask_failed(self, event: ev.AskFailed, now_s: float) -> None:
        """Asks for which time or the next survey does not make up are asked again."""
        self._store_failed(ASKS, event.problem, event.ask.sent_s)
        ask = event.ask
        if isinstance(ask, ev.AskGrab | ev.AskActivate):
            self.claims.failed(ask)
        elif isinstance(ask, ev.AskLeave):
            self._left(ask.number, now_s)
        elif isinstance(ask, ev.AskJoin) and ask.number == self._join_number:
            self._join_at(now_s + min(self._agenda.min_grab_s, self._agenda.normal_s))

    def _store_failed(self, way: str, problem: str, sent_s: float) -> None:
        """Old news if the store has answered since that was sent."""
        if sent_s < self._answered_s[way]:
            return
        was_down = self.is_down
        self._problems[way] = problem
        if not was_down:
            self._agenda.tell(ev.REDIS_DOWN)

    def _store_answered(self, way: str, now_s: float) -> None:
        self._answered_s[way] = now_s
        was_down = self.is_down
        self._problems.pop(way, None)
        if was_down and not self.is_down:
            self._agenda.tell(ev.REDIS_UP)
            self._poll_soon(now_s)

    def _end_renewals(self) -> None:
        """End renewals. From now on asks tell how the store is."""
        self._agenda.command(ev.EndRenewals())
        if RENEWALS in self._problems:
            self._problems.setdefault(ASKS, self._problems.pop(RENEWALS))

    def _renewal_answered(self, event: ev.RenewalAnswered, now_s: float) -> None:
        self._store_answered(RENEWALS, now_s)
        answer = event.answer
        if answer.displaced:
            self._displaced(now_s)
            return
        if answer.era != self.era:
            # What is held has been written anew by this very renewal; the rest is to be seen.
            self.era = answer.era
            self._poll_soon(now_s)
        self.holdings.renewed(event.pairs, answer, event.sent_s, now_s)

    def _displaced(self, now_s: float) -> None:
        """While this process slept, another one of its id came in: this one may come back once
        the other has gone."""
        if self.state is not Phase.MEMBER:
            return
        self.holdings.fence_all(ev.LOST)
        self.claims.drop()
        self._end_renewals()
        self.state = Phase.JOINING
        self._join(now_s)

    # --- hints and handlers --------------------------------------------------------------------

    def _challenged(self, event: ev.Challenged, now_s: float) -> None:
        one = self.holdings.held.get(event.partition)
        if one is not None:
            self.holdings.challenged(one, now_s)
        elif self.state is Phase.MEMBER:
            self.claims.challenged(event.partition, now_s)

    def _allocated(self, event: ev.Allocated, now_s: float) -> None:
        """The end of a wait; for all others a sign that something has come free."""
        if not self.claims.allocated(event.partition, now_s):
            self._poll_soon(now_s)

    def _handler_ended(self, event: ev.HandlerEnded, now_s: float) -> None:
        self.holdings.ended(event.partition, event.epoch, now_s, told=event.stopped)
        self.claims.allocated(event.partition, now_s)

    def _handler_hung(self, event: ev.HandlerHung, now_s: float) -> None:
        self.holdings.hung(event.partition, event.epoch, now_s)

    # --- leave ---------------------------------------------------------------------------------

    def _drain(self, event: ev.Drain, now_s: float) -> None:
        """First the group is told to count without this member, then everything is released as
        its handler stops: whoever hears of it may take it at once."""
        del event
        if self.state is Phase.LEAVING:
            return
        if self.state is Phase.NEW:
            self._finish(None)
            return
        was = self.state
        self.state = Phase.LEAVING
        self.claims.close(now_s)
        self._leave_to_s = now_s + LEAVE_TIMES_MAX * self._agenda.max_shutdown_s
        self._agenda.at(self._leave_to_s, lambda _: None)
        if was is not Phase.MEMBER:
            self._ask_leave(now_s)
            return
        self._end_renewals()
        self._agenda.at(now_s + LEAVE_SHARE * self._agenda.max_shutdown_s, self._ask_leave)

    def _renewals_ended(self, event: ev.RenewalsEnded, now_s: float) -> None:
        del event
        if self.state is Phase.LEAVING:
            self._ask_leave(now_s)

    def _ask_leave(self, now_s: float) -> None:
        if self._leave_number or self.state is not Phase.LEAVING:
            return
        ask = self._agenda.ask(ev.AskLeave, now_s)
        self._leave_number = ask.number
        limit_s = now_s + LEAVE_SHARE * self._agenda.max_shutdown_s
        self._agenda.at(limit_s, self._left, ask.number)

    def _left(self, number: int, now_s: float) -> None:
        """The store knows, or has had its time."""
        if number == self._leave_number and not self._has_left:
            for one in list(self.holdings.held.values()):
                self.holdings.hand_over(one, now_s)
            self._has_left = True

    def _finish_if_empty(self) -> None:
        if self.state is not Phase.LEAVING:
            return
        unsaid = self.holdings.releasing or self.claims.claims
        is_over = self._now_s >= self._leave_to_s
        if self._has_left and not self.holdings.held and (is_over or not unsaid):
            self._finish(None)

    def _finish(self, problem: str | None) -> None:
        self.state = Phase.FINISHED
        self.claims.drop()
        self._agenda.clear()
        self._agenda.command(ev.Finished(problem))
