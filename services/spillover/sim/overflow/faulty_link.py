"""The way from one cluster to a neighbor where things go wrong: carries out what the machine of the
link says (`core.overflow.link`), as `live.overflow.peer_link` does, over channels.

A connection that is closed is noticed at the other end a link's delay later, and not at all over a
link that stays cut. What is lost breaks it: where an answer has begun, the neighbor notices too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from spillover.core.driver import Driver
from spillover.core.overflow import events as ev
from spillover.core.overflow import link
from spillover.core.overflow.link import LinkMachine
from spillover.model.faults import GIVEN_UP_AFTER_S
from spillover.model.request import DONE, Answer
from spillover.sim.engine.timers import Ring, WorldTimers
from spillover.sim.engine.world import World
from spillover.sim.overflow.network import Channel, Message

if TYPE_CHECKING:
    from spillover.sim.overflow.faulty_cluster import FaultyCluster


class Leg:
    """One request handed over, and its connection."""

    def __init__(
        self, link: FaultyLink, node: FaultyCluster, command: ev.Forward, sent_s: float
    ) -> None:
        self.link = link
        self.node = node
        """The node of the neighbor that it goes to."""
        self.command = command
        self.sent_s = sent_s
        self.arrived_s = sent_s
        self.way: Message | None = None
        self.back: Message | None = None
        """The answer under way."""
        self.there: int | None = None
        """The ref of the visit at the neighbor."""
        self.has_begun = False
        """The answer has begun at the neighbor: no end of it comes but a whole one."""
        self.over = False
        """Its sender does not wait for it any more."""


class _LinkTimers(WorldTimers):
    """The timers of the links of one cluster: what rings while it stands still waits until it goes
    on."""

    def __init__(self, world: World, own: FaultyCluster) -> None:
        super().__init__(world)
        self._own = own

    def at(self, due_s: float, ring: Ring) -> WorldTimers:
        self._world.at(due_s, self._own.deliver, ring, due_s)
        return self


class FaultyLink:
    """The link from `own` to a neighbor, of which it calls `there`, for one life of `own`, and as
    long as that is its neighbor."""

    def __init__(
        self,
        world: World,
        own: FaultyCluster,
        there: FaultyCluster,
        channels: tuple[Channel, Channel],
        machine: LinkMachine,
    ) -> None:
        self._world = world
        self._own = own
        self.there = there
        """The node of the neighbor that is called."""
        self._out, self._back = channels
        self.machine = machine
        self._legs: dict[int, Leg] = {}
        interpreters: dict[type, Callable[[Any], None]] = {
            link.LetGo: lambda command: self._hang_up(self._legs[command.ref]),
            link.Ended: self._ended,
            link.SendCancel: self._send_cancel,
            link.Tell: lambda command: self._own.feed(command.event),
            link.CallNext: lambda _: self._call_next(),
            link.OpenStream: lambda _: self.open_stream(),
        }
        self._driver = Driver[Any, Any](machine, _LinkTimers(world, own), interpreters)
        self._driver.start(ev.TimerFired())
        self.feed = self._driver.feed
        """Hands an event to the machine, and does what it says."""
        self.open_stream: Callable[[], None]
        """Asks for a stream of reports. Set by who listens."""

    def __len__(self) -> int:
        """Requests that are away."""
        return len(self._legs)

    # --- the sender ---------------------------------------------------------------------------

    def forward(self, command: ev.Forward) -> None:
        leg = self._legs[command.ref] = Leg(self, self.there, command, self._world.now_s)
        self.machine.hand_over(command.ref)
        leg.way = self._out.send(partial(self._arrive, leg), partial(self._lost, leg))

    def recall(self, ref: int) -> None:
        self.feed(link.Recalled(ref))

    def ask_cancel(self, ref: int) -> None:
        self.feed(link.CancelAsked(ref))

    def close(self) -> None:
        """The sender dies, and all of its connections are closed."""
        for leg in self._legs.values():
            self._hang_up(leg)
        self._legs.clear()
        self._driver.close()

    def _call_next(self) -> None:
        nodes = self.there.faulty_nodes
        self.there = nodes[self.there.node % len(nodes)]

    def _hang_up(self, leg: Leg) -> None:
        leg.over = True
        if leg.way is None or not leg.way.withdraw():
            self._out.send(partial(self._closed, leg), None, may_be_lost=False)

    def _ended(self, command: link.Ended) -> None:
        self._legs.pop(command.ref).over = True
        if command.event is not None:
            self._own.feed(command.event)

    def _lost(self, leg: Leg) -> None:
        ref = leg.command.ref
        self.machine.left(ref)
        self._tell(leg, link.Broken(ref))

    def _tell(self, leg: Leg, event: Any) -> None:
        self._own.deliver(self._heard_of, leg, event)

    def _heard_of(self, leg: Leg, event: Any) -> None:
        if leg.over:
            return
        if isinstance(event, ev.ResponseBegan):
            self._own.feed(event)
        elif not isinstance(event, ev.ForwardAnswered):
            self.feed(event)
        elif self.machine.answered(event.ref):
            self._legs.pop(event.ref).over = True
            self._own.feed(event)

    def _send_cancel(self, command: link.SendCancel) -> None:
        leg = self._legs[command.ref]
        again = partial(self._heard_of, leg, link.CancelFailed(command.ref))
        self._out.send(partial(self._cancel_arrived, leg), again)

    # --- the neighbor -------------------------------------------------------------------------

    def _arrive(self, leg: Leg) -> None:
        """The request is there. Where no process listens the kernel says so; one that stands still
        reads it later."""
        self.machine.left(leg.command.ref)
        if leg.node.door.swallows():
            self._world.at(self._world.now_s + GIVEN_UP_AFTER_S, self._lost, leg)
        elif leg.node.alive:
            leg.node.foreign_requests[leg] = None
            leg.node.deliver(self._read, leg)
        else:
            refused = partial(self._tell, leg, link.Refused(leg.command.ref))
            self._back.send(refused, refused, may_be_lost=False)

    def _read(self, leg: Leg) -> None:
        """One that comes from no neighbor is refused: it surely has not run."""
        if leg.over:
            leg.node.foreign_requests.pop(leg, None)
            return
        if leg.node.door.keeps(leg):
            return
        command = leg.command
        mirror = leg.node.machine.neighbors.index.get(self._own.id)
        if mirror is None:
            self._send_back(leg, partial(self._leave, leg, link.Refused(command.ref)))
            return
        leg.arrived_s = self._world.now_s
        leg.there = leg.node.receive(
            command.request,
            leg.node.deadline_of(self._own, command.deadline_s),
            mirror,
            partial(self._answer, leg),
            partial(self._refuse, leg),
            command,
        )
        if leg.there is not None:
            leg.node.when_begun(leg.there, partial(self._begin, leg))

    def _late(self, leg: Leg, happen: Callable[..., None], *args: Any) -> None:
        """Have the neighbor do it now, or so much later as it is late, if it still can."""
        if late_s := leg.node.door.late_s:
            at_s = self._world.now_s + late_s
            self._world.at(at_s, leg.node.deliver, self._after_all, leg, happen, *args)
        else:
            happen(*args)

    def _after_all(self, leg: Leg, happen: Callable[..., None], *args: Any) -> None:
        if leg in leg.node.foreign_requests:
            happen(*args)

    def _begin(self, leg: Leg, so_far: ev.SoFar) -> None:
        leg.has_begun = True
        self._late(leg, self._send_head, leg, so_far)

    def _send_head(self, leg: Leg, so_far: ev.SoFar) -> None:
        if not leg.over:
            head = partial(self._head_came_back, leg, so_far)
            self._back.send(head, partial(self._break, leg))

    def _head_came_back(self, leg: Leg, so_far: ev.SoFar) -> None:
        leg_s = (leg.arrived_s - leg.sent_s) * self._own.clock.rate
        self._tell(leg, ev.ResponseBegan(leg.command.ref, 0.0, so_far, leg_s))

    def _break(self, leg: Leg) -> None:
        """The connection breaks with an answer that has begun."""
        self._tell(leg, link.Broken(leg.command.ref))
        leg.node.deliver(self._abandon, leg)

    def _answer(self, leg: Leg, answer: Answer) -> None:
        if leg.has_begun and answer.outcome is not DONE:
            self._send_back(leg, partial(self._leave, leg, link.Broken(leg.command.ref)))
            return
        late_s = leg.node.door.late_s
        came_back = partial(self._came_back, leg, answer, self._world.now_s, late_s)
        self._late(leg, self._send_back, leg, came_back)

    def _refuse(self, leg: Leg, refusal: ev.Refuse) -> None:
        refused = link.Refused(leg.command.ref, refusal.load)
        self._send_back(leg, partial(self._leave, leg, refused))

    def _send_back(self, leg: Leg, deliver: partial[None]) -> None:
        if leg.over:
            leg.node.foreign_requests.pop(leg, None)
        else:
            broken = partial(self._leave, leg, link.Broken(leg.command.ref))
            leg.back = self._back.send(deliver, broken)

    def _came_back(self, leg: Leg, answer: Answer, answered_s: float, late_s: float) -> None:
        """Each takes the time by its own clock. The neighbor does not say that it was late, and
        half of what it does not say counts as the way there, as between nodes."""
        leg_s = (leg.arrived_s - leg.sent_s + 0.5 * late_s) * self._own.clock.rate
        return_s = (self._world.now_s - answered_s - 0.5 * late_s) * leg.node.clock.rate
        self._leave(leg, ev.ForwardAnswered(leg.command.ref, answer, leg_s, return_s))

    def _leave(self, leg: Leg, event: Any) -> None:
        leg.node.foreign_requests.pop(leg, None)
        self._tell(leg, event)

    def break_off(self, leg: Leg) -> None:
        """The neighbor, which lives, closes the connection without an answer."""
        if leg in leg.node.foreign_requests:
            del leg.node.foreign_requests[leg]
            self.reset(leg)

    def reset(self, leg: Leg) -> None:
        """The neighbor has died with the request: its kernel breaks the connection, or ours does,
        if the way is cut for so long that the other's word is given up."""
        if leg.back is not None:
            leg.back.withdraw()
        lost = partial(self._tell, leg, link.Broken(leg.command.ref))
        self._back.send(lost, lost, may_be_lost=False)

    def _closed(self, leg: Leg) -> None:
        leg.node.deliver(self._abandon, leg)

    def _abandon(self, leg: Leg) -> None:
        """Nobody is there to take an answer: one that has not left never does."""
        if leg in leg.node.foreign_requests:
            del leg.node.foreign_requests[leg]
            if leg.back is not None:
                leg.back.withdraw()
            if leg.there is not None:
                leg.node.feed(ev.Cancelled(leg.there))

    def _cancel_arrived(self, leg: Leg) -> None:
        if leg.node.alive:
            leg.node.deliver(self._cancel_read, leg)
        else:
            self._heard_of(leg, link.CancelFailed(leg.command.ref))

    def _cancel_read(self, leg: Leg) -> None:
        if leg in leg.node.foreign_requests and leg.there is not None:
            leg.node.feed(ev.CancelAsked(leg.there))
        else:
            self._heard_of(leg, link.CancelFailed(leg.command.ref))
