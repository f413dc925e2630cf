"""The pool of one node of a site of several whose servers are unlike: its share of the tokens and
the requests that wait for them here, and estimates for the site as a whole (decision 0049).

`siblings` decides which node has which tokens. The bucket has as many of each class as the share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from spillover.core.overflow.sibling import WORK_SPREADS, Demand, Layout
from spillover.core.overflow.sibling_messages import Limits, LineLoad
from spillover.core.overflow.siblings import Siblings
from spillover.core.overflow.visit import Visit
from spillover.core.tokens.fitting import Fitting, Work
from spillover.core.tokens.server import UnlikeServer
from spillover.core.tokens.servers import TokenServers
from spillover.model.unlike_servers import UnlikeServers, shared_most
from spillover.policy.tokens import BLOCKED


def layout_of(pool: UnlikeServers) -> Layout:
    """Returns the tokens of a site with this pool, and the lines of those that wait for them."""
    kinds = {each.id: kind for kind, each in enumerate(pool.classes)}
    joins = [tuple(sorted(kinds[one] for one in each.classes)) for each in pool.types]
    tokens = tuple([each.tokens or 0 for each in pool.classes])
    return Layout(tuple(kinds), tokens, tuple(dict.fromkeys(joins)))


class SiteTokens(TokenServers[Visit]):
    """`total` and `working` are of the site, as each node runs requests on all servers; `busy`,
    `jobs` and what waits are this node's, and all estimates the site's."""

    siblings: Siblings
    _went_by: Limits | None
    """The word of operators by which the servers here are in and out."""
    _line_of: dict[int, int]
    """The line, by the number of the type."""
    _took: Work
    """The time that services took here."""
    _reach: dict[Fitting[Visit], tuple[tuple[int, ...], tuple[int, ...]]]
    """The lines and the classes of the requests that use servers of each of these."""

    @classmethod
    def of(cls, pool: TokenServers[Visit], siblings: Siblings) -> SiteTokens:
        """Turns a pool into that of one node of several, and returns it. It is the same object, as
        others hold it, with all that waits and runs."""
        pool.__class__ = cls
        site = cast("SiteTokens", pool)
        site.share_with(siblings)
        return site

    def share_with(self, siblings: Siblings) -> None:
        self.siblings = siblings
        self.bucket.everywhere = self.site_limit
        self._went_by = None
        self._took = Work(self.service_s)
        lines = {classes: line for line, classes in enumerate(siblings.own.lines)}
        self._line_of = {
            kind.number: lines[tuple(sorted(kind.classes))] for kind in self.kinds.values()
        }
        for fitting in self._fittings:
            fitting.__class__ = SiteFitting
        self._refresh()
        self.take_share()

    @property
    def _fittings(self) -> list[Fitting[Visit]]:
        return [self._all, *self._fitting, self._unserved.fitting]

    def _refresh(self) -> None:
        """Look again at the servers, and at who waits at siblings for them."""
        super()._refresh()
        self._reach = {}
        for fitting in self._fittings:
            classes = fitting.serves
            every_line = enumerate(self.siblings.own.lines)
            lines = [line for line, of in every_line if not classes.isdisjoint(of)]
            self._reach[fitting] = tuple(lines), tuple(sorted(classes))
        self.siblings.has_news()

    # --- all servers together -------------------------------------------------------------------

    @property
    def lines(self) -> int:  # type: ignore[override]
        return max(1, len(self.siblings.members))

    @property
    def others_stay(self) -> bool:
        """Returns whether a sibling that this node hears, and that hears it, does not drain."""
        return bool(self.siblings.staying)

    @property
    def site_busy(self) -> int:
        """Returns how many servers have a job at some node. The jobs of siblings on a class of
        several servers count as spread over those that have none here."""
        busy = {server.number for server in self.servers if server.running}
        for kind, servers in enumerate(self._of_class):
            free = [server.number for server in servers if server.number not in busy]
            busy.update(free[: self.siblings.busy_elsewhere(kind)])
        return len(busy)

    @property
    def site_waiting(self) -> int:
        return self.waiting + self.siblings.waiting

    @property
    def site_foreign(self) -> int:
        return self.waiting_foreign + self.siblings.foreign

    def places(self, number: int) -> int:
        """Returns how many jobs of all nodes there can be on a server at a time."""
        if not self._shares:
            return 1
        return sum(self.site_limit(kind) for kind in self.servers[number].classes)

    def site_limit(self, kind: int) -> int:
        return self.siblings.own.classes[kind].servers

    def lines_elsewhere(self, fitting: Fitting[Visit]) -> tuple[int, int]:
        """Returns how many requests wait at siblings that could use one of these servers, and how
        many of those come from neighbors."""
        told = [self.siblings.waits[line] for line in self._reach[fitting][0]]
        return sum([waiting for waiting, _ in told]), sum([foreign for _, foreign in told])

    def jobs_elsewhere(self, fitting: Fitting[Visit]) -> int:
        """Returns how many jobs siblings have of the classes that these servers work on."""
        return sum([self.siblings.busy_elsewhere(kind) for kind in self._reach[fitting][1]])

    def expects(self, fitting: Fitting[Visit], classes: Sequence[int]) -> bool:
        """Returns whether a sibling has an idle token of these classes, with which one more request
        could start here, besides those that wait for these servers."""
        if self.down or self.resting:
            return False
        idle = sum([self.siblings.own.classes[kind].idle for kind in classes if self._taking[kind]])
        return idle > fitting.waiting

    # --- tokens ---------------------------------------------------------------------------------

    def seats(self, visit: Visit) -> bool:
        """Returns whether the visit has its place at a server, or a token comes from a sibling."""
        if super().seats(visit):
            return True
        return self.expects(self.kind_of(visit).fitting, self.joins(visit))

    def take_share(self) -> bool:
        """Adjusts the bucket to the share. Returns whether there are more tokens than before, or
        servers have been taken out or back in."""
        siblings, bucket, has_grown = self.siblings, self.bucket, False
        if siblings.own.limits is not self._went_by:
            self._went_by, has_grown = siblings.own.limits, True
            self._go_by(siblings.own.limits)
        for kind, each in enumerate(siblings.own.classes):
            if (had := bucket.limit(kind)) != each.share:
                bucket.set_limit(kind, each.share, self.now_s)
                has_grown |= each.share > had
        return has_grown

    def _go_by(self, limits: Limits | None) -> None:
        out = () if limits is None else limits.out
        for server in self.servers:
            if server.is_out is not (server.number in out):
                server.is_out = not server.is_out
                self._settle(server)

    def set_tokens(self, limits: Mapping[str, int], servers_in: Mapping[str, bool]) -> None:
        """Changes limits of the site, and which servers are in at all nodes. Each node goes by that
        with the next view, which is made at once."""
        most, said = shared_most(self.discipline), enumerate(self.class_ids)
        tokens = [min(most, limits.get(id_, self.site_limit(kind))) for kind, id_ in said]
        out = [one.number for one in self.servers if not servers_in.get(one.id, not one.is_out)]
        self.siblings.limit(tokens, out, self.now_s)

    def _first_blocked(self) -> Visit | None:
        """Returns the first of those that a released token fits, unless the token goes to a
        sibling, where another one has waited longer."""
        while (visit := super()._first_blocked()) is not None and self._passes_over(visit):
            pass
        return visit

    def _passes_over(self, visit: Visit) -> bool:
        kind = self.bucket.choose(self.joins(visit))
        if not self.siblings.waiting or kind == BLOCKED:
            return False
        age_s, departure_s = self._age_s(visit), self.kind_of(visit).fitting.departure_s
        if not self.siblings.passes_over(age_s, departure_s, self.now_s, kind):
            return False
        self.bucket.set_limit(kind, self.siblings.own.classes[kind].share, self.now_s)
        return True

    def served(self, ref: int, service_s: float) -> None:
        super().served(ref, service_s)
        self._took.add(service_s)

    def _age_s(self, visit: Visit) -> float:
        return max(0.0, self.now_s - visit.since_s)

    # --- what siblings are to know --------------------------------------------------------------

    def note(self, now_s: float) -> bool:
        """Notes what is idle now, at a pool of which nothing is down. Returns whether that is all
        there is to do, as after most events where nothing waits."""
        if self.blocked.count or self.seated:
            return False
        bucket = self.bucket
        idle_of = [bucket.unheld_now(kind) for kind in range(len(self.class_ids))]
        return self.siblings.note_tokens(idle_of, now_s)

    def demand(self, load: float, *, leaves: bool) -> Demand:
        """Returns what the siblings are to know of this node, whose clients bring this load, and
        which drains if it `leaves`."""
        kinds = range(len(self.class_ids))
        can_run = not (self.down or self.resting)
        closed = tuple([kind for kind in kinds if not (can_run and self._taking[kind])])
        lines = self._line_loads()
        waits = zip(self.siblings.own.lines, lines, strict=True)
        # What comes back in a slow start is needed here only where something waits for it.
        needed = {kind for line, one in waits if one.waiting for kind in line}
        busy_of = tuple([self.bucket.in_use(kind, keeps=kind in needed) for kind in kinds])
        age_s = max([one.age_s for one in lines], default=0.0)
        took = self._took
        work_s = took.mean_s + WORK_SPREADS * took.spread_s + self._delivery_s
        queue = self.waiting, self.waiting_foreign, self.jobs, age_s
        return Demand(*queue, load, can_run, leaves, work_s, lines, busy_of, closed)

    def _line_loads(self) -> tuple[LineLoad, ...]:
        loads = [(0, 0, 0.0)] * len(self.siblings.own.lines)
        if not self.blocked.count:
            return tuple([LineLoad(*load) for load in loads])
        for number, line in self._line_of.items():
            visits = self.blocked.lines[number].visits
            if visits:
                waiting, foreign, age_s = loads[line]
                oldest_s = max(age_s, self._age_s(next(iter(visits.values()))))
                more = self.blocked.lines[number].foreign
                loads[line] = waiting + len(visits), foreign + more, oldest_s
        return tuple([LineLoad(*load) for load in loads])

    def told(self) -> dict[str, Any]:
        """Returns the state of the pool as users read it: the tokens of the site, as far as they
        are known, and this node's share of them; jobs and what is blocked are this node's."""
        told = super().told()
        for kind, each in enumerate(told["classes"]):
            shared = self.siblings.own.classes[kind]
            each["share"], each["limit"] = each["limit"], shared.servers
            each["available" if self._taking[kind] else "out"] += shared.idle
            there = shared.servers + each["retiring"] - each["available"] - each["out"]
            each["held"] = max(each["held"], there)
        for server, known in zip(told["servers"], self.servers, strict=True):
            server["tokens"] = sum(self.site_limit(kind) for kind in known.classes)
        return told

    def check(self) -> None:
        super().check()
        shares = [self.bucket.limit(kind) for kind in range(len(self.class_ids))]
        assert shares == list(self.siblings.own.by_class), (shares, self.siblings.own.by_class)
        self.siblings.check()


class SiteFitting(Fitting[Visit]):
    """The servers that fit one group of types, with what siblings have on them and waiting for
    them."""

    @property
    def _site(self) -> SiteTokens:
        return cast("SiteTokens", self._pool)

    @property
    def site_waiting(self) -> int:
        return self.waiting + self._site.lines_elsewhere(self)[0]

    @property
    def site_foreign(self) -> int:
        return self.waiting_foreign + self._site.lines_elsewhere(self)[1]

    @property
    def ahead(self) -> int:
        elsewhere = self._site.lines_elsewhere(self)[0] + self._site.jobs_elsewhere(self)
        return super().ahead + elsewhere

    @property
    def ready(self) -> bool:
        """Returns whether a visit can start now, here or once a sibling has given a token."""
        return super().ready or self._site.expects(self, self.classes)

    def _is_idle(self, server: UnlikeServer[Visit]) -> bool:
        busy = [self._site.siblings.busy_elsewhere(kind) for kind in server.classes]
        return super()._is_idle(server) and not any(busy)
