"""How a rule's asks are carried out in the simulation: on the twin of the scripts, or on the two
plain hashes of the blog's rule. Who asks, and when, is in `sim.leases.member`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from spillover.core.leases import events as ev
from spillover.core.leases.blog import EPOCH
from spillover.core.leases.records import Allocation, Joined, Renewed
from spillover.sim.leases.blog import BlogStore
from spillover.sim.leases.store_twin import LeaseTwin
from spillover.sim.leases.world import Surroundings


class AskStore(Protocol):
    """How a rule's asks are carried out."""

    def script(self, ask: ev.Ask) -> Callable[[], Any]:
        """Returns what the store does for an ask."""

    def renewal(self, pairs: list[tuple[int, int]]) -> Callable[[], Renewed]:
        """Returns what it does for a renewal."""

    def hold(self, partitions: list[int]) -> tuple[Joined, int]:
        """Have these partitions served by the member at 0, as if it had long been so; what it
        would have been told when it joined, and the epoch."""


GUARDED_SCRIPTS = {
    ev.AskJoin: "join",
    ev.AskLeave: "leave",
    ev.AskSurvey: "survey",
    ev.AskGrab: "grab",
    ev.AskActivate: "activate",
    ev.AskWanted: "is_wanted",
    ev.AskDrain: "drain",
    ev.AskRelease: "release",
}


class GuardedAsks:
    """The guarded rule's store as one life of one node sees it."""

    def __init__(self, store: LeaseTwin, around: Surroundings, node: str, life: int) -> None:
        self._store = store
        self._around = around
        self._node = node
        self._incarnation = f"life{life}"

    def script(self, ask: ev.Ask) -> Callable[[], Any]:
        return lambda: self._carry_out(ask)

    def renewal(self, pairs: list[tuple[int, int]]) -> Callable[[], Renewed]:
        return lambda: self._store.renew(self._around.now_ms, self._node, self._incarnation, pairs)

    def hold(self, partitions: list[int]) -> tuple[Joined, int]:
        store, lease_ms = self._store, self._around.times.max_lease_ms
        joined = store.join(0.0, self._node, self._incarnation)
        for partition in partitions:
            store.allocations[partition] = Allocation(self._node, 1, -lease_ms, lease_ms)
        return joined, 1

    def _carry_out(self, ask: Any) -> Any:
        name = GUARDED_SCRIPTS[type(ask)]
        script = getattr(self._store, name)
        now_ms, node = self._around.now_ms, self._node
        if isinstance(ask, ev.AskJoin | ev.AskLeave):
            return script(now_ms, node, self._incarnation)
        if isinstance(ask, ev.AskSurvey):
            return script(now_ms, node, ask.loads)
        if isinstance(ask, ev.AskGrab):
            return script(now_ms, ask.partition, node, ask.free_for_ms)
        if isinstance(ask, ev.AskActivate):
            return script(now_ms, ask.partition, node)
        return script(now_ms, ask.partition, node, ask.epoch)


class BlogAsks:
    """The blog's rule's store as one node sees it."""

    def __init__(self, store: BlogStore, node: str) -> None:
        self._store = store
        self._node = node

    def script(self, ask: ev.Ask) -> Callable[[], Any]:
        return lambda: self._carry_out(ask)

    def renewal(self, pairs: list[tuple[int, int]]) -> Callable[[], Renewed]:
        raise TypeError(f"nothing is renewed by the blog's rule, not {pairs}")

    def hold(self, partitions: list[int]) -> tuple[Joined, int]:
        for partition in partitions:
            self._store.allocate(partition, self._node)
        return Joined(ok=True, other_alive_ms=0.0, era=""), EPOCH

    def _carry_out(self, ask: ev.Ask) -> Any:
        store = self._store
        match ask:
            case ev.AskMarked():
                return store.grabbed(ask.partition)
            case ev.AskMark():
                return store.set_grab_if_free(ask.partition, self._node)
            case ev.AskOwner():
                return store.owner(ask.partition)
            case ev.AskAllocate():
                return store.allocate(ask.partition, self._node)
            case ev.AskClear():
                if ask.allocation:
                    store.clear_allocation(ask.partition)
                if ask.grab:
                    store.clear_grab(ask.partition)
                return None
        raise TypeError(f"no ask of the blog's rule: {ask}")
