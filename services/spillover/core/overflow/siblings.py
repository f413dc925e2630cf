"""One node of a site of several: its share of the site's servers, and what it knows of the others.

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

Not here: requests, and how messages travel.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from spillover.core.overflow.sibling import ClassShare, Demand, Layout, Sibling, Tell
from spillover.core.overflow.sibling_messages import (
    NO_VIEW,
    Frozen,
    Give,
    Installed,
    Limits,
    SiblingLoad,
    SiblingMessage,
    is_later,
    number_after,
)
from spillover.core.overflow.views import Part, Views
from spillover.policy.overflow.siblings import evened, goes_first, spread, trimmed

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

ALIKE = ((0,),)
"""The lines where servers are alike: one, for the one class."""

FORM_ALIKE = "1.1"
"""The form of siblings (`Siblings.form`) whose servers are alike."""


class Siblings(Views):
    """The node `number` of a site whose nodes are counted from 1 to `nodes`, and which has so many
    servers, or the tokens of a layout where these are unlike. The shell passes in what comes
    (`heard`) and which connections break (`lost`), and takes what is to be told (`take`)."""

    def __init__(
        self, number: int, nodes: int, servers: int, now_s: float, layout: Layout | None = None
    ) -> None:
        super().__init__(number, nodes, now_s)
        tokens, lines = ((servers,), ALIKE) if layout is None else layout
        self.servers = sum(tokens)
        self.lines = lines
        self.classes = [
            ClassShare(count, tuple(line for line, of in enumerate(lines) if kind in of))
            for kind, count in enumerate(tokens)
        ]
        self._is_alike = layout is None
        self.share = 0
        """The number of servers of this node, or of tokens of all classes."""
        self.limits: Limits | None = None
        """The word of operators on the tokens of the site; None while there is none."""
        self.load = 0.0
        """The work that clients of the others bring, as a share of the site's capacity."""
        self.waiting = 0
        """The number of requests that wait at the siblings with which this node shares servers, and
        have been given no server."""
        self.foreign = 0
        """The number of those requests that neighbors have sent."""
        self.idle = 0
        """The number of idle servers at those siblings."""
        self.waits = [(0, 0)] * len(lines)
        """The numbers of those requests, and of those that neighbors have sent, by line."""
        self._busy_s = now_s
        """The time when something was last under way at the site, as far as this node knows."""
        self._told: SiblingLoad | None = None
        self._told_s = now_s

    # --- what is known ------------------------------------------------------------------------

    @property
    def _line_count(self) -> int:
        return len(self.lines)

    @property
    def shares(self) -> tuple[int, ...]:
        """Returns the share of this node, by class."""
        return tuple([each.share for each in self.classes])

    @property
    def form(self) -> str:
        """Returns the numbers of classes and of lines, which are the same at all nodes."""
        return f"{len(self.classes)}.{len(self.lines)}"

    def busy_elsewhere(self, kind: int) -> int:
        """Returns how many tokens of this class are held at siblings, as far as is known."""
        each = self.classes[kind]
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
            self.classes[0].idle = idle
        else:
            self._count_parts()

    def _count_parts(self) -> None:
        """Add up by class and by line what the others have told."""
        there = [one for sibling, one in self.known.items() if self._may_give(sibling, one)]
        for kind, each in enumerate(self.classes):
            each.idle = sum([one.idle_in(kind) for one in there])
        loads = [one.load for one in there if one.load is not None]
        self.waits = [
            (
                sum([one.unserved_at((line,)) for one in there]),
                sum([load.lines[line].foreign for load in loads]),
            )
            for line in range(len(self.lines))
        ]

    # --- what happens -------------------------------------------------------------------------

    def heard(self, sender: int, message: SiblingMessage, now_s: float) -> None:
        """Take in what a sibling says. Raises ValueError if it has other classes."""
        if not self._fits(message):
            raise ValueError(f"node {sender} has other classes of tokens")
        super().heard(sender, message, now_s)

    def _fits(self, message: SiblingMessage) -> bool:
        """Returns whether the message tells of the classes and lines that there are."""
        count, lines = (0, 0) if self._is_alike else (len(self.classes), len(self.lines))
        match message:
            case SiblingLoad():
                is_like = len(message.lines) == lines and len(message.idle_of) == count
                return is_like and (not message.closed or max(message.closed) < count)
            case Frozen() | Installed():
                limits = message.limits
                is_like = limits is None or len(limits.tokens) == count
                return len(message.share_of) == count and is_like
            case Give():
                return message.kind < len(self.classes)
            case _:
                return True

    def use(self, servers: int, now_s: float) -> None:
        """The site has so many servers from now on."""
        self.servers = servers
        self.classes[0].use(servers)
        if self.number == min(self.up):
            self._doubts = True  # they are counted anew
            self._see(now_s)

    def limit(self, tokens: Sequence[int], out: Sequence[int], now_s: float) -> None:
        """The site has so many tokens from now on, by class, and these servers are out, by the word
        of operators at this node. Each node goes by it once the next view is installed."""
        number = 0 if self.limits is None else self.limits.at[0]
        word = Limits((number_after(number), self.number), tuple(tokens), tuple(out))
        self._go_by(word)
        self._doubts = True  # so that a view is made, and shares are told anew
        self._see(now_s)

    def _go_by(self, limits: Limits | None) -> None:
        """Go by the word of operators, unless a later one is known."""
        own = NO_VIEW if self.limits is None else self.limits.at
        if limits is None or not is_later(limits.at, own):
            return
        self.limits = limits
        for each, tokens in zip(self.classes, limits.tokens, strict=True):
            each.use(tokens)
        self.servers = sum(limits.tokens)

    def passes_over(self, age_s: float, departure_s: float, now_s: float, kind: int = 0) -> bool:
        """Returns whether a server that has become free goes to a sibling, where a request has
        waited longer than `age_s`, which is how long the oldest one here has. The server, or token
        of this class, is given then."""
        if not self.waiting or not self.is_settled or not self.classes[kind].share:
            return False
        oldest_s, oldest, lines = age_s, None, self.classes[kind].lines
        for sibling, one in self.known.items():
            if one.load is None or one.given or not one.unserved_at(lines):
                continue
            if not self._may_use(kind, sibling, one):
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
        idle = 0 if waiting or self.share <= busy else self.share - busy
        self._tell_s = self._told_s + _pause_s(told, waiting, idle)
        if now_s >= self._tell_s or (idle and self.waiting):
            return False
        if waiting or self.waiting or idle + self.idle < self.servers:
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
        if sum(idle_of) + self.idle < self.servers:
            self._busy_s = now_s
            return True
        return now_s < self._busy_s + QUIET_S

    def demands(self, demand: Demand, now_s: float, *, gives_all: bool = False) -> None:
        """Take in the pool's state. Idle servers go where requests wait; with `gives_all` all of
        them go."""
        has_turned, self._demand = demand.leaves != self._demand.leaves, demand
        if has_turned:
            self._see(now_s)
        if self.is_settled:
            for kind in range(len(self.classes)):
                self._give_idle(kind, gives_all=gives_all)
            self._even_out(now_s)
        self._tell_if_due(now_s)
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
        for each in self.classes:
            each.share = each.servers
        self._add_up()
        self._begin_alone(now_s)

    # --- servers ------------------------------------------------------------------------------

    def _add_up(self) -> None:
        """Add up the shares, as one has changed."""
        self.share = sum([each.share for each in self.classes])
        self._spare = sum([each.spare for each in self.classes])

    def _share_max(self, each: ClassShare) -> int:
        """Returns the largest share that is believed, whatever a sibling tells. The shares of nodes
        that were cut off from each other may add up to more than `servers`, and siblings may go by
        another number."""
        return each.servers * max(self.nodes, len(self.members))

    def _own_idle(self, kind: int) -> int:
        demand, share = self._demand, self.classes[kind].share
        if not self._is_alike:
            busy = demand.busy_of[kind] if demand.busy_of else 0
            return max(0, share - busy)
        if demand.waiting and demand.can_run:
            return 0
        return share - demand.busy if share > demand.busy else 0

    def _waits_here(self, kind: int) -> bool:
        """Returns whether a request here has use for a token of this class."""
        demand = self._demand
        if self._is_alike:
            return demand.waiting > 0
        return bool(demand.lines) and any(
            demand.lines[line].waiting for line in self.classes[kind].lines
        )

    def _give_idle(self, kind: int, *, gives_all: bool) -> None:
        idle, lines = self._own_idle(kind), self.classes[kind].lines
        while idle and (there := self._neediest(kind)) is not None:
            count = min(idle, self.known[there].unserved_at(lines))
            self._give(there, count, kind)
            idle -= count
        if not (gives_all and idle) or self._waits_here(kind):
            return
        # Nodes that leave get none, too: they would give them back at once.
        others = sorted(self._staying(kind))
        if others:
            for place, other in enumerate(others):
                part = idle // len(others) + (place < idle % len(others))
                if part:
                    self._give(other, part, kind)

    def _even_out(self, now_s: float) -> None:
        """Give the poorest node a part of this node's servers, if this is the richest one and
        nothing is under way at the site.

        A node that has come late has no servers otherwise until it needs them. That nothing is
        under way is seen from the sum: a server that runs something is idle at no node.
        """
        own = [self._own_idle(kind) for kind in range(len(self.classes))]
        if self._demand.waiting or self.waiting or sum(own) + self.idle < self.servers:
            self._busy_s = now_s
            return
        if now_s < self._busy_s + QUIET_S:
            return
        for kind, idle in enumerate(own):
            if (gift := evened(self.number, idle, self._staying(kind))) is not None:
                self._give(*gift, kind)

    def _staying(self, kind: int) -> dict[int, int]:
        """Returns the idle tokens of a class, by sibling, of those that can be given some and do
        not leave."""
        return {
            number: one.idle_in(kind)
            for number, one in self.known.items()
            if one.load is not None and not one.load.leaves and self._may_use(kind, number, one)
        }

    def _neediest(self, kind: int) -> int | None:
        best, most, lines = None, 0, self.classes[kind].lines
        for sibling, one in self.known.items():
            if one.load is None or not one.load.waiting:
                continue  # as is mostly so
            unserved = one.unserved_at(lines)
            if unserved > most and self._may_use(kind, sibling, one):
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

    def _give(self, sibling: int, servers: int, kind: int) -> None:
        each = self.classes[kind]
        each.share -= servers
        self.share -= servers
        self.known[sibling].gets(servers, each.lines)
        self._count()
        self._tells.append(Tell(sibling, Give(self.view, servers, kind)))

    def _given(self, one: Sibling, message: Give) -> None:
        each = self.classes[message.kind]
        if self.is_settled and message.view == self.view:
            each.share = min(each.share + message.servers, self._share_max(each))
            self._add_up()
            if one.load is not None:
                one.load = _less_idle(one.load, message)
        elif message.view == self._promised and not self._answers:
            each.early += message.servers  # the giver has installed the view sooner

    # --- shares in views ----------------------------------------------------------------------

    def _forget_early(self) -> None:
        for each in self.classes:
            each.early = 0

    def _part(self) -> Part:
        return Part(self.share, () if self._is_alike else self.shares, self.limits)

    def _divide(self, answers: Sequence[Frozen], *, whole: bool) -> tuple[list[Part], list[int]]:
        for one in answers:
            self._go_by(one.limits)
        shares_of, left = [], []
        for kind, each in enumerate(self.classes):
            told = [one.share_of[kind] if one.share_of else one.share for one in answers]
            shares = trimmed([min(share, each.servers) for share in told], each.servers)
            spare = each.servers - sum(shares)
            if whole:
                # Classes begin at different nodes: few of them may have a token for each node.
                shares, spare = spread(shares, spare, first=kind), 0
            shares_of.append(shares)
            left.append(spare)
        parts = [
            Part(sum(share_of), () if self._is_alike else share_of, self.limits)
            for share_of in zip(*shares_of, strict=True)
        ]
        return parts, left

    def _use_part(self, message: Installed) -> None:
        self._go_by(message.limits)
        for each, share in zip(self.classes, message.share_of or (message.share,), strict=True):
            each.share = min(share + each.early, self._share_max(each))
        self._add_up()

    def _keep_spare(self, spare: Sequence[int]) -> None:
        for kind, each in enumerate(self.classes):
            each.spare = spare[kind] if spare else 0
        self._add_up()

    def _hand_out(self) -> None:
        for each in self.classes:
            each.share += each.spare
            each.spare = 0
        self._add_up()

    # --- the load -----------------------------------------------------------------------------

    def _idle_told(self) -> list[int]:
        """Returns how many servers are idle, by class, that could run something here."""
        demand = self._demand
        if not demand.can_run:
            return [0] * len(self.classes)
        return [
            0 if kind in demand.closed else self._own_idle(kind)
            for kind in range(len(self.classes))
        ]

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

    def _tell_if_due(self, now_s: float) -> None:
        idle_of = self._idle_told()
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

    def check(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        super().check()
        for each in self.classes:
            assert 0 <= each.share <= each.servers_most * (1 + len(self.known))
        assert self.share == sum(self.shares)


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


def _less_idle(load: SiblingLoad, message: Give) -> SiblingLoad:
    """Returns the load of a node that has given servers since it told that."""
    idle = max(0, load.idle - message.servers)
    if not load.idle_of:
        return replace(load, idle=idle)
    idle_of = list(load.idle_of)
    idle_of[message.kind] = max(0, idle_of[message.kind] - message.servers)
    return replace(load, idle=idle, idle_of=tuple(idle_of))
