"""The views of one node of a site: which nodes hear each other, and go by the same shares.

Theory of operation (decision 0049). Nodes that hear each other are in one *view*. When a node comes
or goes, the lowest one makes the next view: each node tells its share (`Prepare`, `Frozen`), and
gives and takes nothing until the view is installed (`Installed`). Servers that are missing from the
sum of the shares are given to the nodes then; those on which a lost node may still run something
are given out once that is over.

Views know nothing of configurations. A node that has left the site (its number is above `nodes`)
drains, gives its servers away, and is in the views as long as it is heard. A node that is new to
the site is in the next view once it is heard.

Not here: the share of a node (`site_shares`), and how shares change in a view (`siblings`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from spillover.core.overflow.sibling import NO_DEMAND, Demand, Sibling, Tell
from spillover.core.overflow.sibling_messages import (
    NO_VIEW,
    Frozen,
    Give,
    Installed,
    Prepare,
    SiblingLoad,
    SiblingMessage,
    View,
    is_later,
    later,
    number_after,
)
from spillover.core.overflow.site_shares import SiteShares

SILENCE_S = 1.0
"""The time, in seconds, after which a silent sibling is lost."""

ABSENT_S = 1.5
"""The time, in seconds, for which a node waits for siblings before it makes a view without them. If
no sibling that it hears has been in a view, it waits for all; else for those whom others hear. It
is above SILENCE_S."""

RETRY_S = 0.5
"""The time, in seconds, after which a view is made anew if a node has not answered."""

RECONNECT_S = 0.5
"""The time, in seconds, for which no view is made without a node whose stream has ended, unless
nothing listens there any more. The stream may be open again by then, and the node has its share all
the while."""


class Patience:
    """The time for which a node waits for others before it makes a view without them."""

    def __init__(self, now_s: float) -> None:
        self._started_s = now_s
        self._met: frozenset[int] = frozenset()
        """The nodes that have been up, and have not been seen dead since."""
        self._until_s: dict[int, float] = {}
        """The time, by node that is missing, when a view is made without it."""
        self.back_by_s: dict[int, float] = {}
        """The time, by sibling, when a view is made without it, as its stream has ended though it
        may still be there."""
        self.waits_until_s = -math.inf
        """The time before which no view is made, or made again."""

    def meet(self, up: frozenset[int]) -> None:
        if not up <= self._met:
            self._met |= up

    def part(self, dead: int) -> None:
        """Note that a node is dead: it is waited for as if it had never been up."""
        self._met -= {dead}

    def is_over(
        self, up: AbstractSet[int], missing: AbstractSet[int], now_s: float, *, is_first: bool
    ) -> bool:
        """Returns whether a view of those who are up needs to wait for nobody else. Where it
        `is_first`, nodes that have not been up yet are missing since the start."""
        before, self._until_s = self._until_s, {}
        for one in missing:
            if is_first and one not in self._met:
                self._until_s[one] = self._started_s + ABSENT_S
            else:
                self._until_s[one] = before.get(one, now_s + ABSENT_S)
        waits = [s for one, s in self.back_by_s.items() if one not in up]
        until_s = max([*waits, *self._until_s.values()], default=-math.inf)
        self.waits_until_s = until_s if now_s < until_s else -math.inf
        return now_s >= until_s

    def end(self) -> None:
        """Wait for nobody: another node makes the next view."""
        self._until_s, self.waits_until_s = {}, -math.inf


class Views:
    """The views of node `number` of a site whose nodes are counted from 1 to `nodes`. The shell
    passes in what comes (`heard`) and which connections break (`lost`)."""

    def __init__(self, number: int, nodes: int, own: SiteShares, now_s: float) -> None:
        assert number >= 1
        self.own = own
        """The share of this node."""
        self.number, self.nodes = number, nodes
        self._nodes_most = nodes
        """The largest number of nodes that any configuration has had by which this node went."""
        self.view: View = NO_VIEW
        self.viewed_s = -math.inf
        """The time when the view was installed."""
        self.members: frozenset[int] = frozenset()
        self.owners: frozenset[int] = frozenset()
        """The members to which names belong."""
        self._unmet: frozenset[int] = frozenset()
        """The nodes that this one has not heard yet, and that are in the view, or may be in the one
        that was asked for last."""
        self.known: dict[int, Sibling] = {}
        """The siblings that are heard."""
        self._hears: tuple[int, ...] = ()
        """The numbers of the siblings that are heard, in order."""
        self._silence_s = math.inf
        """The time before which no sibling is lost by its silence."""
        self._promised: View = NO_VIEW
        """The latest view that this node was asked for; it is being made while it is not `view`."""
        self._latest: View = NO_VIEW
        self._answers: dict[int, Frozen] = {}
        """The nodes' answers on the view that this node makes; empty while it makes none."""
        self._wanted: frozenset[int] = frozenset()
        """The nodes of the view that this node makes."""
        self._retry_s = math.inf
        self._patience = Patience(now_s)
        self._doubts = False
        """Whether a stream to or from a node of the view has broken. Servers that were given on it
        may belong to nobody, and are to be counted anew."""
        self._is_fresh = True
        self._spare_from_s = now_s + ABSENT_S
        """The time when the work is over of those who had the servers that are spare."""
        self.is_closed = False
        """Whether the node has drained and closes its door. It takes no names any more, and only
        waits for what siblings answer its own clients. The shell sets this."""
        self._demand: Demand = NO_DEMAND
        """The pool's state when it was last told, which is not at each event."""
        self._tell_s = now_s
        """The time when the load is to be told next."""
        self._is_news = True
        """False if nothing has happened since `demands` except at a pool that runs requests."""
        self._tells: list[Tell] = []
        self._asks: list[Tell] = []
        """The messages that ask for a view. They follow the load, from which the others know that
        this node hears them."""

    # --- what is known ------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Returns whether the node is in a view, and no other one is being made."""
        return self.view == self._promised != NO_VIEW

    @property
    def leaves(self) -> bool:
        return self._demand.leaves

    @property
    def up(self) -> frozenset[int]:
        """Returns the nodes that are heard and hear this one, itself included."""
        number = self.number
        return frozenset(
            [
                number,
                *(
                    other
                    for other, one in self.known.items()
                    if one.load is not None and number in one.load.hears
                ),
            ]
        )

    @property
    def staying(self) -> list[int]:
        """Returns the siblings that are heard, hear this node, and do not drain."""
        return sorted(
            other
            for other, one in self.known.items()
            if one.load is not None and self.number in one.load.hears and not one.load.leaves
        )

    def is_done(self, sibling: int) -> bool:
        """Returns whether a sibling whose port refuses connections is done draining. It closes its
        door once nothing is left of what it had when it began but its own questions to others, or
        its time to drain is over, and takes no names from then on. What it remembers ends with
        it."""
        one = self.known.get(sibling)
        return one is not None and one.load is not None and one.load.leaves

    @property
    def gives_up(self) -> bool:
        """Returns whether a request that no node has taken yet is refused here rather than offered
        again: this node closes its door, and all others drain. Two such nodes would wait for each
        other, since neither hears the other's questions any more."""
        return self.is_closed and not self.staying

    def next_deadline(self) -> float:
        """Returns the time when something is due. It is asked for after each event."""
        due_s = min(self._silence_s, self._tell_s)
        if self.own.spare and self._is_counted:
            due_s = min(due_s, self._spare_from_s)
        if self._patience.waits_until_s > -math.inf:
            return min(due_s, self._patience.waits_until_s)
        return min(due_s, self._retry_s) if self._answers else due_s

    def has_news(self) -> None:
        """Note that the pool has changed otherwise than by what it runs: `demands` is next."""
        self._is_news = True

    def _count(self) -> None:
        """Add up what the others have told, as that has changed, or as others are heard."""
        raise NotImplementedError

    # --- what happens -------------------------------------------------------------------------

    def heard(self, sender: int, message: SiblingMessage, now_s: float) -> None:
        one = self.known.get(sender)
        if one is None:
            one = self.known[sender] = Sibling(now_s, len(self.own.lines))
            self._hears = tuple(sorted(self.known))
            self._unmet -= {sender}
        one.heard_s = now_s
        self._silence_s = min(self._silence_s, now_s + SILENCE_S)
        match message:
            case SiblingLoad():
                one.tells(message, now_s)
                self._latest = later(message.view, self._latest)
            case Prepare():
                self._prepare(sender, message, now_s)
            case Frozen():
                self._answered(sender, one, message)
            case Installed() if message.view == self._promised and not self._answers:
                self._install(message, now_s)
            case Give() if self.is_settled and message.view == self.view:
                self.own.take(message, self._nodes_there)
                one.gives(message.servers, message.kind)
            case Give() if message.view == self._promised and not self._answers:
                self.own.take_early(message)
            case _:
                pass  # it is of another view: the servers are counted anew
        self._count()
        self._see(now_s)

    def lost(self, sibling: int, now_s: float, *, is_dead: bool = False) -> None:
        """The connection to a sibling has broken. It `is_dead` where nothing listens there."""
        # Doubts arise while a view is made, too: that it is installed may have been told here.
        self._doubts |= sibling in self.members or self._promised != self.view
        back_by_s, was_known = self._patience.back_by_s, self.known.pop(sibling, None) is not None
        self._hears = tuple(sorted(self.known))
        self._count()
        if is_dead:
            self._patience.part(sibling)
        if was_known:
            back_by_s[sibling] = now_s + RECONNECT_S
        was_awaited = is_dead and back_by_s.pop(sibling, None) is not None
        if was_known or was_awaited:
            # The sibling may have gone on after its stream had ended.
            self._spare_from_s = max(self._spare_from_s, now_s + self._demand.work_s)
            self._see(now_s)

    def excuse(self, late_s: float) -> None:
        """Do not count `late_s` as silence, since this process was late by so much."""
        for one in self.known.values():
            one.heard_s += late_s

    def woke(self, now_s: float) -> None:
        if now_s >= self._silence_s:
            for sibling, one in list(self.known.items()):
                if now_s >= one.heard_s + SILENCE_S:
                    self.lost(sibling, now_s)
            heard_s = [one.heard_s for one in self.known.values()]
            self._silence_s = min(heard_s, default=math.inf) + SILENCE_S
        self._see(now_s)

    def use_nodes(self, nodes: int, now_s: float) -> None:
        """Share the site with so many nodes from now on: new ones may come, or some are leaving."""
        self.nodes, self._nodes_most = nodes, max(nodes, self._nodes_most)
        self._see(now_s)

    def _begin_alone(self, now_s: float) -> None:
        """Have a view without others: this node was the only one until now."""
        self._is_fresh = False
        self.view = self._promised = (1, self.number)
        self.members = self.owners = frozenset([self.number])
        self._latest, self.viewed_s = self.view, now_s

    @property
    def _all(self) -> frozenset[int]:
        """Returns the nodes of the site, whether they are heard or not."""
        return frozenset(range(1, self.nodes + 1))

    @property
    def _ever(self) -> frozenset[int]:
        """Returns the nodes of the site and those that have left it, which may still be there and
        have servers."""
        return frozenset(range(1, self._nodes_most + 1))

    @property
    def _held_of(self) -> tuple[int, ...]:
        """Returns how many servers are in use here, by class, as was last noted."""
        return (self._demand.busy,) if self.own.is_alike else self._demand.busy_of

    @property
    def _nodes_there(self) -> int:
        """Returns how many nodes may have a share, at most."""
        return max(self.nodes, len(self.members))

    @property
    def _told_view(self) -> View:
        return NO_VIEW if self._doubts else self._promised

    # --- views --------------------------------------------------------------------------------

    def _see(self, now_s: float) -> None:
        """Make a view if the nodes have changed, and hand out spare servers."""
        up = self.up
        self._patience.meet(up)
        if self.number == min(up) and self._has_waited(up, now_s):
            if up != (self._wanted if self._answers else self.members):
                self._make_view(up, now_s)
            elif self._answers and self._answers.keys() == self._wanted:
                self._install_all(now_s)
            elif (
                now_s >= self._retry_s
                or not (self._answers or self.is_settled)  # the node that asked for one has gone
                or (not self._answers and (self._doubts or not self._is_shared(up)))
            ):
                self._make_view(up, now_s)
        elif self.number != min(up):  # it makes the next one
            self._answers = {}
            self._patience.end()
        if self.own.spare and self._is_counted and now_s >= self._spare_from_s:
            self.own.hand_out()
        self._is_news = True

    @property
    def _is_counted(self) -> bool:
        """Returns whether the share of each node is counted: no view is being made, nor about to be
        made with a node that has come and is not in this one."""
        return self.is_settled and self.up <= self.members

    def _is_shared(self, up: frozenset[int]) -> bool:
        """Returns whether all nodes that are up go by the same view, and the same ones leave as
        when it was made. Otherwise a node has begun a new life, was asked for another view
        meanwhile, or drains."""
        leaves = {self.number: self._demand.leaves}
        for other in up - {self.number}:
            load = self.known[other].load
            if load is None or load.view != self.view:
                return False
            leaves[other] = load.leaves
        return _owners(leaves) == self.owners

    def _has_waited(self, up: frozenset[int], now_s: float) -> bool:
        """Returns whether a view of those who are up needs to wait for nobody else."""
        loads = [one.load for one in self.known.values() if one.load is not None]
        missed = self.known.keys() | self._heard_of | self._unmet
        is_first = self._promised == NO_VIEW and all(load.view == NO_VIEW for load in loads)
        # A view that was asked for by a node which has ended is none that anybody has been in.
        asked = self._promised
        is_new = self.view == NO_VIEW and asked[1] != self.number
        is_new = is_new and all(load.view in (NO_VIEW, asked) for load in loads)
        missing = (missed | self._ever if is_new else missed) - up
        return self._patience.is_over(up, missing, now_s, is_first=is_first)

    @property
    def _heard_of(self) -> frozenset[int]:
        """Returns the nodes that siblings hear; this node need not know of them yet."""
        loads = [one.load for one in self.known.values() if one.load is not None]
        return frozenset(other for load in loads for other in load.hears)

    def _make_view(self, nodes: frozenset[int], now_s: float) -> None:
        unheard = self.members & self.known.keys() - nodes
        if unheard:  # they do not hear this node, and may run on
            self._spare_from_s = max(self._spare_from_s, now_s + SILENCE_S + self._demand.work_s)
        self._latest = number_after(later(self._promised, self._latest)[0]), self.number
        self._promised, self._wanted = self._latest, nodes
        self._doubts = False
        self.own.forget_early()
        self._answers, self._retry_s = {self.number: self._frozen(now_s)}, now_s + RETRY_S
        self._asks = [
            Tell(other, Prepare(self._promised)) for other in sorted(nodes - {self.number})
        ]
        if len(nodes) == 1:
            self._install_all(now_s)

    def _prepare(self, sender: int, message: Prepare, now_s: float) -> None:
        if sender != min(self.up | {sender}):
            return
        if not is_later(message.view, self._promised):
            if message.view != self._promised:
                self._tells.append(Tell(sender, self._frozen(now_s)))
            return
        self._promised, self._answers, self._doubts = message.view, {}, False
        # They may be in that view, which may be installed at them alone if its maker dies now.
        self._unmet |= self._heard_of - self.known.keys() - {self.number}
        self.own.keep_spare(())
        self.own.forget_early()
        self._tells.append(Tell(sender, self._frozen(now_s)))

    def _answered(self, sender: int, one: Sibling, message: Frozen) -> None:
        if not self._answers or message.view != self._promised:
            self._latest = later(message.view, self._latest)  # the next view is to be later
            return
        self._answers[sender] = message
        if one.load is not None:
            one.load = replace(one.load, view=message.view, leaves=message.leaves)

    def _frozen(self, now_s: float) -> Frozen:
        part, busy_for_s = self.own.part(self._held_of), max(0.0, self._spare_from_s - now_s)
        told = (self._promised, part.share, self._is_fresh, busy_for_s, self._demand.leaves)
        return Frozen(*told, part.share_of, part.limits)

    def _install_all(self, now_s: float) -> None:
        """Install the view that this node makes, as every node of it has told its share."""
        members = tuple(sorted(self._wanted))
        answers = [self._answers[member] for member in members]
        is_whole = self._wanted >= self._ever | self.known.keys() | self._heard_of
        # Fresh nodes then need to wait for nobody.
        waits = [one.busy_for_s for one in answers if not (is_whole and one.is_fresh)]
        self._spare_from_s = now_s + max(waits, default=0.0)
        owners = tuple(sorted(_owners({one: self._answers[one].leaves for one in members})))
        parts, spare = self.own.divide(answers, whole=now_s >= self._spare_from_s)
        self._answers = {}
        for member, part in zip(members, parts, strict=True):
            installed = Installed(self._promised, members, owners, *part)
            if member == self.number:
                self._install(installed, now_s)
            else:
                self._tells.append(Tell(member, installed))
        self.own.keep_spare(spare)

    def _install(self, message: Installed, now_s: float) -> None:
        self.view, self.members = message.view, frozenset(message.members)
        self.owners = frozenset(message.owners)
        self._unmet = self.members - self.known.keys() - {self.number}
        self.own.use_part(message, self._nodes_there)
        self.own.keep_spare(())
        self._is_fresh = False
        self.viewed_s, self._retry_s = now_s, math.inf
        for one in self.known.values():
            one.forget_given()
        self._count()

    def check(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        self.own.check(len(self.known))
        assert not is_later(self.view, self._promised)
        assert not self._answers or self._promised[1] == self.number
        assert self.number not in self.known


def _owners(leaves: Mapping[int, bool]) -> frozenset[int]:
    """Returns the nodes among these to which names belong."""
    return frozenset([node for node, goes in leaves.items() if not goes] or leaves)
