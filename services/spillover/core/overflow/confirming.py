"""A machine whose acceptances take effect once they are confirmed: something else, say a journal,
must know of a request before it counts as this cluster's (design, decision 10).

It decides as any machine, at once, so that places and servers are taken in the order of arrival.
But nothing leaves before the confirmation: the commands about the request are withheld, in order,
behind a `Confirm`. `Confirmed` lets them go; `NotConfirmed` takes back what was decided, and the
request is refused. Until then nothing of it has happened, here or elsewhere.

The machine that needs no confirmation knows nothing of this and pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from spillover.core.overflow import events as ev
from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.visit import Visit, VisitState
from spillover.model.request import Outcome

OfVisit: TypeAlias = (
    ev.Accepted | ev.Refuse | ev.Start | ev.Stop | ev.Forward | ev.Recall | ev.AskCancel | ev.Reply
)
"""The commands that may not leave before their visit is confirmed."""


class ConfirmingMachine(NodeMachine):
    """A NodeMachine for shells that confirm later, or may fail to."""

    def _make_handlers(self) -> dict[type, Callable[[Any, float], None]]:
        self._withheld: dict[int, list[OfVisit]] = {}
        """The commands that leave once their visit is confirmed, by ref; the acceptance comes
        first."""
        return super()._make_handlers() | {
            ev.Confirmed: self._confirmed,
            ev.NotConfirmed: self._not_confirmed,
        }

    def handle(self, event: ev.Event, now_s: float) -> list[ev.Command]:
        """Handle an event, and withhold commands about requests that are not confirmed yet."""
        leaving: list[ev.Command] = []
        withheld = self._withheld
        for command in super().handle(event, now_s):
            if isinstance(command, OfVisit) and command.ref in withheld:
                withheld[command.ref].append(command)
            elif isinstance(command, ev.Accepted) and isinstance(event, ev.Arrived):
                withheld[command.ref] = [command]
                leaving.append(
                    ev.Confirm(command.ref, event.request, event.origin, event.deadline_s)
                )
            else:
                leaving.append(command)
        return leaving

    def surely_never_ran(self, ref: int) -> bool:
        return ref in self._withheld or super().surely_never_ran(ref)

    def _confirmed(self, event: ev.Confirmed, now_s: float) -> None:
        """Let the withheld commands go. A service begins only now."""
        ref = event.ref
        if (withheld := self._withheld.pop(ref, None)) is None:
            return
        if self._under_way(ref, withheld, now_s) is None:
            self._end_withheld(ref, [withheld[0], withheld[-1]], now_s)
        elif any(self._leads_nowhere(command) for command in withheld):
            self._out.append(withheld[0])
            self._forward_refused(ev.ForwardRefused(ref), now_s)
        else:
            for command in withheld:
                if isinstance(command, ev.Start):
                    command.at_s = max(command.at_s, now_s)
            self._out.extend(withheld)

    def _not_confirmed(self, event: ev.NotConfirmed, now_s: float) -> None:
        """Take back what was decided. A visit that has ended meanwhile without having begun stays
        ended."""
        ref = event.ref
        if (withheld := self._withheld.pop(ref, None)) is None:
            return
        visit = self._under_way(ref, withheld, now_s)
        if visit is None:
            self._end_withheld(ref, withheld[-1:], now_s)
            return
        if visit.place is not None:
            self.servers.leave(visit)
        elif visit.state is VisitState.RUNNING:
            self.servers.not_done(ref, failed=False)
            self.servers.vacate(ref)
        self.register.end(visit, None)
        self.health.forget(ref)
        self._refuse_untried(visit, event.reason, now_s)
        self._serve_queue(now_s)

    def _under_way(self, ref: int, withheld: list[OfVisit], now_s: float) -> Visit | None:
        """Returns the visit; None if it has ended, or ends now since its time is over."""
        visit = self.register.visits.get(ref)
        if visit is None or visit.deadline_s > now_s:
            return visit
        self._end(visit, Outcome.EXPIRED, now_s)
        withheld.extend(command for command in self._out if isinstance(command, OfVisit))
        self._out = []
        return None

    def _end_withheld(self, ref: int, commands: list[OfVisit], now_s: float) -> None:
        """End a visit whose work never began, so that its server has nothing to end."""
        self._out.extend(commands)
        if ref in self.servers.stuck:
            self.servers.stuck.remove(ref)
            self.servers.not_done(ref, failed=False)
            self.servers.vacate(ref)
            self._serve_queue(now_s)

    def _leads_nowhere(self, command: OfVisit) -> bool:
        """Returns whether the command is a forward to a neighbor that has left meanwhile."""
        return isinstance(command, ev.Forward) and command.neighbor not in self.neighbors.by_handle
