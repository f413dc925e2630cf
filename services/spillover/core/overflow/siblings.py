"""One node of a site of several: its share of the site's servers, and what it knows of the others.

Theory of operation (decision 0049). Servers go to where requests wait, not requests to servers. A
node with idle servers gives them to a sibling with waiting requests. A node whose own queue is
younger gives away the server that becomes free. A request stays in the process that accepted it.

Nodes that hear each other are in one *view*. In a view shares change by `Give` alone, which the
giver takes off its share before it is sent: their sum is never above `servers`. When a node comes
or goes, the lowest one makes the next view. Each node tells its share, and gives and takes nothing
until the view is installed. Servers that are missing from the sum of the shares are given to the
nodes then; those on which a lost node may still run something are given out once that is over.

A node that is only cut off keeps its share and goes on, and the others take it over all the same:
as long as parts of a site do not hear each other, each may run up to `servers`. When they hear each
other again, the shares are trimmed.

Views know nothing of configurations. A node that has left the site (its number is above `nodes`)
drains, gives its servers away, and is in the views as long as it is heard. A node that is new to
the site is in the next view once it is heard.

Not here: requests, and how messages travel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

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
from spillover.policy.overflow.siblings import evened, goes_first, spread, trimmed

SILENCE_S = 1.0
"""The time, in seconds, after which a silent sibling is lost."""

BEAT_S = 0.25
"""The longest time, in seconds, between two messages of a node on its load."""

TELL_S = 0.005
"""The shortest time, in seconds, between two messages of a node on its load. Others act on it so
much later."""

IDLE_TELL_S = 0.05
"""The same where only the number of idle servers has changed, and some were idle before."""

ABSENT_S = 1.5
"""The time, in seconds, for which a node waits for siblings before it makes a view without them. If
no sibling that it hears has been in a view, it waits for all; else for those whom others hear. It
is above SILENCE_S."""


QUIET_S = 1.0
"""The time, in seconds, for which nothing must have waited or run at a site before its servers are
evenly divided. It is long beside what comes and goes: servers are to stay where the clients are."""

RETRY_S = 0.5
"""The time, in seconds, after which a view is made anew if a node has not answered."""

RECONNECT_S = 0.5
"""The time, in seconds, for which no view is made without a node whose stream has ended, unless
nothing listens there any more. The stream may be open again by then, and the node has its share all
the while."""


class Tell(NamedTuple):
    """A message to a sibling."""

    to: int
    message: SiblingMessage


class Demand(NamedTuple):
    """The state of a node's pool."""

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


NO_DEMAND = Demand(0, 0, 0, 0.0, 0.0, can_run=True, leaves=False, work_s=0.0)


class Sibling:
    """The knowledge of a node about a sibling."""

    __slots__ = ("given", "heard_s", "load", "told_s")

    def __init__(self, now_s: float) -> None:
        self.heard_s = now_s
        self.load: SiblingLoad | None = None
        self.told_s = now_s
        """The time when `load` came."""
        self.given = 0
        """The number of servers that were given to the sibling since."""

    @property
    def unserved(self) -> int:
        """Returns how many requests wait there for which no server has been given."""
        return 0 if self.load is None else max(0, self.load.waiting - self.given)


class Siblings:
    """The node `number` of a site whose nodes are counted from 1 to `nodes`. The shell passes in
    what comes (`heard`) and which connections break (`lost`), and takes what is to be told
    (`take`)."""

    def __init__(  # noqa: PLR0915 - no more than what it remembers
        self, number: int, nodes: int, servers: int, now_s: float
    ) -> None:
        assert number >= 1
        self.number, self.nodes, self.servers = number, nodes, servers
        self._nodes_most = nodes
        """The largest number of nodes that any configuration has had by which this node went."""
        self.share = 0
        self.view: View = NO_VIEW
        self.viewed_s = -math.inf
        """The time when the view was installed."""
        self.members: frozenset[int] = frozenset()
        """The nodes of the view."""
        self.owners: frozenset[int] = frozenset()
        """The members to which names belong."""
        self._unmet: frozenset[int] = frozenset()
        """The members that this node has not heard yet, while others do."""
        self.known: dict[int, Sibling] = {}
        """The siblings that are heard."""
        self._hears: tuple[int, ...] = ()
        """The numbers of the siblings that are heard, in order."""
        self.load = 0.0
        """The work that clients of the others bring, as a share of the site's capacity."""
        self.waiting = 0
        """The number of requests that wait at the siblings with which this node shares servers, and
        have been given no server."""
        self.foreign = 0
        """The number of those requests that neighbors have sent."""
        self.idle = 0
        """The number of idle servers at those siblings."""
        self._promised: View = NO_VIEW
        """The latest view that this node was asked for; it is being made while it is not `view`."""
        self._answers: dict[int, Frozen] = {}
        """The nodes' answers on the view that this node makes; empty while it makes none."""
        self._latest: View = NO_VIEW
        """The latest view that was heard of."""
        self._retry_s = math.inf
        self._started_s = now_s
        self._patience_s = math.inf
        """The time when a view is made without the nodes that are missing; infinity where none
        are."""
        self._waits_until_s = -math.inf
        """The time before which no view is made, or made again."""
        self._wanted: frozenset[int] = frozenset()
        """The nodes of the view that this node makes."""
        self._doubts = False
        """Whether a stream to or from a node of the view has broken. Servers that were given on it
        may belong to nobody, and are to be counted anew."""
        self._early = 0
        """The number of servers that were given in the view that is being made."""
        self._is_fresh = True
        self.is_closed = False
        """Whether the node has drained and closes its door. It takes no names any more, and only
        waits for what siblings answer its own clients. The shell sets this."""
        self._spare = 0
        """The number of servers that no node of the view has; 0 except at the node that has made
        it."""
        self._spare_from_s = now_s + ABSENT_S
        """The time when the work of those who had them is over."""
        self._back_by_s: dict[int, float] = {}
        """The time, by sibling, when a view is made without it, as its stream has ended though it
        may still be there."""
        self._demand = NO_DEMAND
        """The pool's state when it was last told, which is not at each event."""
        self._waiting = self._busy = 0
        """The numbers of requests that wait and run here, as of the last event."""
        self._busy_s = now_s
        """The time when something was last under way at the site, as far as this node knows."""
        self._told: SiblingLoad | None = None
        self._told_s = now_s
        self._tell_s = now_s
        """The time when the load is to be told next."""
        self._silence_s = math.inf
        """The time before which no sibling is lost by its silence."""
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
        """Returns whether this node drains."""
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

    def _count(self) -> None:
        """Add up what the others have told, as that has changed, or as others are heard."""
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

    def next_deadline(self) -> float:
        """Returns the time when something is due. It is asked for after each event."""
        due_s = min(self._silence_s, self._tell_s)
        if self._spare and self._is_counted:
            due_s = min(due_s, self._spare_from_s)
        if self._waits_until_s > -math.inf:
            return min(due_s, self._waits_until_s)
        return min(due_s, self._retry_s) if self._answers else due_s

    # --- what happens -------------------------------------------------------------------------

    def heard(self, sender: int, message: SiblingMessage, now_s: float) -> None:
        """Take in what a sibling says."""
        one = self.known.get(sender)
        if one is None:
            one = self.known[sender] = Sibling(now_s)
            self._hears = tuple(sorted(self.known))
            self._unmet -= {sender}
        one.heard_s = now_s
        self._silence_s = min(self._silence_s, now_s + SILENCE_S)
        match message:
            case SiblingLoad():
                one.load, one.told_s, one.given = message, now_s, 0
                self._latest = later(message.view, self._latest)
            case Prepare():
                self._prepare(sender, message, now_s)
            case Frozen():
                self._answered(sender, one, message)
            case Installed() if message.view == self._promised and not self._answers:
                self._install(message, now_s)
            case Give() if self.is_settled and message.view == self.view:
                self.share = min(self.share + message.servers, self._share_max)
                if one.load is not None:
                    idle = max(0, one.load.idle - message.servers)
                    one.load = replace(one.load, idle=idle)
            case Give() if message.view == self._promised and not self._answers:
                self._early += message.servers  # the giver has installed the view sooner
            case _:
                pass  # it is of another view: the servers are counted anew
        self._count()
        self._see(now_s)

    def lost(self, sibling: int, now_s: float, *, is_dead: bool = False) -> None:
        """The connection to a sibling has broken. It `is_dead` where nothing listens there."""
        # Doubts arise while a view is made, too: that it is installed may have been told here.
        self._doubts |= sibling in self.members or self._promised != self.view
        was_known = self.known.pop(sibling, None) is not None
        self._hears = tuple(sorted(self.known))
        self._count()
        if was_known:
            self._back_by_s[sibling] = now_s + RECONNECT_S
        was_awaited = is_dead and self._back_by_s.pop(sibling, None) is not None
        if was_known or was_awaited:
            # The sibling may have gone on after its stream had ended.
            self._spare_from_s = max(self._spare_from_s, now_s + self._demand.work_s)
            self._see(now_s)

    def excuse(self, late_s: float) -> None:
        """Do not count `late_s` as silence, since this process was late by so much."""
        for one in self.known.values():
            one.heard_s += late_s

    def woke(self, now_s: float) -> None:
        """Do what is due."""
        if now_s >= self._silence_s:
            for sibling, one in list(self.known.items()):
                if now_s >= one.heard_s + SILENCE_S:
                    self.lost(sibling, now_s)
            heard_s = [one.heard_s for one in self.known.values()]
            self._silence_s = min(heard_s, default=math.inf) + SILENCE_S
        self._see(now_s)

    def use(self, servers: int, now_s: float) -> None:
        """The site has so many servers from now on."""
        self.servers = servers
        if self.number == min(self.up):
            self._doubts = True  # they are counted anew
            self._see(now_s)

    def passes_over(self, age_s: float, departure_s: float, now_s: float) -> bool:
        """Returns whether a server that has become free goes to a sibling, where a request has
        waited longer than `age_s`, which is how long the oldest one here has. The server is given
        then."""
        if not self.waiting or not self.is_settled or not self.share:
            return False
        oldest_s, oldest = age_s, None
        for sibling, one in self.known.items():
            if one.load is None or one.given or not one.unserved:
                continue
            if not self._may_give(sibling, one):
                continue
            there_s = one.load.age_s + (now_s - one.told_s)
            if there_s > oldest_s and goes_first(there_s, age_s, departure_s):
                oldest_s, oldest = there_s, sibling
        if oldest is not None:
            self._give(oldest, 1)
        return oldest is not None

    def note(self, waiting: int, busy: int, now_s: float) -> bool:
        """Note how many requests wait and run now, at a pool whose servers are up and which does
        not leave. Returns whether that is all there is to do, as after most events; else `demands`
        is to be called."""
        told = self._told
        if self._is_news or told is None:
            return False
        self._waiting, self._busy = waiting, busy
        idle = 0 if waiting or self.share <= busy else self.share - busy
        self._tell_s = self._told_s + _pause_s(told, waiting, idle)
        if now_s >= self._tell_s or (idle and self.waiting):
            return False
        if waiting or self.waiting or idle + self.idle < self.servers:
            self._busy_s = now_s
            return True
        return now_s < self._busy_s + QUIET_S

    def demands(self, demand: Demand, now_s: float, *, gives_all: bool = False) -> None:
        """Take in the pool's state. Idle servers go where requests wait; with `gives_all` all of
        them go."""
        has_turned, self._demand = demand.leaves != self._demand.leaves, demand
        self._waiting, self._busy = demand.waiting, demand.busy
        if has_turned:
            self._see(now_s)
        if self.is_settled:
            self._give_idle(gives_all=gives_all)
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

    def use_nodes(self, nodes: int, now_s: float) -> None:
        """Share the site with so many nodes from now on: new ones may come, or some are leaving."""
        self.nodes, self._nodes_most = nodes, max(nodes, self._nodes_most)
        self._see(now_s)

    def begin_alone(self, now_s: float) -> None:
        """Have all servers, and a view without others: this node was the only one until now."""
        self.share, self._is_fresh = self.servers, False
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
    def _share_max(self) -> int:
        """Returns the largest share that is believed, whatever a sibling tells. The shares of nodes
        that were cut off from each other may add up to more than `servers`, and siblings may go by
        another number."""
        return self.servers * max(self.nodes, len(self.members))

    # --- servers ------------------------------------------------------------------------------

    @property
    def _own_idle(self) -> int:
        if self._waiting and self._demand.can_run:
            return 0
        return self.share - self._busy if self.share > self._busy else 0

    def _give_idle(self, *, gives_all: bool) -> None:
        idle = self._own_idle
        while idle and (there := self._neediest()) is not None:
            count = min(idle, self.known[there].unserved)
            self._give(there, count)
            idle -= count
        if not (gives_all and idle) or self._waiting:
            return
        # Nodes that leave get none, too: they would give them back at once.
        others = sorted(self._staying())
        if others:
            for place, other in enumerate(others):
                part = idle // len(others) + (place < idle % len(others))
                if part:
                    self._give(other, part)

    def _even_out(self, now_s: float) -> None:
        """Give the poorest node a part of this node's servers, if this is the richest one and
        nothing is under way at the site.

        A node that has come late has no servers otherwise until it needs them. That nothing is
        under way is seen from the sum: a server that runs something is idle at no node.
        """
        own = self._own_idle
        if self._waiting or self.waiting or own + self.idle < self.servers:
            self._busy_s = now_s
            return
        is_quiet = now_s >= self._busy_s + QUIET_S
        if is_quiet and (gift := evened(self.number, own, self._staying())) is not None:
            self._give(*gift)

    def _staying(self) -> dict[int, int]:
        """Returns the idle servers, by sibling, of those that can be given some and do not
        leave."""
        return {
            number: one.load.idle
            for number, one in self.known.items()
            if one.load is not None and not one.load.leaves and self._may_give(number, one)
        }

    def _neediest(self) -> int | None:
        best, most = None, 0
        for sibling, one in self.known.items():
            if one.load is None or one.load.waiting - one.given <= most:
                continue  # as is mostly so
            if self._may_give(sibling, one):
                best, most = sibling, one.unserved
        return best

    def _may_give(self, sibling: int, one: Sibling) -> bool:
        """Returns whether a server that is given to a sibling arrives there: the sibling is in the
        view, and hears this node."""
        return sibling in self.members and one.load is not None and self.number in one.load.hears

    def _give(self, sibling: int, servers: int) -> None:
        self.share -= servers
        self.known[sibling].given += servers
        self._count()
        self._tells.append(Tell(sibling, Give(self.view, servers)))

    # --- the load -----------------------------------------------------------------------------

    @property
    def _told_view(self) -> View:
        return NO_VIEW if self._doubts else self._promised

    @property
    def _told_idle(self) -> int:
        return self._own_idle if self._demand.can_run else 0

    def _tell_at_s(self) -> float:
        """Returns the time when the load is to be told next."""
        told = self._told
        if told is None or (told.hears, told.view, told.leaves) != (
            self._hears,
            self._told_view,
            self._demand.leaves,
        ):
            return self._told_s
        return self._told_s + _pause_s(told, self._waiting, self._told_idle)

    def _tell_if_due(self, now_s: float) -> None:
        self._tell_s = self._tell_at_s()
        if now_s >= self._tell_s:
            self._tell_load(now_s)
            self._tell_s = now_s + BEAT_S

    def _tell_load(self, now_s: float) -> None:
        demand = self._demand
        told = (self._waiting, demand.foreign, self._told_idle, demand.age_s, demand.load)
        self._told = SiblingLoad(self._hears, self._told_view, *told, demand.leaves)
        self._told_s = now_s
        for other in sorted((self._all | self.known.keys()) - {self.number}):
            self._tells.append(Tell(other, self._told))

    # --- views --------------------------------------------------------------------------------

    def _see(self, now_s: float) -> None:
        """Make a view if the nodes have changed, and hand out spare servers."""
        up = self.up
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
            self._answers, self._patience_s, self._waits_until_s = {}, math.inf, -math.inf
        if self._spare and self._is_counted and now_s >= self._spare_from_s:
            self.share += self._spare
            self._spare = 0
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
        # A view that was asked for by a node which has ended is none that anybody has been in.
        asked = NO_VIEW if self._promised[1] == self.number else self._promised
        is_first = self.view == NO_VIEW and all(load.view in (NO_VIEW, asked) for load in loads)
        until_s = max([s for one, s in self._back_by_s.items() if one not in up], default=-math.inf)
        if not (missed - up or (is_first and not up >= self._ever)):
            self._patience_s = math.inf
        else:
            if self._patience_s == math.inf:
                self._patience_s = (self._started_s if is_first else now_s) + ABSENT_S
            until_s = max(until_s, self._patience_s)
        self._waits_until_s = until_s if now_s < until_s else -math.inf
        return now_s >= until_s

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
        self._doubts, self._early = False, 0
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
        self._promised, self._answers, self._spare = message.view, {}, 0
        self._doubts, self._early = False, 0
        self._tells.append(Tell(sender, self._frozen(now_s)))

    def _answered(self, sender: int, one: Sibling, message: Frozen) -> None:
        if not self._answers or message.view != self._promised:
            self._latest = later(message.view, self._latest)  # the next view is to be later
            return
        self._answers[sender] = message
        if one.load is not None:
            one.load = replace(one.load, view=message.view, leaves=message.leaves)

    def _frozen(self, now_s: float) -> Frozen:
        busy_for_s = max(0.0, self._spare_from_s - now_s)
        told = (self.share, self._is_fresh, busy_for_s, self._demand.leaves)
        return Frozen(self._promised, *told)

    def _install_all(self, now_s: float) -> None:
        """Install the view that this node makes, as every node of it has told its share."""
        members = tuple(sorted(self._wanted))
        answers = [self._answers[member] for member in members]
        is_whole = self._wanted >= self._ever | self.known.keys() | self._heard_of
        # Fresh nodes then need to wait for nobody.
        waits = [one.busy_for_s for one in answers if not (is_whole and one.is_fresh)]
        self._spare_from_s = now_s + max(waits, default=0.0)
        owners = tuple(sorted(_owners({one: self._answers[one].leaves for one in members})))
        shares = trimmed([min(one.share, self.servers) for one in answers], self.servers)
        spare = self.servers - sum(shares)
        if now_s >= self._spare_from_s:
            shares, spare = spread(shares, spare), 0
        self._answers = {}
        for member, share in zip(members, shares, strict=True):
            installed = Installed(self._promised, members, owners, share)
            if member == self.number:
                self._install(installed, now_s)
            else:
                self._tells.append(Tell(member, installed))
        self._spare = spare

    def _install(self, message: Installed, now_s: float) -> None:
        self.view, self.members = message.view, frozenset(message.members)
        self.owners = frozenset(message.owners)
        self._unmet = self.members - self.known.keys() - {self.number}
        share = min(message.share + self._early, self._share_max)
        self.share, self._spare, self._is_fresh = share, 0, False
        self.viewed_s, self._retry_s = now_s, math.inf
        for one in self.known.values():
            one.given = 0
        self._count()

    def check(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        assert 0 <= self.share <= self.servers + len(self.known) * self.servers
        assert not is_later(self.view, self._promised)
        assert not self._answers or self._promised[1] == self.number
        assert self.number not in self.known


def _pause_s(told: SiblingLoad, waiting: int, idle: int) -> float:
    """Returns how long after this was told the load is told anew, if so many wait and are idle
    now."""
    if told.waiting != waiting or (not told.idle) != (not idle):
        return TELL_S
    return BEAT_S if told.idle == idle else IDLE_TELL_S


def _owners(leaves: Mapping[int, bool]) -> frozenset[int]:
    """Returns the nodes among these to which names belong."""
    return frozenset([node for node, goes in leaves.items() if not goes] or leaves)
