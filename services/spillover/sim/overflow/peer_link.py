"""The way from one cluster to a neighbor where things go wrong: what `live.overflow.peer_link` is
there.

Each request handed over stands on a connection of its own, from the decision until an answer comes
back on it or it breaks. What was surely not accepted, and what is lost, comes out as it does live
(decision 0008); cancels that are waited for are tried again in the same rhythm.

A connection that is closed is noticed at the other end a link's delay later, and not at all over a
link that stays cut.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from spillover.core.overflow import events as ev
from spillover.model.request import Answer, Refusal
from spillover.sim.engine.world import World
from spillover.sim.overflow.network import Channel, Parcel

if TYPE_CHECKING:
    from spillover.sim.overflow.faulty_cluster import FaultyCluster

CANCEL_ATTEMPTS_MAX = 5
CANCEL_AGAIN_S = 0.1
"""Until the second attempt; doubles with each. As in `live.overflow.peer_link`."""


class Leg:
    """One request handed over, and its connection."""

    __slots__ = (
        "arrived_s",
        "back",
        "cancels",
        "command",
        "link",
        "over",
        "sent_s",
        "there",
        "way",
    )

    def __init__(self, link: PeerLink, command: ev.Forward, sent_s: float) -> None:
        self.link = link
        self.command = command
        self.sent_s = sent_s
        self.arrived_s = sent_s
        self.way: Parcel | None = None
        self.back: Parcel | None = None
        """The answer under way."""
        self.there: int | None = None
        """The ref of the visit at the neighbor."""
        self.over = False
        """Its sender does not wait for it any more."""
        self.cancels = 0


class PeerLink:
    """From `own` to `there`, which is its neighbor number `neighbor`, for one life of `own`.
    `mirror` is what it is there."""

    def __init__(
        self,
        world: World,
        own: FaultyCluster,
        there: FaultyCluster,
        neighbor: int,
        mirror: int,
        channels: tuple[Channel, Channel],
    ) -> None:
        self._world = world
        self._own = own
        self._there = there
        self.neighbor = neighbor
        self.mirror = mirror
        self._out, self._back = channels
        self._away: dict[int, Leg] = {}

    def __len__(self) -> int:
        """Requests that are away."""
        return len(self._away)

    # --- the sender ---------------------------------------------------------------------------

    def forward(self, command: ev.Forward) -> None:
        leg = self._away[command.ref] = Leg(self, command, self._world.now_s)
        lost = partial(self._tell, leg, ev.ForwardLost(command.ref))
        leg.way = self._out.send(partial(self._arrive, leg), lost)

    def recall(self, ref: int) -> None:
        leg = self._away.pop(ref, None)
        if leg is not None:
            self._hang_up(leg)

    def ask_cancel(self, ref: int) -> None:
        leg = self._away.get(ref)
        if leg is None or leg.cancels:
            return
        if leg.way is not None and leg.way.withdraw():
            self._end(leg, ev.ForwardRefused(ref))
        else:
            self._cancel(leg)

    def give_up(self) -> None:
        """The neighbor says nothing for too long: what it holds is lost, what is not there yet
        surely is not accepted."""
        for leg in list(self._away.values()):
            if leg.over:
                continue  # recalled by what came of the one before
            ref = leg.command.ref
            del self._away[ref]
            is_there = not (leg.way is not None and leg.way.waiting)
            self._hang_up(leg)
            self._own.feed(ev.ForwardLost(ref) if is_there else ev.ForwardRefused(ref))

    def close(self) -> None:
        """The sender dies, and all of its connections are closed."""
        for leg in self._away.values():
            self._hang_up(leg)
        self._away.clear()

    def _hang_up(self, leg: Leg) -> None:
        leg.over = True
        if leg.way is None or not leg.way.withdraw():
            self._out.send(partial(self._closed, leg), None, may_be_lost=False)

    def _tell(self, leg: Leg, event: Any) -> None:
        self._own.deliver(self._end, leg, event)

    def _end(self, leg: Leg, event: Any) -> None:
        if not leg.over:
            leg.over = True
            del self._away[leg.command.ref]
            self._own.feed(event)

    def _cancel(self, leg: Leg) -> None:
        if not leg.over:
            leg.cancels += 1
            again = partial(self._cancel_later, leg)
            self._out.send(partial(self._cancel_arrived, leg), again)

    def _cancel_later(self, leg: Leg) -> None:
        if not leg.over and leg.cancels < CANCEL_ATTEMPTS_MAX:
            pause_s = CANCEL_AGAIN_S * 2.0 ** (leg.cancels - 1)
            self._world.at(self._world.now_s + pause_s, self._own.deliver, self._cancel, leg)

    # --- the neighbor -------------------------------------------------------------------------

    def _arrive(self, leg: Leg) -> None:
        """The request is there. Where no process listens the kernel says so; one that stands still
        reads it later."""
        if self._there.alive:
            self._there.foreign_requests[leg] = None
            self._there.deliver(self._read, leg)
        else:
            refused = partial(self._tell, leg, ev.ForwardRefused(leg.command.ref))
            self._back.send(refused, refused, may_be_lost=False)

    def _read(self, leg: Leg) -> None:
        if leg.over:
            self._there.foreign_requests.pop(leg, None)
            return
        command = leg.command
        leg.arrived_s = self._world.now_s
        leg.there = self._there.receive(
            command.request,
            self._there.deadline_of(self._own, command.deadline_s),
            self.mirror,
            partial(self._answer, leg),
            partial(self._refuse, leg),
        )

    def _answer(self, leg: Leg, answer: Answer) -> None:
        came_back = partial(self._came_back, leg, answer, self._world.now_s)
        self._send_back(leg, came_back)

    def _refuse(self, leg: Leg, _: Refusal) -> None:
        self._send_back(leg, partial(self._leave, leg, ev.ForwardRefused(leg.command.ref)))

    def _send_back(self, leg: Leg, deliver: partial[None]) -> None:
        if leg.over:
            self._there.foreign_requests.pop(leg, None)
        else:
            broken = partial(self._leave, leg, ev.ForwardLost(leg.command.ref))
            leg.back = self._back.send(deliver, broken)

    def _came_back(self, leg: Leg, answer: Answer, answered_s: float) -> None:
        """Each takes the time by its own clock."""
        leg_s = (leg.arrived_s - leg.sent_s) * self._own.clock.rate
        return_s = (self._world.now_s - answered_s) * self._there.clock.rate
        self._leave(leg, ev.ForwardAnswered(leg.command.ref, answer, leg_s, return_s))

    def _leave(self, leg: Leg, event: Any) -> None:
        self._there.foreign_requests.pop(leg, None)
        self._tell(leg, event)

    def reset(self, leg: Leg) -> None:
        """The neighbor has died with the request: its kernel breaks the connection."""
        if leg.back is not None:
            leg.back.withdraw()
        lost = partial(self._tell, leg, ev.ForwardLost(leg.command.ref))
        self._back.send(lost, None, may_be_lost=False)

    def _closed(self, leg: Leg) -> None:
        self._there.deliver(self._abandon, leg)

    def _abandon(self, leg: Leg) -> None:
        """Nobody is there to take an answer: one that has not left never does."""
        if leg in self._there.foreign_requests:
            del self._there.foreign_requests[leg]
            if leg.back is not None:
                leg.back.withdraw()
            if leg.there is not None:
                self._there.feed(ev.Cancelled(leg.there))

    def _cancel_arrived(self, leg: Leg) -> None:
        if self._there.alive:
            self._there.deliver(self._cancel_read, leg)
        else:
            self._cancel_later(leg)

    def _cancel_read(self, leg: Leg) -> None:
        if leg in self._there.foreign_requests and leg.there is not None:
            self._there.feed(ev.CancelAsked(leg.there))
        else:
            self._cancel_later(leg)
