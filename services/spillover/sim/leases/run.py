"""`spillover sim leases`: partitions shared out over nodes, at the level of single messages.

Sets the scene, lets it run, and reckons. The nodes are the machines that run live, in the shell of
`sim.leases.member`; what surrounds them is in `sim.leases.world`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from spillover.model.errors import InputError
from spillover.model.lease_times import LEASE_BALANCES, LEASE_RULES, LeaseTimes
from spillover.policy.leases import WAIT_READINGS, minimum_moves
from spillover.sim.leases.blog import BlogStore
from spillover.sim.leases.loads import check_loads
from spillover.sim.leases.member import Group, Journal, SimMember
from spillover.sim.leases.store_twin import LeaseTwin
from spillover.sim.leases.watch import Tenure, TenureWatch
from spillover.sim.leases.world import Surroundings, Troubles

STARTS = ("balanced", "one-node", "empty")
"""The holders at 0: all nodes in turn, node 0 of everything, or nobody of anything."""

CHALLENGES = ("all", "one")
"""Step 1 of the blog's rule: each partition that a node does not serve, or one of them, drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseScene:
    """The scene of a simulation. A period is one normal lease time; nodes are given by index."""

    nodes: int
    partitions: int
    periods: int
    rule: str = "guarded"
    start: str = "balanced"
    challenges: str = "all"
    waits: str = "halves"
    """How the blog's rule reads step 2: see `policy.leases`."""
    balance: str = "count"
    loads: Sequence[float] | None = None
    """Work of each partition per normal lease time; None: no handler reports any."""
    load_noise: float = 0.0
    """The share, either way, by which handlers report their load wrong."""
    times: LeaseTimes = field(default_factory=LeaseTimes)
    troubles: Troubles = field(default_factory=Troubles)

    def __post_init__(self) -> None:
        for name in ("nodes", "partitions", "periods"):
            if getattr(self, name) < 1:
                raise InputError("leases", name, f"expected at least 1, got {getattr(self, name)}")
        for name, known in (
            ("rule", LEASE_RULES),
            ("balance", LEASE_BALANCES),
            ("start", STARTS),
            ("challenges", CHALLENGES),
            ("waits", tuple(WAIT_READINGS)),
        ):
            if getattr(self, name) not in known:
                expected = f"expected one of {', '.join(known)}, got {getattr(self, name)!r}"
                raise InputError("leases", name, expected)
        if self.rule == "blog" and self.balance == "load":
            expected = "expected count with the blog's rule, whose waits go by counts"
            raise InputError("leases", "balance", expected)
        if self.loads is not None:
            check_loads(self.loads, self.load_noise, self.partitions)
        self._check_troubles()

    def _check_troubles(self) -> None:
        troubles = self.troubles
        for name in ("stall_ms", "crash_ms", "join_ms", "drain_ms", "rejoin_ms"):
            for node, value in getattr(troubles, name).items():
                if not 0 <= node < self.nodes:
                    expected = f"expected nodes 0..{self.nodes - 1}, got {node}"
                    raise InputError("leases", name, expected)
                if not (math.isfinite(value) and value >= 0):
                    raise InputError("leases", name, f"expected ms of at least 0, got {value:g}")
        for node, crash_ms in troubles.crash_ms.items():
            join_ms = troubles.join_ms.get(node, 0.0)
            if crash_ms < join_ms:
                expected = f"expected a node to join before it crashes, got {join_ms:g} ms"
                raise InputError("leases", "join_ms", expected)
        if len(troubles.join_ms) == self.nodes:
            raise InputError("leases", "join_ms", "expected a node that is there from the start")

    @property
    def end_ms(self) -> float:
        return self.periods * self.times.normal_lease_ms

    @property
    def first_nodes(self) -> list[int]:
        return [node for node in range(self.nodes) if node not in self.troubles.join_ms]


@dataclass(frozen=True, slots=True)
class LeaseRun:
    """The result of a run. `moves_ms` are the instants of the moves, `tenures` say which node ran
    what when."""

    moves: int
    moves_min: int | None
    """The fewest moves to even counts, None where loads count: those of the start, and what each
    crash or joining added to them, where a partition that is being handed over just then still
    counts for the old node."""
    counts: tuple[int, ...]
    """Partitions by the living node that runs them at the end. One that is just being handed over,
    or whose node has died, counts for nobody."""
    unowned_ms_max: float
    double_owned_ms: float
    double_entitled_ms: float
    """The part of `double_owned_ms` in which neither handler had been fenced."""
    challenges: int
    store_calls: int
    moves_ms: list[float]
    tenures: list[list[Tenure]]
    told: list[tuple[float, int, str, int | None]]
    """The event log: (ms, node, event, partition)."""
    finished: dict[int, str | None]
    """Nodes that have left, with what they said."""
    load_over_mean_max: float | None
    """The most loaded living node at the end, over the mean of the living; None without loads."""

    def as_dict(self) -> dict[str, Any]:
        """Returns the object that `sim leases --json` prints."""
        return {
            "moves": self.moves,
            "moves_min": self.moves_min,
            "counts": {f"n{node}": count for node, count in enumerate(self.counts)},
            "unowned_ms_max": self.unowned_ms_max,
            "double_owned_ms": self.double_owned_ms,
            "double_entitled_ms": self.double_entitled_ms,
            "last_move_ms": self.moves_ms[-1] if self.moves_ms else None,
            "challenges": self.challenges,
            "store_calls": self.store_calls,
            "load_over_mean_max": self.load_over_mean_max,
        }


def run_leases(
    scene: LeaseScene,
    seed: int,
    on_progress: Callable[[float], None] | None = None,
    journal: Journal | None = None,
) -> LeaseRun:
    """Let the scene run to its end; `on_progress` gets the share done, once a period. With a
    journal, machines are checked after each event."""
    watch = TenureWatch(scene.partitions)
    around = Surroundings(scene.times, scene.troubles, watch, seed, scene.loads, scene.load_noise)
    make, lose = _makers(scene, around, seed, journal)
    nodes = [make(node) for node in range(scene.nodes)]
    around.nodes.extend(nodes)
    first = scene.first_nodes
    for turn, node in enumerate(first):
        if scene.start == "balanced":
            nodes[node].hold(list(range(turn, scene.partitions, len(first))))
        elif scene.start == "one-node":
            nodes[node].hold(list(range(scene.partitions)) if turn == 0 else [])
        around.join(node)
    needs = _Needs(watch, scene)
    ended = [False]
    around.after_ms(scene.end_ms, ended.__setitem__, 0, True)  # noqa: FBT003
    _plan(scene.troubles, around, needs, make)
    for time_ms in scene.troubles.flush_ms:
        around.after_ms(time_ms, lose)
    if on_progress is not None:
        for period in range(1, scene.periods + 1):
            time_ms = period * scene.times.normal_lease_ms
            around.after_ms(time_ms, on_progress, period / scene.periods)
    around.world.run(lambda: ended[0])
    return _reckon(scene, around, needs)


def _makers(
    scene: LeaseScene, around: Surroundings, seed: int, journal: Journal | None
) -> tuple[Callable[[int], SimMember], Callable[[], None]]:
    """Returns the function that makes a life of a node, and the one that makes their store lose
    everything."""
    group = Group(scene.partitions, around, seed, journal, scene.balance)
    if scene.rule == "blog":
        blog = BlogStore()
        return lambda node: group.blog(node, blog, scene.challenges, scene.waits), blog.lose_all
    store = LeaseTwin(scene.partitions, scene.times, balance=scene.balance)
    return lambda node: group.guarded(node, store), store.lose_all


def _plan(
    troubles: Troubles, around: Surroundings, needs: _Needs, make: Callable[[int], SimMember]
) -> None:
    """Members come and go."""

    def rejoin(node: int) -> None:
        around.rejoin(node, make(node))

    for times_ms, happen, alive in (
        (troubles.join_ms, around.join, True),
        (troubles.crash_ms, around.crash, False),
        (troubles.drain_ms, around.drain, False),
        (troubles.rejoin_ms, rejoin, True),
    ):
        for node, time_ms in times_ms.items():
            around.after_ms(time_ms, needs.change, happen, node, alive)


class _Needs:
    """The fewest moves that the start and each change of the members made necessary."""

    def __init__(self, watch: TenureWatch, scene: LeaseScene) -> None:
        self._watch = watch
        self._alive = [False] * scene.nodes
        for node in scene.first_nodes:
            self._alive[node] = True
        self.moves_min = minimum_moves(self.counts(), self._alive)

    def counts(self) -> list[int]:
        counts = [0] * len(self._alive)
        for owner in self._watch.owners():
            if owner is not None:
                counts[owner] += 1
        return counts

    def change(self, happen: Callable[[int], None], node: int, alive: bool) -> None:  # noqa: FBT001
        """Let a node join or crash; what that adds to the moves that were still needed."""
        counts = self.counts()
        before = minimum_moves(counts, self._alive)
        self._alive[node] = alive
        self.moves_min += minimum_moves(counts, self._alive) - before
        happen(node)


def _reckon(scene: LeaseScene, around: Surroundings, needs: _Needs) -> LeaseRun:
    watch = around.watch
    # Before what still runs is closed. Whatever a dead node ran ended with it.
    owners = [x[-1].node if x and x[-1].to_ms > scene.end_ms else None for x in watch.tenures]
    running = Counter(owners)
    counts = tuple(running[node] for node in range(scene.nodes))
    gone = around.dead | around.finished.keys()
    living = [node for node in around.joined if node not in gone]
    watch.end(scene.end_ms)
    return LeaseRun(
        moves=len(watch.moves_ms),
        moves_min=needs.moves_min if scene.balance == "count" else None,
        counts=counts,
        unowned_ms_max=watch.unowned_ms_max(scene.end_ms),
        double_owned_ms=watch.double_owned_ms(),
        double_entitled_ms=watch.double_entitled_ms(),
        challenges=around.challenges,
        store_calls=around.calls,
        moves_ms=watch.moves_ms,
        tenures=watch.tenures,
        told=around.told,
        finished=around.finished,
        load_over_mean_max=around.work.over_mean_max(owners, living),
    )
