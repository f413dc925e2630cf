"""The links of a simulated federation, one channel per direction, and what goes wrong on them.

A channel behaves towards the clusters as a live link does (`live.overflow.emulated_link`, decision
0014): all that leaves for a neighbor (forwards, answers, cancels, closings of connections, reports)
keeps its order, as on connections of TCP.

- *Delay* and *jitter*: a message takes the delay and a part of the jitter, evenly distributed, and
  is never there before one that was sent earlier. What is under way keeps its time.
- *Loss*: a message is lost with this probability when it should be there. Its connection breaks
  then, and its sender is told: TCP loses nothing silently while a connection lives. A report is
  simply missing. The closing of a connection is never lost, the kernel repeats it.
- *Cut*: what is due waits. Once healed, all of it arrives in order; what has waited for
  GIVEN_UP_AFTER_S is lost, as the kernel gives up a connection on which nothing is acknowledged.
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

from spillover.model.faults import GIVEN_UP_AFTER_S, Direction, LinkFault
from spillover.model.topology import Topology
from spillover.sim.engine.world import World, stream

HELD_BACK_S_MAX = 0.2
"""How much later a report may come that others overtake: four periods of the paper's."""


@dataclass(slots=True)
class Parcel:
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


class Channel:
    """One direction of a link. `name` makes its random stream: what one link draws shifts nothing
    on another."""

    def __init__(self, world: World, seed: int, name: str, delay_s: float) -> None:
        self._world = world
        self._random = stream(seed, name)
        self._delay_s = self._nominal_delay_s = delay_s
        self._jitter_s = self._loss = self._duplicate = self._reorder = 0.0
        self.cut = False
        self._last_due_s = 0.0
        self._held: deque[tuple[float, Parcel]] = deque()

    @property
    def delay_s(self) -> float:
        """Returns what a message takes now, jitter aside."""
        return self._delay_s

    @property
    def impaired(self) -> bool:
        """Returns whether anything is otherwise than the topology says, or still under way from
        then.
        """
        more = self._jitter_s or self._loss or self._duplicate or self._reorder
        late = self._last_due_s > self._world.now_s + self._nominal_delay_s
        return self.cut or late or bool(more) or self._delay_s != self._nominal_delay_s

    def change(self, fault: LinkFault) -> None:
        """Have this fault from now on; None leaves things as they are."""
        if fault.action == "cut":
            self.cut = True
        elif fault.action == "heal":
            self.heal()
        else:
            given_ms = (fault.delay_ms, fault.jitter_ms)
            delay_s, jitter_s = (None if ms is None else ms / 1e3 for ms in given_ms)
            self._delay_s = self._delay_s if delay_s is None else delay_s
            self._jitter_s = self._jitter_s if jitter_s is None else jitter_s
            self._loss = self._loss if fault.loss is None else fault.loss
            self._duplicate = self._duplicate if fault.duplicate is None else fault.duplicate
            self._reorder = self._reorder if fault.reorder is None else fault.reorder

    def heal(self) -> None:
        """Be as the topology says, and let go of what has waited."""
        self.cut = False
        self._delay_s = self._nominal_delay_s
        self._jitter_s = self._loss = self._duplicate = self._reorder = 0.0
        while self._held:
            self._end(self._held.popleft()[1])

    def send(
        self,
        deliver: Callable[[], None],
        lose: Callable[[], None] | None,
        *,
        may_be_lost: bool = True,
    ) -> Parcel:
        """Send a message that waits where the link is cut. `lose` is called when it is lost, at
        the instant at which that happens; None where nobody is told."""
        parcel = Parcel(deliver, lose, may_be_lost)
        self._world.at(self._due_s(), self._arrive, parcel)
        return parcel

    def send_report(self, deliver: Callable[[], None]) -> None:
        """Send what does not wait, since the next one is better."""
        random = self._random
        due_s = self._due_s()
        if self._reorder and random.random() < self._reorder:
            due_s += random.random() * HELD_BACK_S_MAX
        self._world.at(due_s, self._arrive_report, deliver)
        if self._duplicate and random.random() < self._duplicate:
            again_s = due_s + random.random() * HELD_BACK_S_MAX
            self._world.at(again_s, self._arrive_report, deliver)

    def _due_s(self) -> float:
        due_s = self._world.now_s + self._delay_s
        if self._jitter_s:
            due_s += self._random.random() * self._jitter_s
        self._last_due_s = max(self._last_due_s, due_s)
        return self._last_due_s

    def _arrive(self, parcel: Parcel) -> None:
        if self.cut:
            self._held.append((self._world.now_s, parcel))
            self._world.at(self._world.now_s + GIVEN_UP_AFTER_S, self._give_up)
        elif parcel.may_be_lost and self._loses():
            self._lose(parcel)
        else:
            self._end(parcel)

    def _arrive_report(self, deliver: Callable[[], None]) -> None:
        if not self.cut and not self._loses():
            deliver()

    def _loses(self) -> bool:
        return self._loss > 0.0 and self._random.random() < self._loss

    def _give_up(self) -> None:
        """Lose what has waited for too long, whatever of it was let go in the meantime."""
        while self._held and self._held[0][0] + GIVEN_UP_AFTER_S <= self._world.now_s:
            self._lose(self._held.popleft()[1])

    @staticmethod
    def _end(parcel: Parcel) -> None:
        deliver = parcel.deliver
        parcel.deliver = parcel.lose = None
        if deliver is not None:
            deliver()

    @staticmethod
    def _lose(parcel: Parcel) -> None:
        lose = parcel.lose
        parcel.deliver = parcel.lose = None
        if lose is not None:
            lose()


def build_channels(topology: Topology, world: World, seed: int) -> dict[Direction, Channel]:
    """Both directions of every link, as the topology has them."""
    return {
        (x, y): Channel(world, seed, f"link/{x}/{y}", link.delay_ms / 1e3)
        for link in topology.links
        for x, y in (link.between, link.between[::-1])
    }
