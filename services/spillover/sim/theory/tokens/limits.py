"""Which token limits suit a pool: the curve of equal limits, and a search over limits by class.

More tokens block less, and let more jobs share a server, so that each takes longer. A `Goal` says
which of the two is bounded. Every value is exact (`exact`, by Little's law for times). The search
is a local one and may miss the best; compared with all limits of small pools it did not
(`tests/sim/theory/test_limits.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from spillover.model.errors import InputError
from spillover.model.pool import Pool
from spillover.sim.theory.tokens.exact import TokenFigures, exact_tokens
from spillover.sim.theory.tokens.graph import parts_of
from spillover.sim.theory.tokens.grid import steps_of

Tokens: TypeAlias = tuple[int, ...]
"""The limit of each class, in the order of the pool."""

OnProgress: TypeAlias = Callable[[float], None] | None

STEPS_MAX = 5_000_000_000
"""Additions of all solutions together: about half a minute."""

STEPS_LEAST = 1_000_000
"""The least cost of a solution, however small: arrays are made and thrown away."""

ABOVE_IDEAL = "above_ideal"
"""A goal that is missed by as little as can be, where it is out of reach; others are refused."""

SHOWN_LEAST = 10
"""Equal limits that the curve has at least, also where fewer do."""

NEAR_MAX = 200
"""Limits that the search looks at around those that it has, before it takes these for the best."""

NEGLIGIBLE = 1e-4
"""Blocking above the ideal that is as good as none: less is not worth a token."""

OVER = 1 + 1e-9
"""A goal that is kept up to this rounding is kept."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits, and what they come to."""

    tokens: Mapping[str, int]
    figures: TokenFigures
    above_ideal: float
    """Blocking beyond what the best of all dispatchers would have to block."""
    jobs: float
    """The jobs in the system, on average."""
    time_ms: float
    """The mean time of a job that is not blocked, in milliseconds."""
    slowdown: float | None
    """How many times as long jobs take as each alone on its server. None where classes have several
    servers, which a job of the model uses all at once."""

    def as_dict(self) -> dict[str, Any]:
        """Returns the object of a row, see `TokenPlan.as_dict`."""
        figures = self.figures.as_dict()
        return {
            "tokens": dict(self.tokens),
            "blocking": figures["blocking"],
            "above_ideal": self.above_ideal,
            "occupancy": figures["occupancy"],
            "jobs": self.jobs,
            "time_ms": self.time_ms,
            "slowdown": self.slowdown,
        }


@dataclass(frozen=True, slots=True)
class Goal:
    """The largest value that a figure of `Limits` shall have. If it is one of blocking, the fewest
    tokens that keep it are wanted, else the least blocking."""

    name: str
    most: float

    @property
    def is_of_blocking(self) -> bool:
        return self.name in {"blocking", ABOVE_IDEAL}

    def value(self, limits: Limits) -> float:
        if self.name == "blocking":
            return limits.figures.blocking
        value: float = getattr(limits, self.name)
        return value

    def is_kept(self, limits: Limits) -> bool:
        return self.value(limits) <= self.most * OVER

    def rank(self, limits: Limits) -> tuple[float, ...]:
        """Returns what is less for better limits: first what is too much."""
        excess = 0.0 if self.is_kept(limits) else self.value(limits)
        tokens = sum(limits.tokens.values())
        if self.is_of_blocking:
            return (excess, tokens, limits.above_ideal)
        return (excess, max(limits.above_ideal, NEGLIGIBLE), tokens, limits.time_ms)


@dataclass(frozen=True, slots=True)
class TokenPlan:
    """The recommendation: `best`, and `uniform` if all classes shall have the same limit."""

    pool: Pool
    goal: Goal
    ideal: TokenFigures
    given: Limits | None
    """The pool's own limits; None if they are too many for the exact model."""
    curve: Sequence[Limits]
    uniform: Limits
    best: Limits
    is_searched: bool
    """True where the search came to its end: none of NEAR_MAX limits around `best` is better."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "pool": self.pool.name,
            "load": self.pool.load,
            "goal": {self.goal.name: self.goal.most},
            "goal_kept": self.goal.is_kept(self.best),
            "ideal": self.ideal.as_dict()["blocking"],
            "given": None if self.given is None else self.given.as_dict(),
            "curve": [limits.as_dict() for limits in self.curve],
            "uniform": self.uniform.as_dict(),
            "best": self.best.as_dict(),
            "searched": self.is_searched,
            "classes_of_several_servers": list(several_servers(self.pool)),
        }


def several_servers(pool: Pool) -> tuple[str, ...]:
    """Returns the ids of the classes with several servers: there the model lets a job use all of
    them at once, while a node runs it on one."""
    return tuple(each.id for each in pool.classes if len(each.servers) > 1)


def plan_limits(pool: Pool, goal: Goal, at_most: int, on_progress: OnProgress = None) -> TokenPlan:
    """Returns limits of at most `at_most` tokens a class for the pool at its rates.

    Raises InputError if no equal limits keep the goal, and for pools that are too large.
    """
    if goal.name == "slowdown" and several_servers(pool):
        expected = "expected --time-ms instead: a class has several servers"
        raise InputError("--slowdown", "", expected)
    judge = Judge(pool, on_progress)
    if goal.name == "blocking" and goal.most <= judge.ideal.blocking:
        least = judge.ideal.blocking
        expected = f"expected more than {least:.6g}, which no number of tokens avoids at this load"
        raise InputError("--blocking", "", f"{expected}; got {goal.most:g}")
    curve, uniform = _curve(judge, goal, at_most)
    best, is_searched = _search(judge, goal, uniform, at_most)
    try:
        given = judge(tuple(each.tokens for each in pool.classes))
    except InputError:
        given = None
    return TokenPlan(pool, goal, judge.ideal, given, curve, uniform, best, is_searched)


class Judge:
    """Solves a pool under limits, each once, up to STEPS_MAX in all."""

    def __init__(self, pool: Pool, on_progress: OnProgress = None) -> None:
        self.pool = pool
        self.ideal = exact_tokens(pool, "ideal")
        self._on_progress = on_progress
        self._known: dict[Tokens, Limits] = {}
        self._steps = 0

    def __call__(self, tokens: Tokens) -> Limits:
        """Raises InputError if the pool is too large under these limits, or all steps are used."""
        if tokens not in self._known:
            self._known[tokens] = self._solve(tokens)
        return self._known[tokens]

    def _solve(self, tokens: Tokens) -> Limits:
        pool = _limited(self.pool, tokens)
        self._steps += STEPS_LEAST + sum(steps_of(part) for part in parts_of(pool))
        if self._steps > STEPS_MAX:
            raise InputError(
                "pool",
                "classes",
                f"expected a pool that takes {STEPS_MAX:.2g} steps in all, got one of more; "
                "give a lower --at-most, or simulate some limits (spillover sim tokens)",
            )
        figures = exact_tokens(pool)
        if self._on_progress is not None:
            self._on_progress(self._steps / STEPS_MAX)
        jobs = figures.jobs or 0.0
        accepted = figures.occupancy * sum(each.rate for each in pool.servers)
        busy = sum(1 - (share or 0.0) for share in figures.idle.values())
        return Limits(
            tokens={each.id: each.tokens for each in pool.classes},
            figures=figures,
            # Rounding shall not make limits better than the best.
            above_ideal=max(0.0, figures.blocking - self.ideal.blocking),
            jobs=jobs,
            time_ms=1000.0 * jobs / accepted,
            slowdown=None if several_servers(pool) else jobs / busy,
        )


def _limited(pool: Pool, tokens: Tokens) -> Pool:
    classes = zip(pool.classes, tokens, strict=True)
    return replace(pool, classes=tuple(replace(each, tokens=own) for each, own in classes))


def _curve(judge: Judge, goal: Goal, at_most: int) -> tuple[list[Limits], Limits]:
    """Equal limits from 1 on, and which of them is right: the first that keeps a goal of blocking,
    else the last before time is too long."""
    curve: list[Limits] = []
    right: Limits | None = None
    is_decided = False
    for count in range(1, at_most + 1):
        try:
            limits = judge((count,) * len(judge.pool.classes))
        except InputError:
            if right is None or (goal.is_of_blocking and not is_decided):
                raise
            break
        curve.append(limits)
        if not is_decided:
            is_kept = goal.is_kept(limits)
            right = limits if is_kept else right
            is_decided = is_kept == goal.is_of_blocking
        if is_decided and count >= SHOWN_LEAST:
            break
    if right is None and goal.name != ABOVE_IDEAL:
        raise _out_of_reach(goal, curve)
    return curve, right or curve[-1]


def _out_of_reach(goal: Goal, curve: Sequence[Limits]) -> InputError:
    option = "--blocking" if goal.is_of_blocking else f"--{goal.name.replace('_', '-')}"
    if goal.is_of_blocking:
        value = curve[-1].figures.blocking
        expected = f"at least {value:.6g}, the blocking with {len(curve)} tokens a class"
        return InputError(option, "", f"expected {expected}, or more tokens (--at-most)")
    value = goal.value(curve[0])
    expected = f"at least {value:.6g}, the mean with one token a class"
    return InputError(option, "", f"expected {expected}; got {goal.most:g}")


def _search(judge: Judge, goal: Goal, uniform: Limits, at_most: int) -> tuple[Limits, bool]:
    """The best limits found, and whether the search came to its end. It comes from two sides,
    since where types compete it would miss some from one alone."""
    kinds = _alike(judge.pool)
    least = judge((1,) * len(kinds))
    found = [_climb(judge, goal, each, kinds, at_most) for each in (uniform, least)]
    best, _ = min(found, key=lambda each: goal.rank(each[0]))
    return best, all(is_at_end for _, is_at_end in found)


def _climb(
    judge: Judge, goal: Goal, best: Limits, kinds: Sequence[int], at_most: int
) -> tuple[Limits, bool]:
    """Go to the best of the limits that differ by one token, of those that differ by two if none is
    better, and so on up to NEAR_MAX limits. Two: one class has a token more, another one less."""
    edge = seen = {tuple(best.tokens.values())}
    while edge and len(seen) <= NEAR_MAX:
        edge = {found for each in edge for found in _neighbors(each, kinds, at_most)} - seen
        seen = seen | edge
        try:
            found = min(map(judge, sorted(edge)), key=goal.rank, default=best)
        except InputError:
            return best, False
        if goal.rank(found) < goal.rank(best):
            best = found
            edge = seen = {tuple(best.tokens.values())}
    return best, True


def _neighbors(tokens: Tokens, kinds: Sequence[int], at_most: int) -> Iterator[Tokens]:
    """Limits with one token more or less. Of those that only differ in which of alike classes has
    which limit there is one: the first have the most."""
    for place, own in enumerate(tokens):
        for count in (own - 1, own + 1):
            if 1 <= count <= at_most:
                changed = [*tokens[:place], count, *tokens[place + 1 :]]
                order = sorted(range(len(kinds)), key=lambda k: (kinds[k], -changed[k]))
                places = sorted(range(len(kinds)), key=lambda k: kinds[k])
                found = [0] * len(changed)
                for at, source in zip(places, order, strict=True):
                    found[at] = changed[source]
                yield tuple(found)


def _alike(pool: Pool) -> list[int]:
    """Returns for each class the number of its kind: classes are alike that have equal types, and a
    server of the same rate each to themselves."""
    rates = {each.id: each.rate for each in pool.servers}
    users: dict[str, int] = {}
    for each in pool.classes:
        for server in each.servers:
            users[server] = users.get(server, 0) + 1
    keys: list[object] = []
    for number, each in enumerate(pool.classes):
        types = frozenset(kind.id for kind in pool.types if each.id in kind.classes)
        own = len(each.servers) == 1 and users[each.servers[0]] == 1
        keys.append((types, rates[each.servers[0]]) if own else number)
    return [keys.index(key) for key in keys]
