"""A pool of unlike servers in a cluster: its servers, the classes of jobs that share them, and the
types of jobs that may join which classes (docs/tokens.md, decision 0038). The
values are complete, and checked against each other.

A pool of the models, with arrival rates, is in
`pool`; what a running pool does with them, in `spillover.core.tokens`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Annotated, NoReturn

from spillover.model.errors import InputError
from spillover.model.limits import above, check_limits, within
from spillover.model.nearest import did_you_mean
from spillover.model.pool import check_ids, check_known
from spillover.model.token_orders import LONGEST_AVAILABLE, ORDERS

OVERFLOW, QUEUE, REFUSE = "overflow", "queue", "refuse"
ON_BLOCK = (OVERFLOW, QUEUE, REFUSE)
"""The fates of a blocked job: as the policy says, wait here, or get 429 `blocked`."""

PS, FCFS = "ps", "fcfs"
DISCIPLINES = (PS, FCFS)
"""How a server serves the jobs that hold its tokens: all at once, or one after another."""

DEFAULT_TYPE = "default"
"""The type of requests that name none."""


TOKENS_MAX = 10_000
"""The most tokens of a class: each token is an object, each job a connection or thread."""


def shared_most(discipline: str) -> int:
    """Returns the most tokens of a class that several nodes may share. Of two tokens, two nodes
    would run a job each on a server that is to run one after another."""
    return TOKENS_MAX if discipline == PS else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server of a pool."""

    id: str
    """The name of the server, unique in the cluster. It stands in metrics and in `/explain`."""
    rate: Annotated[float, above(0)] = 1.0
    """Its speed: a job of `service_ms` takes `service_ms / rate` alone on it.

    Why: where servers are alike but for what they hold, no rate needs to be given."""
    handler: str | None = None
    """The handler of requests on this server, if not the cluster's handler.

    Why: emulated servers differ in their rates only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerClass:
    """Jobs that run on the same servers; a job takes one of the class's tokens."""

    id: str
    """The name of the class, unique in the cluster. It stands in metrics and in `/explain`."""
    servers: tuple[str, ...]
    """The ids of the servers that jobs of this class run on. A job goes to the least busy one."""
    tokens: Annotated[int | None, within(1, TOKENS_MAX)] = None
    """How many jobs of this class there can be at a time. Not set: as many as it has servers.

    Why: one job at a time suits servers that cannot share; `spillover plan tokens` says what
    suits those that can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobType:
    """Jobs whose requests say this `type`."""

    id: str
    """The type, as requests name it."""
    classes: tuple[str, ...]
    """The ids of the classes that a job of this type may join."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlikeServers:
    """A pool, in which every class has its number of tokens. Make it with `of`, which fills in what
    was left out."""

    servers: tuple[Server, ...]
    classes: tuple[ServerClass, ...]
    types: tuple[JobType, ...]
    on_block: str = OVERFLOW
    discipline: str = PS
    order: str = LONGEST_AVAILABLE

    @classmethod
    def of(
        cls,
        servers: tuple[Server, ...],
        classes: tuple[ServerClass, ...] = (),
        types: tuple[JobType, ...] = (),
        on_block: str = OVERFLOW,
        discipline: str = PS,
        order: str = LONGEST_AVAILABLE,
    ) -> UnlikeServers:
        """Returns the pool with what was left out: one class for each server, one type for all
        classes, as many tokens as a class has servers.

        Raises InputError naming the field; readers of files put the file's name in front.
        """
        check_ids("servers", "server", [server.id for server in servers])
        if not classes:
            classes = tuple(ServerClass(id=each.id, servers=(each.id,)) for each in servers)
        check_ids("classes", "class", [each.id for each in classes])
        if not types:
            types = (JobType(id=DEFAULT_TYPE, classes=tuple(each.id for each in classes)),)
        check_ids("types", "type", [each.id for each in types])
        for field, entries in (("servers", servers), ("classes", classes), ("types", types)):
            for index, entry in enumerate(entries):
                check_limits(entry, "pool", f"{field}[{index}].")
        _check_relations(servers, classes, types)
        _check_choice("on_block", on_block, ON_BLOCK)
        _check_choice("discipline", discipline, DISCIPLINES)
        _check_choice("order", order, ORDERS)
        full = tuple(replace(each, tokens=each.tokens or len(each.servers)) for each in classes)
        return cls(
            servers=servers,
            classes=full,
            types=types,
            on_block=on_block,
            discipline=discipline,
            order=order,
        )

    @property
    def tokens(self) -> int:
        """Returns how many jobs there can be at a time."""
        return sum(each.tokens or 0 for each in self.classes)

    @property
    def runs_one_by_tokens(self) -> bool:
        """Returns whether tokens alone keep a server from running two jobs at a time, if it is to
        run one after another: who holds its only token has the server."""
        counts = Counter(server for each in self.classes for server in each.servers)
        are_single = all((each.tokens, len(each.servers)) == (1, 1) for each in self.classes)
        return self.discipline == PS or (are_single and set(counts.values()) == {1})

    def runs_at_once(self, server: str) -> int:
        """Returns how many jobs the server with this id runs at a time at most."""
        if self.discipline == FCFS:
            return 1
        return sum(each.tokens or 0 for each in self.classes if server in each.servers)


def _check_relations(
    servers: tuple[Server, ...], classes: tuple[ServerClass, ...], types: tuple[JobType, ...]
) -> None:
    known = {each.id for each in servers}
    for index, entry in enumerate(classes):
        check_known(f"classes[{index}].servers", "server", entry.servers, known)
    used = {server for each in classes for server in each.servers}
    for index, server in enumerate(servers):
        if server.id not in used:
            expected = f"expected every server in a class, {server.id!r} is in none"
            _fail(f"servers[{index}]", expected)
    known = {each.id for each in classes}
    for index, kind in enumerate(types):
        check_known(f"types[{index}].classes", "class", kind.classes, known)


def _check_choice(field: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        hint = did_you_mean(value, known)
        _fail(field, f"expected one of {', '.join(known)}, got {value!r}{hint}")


def _fail(field: str, expected: str) -> NoReturn:
    raise InputError("pool", field, expected)
