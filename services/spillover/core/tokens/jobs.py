"""The records of a pool of unlike servers: one for each type of jobs, for each job, and for each
that waits. `Layout` says which of its servers fit which types and groups of types.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Generic

from spillover.core.tokens.bucket import Bucket, Loads, Token
from spillover.core.tokens.fitting import Fitting, Halted, Work
from spillover.core.tokens.server import UnlikeServer
from spillover.core.tokens.waiting import V, WaitingLines
from spillover.model.ids import ClusterId
from spillover.model.type_groups import TypeGroups
from spillover.model.unlike_servers import PS, UnlikeServers


class Kind(Generic[V]):
    """One type of jobs; `work` is what one of them takes."""

    def __init__(
        self,
        number: int,
        id_: str,
        classes: dict[int, str],
        fitting: Fitting[V],
        guess_s: float,
    ) -> None:
        self.number = number
        self.id = id_
        self.classes = tuple(classes)
        """The numbers of those that it may join."""
        self.class_ids = tuple(classes.values())
        self.fitting = fitting
        self.work = Work(guess_s)
        self.look = itemgetter(*classes) if len(classes) > 1 else None
        """Picks what concerns these classes, where there is a choice."""


class Job(Generic[V]):
    """A visit that has a token: the facts that `/explain` shows, and the token to be given back."""

    def __init__(  # noqa: PLR0917 - with every job
        self,
        ref: int,
        kind: Kind[V],
        token: Token,
        server: int,
        rank: float,
        ranks: tuple[float, ...],
        at_number: int,
        at_s: float,
    ) -> None:
        self.ref = ref
        self.kind = kind
        self.token = token
        self.server = server
        self.rank = rank
        """The rank of its class, when it took the token (`Bucket.ranks`)."""
        self.ranks = ranks
        """The ranks of the classes that it may join, just after."""
        self.at_number = at_number
        """The number of the next release then."""
        self.at_s = at_s
        self.end: bool | None = None
        """True if it has failed, False if it was stopped; None unless one of these ended it."""
        self.work_s = 0.0
        """How much it has had."""
        self.refused_on: tuple[int, ...] = ()
        """Servers that were left out when it took the token."""


class VisitPlace(Generic[V]):
    """Where a visit waits: blocked, or in its seat at a server, where it has its job already."""

    def __init__(self, number: int, kind: Kind[V]) -> None:
        self.number = number
        """The smaller, the longer ago it came."""
        self.kind = kind
        self.job: Job[V] | None = None


def loads_of(pool: UnlikeServers) -> Loads:
    """Returns what the order `least-loaded` goes by."""
    rate = {server.id: server.rate for server in pool.servers}
    number = {each.id: kind for kind, each in enumerate(pool.classes)}
    return Loads(
        [[rate[id_] for id_ in each.servers] for each in pool.classes],
        [[number[id_] for id_ in each.classes] for each in pool.types],
    )


class Layout(Generic[V]):
    """The layout of a cluster's pool; `guess_s` is the first guess of the work of a job."""

    def __init__(
        self,
        pool: UnlikeServers,
        groups: TypeGroups,
        cluster: ClusterId,
        guess_s: float,
        bucket: Bucket,
        halted: Halted,
    ) -> None:
        self.servers: list[UnlikeServer[V]] = [
            UnlikeServer(
                number,
                each.id,
                each.rate,
                tuple(kind for kind, of in enumerate(pool.classes) if each.id in of.servers),
            )
            for number, each in enumerate(pool.servers)
        ]
        servers = self.servers
        self.of_class = [
            [server for server in servers if kind in server.classes]
            for kind in range(len(pool.classes))
        ]
        numbers = {each.id: number for number, each in enumerate(pool.classes)}
        joins = {each.id: tuple(numbers[id_] for id_ in each.classes) for each in pool.types}
        self.blocked: WaitingLines[V] = WaitingLines([*joins.values(), ()], len(numbers))
        """A line for each type, and one for those that the pool does not serve."""
        lines = list(zip(self.blocked.lines, joins.values(), strict=False))

        def fitting(classes: tuple[int, ...]) -> Fitting[V]:
            fit = [one for one in servers if not set(classes).isdisjoint(one.classes)]
            in_turn = pool.discipline != PS
            return Fitting(halted, bucket, classes, fit, lines, guess_s, in_turn=in_turn)

        self.by_group = [
            fitting(joins[group.types[0]] if cluster in group.served_by else ())
            for group in groups.groups
        ]
        self.all = fitting(tuple(numbers.values()))
        self.kinds: dict[str, Kind[V]] = {}
        for number, (id_, classes) in enumerate(joins.items()):
            group = groups.index_of(id_)
            assert group is not None, f"type {id_!r} is in no group"
            named = {kind: pool.classes[kind].id for kind in classes}
            self.kinds[id_] = Kind(number, id_, named, self.by_group[group], guess_s)
        self.unserved: Kind[V] = Kind(len(joins), "", {}, fitting(()), guess_s)
