"""The surroundings of the nodes of the lease simulation: the way to the store, channels, stalls,
faults.

Calls to the store are carried out one at a time, each at its own instant, as Redis does; they are
slow at worst. Channel messages are hints: they come late, in any order, twice or never. A stalled
node comes late to everything: to messages, to answers and to its own timers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from spillover.model.lease_times import LeaseTimes
from spillover.sim.engine.world import World, stream
from spillover.sim.leases.loads import PartitionWork
from spillover.sim.leases.watch import TenureWatch

TIMEOUT_MS = 2_000.0
"""A node that asks the store in vain learns so after this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Troubles:
    """The troubles of a run; by default there are none. Nodes are given by index."""

    stall_ms: Mapping[int, float] = field(default_factory=dict)
    """Adds uniform 0..stall to each reaction of the node."""
    crash_ms: Mapping[int, float] = field(default_factory=dict)
    """When a node dies, without a word, and does not come back."""
    join_ms: Mapping[int, float] = field(default_factory=dict)
    """When a node starts, if not at 0."""
    loss: float = 0.0
    """Share of channel messages that do not reach a subscriber, each on its own."""
    repeats: float = 0.0
    """Share of channel messages that reach a subscriber twice."""
    hop_ms: tuple[float, float] = (0.2, 2.0)
    """A message's way, to the store or from it: uniform between the two."""
    handler_stop_ms: float = 1_000.0
    """A handler that is told to stop does so within uniform 0..this."""
    pause_ms: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """The instants from and to which a node does nothing at all; what reaches it in between
    waits."""
    drain_ms: Mapping[int, float] = field(default_factory=dict)
    """When a node is told to hand everything over and to leave."""
    rejoin_ms: Mapping[int, float] = field(default_factory=dict)
    """When a node that has died or left is started again, as another process."""
    clock_rate: Mapping[int, float] = field(default_factory=dict)
    """How fast a node's own clock runs, if not as the store's: 1.01 is 1 % fast."""
    outage_ms: Sequence[tuple[float, float]] = ()
    """The instants from and to which the store does nothing; who asks learns so after
    `TIMEOUT_MS`."""
    flush_ms: Sequence[float] = ()
    """When the store loses all that it knows."""
    answers_lost: float = 0.0
    """Share of the store's answers that never come, though it was carried out."""
    answers_lost_to_ms: float = math.inf
    """Up to when answers get lost."""
    answers_repeated: float = 0.0
    """Share of the store's answers that come twice."""


class Node(Protocol):
    """A node, as its surroundings call it."""

    def start(self) -> None: ...
    def drain(self) -> None: ...
    def silence(self) -> None: ...
    def on_challenged(self, partition: int) -> None: ...
    def on_allocated(self, partition: int) -> None: ...


class Surroundings:
    """The world in ms, with one random stream for each purpose."""

    def __init__(
        self,
        times: LeaseTimes,
        troubles: Troubles,
        watch: TenureWatch,
        seed: int,
        loads: Sequence[float] | None = None,
        load_noise: float = 0.0,
    ) -> None:
        self.times = times
        self.work = PartitionWork(
            loads, load_noise, times.normal_lease_ms, stream(seed, "lease-loads")
        )
        self.troubles = troubles
        self.watch = watch
        self.world = World()
        self.nodes: list[Node] = []
        self.dead: set[int] = set()
        self.joined: set[int] = set()
        self.calls = 0
        """How many calls to the store there were."""
        self.challenges = 0
        """How many challenges were published."""
        self.told: list[tuple[float, int, str, int | None]] = []
        """Lines of the event log: (ms, node, event, partition)."""
        self.finished: dict[int, str | None] = {}
        """Nodes that have left, with what they said."""
        self._hops = stream(seed, "lease-hops")
        self._stalls = stream(seed, "lease-stalls")
        self._stops = stream(seed, "lease-handler-stops")
        self._channel = stream(seed, "lease-channel")
        self._answers = stream(seed, "lease-answers")
        self.phases = stream(seed, "lease-phases")

    @property
    def now_ms(self) -> float:
        return self.world.now_s * 1000.0

    def after_ms(self, delay_ms: float, happen: Callable[..., None], *args: Any) -> None:
        self.world.at(self.world.now_s + delay_ms / 1000.0, happen, *args)

    def timer(self, node: int, delay_ms: float, react: Callable[..., None], *args: Any) -> None:
        """Let the node react after a delay and its stall, if it still lives."""
        self.after_ms(delay_ms + self._stall_ms(node), self._react, node, react, args)

    def call(
        self,
        node: int,
        script: Callable[[], Any],
        then: Callable[..., None],
        otherwise: Callable[[], None],
    ) -> None:
        """Run `script()` at the store, atomically; the node reacts with `then(answer)`, or, if
        none comes, with `otherwise()`. Of answers that are lost every other one is never told.

        What a node sent before it died is still carried out.
        """
        self.calls += 1
        self.after_ms(self._hop_ms(), self._carry_out, node, script, then, otherwise)

    def handler_stop_ms(self) -> float:
        """Returns how long a handler takes to stop, drawn."""
        return self._stops.random() * self.troubles.handler_stop_ms

    def publish_challenge(self, partition: int) -> None:
        """Publish on the channel grab-lease, to all, the sender included."""
        self.challenges += 1
        for i, node in enumerate(self.nodes):
            self._deliver(i, node.on_challenged, partition)

    def publish_allocated(self, partition: int) -> None:
        for i, node in enumerate(self.nodes):
            self._deliver(i, node.on_allocated, partition)

    def join(self, node: int) -> None:
        self.joined.add(node)
        self.nodes[node].start()

    def crash(self, node: int) -> None:
        """The node is gone with its handlers; the store is told nothing."""
        self.dead.add(node)
        self.nodes[node].silence()
        self.watch.died(node, self.now_ms)

    def drain(self, node: int) -> None:
        """Have the node told to leave, if it is there."""
        if node in self.joined:
            self.timer(node, 0.0, self.nodes[node].drain)

    def rejoin(self, node: int, life: Node) -> None:
        """Another process of the node comes up."""
        if node not in self.finished and node not in self.dead:
            self.crash(node)
        self.finished.pop(node, None)
        self.dead.discard(node)
        self.nodes[node] = life
        life.start()

    def _carry_out(
        self,
        node: int,
        script: Callable[[], Any],
        then: Callable[..., None],
        otherwise: Callable[[], None],
    ) -> None:
        now_ms, troubles = self.now_ms, self.troubles
        if any(from_ms <= now_ms < to_ms for from_ms, to_ms in troubles.outage_ms):
            self.timer(node, TIMEOUT_MS, otherwise)
            return
        answer = script()
        losing = troubles.answers_lost > 0.0 and now_ms < troubles.answers_lost_to_ms
        if losing and self._answers.random() < troubles.answers_lost:
            if self._answers.random() < 0.5:
                self.timer(node, TIMEOUT_MS, otherwise)
            return
        self.timer(node, self._hop_ms(), then, answer)
        if troubles.answers_repeated and self._answers.random() < troubles.answers_repeated:
            self.timer(node, self._hop_ms(), then, answer)

    def _deliver(self, node: int, react: Callable[[int], None], partition: int) -> None:
        if node in self.dead or node not in self.joined:
            return
        troubles = self.troubles
        copies = 1
        if troubles.loss and self._channel.random() < troubles.loss:
            copies = 0
        elif troubles.repeats and self._channel.random() < troubles.repeats:
            copies = 2
        for _ in range(copies):
            self.timer(node, self._hop_ms() + self._hop_ms(), react, partition)

    def _react(self, node: int, react: Callable[..., None], args: tuple[Any, ...]) -> None:
        if node in self.dead:
            return
        from_ms, to_ms = self.troubles.pause_ms.get(node, (0.0, 0.0))
        if from_ms <= self.now_ms < to_ms:
            self.after_ms(to_ms - self.now_ms, self._react, node, react, args)
        else:
            react(*args)

    def _hop_ms(self) -> float:
        low, high = self.troubles.hop_ms
        return low + (high - low) * self._hops.random()

    def _stall_ms(self, node: int) -> float:
        limit = self.troubles.stall_ms.get(node)
        return limit * self._stalls.random() if limit else 0.0
