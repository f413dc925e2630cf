"""The requests under way at one node: clients' and neighbors', the callers that wait for them, the
workers that run them here, and how each gets its one answer or refusal.

The machine decides where a request goes; `neighborhood` has the ways to neighbors.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, cast

from spillover.core.overflow import events as ev
from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.visit import Visit
from spillover.live.engine.timers import Timers
from spillover.live.handlers.base import Workers
from spillover.live.overflow.ending import Left
from spillover.live.overflow.foreign_requests import ForeignRequests
from spillover.live.overflow.home_requests import HomeRequests
from spillover.live.overflow.metrics import NodeMetrics
from spillover.live.overflow.neighborhood import Neighborhood
from spillover.live.overflow.recent import REFUSED
from spillover.live.overflow.relay import Relays
from spillover.live.overflow.request_log import is_logged, log_request
from spillover.live.overflow.room import Room
from spillover.live.overflow.waiters import Waiters
from spillover.model.request import DONE, Answer

if TYPE_CHECKING:
    from spillover.live.handlers.http.upstream_calls import UpstreamWorkers


class NodeRequests:
    """The requests under way at the node of `machine`, which run on `workers` or go to the
    `neighborhood`. `feed` takes the events that result. `confirm`, if given, is called for each
    request before that counts as accepted."""

    def __init__(
        self,
        machine: NodeMachine,
        metrics: NodeMetrics,
        room: Room,
        timers: Timers,
        *,
        feed: Callable[[Any], None],
        waiters: Waiters,
        relays: Relays,
        neighborhood: Neighborhood,
        workers: Workers,
        confirm: Callable[[ev.Confirm], None] | None = None,
    ) -> None:
        self._machine = machine
        self._metrics = metrics
        self._room = room
        self._timers = timers
        self._feed = feed
        self._links = neighborhood.links
        self._confirm = confirm
        self.waiters = waiters
        self.relays = relays
        self.workers = workers
        fed, told = (count(1).__next__, feed), (waiters, relays)
        self.home = HomeRequests(machine.settings.cluster, room.kept, *fed, *told)
        self.foreign = ForeignRequests(*fed, neighborhood.emulated, *told)
        self.status_of: Callable[[Answer], tuple[int, str]] = lambda _: (200, "")
        """Returns the status that a client gets where there is no result, and the reason."""

    @property
    def left(self) -> Left:
        """Returns what would be lost if the node ended now."""
        return Left.of(self.home, self.foreign)

    def visit_of(self, request_id: str) -> Visit | None:
        """Returns the visit here of a request that a neighbor has handed over."""
        ref = self.foreign.ref_of(request_id)
        return None if ref is None else self._machine.register.visits.get(ref)

    def take_no_more(self) -> None:
        """Refuse all requests from now on: the node ends."""
        self.home.closed = self.foreign.closed = True

    def close(self) -> None:
        """Let go of all requests. Callers that still wait are told that there will be no answer."""
        self.home.close()
        self.foreign.close()
        self.waiters.close()

    # --- commands -----------------------------------------------------------------------------

    @property
    def interpreters(self) -> Mapping[type[ev.Command], Callable[[Any], None]]:
        """Returns the callables that carry out the commands about requests."""
        interpreters: dict[type[ev.Command], Callable[[Any], None]] = {
            ev.Accepted: self._room.on_accepted,
            ev.Refuse: self._refuse,
            ev.Start: self.workers.start,
            ev.AskService: self._ask_service,
            ev.Began: self.relays.began,
            ev.Stop: lambda command: self.workers.stop(command.ref),
            ev.Forward: self._forward,
            ev.Reply: self._reply,
        }
        if self._confirm is not None:
            interpreters[ev.Accepted] = self._accepted
            interpreters[ev.Confirm] = partial(self._to_confirm, self._confirm)
        return interpreters

    def _to_confirm(self, confirm: Callable[[ev.Confirm], None], command: ev.Confirm) -> None:
        if command.origin == ev.HOME:
            self.home.confirm(command)
        confirm(command)

    def _accepted(self, command: ev.Accepted) -> None:
        self._room.on_accepted(command)
        self.home.accepted(command.ref)

    def _ask_service(self, _: ev.AskService) -> None:
        workers = cast("UpstreamWorkers[Any]", self.workers)  # of no others
        workers.ask_service(lambda is_well: self._feed(ev.ServiceAsked(is_well)))

    def _forward(self, command: ev.Forward) -> None:
        self._metrics.forwards_left[command.neighbor] += 1
        if command.pulled:
            self._metrics.pulls_left[command.neighbor] += 1
        self._links[command.neighbor].forward(command)

    def _refuse(self, command: ev.Refuse) -> None:
        if command.origin == ev.HOME:
            self._metrics.home_refused(command.reason)
            entry = self.home.refused(command)
            if self._metrics.tokens is not None:
                self._metrics.tokens.home_refused(entry.type)
        else:
            self._metrics.foreign_ended(command.origin, REFUSED)
            self.waiters.tell(command.ref, command)

    def _reply(self, command: ev.Reply) -> None:
        ref, answer, origin = command.ref, command.answer, command.origin
        if command.delay_s > 0.0:
            due_s = time.monotonic() + command.delay_s
            at_once = ev.Reply(ref, origin, answer, 0.0)
            self._timers.at(due_s, lambda _: self._reply(at_once))
            return
        if origin != ev.HOME:
            self._metrics.foreign_ended(origin, answer.outcome.value)
            self.waiters.tell(ref, answer)
            return
        self._metrics.home_ended(answer)
        entry = self.home.answered(ref, answer)
        if self._metrics.tokens is not None:
            self._metrics.tokens.home_ended(entry.type, answer)
        if not self._machine.settings.passes and is_logged():  # at the door that is the answer's
            status = 200 if answer.outcome is DONE else self.status_of(answer)[0]
            log_request(entry, answer, status)
