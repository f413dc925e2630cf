"""The links of a simulated federation, one channel per direction, and what goes wrong on them.

What becomes of a message on a channel is the rule of `core.overflow.transit`, as on a live link
(decision 0014); only here is there jitter. More than a live link does, or otherwise:

- TCP loses nothing silently while a connection lives: the sender of what is lost is told. A report
  is simply missing. The closing of a connection is never lost, the kernel repeats it.
- *Duplicate* and *reorder*: of reports only, as if they were datagrams. A live federation sends
  them on a stream, which does neither; their epochs and numbers are there for what a reconnection
  may leave behind, and here is where that is tried out. For requests, answers and cancels TCP
  excludes both.

What a message is, and who is told of its end, is not known here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from spillover.core.overflow.transit import Fate, Transit
from spillover.model.faults import Direction, LinkFault
from spillover.model.topology import Topology
from spillover.sim.engine.world import World, stream

HELD_BACK_S_MAX = 0.2
"""How much later a report may come that others overtake: four periods of the paper's."""


@dataclass(slots=True)
class Message:
    """One message under way. Exactly one of its callables is called, once, unless it is withdrawn;
    a report that is lost has none to call."""

    deliver: Callable[[], None] | None
    lose: Callable[[], None] | None
    may_be_lost: bool = True

    @property
    def waiting(self) -> bool:
        return self.deliver is not None

    def withdraw(self) -> bool:
        """Take it back if it is not there yet; whether it was under way."""
        was_waiting = self.deliver is not None
        self.deliver = self.lose = None
        return was_waiting

    def arrive(self) -> None:
        """Be there, unless it was withdrawn."""
        deliver = self.deliver
        self.deliver = self.lose = None
        if deliver is not None:
            deliver()

    def get_lost(self) -> None:
        """Never be there, and tell whoever wants to know."""
        lose = self.lose
        self.deliver = self.lose = None
        if lose is not None:
            lose()


class Channel:
    """One direction of a link. `name` makes its random stream: what one link draws shifts nothing
    on another."""

    def __init__(self, world: World, seed: int, name: str, delay_s: float) -> None:
        self._world = world
        self._random = stream(seed, name)
        self._transit = Transit(self._random, delay_s)
        self._nominal_delay_s = delay_s
        self._duplicate = self._reorder = 0.0
        self._held: deque[tuple[float, Message]] = deque()

    @property
    def cut(self) -> bool:
        """Returns whether nothing gets through."""
        return self._transit.cut

    @property
    def delay_s(self) -> float:
        """Returns what a message takes now, jitter aside."""
        return self._transit.delay_s

    @property
    def impaired(self) -> bool:
        """Returns whether anything is otherwise than the topology says, or still under way from
        then."""
        transit = self._transit
        more = transit.jitter_s or transit.loss or self._duplicate or self._reorder
        late = transit.last_due_s > self._world.now_s + self._nominal_delay_s
        return transit.cut or late or bool(more) or transit.delay_s != self._nominal_delay_s

    def change(self, fault: LinkFault) -> None:
        """Have this fault from now on; None leaves things as they are."""
        transit = self._transit
        if fault.action == "cut":
            transit.cut = True
        elif fault.action == "heal":
            self.heal()
        else:
            given_ms = (fault.delay_ms, fault.jitter_ms)
            delay_s, jitter_s = (None if ms is None else ms / 1e3 for ms in given_ms)
            transit.delay_s = transit.delay_s if delay_s is None else delay_s
            transit.jitter_s = transit.jitter_s if jitter_s is None else jitter_s
            transit.loss = transit.loss if fault.loss is None else fault.loss
            self._duplicate = self._duplicate if fault.duplicate is None else fault.duplicate
            self._reorder = self._reorder if fault.reorder is None else fault.reorder

    def heal(self) -> None:
        """Be as the topology says, and let go of what has waited."""
        transit = self._transit
        transit.cut = False
        transit.delay_s = self._nominal_delay_s
        transit.jitter_s = transit.loss = self._duplicate = self._reorder = 0.0
        while self._held:
            self._held.popleft()[1].arrive()

    def send(
        self,
        deliver: Callable[[], None],
        lose: Callable[[], None] | None,
        *,
        may_be_lost: bool = True,
    ) -> Message:
        """Send a message that waits where the link is cut. `lose` is called when it is lost, at
        the instant at which that happens; None where nobody is told."""
        message = Message(deliver, lose, may_be_lost)
        self._world.at(self._transit.due_s(self._world.now_s), self._arrive, message)
        return message

    def send_report(self, deliver: Callable[[], None]) -> None:
        """Send what does not wait, since the next one is better."""
        random = self._random
        due_s = self._transit.due_s(self._world.now_s)
        if self._reorder and random.random() < self._reorder:
            due_s += random.random() * HELD_BACK_S_MAX
        self._world.at(due_s, self._arrive_report, deliver)
        if self._duplicate and random.random() < self._duplicate:
            again_s = due_s + random.random() * HELD_BACK_S_MAX
            self._world.at(again_s, self._arrive_report, deliver)

    def _arrive(self, message: Message) -> None:
        now_s = self._world.now_s
        match self._transit.fate(may_be_lost=message.may_be_lost):
            case Fate.HELD:
                self._held.append((now_s, message))
                self._world.at(self._transit.given_up_s(now_s), self._give_up)
            case Fate.LOST:
                message.get_lost()
            case Fate.ARRIVES:
                message.arrive()

    def _arrive_report(self, deliver: Callable[[], None]) -> None:
        if self._transit.fate(waits=False) is Fate.ARRIVES:
            deliver()

    def _give_up(self) -> None:
        """Lose what has waited for too long, whatever of it was let go in the meantime."""
        while self._held and self._transit.given_up_s(self._held[0][0]) <= self._world.now_s:
            self._held.popleft()[1].get_lost()


def build_channels(topology: Topology, world: World, seed: int) -> dict[Direction, Channel]:
    """Both directions of every link, as the topology has them."""
    return {
        (x, y): Channel(world, seed, f"link/{x}/{y}", link.delay_ms / 1e3)
        for link in topology.links
        for x, y in (link.between, link.between[::-1])
    }
