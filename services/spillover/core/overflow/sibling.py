"""The records of what the nodes of a site know of each other: the state of a node's pool, and the
knowledge about a sibling (`siblings`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from spillover.core.overflow.sibling_messages import LineLoad, SiblingLoad, SiblingMessage

WORK_SPREADS = 3.0
"""The number of standard deviations beyond the mean service time after which work that has just
begun counts as over."""


class Tell(NamedTuple):
    """A message to a sibling."""

    to: int
    message: SiblingMessage


class Layout(NamedTuple):
    """The tokens of a site whose servers are unlike."""

    names: tuple[str, ...]
    tokens: tuple[int, ...]
    """The number of tokens, by class."""
    lines: tuple[tuple[int, ...], ...]
    """The places of the classes that a request may join, by line. Requests that may join the same
    classes are in one line."""


class Demand(NamedTuple):
    """The state of a node's pool. Where all servers are alike they are one class, and there are no
    `lines` and `busy_of`."""

    waiting: int
    foreign: int
    busy: int
    age_s: float
    load: float
    can_run: bool
    """False where nothing can start here for now."""
    leaves: bool
    """True while the node drains."""
    work_s: float
    """The time, in seconds, after which work that has just begun is most likely over."""
    lines: tuple[LineLoad, ...] = ()
    """The requests that wait for tokens, by line."""
    busy_of: tuple[int, ...] = ()
    """The number of tokens, by class, that nobody else could use: they are held, or come back one
    after another."""
    closed: tuple[int, ...] = ()
    """The classes of which nothing can start here for now."""


NO_DEMAND = Demand(0, 0, 0, 0.0, 0.0, can_run=True, leaves=False, work_s=0.0)


class Sibling:
    """The knowledge of a node about a sibling."""

    def __init__(self, now_s: float, lines: int) -> None:
        self.heard_s = now_s
        self.load: SiblingLoad | None = None
        self.told_s = now_s
        """The time when `load` came."""
        self.given = 0
        """The number of servers that were given to the sibling since."""
        self.given_of = [0] * lines
        """The number of those, by line, that the requests of the line have use for."""

    def tells(self, load: SiblingLoad, now_s: float) -> None:
        self.load, self.told_s = load, now_s
        if self.given:
            self.forget_given()

    def forget_given(self) -> None:
        """Count as if nothing had been given to the sibling."""
        self.given = 0
        self.given_of = [0] * len(self.given_of)

    @property
    def unserved(self) -> int:
        """Returns how many requests wait there for which no server has been given."""
        if (load := self.load) is None or not load.waiting:
            return 0  # as is mostly so
        return self.unserved_at(range(len(self.given_of)))

    def unserved_at(self, lines: Iterable[int]) -> int:
        """Returns how many of those wait in these lines."""
        if (load := self.load) is None:
            return 0
        if not load.lines:
            return max(0, load.waiting - self.given)
        return sum([self._unserved_in(load, line) for line in lines])

    def _unserved_in(self, load: SiblingLoad, line: int) -> int:
        return max(0, load.lines[line].waiting - self.given_of[line])

    def age_s(self, lines: Sequence[int], now_s: float) -> float:
        """Returns how long the oldest request of these lines has waited there, to which no server
        has been given."""
        load = self.load
        assert load is not None
        ages_s = [load.lines[one].age_s for one in lines] if load.lines else [load.age_s]
        return max(ages_s, default=0.0) + (now_s - self.told_s)

    def gets(self, servers: int, lines: Sequence[int]) -> None:
        """Note that the sibling is given servers, which the oldest requests of these lines use."""
        self.given += servers
        if (load := self.load) is None or not load.lines:
            return
        for line in sorted(lines, key=lambda line: -load.lines[line].age_s):
            used = min(servers, self._unserved_in(load, line))
            self.given_of[line] += used
            servers -= used

    def gives(self, servers: int, kind: int) -> None:
        """Note that the sibling has given servers since it told its load."""
        if (load := self.load) is None:
            return
        idle = max(0, load.idle - servers)
        if not load.idle_of:
            self.load = replace(load, idle=idle)
            return
        idle_of = list(load.idle_of)
        idle_of[kind] = max(0, idle_of[kind] - servers)
        self.load = replace(load, idle=idle, idle_of=tuple(idle_of))

    def idle_in(self, kind: int) -> int:
        """Returns how many tokens of this class are idle there."""
        if (load := self.load) is None:
            return 0
        return load.idle_of[kind] if load.idle_of else load.idle
