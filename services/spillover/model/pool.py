"""A pool of unlike servers: types of jobs, the classes they may join, the servers of a class.

The tripartite graph of Comte, "Dynamic load balancing with tokens" (section III-A, figure 1), as
values checked against each other. What follows from them is in `spillover.sim`; reading them from
files, and the built-in ones, in `spillover.inputs`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from spillover.model.errors import InputError
from spillover.model.limits import POSITIVE, at_least, check_limits

POOL_ID = re.compile(r"[A-Za-z0-9._-]{1,63}")
"""Ids of servers, classes and types end up in labels and headers: plain ones only."""

_SHOWN_MAX = 8
"""A message names at most so many ids and leaves the rest out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolServer:
    """One server; `rate` is its capacity mu_s, in mean jobs per second."""

    id: str
    """The name of the server, unique in the pool."""
    rate: Annotated[float, POSITIVE]
    """Capacity mu_s: how many jobs of mean size it works off per second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolClass:
    """Jobs that the same servers work on together; `tokens` is how many there can be at a time."""

    id: str
    """The name of the class, unique in the pool."""
    servers: tuple[str, ...]
    """The ids of the servers that work on the jobs of this class."""
    tokens: Annotated[int, at_least(1)]
    """How many jobs of this class there can be at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolType:
    """Jobs that arrive alike: at `rate` nu_k per second, each for any of `classes`."""

    id: str
    """The name of the type, unique in the pool."""
    rate: Annotated[float, POSITIVE]
    """Arrival rate nu_k: how many such jobs come per second."""
    classes: tuple[str, ...]
    """The ids of the classes that a job of this type may join."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A pool. Construction checks every relation between the parts.

    A server without a class stands idle, and a class that no type may join stays empty; both are
    allowed. Raises InputError naming the field; readers of files put the file's name in front.
    """

    name: str
    """The name of the pool in results.

    Why: a file mostly has the name already."""
    servers: tuple[PoolServer, ...]
    """The servers."""
    classes: tuple[PoolClass, ...]
    """The classes of jobs, each with the servers that work on them."""
    types: tuple[PoolType, ...]
    """The types of jobs, each with the classes that it may join."""

    def __post_init__(self) -> None:
        check_ids("servers", "server", [server.id for server in self.servers])
        check_ids("classes", "class", [each.id for each in self.classes])
        check_ids("types", "type", [each.id for each in self.types])
        for field in ("servers", "types", "classes"):
            for index, entry in enumerate(getattr(self, field)):
                check_limits(entry, "pool", f"{field}[{index}].", most=math.inf)
        for field, rated in (("servers", self.servers), ("types", self.types)):
            if not sum(each.rate for each in rated) < math.inf:
                _fail(field, "expected rates with a finite sum")
        servers = {server.id for server in self.servers}
        for index, entry in enumerate(self.classes):
            check_known(f"classes[{index}].servers", "server", entry.servers, servers)
        classes = {entry.id for entry in self.classes}
        for index, kind in enumerate(self.types):
            check_known(f"types[{index}].classes", "class", kind.classes, classes)

    @property
    def load(self) -> float:
        """Returns rho: the sum of the types' rates over the sum of the servers' (section IV)."""
        return sum(each.rate for each in self.types) / sum(each.rate for each in self.servers)

    def at_load(self, rho: float) -> Pool:
        """Returns the same pool with the types' rates scaled so that `load` is `rho`.

        Raises InputError unless `rho` is a finite number above 0.
        """
        if not 0 < rho < math.inf:
            _fail("load", f"expected a number above 0, got {rho:g}")
        arrivals = sum(each.rate for each in self.types)
        factor = rho * sum(each.rate for each in self.servers) / arrivals
        types = tuple(replace(each, rate=each.rate * factor) for each in self.types)
        return replace(self, types=types)

    def with_tokens(self, tokens: int) -> Pool:
        classes = tuple(replace(each, tokens=tokens) for each in self.classes)
        return replace(self, classes=classes)


def check_ids(field: str, what: str, ids: Sequence[str]) -> None:
    """Raise InputError unless these are ids, at least one, and differ."""
    if not ids:
        _fail(field, f"expected at least one {what}, got none")
    seen: set[str] = set()
    for index, each in enumerate(ids):
        if not POOL_ID.fullmatch(each):
            _fail(f"{field}[{index}].id", f"expected 1 to 63 of A-Z a-z 0-9 . _ -, got {each!r}")
        if each in seen:
            _fail(f"{field}[{index}].id", f"expected ids that differ, got {each!r} twice")
        seen.add(each)


def check_known(field: str, what: str, ids: Sequence[str], known: set[str]) -> None:
    """Raise InputError unless these are some of the known ids, each once."""
    if not ids:
        _fail(field, f"expected at least one {what}, got none")
    for each in ids:
        if each not in known:
            rest = ", ..." if len(known) > _SHOWN_MAX else ""
            shown = ", ".join(sorted(known)[:_SHOWN_MAX]) + rest
            _fail(field, f"expected ids of {field.rpartition('.')[2]} ({shown}), got {each!r}")
    if len(set(ids)) != len(ids):
        twice = next(each for each in ids if ids.count(each) > 1)
        _fail(field, f"expected each {what} once, got {twice!r} twice")


def _fail(field: str, expected: str) -> None:
    raise InputError("pool", field, expected)
