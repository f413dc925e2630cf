"""How one cluster hears the reports of a neighbor where things go wrong: on a stream that may end.

When it is broken off and opened anew is the rule of `core.overflow.link`. What was sent on an
earlier stream is not heard any more.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from spillover.core.overflow import events as ev
from spillover.core.overflow.link import StreamBegun, StreamEnded, StreamHeard
from spillover.model.load import LoadReport
from spillover.sim.engine.world import World
from spillover.sim.overflow.faulty_link import FaultyLink
from spillover.sim.overflow.network import Channel

if TYPE_CHECKING:
    from spillover.sim.overflow.faulty_cluster import FaultyCluster
    from spillover.sim.overflow.federation import Heard


class Listener:
    """`own` listens to the node that `link` calls, for one life of `own`, and as long as that is
    its neighbor."""

    def __init__(
        self,
        world: World,
        own: FaultyCluster,
        link: FaultyLink,
        channels: tuple[Channel, Channel],
    ) -> None:
        self._world = world
        self.own = own
        self._link = link
        self._out, self._back = channels
        link.open_stream = self.connect
        self._stream = 0
        """Number of the stream that is open or being opened; what belongs to another is void."""
        self._last_s = 0.0

    def begin(self) -> None:
        """Have a stream open already, as in a federation that has run for a while."""
        self._new_stream()
        self._link.there.readers[self.own.name] = (self, self._stream)

    def connect(self) -> None:
        self._new_stream()
        stream, said = self._stream, self.own.says()
        asked = partial(self._asked, stream, self._link.there, said)
        self._out.send(asked, partial(self.ended, stream))

    def close(self) -> None:
        """The listener dies, or has had enough of this stream."""
        closed = partial(self._forgotten, self._stream, self._link.there)
        self._stream += 1
        self._out.send(closed, None, may_be_lost=False)

    def hear(self, stream: int, report: LoadReport | None) -> None:
        event = ev.ReportReceived(self._link.machine.neighbor, report)
        self.own.deliver(self._read, stream, event)

    def hear_load(self, stream: int, what: Heard, command: ev.AskForWork | ev.NoWork) -> None:
        event = what(self._link.machine.neighbor, command.load, command.group)
        self.own.deliver(self._read, stream, event)

    def ended(self, stream: int, said: object = None, *, is_there: bool = False) -> None:
        """The stream has ended, or could not be opened."""
        self.own.deliver(self._break_off, stream, said, is_there)

    def end(self, stream: int, said: object = None, *, is_there: bool = False) -> None:
        """The neighbor ends this stream, or does not open it, and says this besides; it `is_there`
        and wants another node of its cluster to be called."""
        ended = partial(self.ended, stream, said, is_there=is_there)
        self._back.send(ended, None, may_be_lost=False)

    def _new_stream(self) -> None:
        self._stream += 1
        self._link.feed(StreamBegun())
        self._last_s = self._world.now_s
        self._watch(self._stream)

    def _watch(self, stream: int) -> None:
        silence_s = self._link.machine.silence_s(self._out.delay_s)
        self._world.at(self._last_s + silence_s, self.own.deliver, self._look, stream, silence_s)

    def _look(self, stream: int, silence_s: float) -> None:
        if stream != self._stream:
            return
        if self._world.now_s < self._last_s + silence_s:
            self._watch(stream)
        else:
            self._break_off(stream)

    def _read(self, stream: int, event: Any) -> None:
        if stream == self._stream:
            self._last_s = self._world.now_s
            if not self._link.machine.has_heard:
                self._link.feed(StreamHeard())
            self.own.feed(event)

    def _break_off(self, stream: int, said: object = None, is_there: bool = False) -> None:  # noqa: FBT001, FBT002 - as it is delivered
        if stream != self._stream:
            return
        self.own.hear(self._link.there.id, said)
        self.close()
        self._link.feed(StreamEnded(is_there))

    # --- the neighbor -------------------------------------------------------------------------

    def _asked(self, stream: int, there: FaultyCluster, said: object) -> None:
        if there.alive:
            there.deliver(self._opened, stream, there, said)
        else:
            self.end(stream)

    def _opened(self, stream: int, there: FaultyCluster, said: object) -> None:
        if stream != self._stream:
            return
        there.hear(self.own.id, said)
        if there.machine.leaves_to_siblings:
            self.end(stream, there.says(), is_there=True)
        elif self.own.id in there.machine.neighbors.index:
            there.readers[self.own.name] = (self, stream)
            there.feed(ev.ReportAsked())
        else:
            self.end(stream, there.says())

    def _forgotten(self, stream: int, there: FaultyCluster) -> None:
        if there.readers.get(self.own.name) == (self, stream):
            del there.readers[self.own.name]
