"""One node of a site of several: what it knows of the others, and the servers that it gives them.

Theory of operation (decision 0049). Servers go to where requests wait, not requests to servers. A
node with idle servers gives them to a sibling with waiting requests. A node whose own queue is
younger gives away the server that becomes free. A request stays in the process that accepted it.

Where servers are unlike, what goes is a token of one class, and each class has its own shares. A
request that may join several classes waits for a token of each of them, and counts once: requests
that may join the same classes are one *line*. Servers that are alike are one class, with one line.

In a *view* (`views`) shares change by `Give` alone, which the giver takes off its share before it
is sent: their sum is never above what the site has. A node that is only cut off keeps its share and
goes on, and the others take it over all the same: as long as parts of a site do not hear each
other, each may run up to `servers`. When they hear each other again, the shares are trimmed.

Not here: which nodes share (`views`), the share of a node (`site_shares`), requests, and how
messages travel.
"""

from __future__ import annotations

from collections.abc import Sequence

from spillover.core.overflow.sibling import Demand, Layout, Sibling, Tell
from spillover.core.overflow.sibling_messages import (
    Frozen,
    Give,
    Installed,
    Limits,
    SiblingLoad,
    SiblingMessage,
    number_after,
)
from spillover.core.overflow.site_shares import SiteShares
from spillover.core.overflow.views import Views
from spillover.policy.overflow.siblings import evened, goes_first

BEAT_S = 0.25
"""The longest time, in seconds, between two messages of a node on its load."""

TELL_S = 0.005
"""The shortest time, in seconds, between two messages of a node on its load. Others act on it so
much later."""

IDLE_TELL_S = 0.05
"""The same where only the number of idle servers has changed, and some were idle before."""

QUIET_S = 1.0
"""The time, in seconds, for which nothing must have waited or run at a site before its servers are
evenly divided. It is long beside what comes and goes: servers are to stay where the clients are."""


class Siblings(Views):
    """The node `number` of a site whose nodes are counted from 1 to `nodes`, and which has so many
    servers, or the tokens of a layout where these are unlike. The shell passes in what comes
    (`heard`) and which connections break (`lost`), and takes what is to be told (`take`)."""

    def __init__(
        self, number: int, nodes: int, servers: int, now_s: float, layout: Layout | None = None
    ) -> None:
        super().__init__(number, nodes, SiteShares(servers, layout), now_s)
        self._is_alike = self.own.is_alike
        self.load = 0.0
        """The work that clients of the others bring, as a share of the site's capacity."""
        self.waiting = 0
        """The number of requests that wait at the siblings with which this node shares servers, and
        have been given no server."""
        self.foreign = 0
        """The number of those requests that neighbors have sent."""
        self.idle = 0
        """The number of idle servers at those siblings."""
        self.waits = [(0, 0)] * len(self.own.lines)
        """The numbers of those requests, and of those that neighbors have sent, by line."""
        self._busy_s = now_s
        """The time when something was last under way at the site, as far as this node knows."""
        self._told: SiblingLoad | None = None
        self._told_s = now_s

    # --- what is known ------------------------------------------------------------------------

    def busy_elsewhere(self, kind: int) -> int:
        """Returns how many tokens of this class are held at siblings, as far as is known."""
        each = self.own.classes[kind]
        return max(0, each.servers - each.share - each.idle)

    def _count(self) -> None:
        self._is_news = True
        load, waiting, foreign, idle = 0.0, 0, 0, 0
        for sibling, one in self.known.items():
            if one.load is None:
                continue
            load += one.load.load
            if self._may_give(sibling, one):  # and is given by it
                waiting += one.unserved
                foreign += one.load.foreign
                idle += one.load.idle
        self.load, self.waiting, self.foreign, self.idle = load, waiting, foreign, idle
        if self._is_alike:
            self.own.classes[0].idle = idle
        else:
            self._count_parts()

    def _count_parts(self) -> None:
        """Add up by class and by line what the others have told."""
        there = [one for sibling, one in self.known.items() if self._may_give(sibling, one)]
        for kind, each in enumerate(self.own.classes):
            each.idle = sum([one.idle_in(kind) for one in there])
        loads = [one.load for one in there if one.load is not None]
        self.waits = [
            (
                sum([one.unserved_at((line,)) for one in there]),
                sum([load.lines[line].foreign for load in loads]),
            )
            for line in range(len(self.own.lines))
        ]

    # --- what happens -------------------------------------------------------------------------

    def heard(self, sender: int, message: SiblingMessage, now_s: float) -> None:
        """Take in what a sibling says. Raises ValueError if it has other classes."""
        if not self._fits(message):
            raise ValueError(f"node {sender} has other classes of tokens")
        super().heard(sender, message, now_s)

    def _fits(self, message: SiblingMessage) -> bool:
        """Returns whether the message tells of the classes and lines that there are."""
        count, lines = (0, 0) if self._is_alike else (len(self.own.classes), len(self.own.lines))
        match message:
            case SiblingLoad():
                is_like = len(message.lines) == lines and len(message.idle_of) == count
                return is_like and max(message.closed, default=-1) < len(self.own.classes)
            case Frozen() | Installed():
                limits = message.limits
                is_like = limits is None or len(limits.tokens) == count
                return len(message.share_of) == count and is_like
            case Give():
                return message.kind < len(self.own.classes)
            case _:
                return True

    def use(self, servers: int, now_s: float) -> None:
        """The site has so many servers from now on."""
        self.own.use(servers)
        # They are counted anew: what a view gave this node may have been above what it knew of.
        self._doubts = True
        self._see(now_s)

    def limit(self, tokens: Sequence[int], out: Sequence[int], now_s: float) -> None:
        """The site has so many tokens from now on, by class, and these servers are out, by the word
        of operators at this node. Each node goes by it once the next view is installed."""
        number = 0 if self.own.limits is None else self.own.limits.at[0]
        word = Limits((number_after(number), self.number), tuple(tokens), tuple(out))
        self.own.go_by(word)
        self._doubts = True  # so that a view is made, and shares are told anew
        self._see(now_s)

    def passes_over(self, age_s: float, departure_s: float, now_s: float, kind: int = 0) -> bool:
        """Returns whether a server that has become free goes to a sibling, where a request has
        waited longer than `age_s`, which is how long the oldest one here has. The server, or token
        of this class, is given then."""
        if not self.waiting or not self.is_settled or not self.own.classes[kind].share:
            return False
        oldest_s, oldest, lines = age_s, None, self.own.classes[kind].lines
        for sibling, one in self.known.items():
            if one.load is None or one.given or not one.unserved_at(lines):
                continue
            if not self._needs(kind, sibling, one):
                continue
            there_s = one.age_s(lines, now_s)
            if there_s > oldest_s and goes_first(there_s, age_s, departure_s):
                oldest_s, oldest = there_s, sibling
        if oldest is not None:
            self._give(oldest, 1, kind)
        return oldest is not None

    def note(self, waiting: int, busy: int, now_s: float) -> bool:
        """Note how many requests wait and run now, at a pool whose servers are alike and up, and
        which does not leave. Returns whether that is all there is to do, as after most events; else
        `demands` is to be called."""
        told = self._told
        if self._is_news or told is None:
            return False
        idle = 0 if waiting or self.own.share <= busy else self.own.share - busy
        self._tell_s = self._told_s + _pause_s(told, waiting, idle)
        if now_s >= self._tell_s or (idle and self.waiting):
            return False
        if waiting or self.waiting or idle + self.idle < self.own.servers:
            self._busy_s = now_s
            return True
        return now_s < self._busy_s + QUIET_S

    def note_tokens(self, idle_of: Sequence[int], now_s: float) -> bool:
        """Note how many tokens are idle now, by class, where nothing waits. Returns as `note`."""
        told = self._told
        if self._is_news or told is None or told.waiting or self.waiting:
            return False
        self._tell_s = self._told_s + _pause_of_s(told.idle_of, idle_of)
        if now_s >= self._tell_s:
            return False
        if sum(idle_of) + self.idle < self.own.servers:
            self._busy_s = now_s
            return True
        return now_s < self._busy_s + QUIET_S

    def demands(self, demand: Demand, now_s: float, *, gives_all: bool = False) -> None:
        """Take in the pool's state. Idle servers go where requests wait; with `gives_all` all of
        them go."""
        has_turned, self._demand = demand.leaves != self._demand.leaves, demand
        if has_turned:
            self._see(now_s)
        idle_of = self._own_idle()
        if self.is_settled:
            if self.waiting or gives_all or demand.closed:
                self._give_idle(idle_of, gives_all=gives_all)
            self._even_out(idle_of, now_s)
        self._tell_if_due(idle_of, now_s)
        self._is_news = not demand.can_run or demand.leaves

    def take(self) -> list[Tell]:
        """Returns the messages that are to be sent, in order, and counts them as sent. It is to be
        called after `demands`."""
        if self._asks:
            self._tells += self._asks
            self._asks = []
        tells = self._tells
        if tells:
            self._tells = []
        return tells

    def begin_alone(self, now_s: float) -> None:
        """Have all servers, and a view without others: this node was the only one until now."""
        self.own.have_all()
        self._begin_alone(now_s)

    # --- servers ------------------------------------------------------------------------------

    def _own_idle(self) -> list[int]:
        """Returns how many servers of the share are idle, by class."""
        demand, classes = self._demand, self.own.classes
        if self._is_alike:
            if demand.waiting and demand.can_run:
                return [0]
            return [max(0, classes[0].share - demand.busy)]
        busy_of = demand.busy_of or (0,) * len(classes)
        return [max(0, each.share - busy) for each, busy in zip(classes, busy_of, strict=True)]

    def _waits_here(self, kind: int) -> bool:
        """Returns whether a request here has use for a token of this class."""
        demand = self._demand
        if self._is_alike:
            return demand.waiting > 0
        return bool(demand.lines) and any(
            demand.lines[line].waiting for line in self.own.classes[kind].lines
        )

    def _give_idle(self, idle_of: list[int], *, gives_all: bool) -> None:
        """Give idle servers to siblings: to those where requests wait, and all of a class of which
        nothing can start here to whom they may be of use."""
        closed = frozenset(self._demand.closed)
        for kind, each in enumerate(self.own.classes):
            while idle_of[kind] and (there := self._neediest(kind)) is not None:
                count = min(idle_of[kind], self.known[there].unserved_at(each.lines))
                self._give(there, count, kind)
                idle_of[kind] -= count
            if idle_of[kind] and (kind in closed or (gives_all and not self._waits_here(kind))):
                self._give_all(kind, idle_of)

    def _give_all(self, kind: int, idle_of: list[int]) -> None:
        # Nodes that leave get none, too: they would give them back at once.
        others, idle = sorted(self._staying(kind)), idle_of[kind]
        for place, other in enumerate(others):
            part = idle // len(others) + (place < idle % len(others))
            if part:
                self._give(other, part, kind)
                idle_of[kind] -= part

    def _even_out(self, idle_of: list[int], now_s: float) -> None:
        """Give the poorest node a part of this node's servers, if this is the richest one and
        nothing is under way at the site.

        A node that has come late has no servers otherwise until it needs them. That nothing is
        under way is seen from the sum: a server that runs something is idle at no node.
        """
        if self._demand.waiting or self.waiting or sum(idle_of) + self.idle < self.own.servers:
            self._busy_s = now_s
            return
        if now_s < self._busy_s + QUIET_S:
            return
        for kind, idle in enumerate(idle_of):
            if (gift := evened(self.number, idle, self._staying(kind))) is not None:
                self._give(*gift, kind)
                idle_of[kind] -= gift[1]

    def _staying(self, kind: int) -> dict[int, int]:
        """Returns the idle tokens of a class, by sibling, of those that can be given some and do
        not leave."""
        return {
            number: one.idle_in(kind)
            for number, one in self.known.items()
            if one.load is not None and not one.load.leaves and self._may_use(kind, number, one)
        }

    def _neediest(self, kind: int) -> int | None:
        best, most, lines = None, 0, self.own.classes[kind].lines
        for sibling, one in self.known.items():
            if one.load is None or not one.load.waiting:
                continue  # as is mostly so
            unserved = one.unserved_at(lines)
            if unserved > most and self._needs(kind, sibling, one):
                best, most = sibling, unserved
        return best

    def _may_give(self, sibling: int, one: Sibling) -> bool:
        """Returns whether a server that is given to a sibling arrives there: the sibling is in the
        view, and hears this node."""
        return sibling in self.members and one.load is not None and self.number in one.load.hears

    def _may_use(self, kind: int, sibling: int, one: Sibling) -> bool:
        """Returns whether a token of this class arrives there and is of use."""
        if not self._may_give(sibling, one):
            return False
        return one.load is not None and kind not in one.load.closed

    def _needs(self, kind: int, sibling: int, one: Sibling) -> bool:
        """Returns whether a token of this class is of use there to a request that waits. Of the
        class of an idle one no more are: requests wait that its servers have refused."""
        has_idle = one.load is not None and bool(one.load.idle_of) and one.load.idle_of[kind] > 0
        return not has_idle and self._may_use(kind, sibling, one)

    def _give(self, sibling: int, servers: int, kind: int) -> None:
        self.own.give(servers, kind)
        self.known[sibling].gets(servers, self.own.classes[kind].lines)
        self._count()
        self._tells.append(Tell(sibling, Give(self.view, servers, kind)))

    # --- the load -----------------------------------------------------------------------------

    def _tell_at_s(self, idle_of: Sequence[int]) -> float:
        """Returns the time when the load is to be told next."""
        told, demand = self._told, self._demand
        if told is None or (told.hears, told.view, told.leaves) != (
            self._hears,
            self._told_view,
            demand.leaves,
        ):
            return self._told_s
        if self._is_alike:
            return self._told_s + _pause_s(told, demand.waiting, idle_of[0])
        before, now = [one.waiting for one in told.lines], [one.waiting for one in demand.lines]
        if before != now or told.closed != demand.closed:
            return self._told_s + TELL_S
        return self._told_s + _pause_of_s(told.idle_of, idle_of)

    def _tell_if_due(self, idle_of: list[int], now_s: float) -> None:
        if self._is_alike and not self._demand.can_run:
            idle_of = [0]  # they are of no use
        self._tell_s = self._tell_at_s(idle_of)
        if now_s >= self._tell_s:
            self._tell_load(idle_of, now_s)
            self._tell_s = now_s + BEAT_S

    def _tell_load(self, idle_of: Sequence[int], now_s: float) -> None:
        demand = self._demand
        told = (demand.waiting, demand.foreign, sum(idle_of), demand.age_s, demand.load)
        parts = demand.leaves, demand.lines, () if self._is_alike else tuple(idle_of), demand.closed
        self._told = SiblingLoad(self._hears, self._told_view, *told, *parts)
        self._told_s = now_s
        for other in sorted((self._all | self.known.keys()) - {self.number}):
            self._tells.append(Tell(other, self._told))


def _pause_s(told: SiblingLoad, waiting: int, idle: int) -> float:
    """Returns how long after this was told the load is told anew, if so many wait and are idle
    now."""
    if told.waiting != waiting or (not told.idle) != (not idle):
        return TELL_S
    return BEAT_S if told.idle == idle else IDLE_TELL_S


def _pause_of_s(told: Sequence[int], idle: Sequence[int]) -> float:
    """Returns the same where so many tokens were told to be idle, by class, and are now, and what
    waits is as it was."""
    if any((not before) != (not now) for before, now in zip(told, idle, strict=True)):
        return TELL_S
    is_same = all(before == now for before, now in zip(told, idle, strict=True))
    return BEAT_S if is_same else IDLE_TELL_S
