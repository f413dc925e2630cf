"""What is between the processes of the simulated queue: messages take their time, and may be lost.

Whoever sent what is lost hears of it some time later, as of a connection that breaks or a call
that times out; nobody knows how far it had come.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from spillover.sim.engine.world import World

TIMEOUT_S = 2.0
"""Within so long a lost message is told; so long a producer waits for a peer's answer."""

# Kinds of messages.
TAKE, PROBE, OBJECT = "take", "probe", "object"
OFFER, OFFER_ANSWER, POINTER, FETCH, TELL, TOLD = (
    "offer", "offer answer", "pointer", "fetch", "tell", "told",
)  # fmt: skip
IN_PAPER = frozenset((TAKE, PROBE, OBJECT))
"""The messages that Johnson's protocol has, too: (h + 1) r of a request."""


class Wires:
    """Between all processes. `way_s` draws how long a message of a kind takes. Where they are
    `reliable`, nothing is ever lost and nobody waits for what does not come."""

    def __init__(
        self, world: World, random: Random, way_s: Callable[[str], float], *, reliable: bool
    ) -> None:
        self.world = world
        self.reliable = reliable
        self.loss = 0.0
        """The share of messages that are lost."""
        self.slowness = 1.0
        self.mute: set[str] = set()
        """Processes of whose messages none arrives."""
        self.deaf: set[str] = set()
        """Processes that no message reaches."""
        self._random = random
        self._way_s = way_s

    @property
    def impaired(self) -> bool:
        """Returns whether anything is wrong with them now."""
        return bool(self.loss or self.mute or self.deaf or self.slowness != 1.0)

    def send(
        self,
        source: str,
        target: str,
        kind: str,
        arrive: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        """Send a message: exactly one of the two is called."""
        way_s = self._way_s(kind)
        if self.reliable:
            self.world.at(self.world.now_s + way_s, arrive)
            return
        at_s = self.world.now_s + way_s * self.slowness
        if self.loss and self._random.random() < self.loss:
            self.lose(lost)
        else:
            self.world.at(at_s, self._arrive, source, target, arrive, lost)

    def lose(self, lost: Callable[[], None]) -> None:
        self.world.at(self.world.now_s + self._random.random() * TIMEOUT_S, lost)

    def _arrive(
        self, source: str, target: str, arrive: Callable[[], None], lost: Callable[[], None]
    ) -> None:
        if source in self.mute or target in self.deaf:
            self.lose(lost)
        else:
            arrive()
