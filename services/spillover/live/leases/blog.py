"""The blog's rule on a real Redis, for comparison: its machine with an entry and an eye on the
store, its operations, and leases that nobody watches over.

What the document has no word for is done as little as possible. Members join once, so that a group
of another size or rule is refused, and count as members no longer than that lasts. Nothing is
renewed, no handler is ever fenced, and all epochs are 0: a sink that compares them lets everybody
in, which is what the rule promises.
"""

from __future__ import annotations

import asyncio
import math
from random import Random

from spillover.core.leases import events as ev
from spillover.core.leases.blog import EPOCH, BlogMember
from spillover.core.leases.machine import Phase
from spillover.core.leases.settings import MemberSettings
from spillover.live.leases.asks import Operations
from spillover.live.leases.blog_store import RedisBlogStore
from spillover.live.leases.renewal.held import HeldLeases
from spillover.live.leases.store import RedisLeaseStore

NO_EPOCH = -1
JOIN_NUMBER = 0


class BlogMachine:
    """`core.leases.blog`, which begins once the store has let it in, and tells when the store
    is away."""

    def __init__(self, settings: MemberSettings, random: Random) -> None:
        self._member = BlogMember(settings, random)
        self._retry_s = min(settings.times.min_grab_ms, settings.times.normal_lease_ms) / 1000.0
        self._join_due_s = math.inf
        self._shutdown_s = settings.times.max_shutdown_ms / 1000.0
        self._leave_to_s = math.inf
        self.state = Phase.NEW
        self.is_down = False
        self.problem: str | None = None

    def held(self) -> dict[int, int]:
        """Returns what runs here, told to stop or not; from any thread."""
        return dict.fromkeys(self._member.running, EPOCH)

    def handle(self, event: ev.Event, now_s: float) -> list[ev.Command]:
        """Handle an event as `core.leases.machine` does; not all of its events come here."""
        told = self._heard_of_store(event)
        if self.state in {Phase.NEW, Phase.JOINING}:
            return told + self._enter(event, now_s)
        if self.state is Phase.FINISHED:
            return []
        if isinstance(event, ev.Drain) and self.state is Phase.MEMBER:
            self.state = Phase.LEAVING
            self._leave_to_s = now_s + self._shutdown_s
        commands = self._member.handle(event, now_s)
        if any(isinstance(command, ev.Finished) for command in commands):
            self.state = Phase.FINISHED
        elif now_s >= self._leave_to_s:
            # Whatever still runs has had its time; it cannot be stopped.
            self.state = Phase.FINISHED
            commands.append(ev.Finished())
        return told + commands

    def next_deadline(self) -> float:
        if self.state is Phase.FINISHED:
            return math.inf
        return min(self._join_due_s, self._leave_to_s, self._member.next_deadline())

    def check(self) -> None:
        """Check what must hold, as `core.leases.machine` does."""
        self._member.check()

    def _enter(self, event: ev.Event, now_s: float) -> list[ev.Command]:
        """Ask, and again a little later, until there is an answer; whatever it is: by this rule
        nobody knows whether another process of the same id lives."""
        if isinstance(event, ev.Drain):
            self.state, self._join_due_s = Phase.FINISHED, math.inf
            return [ev.Finished()]
        if isinstance(event, ev.Answered) and self.state is Phase.JOINING:
            self.state, self._join_due_s = Phase.MEMBER, math.inf
            return self._member.handle(ev.Started(), now_s)
        if isinstance(event, ev.AskFailed):
            self._join_due_s = now_s + self._retry_s
        elif isinstance(event, ev.Started) or now_s >= self._join_due_s:
            self.state, self._join_due_s = Phase.JOINING, math.inf
            return [ev.AskJoin(JOIN_NUMBER, now_s)]
        return []

    def _heard_of_store(self, event: ev.Event) -> list[ev.Command]:
        if isinstance(event, ev.Answered):
            was_down, self.is_down, self.problem = self.is_down, False, None
            return [ev.Tell(ev.REDIS_UP)] if was_down else []
        if isinstance(event, ev.AskFailed):
            was_down, self.is_down, self.problem = self.is_down, True, event.problem
            return [] if was_down else [ev.Tell(ev.REDIS_DOWN)]
        return []


class UnwatchedLeases(HeldLeases):
    """In the place of `renewal.renewer`: leases that last until they are given back."""

    kind = "none"

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions)
        for partition in range(partitions):
            self._memory.lose(partition, NO_EPOCH)  # else the epoch 0 counts as lost

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def stop(self, partition: int, epoch: int, by_s: float) -> None:
        """Nobody holds it to `by_s`."""
        del by_s
        super().stop(partition, epoch, math.inf)

    def beat_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nobody watches whether handlers get on."""

    def close(self) -> None:
        self._fence_all()
        self._memory.close()


def blog_asks(
    store: RedisLeaseStore, hashes: RedisBlogStore, node: str, incarnation: str
) -> Operations:
    """Returns the operation on the two hashes for each ask of `core.leases.blog`."""
    clears = {
        (True, True): hashes.clear_both,
        (True, False): hashes.clear_allocation,
        (False, True): hashes.clear_grab,
    }
    return {
        ev.AskJoin: lambda _: store.join(node, incarnation),
        ev.AskMarked: lambda a: hashes.grabbed(a.partition),
        ev.AskMark: lambda a: hashes.set_grab_if_free(a.partition, node),
        ev.AskOwner: lambda a: hashes.owner(a.partition),
        ev.AskAllocate: lambda a: hashes.allocate(a.partition, node),
        ev.AskClear: lambda a: clears[a.allocation, a.grab](a.partition),
    }
