"""The machine of a node's configuration: which one counts here, whom to ask for a newer one, and
what becomes of an operator's proposal (decision 0040).

Theory of operation. A configuration has a stamp, and the node goes by the one with the highest that
it has heard of in full. Neighbors say their stamps again and again; where one is higher than the
own, the machine asks for what belongs to it, one question at a time, and leaves a neighbor alone
for a while whose answer was of no use. So nothing has to be remembered of who has said what.

A proposal is taken as the next version if it names the present one. Where there is a store, that
has to take it first. One that was taken here and is not in what counts later was superseded: that
happens where two were taken at once, or apart, and is told to whoever lost.

Not here: what a change asks of the node (`member`), how anything travels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

from spillover.core.membership import events as ev
from spillover.core.membership.changes import refuse_fixed
from spillover.core.membership.events import Reason
from spillover.model.configuration import Configuration
from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.ranges import VERSION_MAX

PAUSE_S = 1.0
"""So long a neighbor is left alone after an answer that was of no use."""

COSTS_PAUSED = 20
"""So many times as long as its answer took to read a neighbor is left alone at least. Why: then
what it says costs a twentieth of a processor at most, however large it is, and however often it
says that there is a newer one."""

PAUSES_MAX = 1000
"""Neighbors of which that is remembered."""


class ConfigurationMachine:
    """The machine of this node of cluster `own`, in its life `epoch`, which goes by `configuration`
    at first. `with_store`: proposals are taken only if a store takes them."""

    def __init__(
        self,
        own: ClusterId,
        epoch: int,
        configuration: Configuration,
        *,
        node: int = 1,
        with_store: bool = False,
    ) -> None:
        self._own = own
        self._node = node
        self._epoch = epoch
        self._with_store = with_store
        self.current = configuration
        self.superseded: Configuration | None = None
        """What was taken here and lost, until another one is taken here."""
        self._mine: Configuration | None = None
        """What was taken here last, as long as it is in what counts."""
        self._asked: str | None = None
        self._left_alone: dict[str, float] = {}
        """Neighbors that are not asked before that time."""
        self._proposed: ev.Store | None = None
        """What the store is asked to take."""
        self._out: list[ev.Command] = []
        self._handlers: dict[type[ev.Event], Callable[..., None]] = {
            ev.Proposed: self._propose,
            ev.StampHeard: self._stamp_heard,
            ev.Received: self._received,
            ev.NotReceived: self._not_received,
            ev.Stored: self._stored,
            ev.StoreRefused: self._store_refused,
            ev.TimerFired: lambda *_: None,
        }

    def handle(self, event: ev.Event, now_s: float) -> list[ev.Command]:
        """Take one event in; the commands that the shell must carry out, in order."""
        self._handlers[type(event)](event, now_s)
        out, self._out = self._out, []
        return out

    def next_deadline(self) -> float:
        """Returns infinity: whoever has news says so again."""
        return math.inf

    def check(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        current = self.current
        stamps = [current.stamp, *current.lineage]
        assert all(a.version == b.version + 1 for a, b in pairwise(stamps))
        assert self._mine is None or current.builds_on(self._mine.stamp)
        assert self._proposed is None or self._with_store

    # --- what operators want ------------------------------------------------------------------

    def _propose(self, event: ev.Proposed, now_s: float) -> None:
        ref, current = event.ref, self.current
        if event.if_version != current.stamp.version:
            self._refuse_version(ref)
            return
        if current.stamp.version >= VERSION_MAX:
            detail = f"the configuration is of version {VERSION_MAX}, after which there is none"
            self._refuse(ref, Reason.INVALID, detail)
            return
        if self._proposed is not None:
            detail = "another configuration is just being stored"
            self._refuse(ref, Reason.VERSION_CONFLICT, detail)
            return
        try:
            refuse_fixed(current.topology, event.topology, self._own, self._node)
        except InputError as error:
            self._refuse(ref, Reason.INVALID, error.expected, error.field)
            return
        proposed = current.next((self._own, self._epoch), event.topology, event.text)
        if self._with_store:
            self._proposed = ev.Store(ref, proposed, current.stamp)
            self._out.append(self._proposed)
        else:
            self._take(ref, proposed)

    def _stored(self, event: ev.Stored, now_s: float) -> None:
        proposed, self._proposed = self._proposed, None
        assert proposed is not None
        assert proposed.ref == event.ref
        self._take(event.ref, proposed.configuration)

    def _store_refused(self, event: ev.StoreRefused, now_s: float) -> None:
        self._proposed = None
        if event.reason is Reason.VERSION_CONFLICT:
            self._refuse_version(event.ref)
        else:
            self._refuse(event.ref, event.reason, "the store of the configuration does not answer")

    def _take(self, ref: int, proposed: Configuration) -> None:
        """It is out in the world. Meanwhile a higher one may have come, or itself by another
        way."""
        self.superseded = None
        self._mine = proposed
        self._out.append(ev.Taken(ref, proposed.stamp))
        if proposed.stamp > self.current.stamp:
            self._adopt(proposed)
        else:
            self._look_for_mine()

    def _refuse_version(self, ref: int) -> None:
        detail = f"the configuration is of version {self.current.stamp}"
        self._refuse(ref, Reason.VERSION_CONFLICT, detail)

    def _refuse(self, ref: int, reason: Reason, detail: str, field: str = "") -> None:
        self._out.append(ev.Refused(ref, reason, detail, self.current.stamp, field))

    # --- what others go by --------------------------------------------------------------------

    def _stamp_heard(self, event: ev.StampHeard, now_s: float) -> None:
        neighbor = event.neighbor
        if event.stamp <= self.current.stamp or self._asked is not None:
            return
        if self._left_alone.get(neighbor, now_s) > now_s:
            return
        self._left_alone.pop(neighbor, None)
        self._asked = neighbor
        self._out.append(ev.Ask(neighbor))

    def _received(self, event: ev.Received, now_s: float) -> None:
        is_news = event.configuration.stamp > self.current.stamp
        if event.neighbor is not None:
            self._asked = None
            least_s = 0.0 if is_news else PAUSE_S
            self._leave_alone(event.neighbor, now_s, event.cost_s, least_s)
        if is_news:
            self._adopt(event.configuration)

    def _not_received(self, event: ev.NotReceived, now_s: float) -> None:
        self._asked = None
        self._leave_alone(event.neighbor, now_s, event.cost_s, PAUSE_S)

    def _leave_alone(self, neighbor: str, now_s: float, cost_s: float, least_s: float) -> None:
        if len(self._left_alone) >= PAUSES_MAX:
            del self._left_alone[next(iter(self._left_alone))]
        self._left_alone[neighbor] = now_s + max(least_s, COSTS_PAUSED * cost_s)

    def _adopt(self, configuration: Configuration) -> None:
        self.current = configuration
        self._out.append(ev.Adopt(configuration))
        self._look_for_mine()

    def _look_for_mine(self) -> None:
        """Tell if what was taken here last is not in what counts."""
        if self.superseded is not None and self.current.builds_on(self.superseded.stamp):
            # What counts now was made of it by somebody who had it; that may lose in its turn.
            self._mine, self.superseded = self.superseded, None
        mine = self._mine
        if mine is not None and not self.current.builds_on(mine.stamp):
            self._mine, self.superseded = None, mine
            self._out.append(ev.Superseded(mine, self.current.stamp))
