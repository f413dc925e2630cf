"""The requests that neighbors have handed over, and the way back of their answers.

Each waits on the exchange on which it came, as one of the `waiters`. What goes back leaves through
the emulated link, as everything that goes there: late, and not at all if the link loses it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from spillover.core.overflow import events as ev
from spillover.live.overflow.emulated_link import EmulatedLink, Parcel
from spillover.live.overflow.passed_back import Outlet, PassedBack, WayBack
from spillover.live.overflow.relay import Relays
from spillover.live.overflow.waiters import Told, Waiters
from spillover.live.overflow.wire import Forwarded
from spillover.model.request import Refusal


class Asker(NamedTuple):
    """The neighbor's call that waits for the end of a request. One of the two is called, once; none
    of them where an answer has begun, which leaves as it comes. `settle` may also be called where
    the call has gone: who is told must bear that."""

    settle: Callable[[int, Told, float], None]
    """Takes the ref, what the request has come to, and for how many seconds that has waited on the
    emulated link back. It may be called before `take` returns, and must not raise."""
    break_off: Callable[[], None]
    """Closes the connection without a word: the link has lost the answer."""


@dataclass(slots=True, eq=False)
class HandedOver:
    """A request that a neighbor has handed over, until its answer has left."""

    key: tuple[int, str]
    """The handle of the link by which it came, and its id."""
    asker: Asker
    parcel: Parcel | None = None
    """The answer on the emulated link."""
    back: PassedBack | None = None
    """What takes an answer that passes through."""
    has_begun: bool = False
    """The head of such an answer has left."""


class ForeignRequests:
    """All of them, by ref. `emulated_links` are those of the links, by the neighbors' handles."""

    def __init__(
        self,
        next_ref: Callable[[], int],
        feed: Callable[[Any], None],
        emulated_links: Mapping[int, EmulatedLink],
        waiters: Waiters,
        relays: Relays,
    ) -> None:
        self._relays = relays
        self._next_ref = next_ref
        self._feed = feed
        self._emulated_links = emulated_links
        self._waiters = waiters
        self._open: dict[int, HandedOver] = {}
        """Whose answer has not left yet."""
        self._refs: dict[tuple[int, str], int] = {}
        self.closed = False
        """Nothing is taken any more: the node ends."""
        self.settled = asyncio.Event()
        """Set whenever one has been settled."""

    def __len__(self) -> int:
        return len(self._open)

    def take(
        self,
        forwarded: Forwarded,
        deadline_s: float,
        origin: int,
        asker: Asker,
        outlet: Outlet | None = None,
    ) -> int:
        """Take a request over. If it passes through, an answer that begins leaves by the outlet.
        Returns the ref of its visit."""
        ref, request = self._next_ref(), forwarded.request
        if self.closed:  # surely not accepted, which lets the neighbor decide again
            asker.settle(ref, ev.Refuse(ref, origin, Refusal.DRAINING, 0.0), 0.0)
            return ref
        key = origin, request.id
        self._open[ref] = handed_over = HandedOver(key, asker)
        self._refs[key] = ref
        send_back = partial(self._send_back, ref)
        if outlet is None:
            self._waiters.wait(ref, send_back)
        else:
            way = WayBack(
                self._emulated_links.get(origin),
                send_back,
                partial(self._began, ref),
                partial(self._left, ref),
                partial(self._broke, ref),
            )
            handed_over.back = PassedBack(outlet, way)
            self._relays.open(ref, handed_over.back)
        load, pulled = forwarded.load, forwarded.pulled
        self._feed(ev.Arrived(ref, request, deadline_s, origin, load, pulled))
        return ref

    def _began(self, ref: int) -> None:
        """The head of an answer that passes through has left."""
        if (handed_over := self._open.get(ref)) is not None:
            handed_over.has_begun = True

    def _left(self, ref: int) -> None:
        """So has its end."""
        if ref in self._open:
            self._take_out(ref)

    def _broke(self, ref: int) -> None:
        """The rest of an answer is lost on its way back: nobody waits for it any more."""
        if ref in self._open:
            self._take_out(ref)
        self._feed(ev.Cancelled(ref))

    def ref_of(self, request_id: str, origin: int | None = None) -> int | None:
        """Returns the visit of this request that is under way, from one neighbor or from any."""
        if origin is not None:
            return self._refs.get((origin, request_id))
        refs = (self._refs.get((neighbor, request_id)) for neighbor in self._emulated_links)
        return next((ref for ref in refs if ref is not None), None)

    def abandon(self, ref: int) -> None:
        """Its neighbor has gone or wants it no more; an answer that has not left never does."""
        handed_over = self._open.get(ref)
        parcel = None if handed_over is None else handed_over.parcel
        if parcel is not None and parcel.withdraw():
            self._take_out(ref)
        self._feed(ev.Cancelled(ref))

    def _send_back(self, ref: int, told: Told) -> None:
        """What waits for the end, for the neighbor. If the node ends, `close` tells."""
        handed_over = self._open.get(ref)
        if handed_over is None or told is None:
            return
        emulated_link = self._emulated_links.get(handed_over.key[0])
        # One that has left: nothing is emulated any more, and its connection is still open.
        if emulated_link is None or emulated_link.is_clear:
            self._take_out(ref).settle(ref, told, 0.0)
        else:
            arrive = partial(self._arrive, ref, told, time.monotonic())
            handed_over.parcel = emulated_link.send(arrive, partial(self._lose, ref))

    def close(self) -> None:
        """The node ends, which whoever still waits is told. An answer that has begun is broken off,
        also one whose end waits on the emulated link: it never leaves."""
        self.closed = True
        for ref, handed_over in list(self._open.items()):
            if handed_over.back is not None and handed_over.has_begun:
                handed_over.back.break_off(None)
            else:
                handed_over.asker.settle(ref, None, 0.0)
        self._open.clear()
        self._refs.clear()

    def _arrive(self, ref: int, told: Told, sent_s: float) -> None:
        self._take_out(ref).settle(ref, told, time.monotonic() - sent_s)

    def _lose(self, ref: int) -> None:
        self._take_out(ref).break_off()

    def _take_out(self, ref: int) -> Asker:
        handed_over = self._open.pop(ref)
        if self._refs.get(handed_over.key) == ref:
            del self._refs[handed_over.key]
        self.settled.set()
        return handed_over.asker
