"""Which servers of a pool fit which types and groups of types, as long as the pool lives."""

from __future__ import annotations

from typing import Generic

from spillover.core.tokens.bucket import Bucket, Loads
from spillover.core.tokens.fitting import Fitting, Halted
from spillover.core.tokens.jobs import Kind
from spillover.core.tokens.server import UnlikeServer
from spillover.core.tokens.waiting import V, Waiting
from spillover.model.ids import ClusterId
from spillover.model.type_groups import TypeGroups
from spillover.model.unlike_servers import PS, UnlikeServers


def loads_of(pool: UnlikeServers) -> Loads:
    """Returns what the order `least-loaded` goes by."""
    rate = {server.id: server.rate for server in pool.servers}
    number = {each.id: kind for kind, each in enumerate(pool.classes)}
    return Loads(
        [[rate[id_] for id_ in each.servers] for each in pool.classes],
        [[number[id_] for id_ in each.classes] for each in pool.types],
    )


class Layout(Generic[V]):
    """Of the pool of a cluster; `guess_s` is the first guess of the work of a job."""

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
        self.blocked: Waiting[V] = Waiting([*joins.values(), ()], len(numbers))
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
