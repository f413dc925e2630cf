"""The streams on which the nodes of one site hear each other, where things go wrong: they break
with a node that dies, and fall silent with one that stands still or is cut off.

Messages take no time here; they are heard in order. What they mean is in `core.overflow.siblings`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from spillover.core.overflow import events as ev
from spillover.core.overflow.sibling_messages import SiblingLoad, SiblingMessage
from spillover.core.overflow.views import SILENCE_S
from spillover.sim.engine.world import World

if TYPE_CHECKING:
    from spillover.sim.overflow.faulty_cluster import FaultyCluster

AGAIN_S = 0.1
"""A stream that has ended is opened again after so long, as by a live node."""


class Stream:
    """One stream, from when it is opened until it breaks."""

    def __init__(self, now_s: float) -> None:
        self.heard_s = now_s


class SiblingStreams:
    """All streams of one node, to its siblings and from them."""

    def __init__(self, world: World, own: FaultyCluster) -> None:
        self._world = world
        self._own = own
        self._heard: dict[int, Stream] = {}
        """Those on which the node hears others, by their numbers."""
        self._hear: dict[int, Stream] = {}
        """Those on which others hear it."""
        self._load: SiblingLoad | None = None
        """What this life of the node has told last of its load."""
        self._cut: set[int] = set()
        """The siblings that nothing gets to, and from which nothing comes."""

    @property
    def cut(self) -> bool:
        """Returns whether the node is cut off from any of the others."""
        return bool(self._cut)

    @property
    def _others(self) -> list[FaultyCluster]:
        return [node for node in self._own.faulty_nodes if node is not self._own]

    def begin(self) -> None:
        """Have all streams open already."""
        for other in self._others:
            self._open(other)

    def open(self) -> None:
        """Ask for all streams."""
        for other in self._others:
            self._world.at(self._world.now_s, self._connect, other, self._own.life)

    def tell(self, command: ev.TellSibling) -> None:
        """Have a sibling hear this, if it listens."""
        if isinstance(command.message, SiblingLoad):
            self._load = command.message
        stream = self._hear.get(command.sibling)
        if stream is not None and command.sibling not in self._cut:
            there = cast("FaultyCluster", self._own.siblings[command.sibling])
            told = there.to_siblings.hear, self._own.node, stream, command.message
            self._world.at(self._world.now_s, there.deliver, *told)

    def hear(self, number: int, stream: Stream, message: SiblingMessage) -> None:
        if self._heard.get(number) is stream:
            stream.heard_s = self._world.now_s
            self._own.feed(ev.SiblingHeard(number, message))

    def end(self) -> None:
        """The node dies: the kernels of the others know that at once."""
        for other in self._others:
            if (heard := self._heard.get(other.node)) is not None:
                other.to_siblings.forget(self._own.node, heard)
            stream = self._hear.get(other.node)
            if stream is not None and other.node not in self._cut:
                other.deliver(other.to_siblings.broke, self._own, stream)
        self._load = None
        self._hear.clear()
        self._heard.clear()

    def forget(self, number: int, stream: Stream) -> None:
        """A sibling does not listen on this one any more."""
        if self._hear.get(number) is stream:
            del self._hear[number]

    def is_heard(self, number: int, stream: Stream) -> None:
        """A sibling listens on this one from now on, and hears the load at once."""
        self._hear[number] = stream
        if self._load is not None:
            self.tell(ev.TellSibling(number, self._load))

    def cut_off(self, number: int) -> None:
        """Let nothing through to this sibling, nor from it."""
        self._cut.add(number)

    def heal(self, number: int) -> None:
        """Let everything through again; streams that broke are opened anew."""
        self._cut.discard(number)

    def broke(self, other: FaultyCluster, stream: Stream) -> None:
        if self._heard.get(other.node) is stream:
            del self._heard[other.node]
            other.to_siblings.forget(self._own.node, stream)
            self._fail(other, is_dead=False)

    def _connect(self, other: FaultyCluster, life: int) -> None:
        own = self._own
        if life != own.life or not own.alive:
            return
        if other.node in self._cut:
            self._world.at(self._world.now_s + SILENCE_S, own.deliver, self._timed_out, other, life)
        elif other.alive:
            self._open(other)
        else:
            self._fail(other, is_dead=True)

    def _timed_out(self, other: FaultyCluster, life: int) -> None:
        if life == self._own.life:
            self._fail(other, is_dead=False)

    def _open(self, other: FaultyCluster) -> None:
        stream = Stream(self._world.now_s)
        self._heard[other.node] = stream
        other.to_siblings.is_heard(self._own.node, stream)
        self._watch(other, stream)

    def _fail(self, other: FaultyCluster, *, is_dead: bool) -> None:
        own = self._own
        own.feed(ev.SiblingLost(other.node, is_dead))
        again_s = self._world.now_s + AGAIN_S
        self._world.at(again_s, own.deliver, self._connect, other, own.life)

    def _watch(self, other: FaultyCluster, stream: Stream) -> None:
        silent_s = stream.heard_s + SILENCE_S
        self._world.at(silent_s, self._own.deliver, self._look, other, stream)

    def _look(self, other: FaultyCluster, stream: Stream) -> None:
        if self._heard.get(other.node) is not stream:
            return
        if self._world.now_s < stream.heard_s + SILENCE_S:
            self._watch(other, stream)
        else:
            self.broke(other, stream)
