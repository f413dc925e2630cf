"""The requests that neighbors have handed over, and the way back of their answers.

Each waits, as one of the `waiters`, on the exchange on which it came. Its answer leaves through the
emulated link, as everything that goes to the neighbor: late, and not at all if the link loses it.
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
    """The neighbor's call that waits for the end of a request.

    One of the two callables is called, once, or neither if an answer has begun, which leaves as it
    comes. `settle` may also be called when the neighbor's call has gone, and must bear that.
    """

    settle: Callable[[int, Told, float], None]
    """Takes the ref, the outcome of the request, and the seconds that the outcome has waited on the
    emulated link back. It may be called before `take` returns, and must not raise."""
    break_off: Callable[[], None]
    """Closes the connection without a word: the link has lost the answer."""


@dataclass(slots=True, eq=False)
class HandedOver:
    """A request that a neighbor has handed over, until its answer has left."""

    key: tuple[int, str]
    """The handle of the link by which the request came, and its id."""
    asker: Asker
    parcel: Parcel | None = None
    """The answer on the emulated link."""
    back: PassedBack | None = None
    """The sink of an answer that passes through."""
    has_begun: bool = False
    """Whether the head of such an answer has left."""


class ForeignRequests:
    """The requests of all neighbors, by ref. `emulated_links` has the links back, by the neighbors'
    handles."""

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
        """The requests whose answers have not left yet, by ref."""
        self._refs: dict[tuple[int, str], int] = {}
        self.closed = False
        """Whether the node ends, so that nothing is taken any more."""
        self.settled = asyncio.Event()
        """Set whenever a request has been settled."""

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
        if self.closed:  # surely not accepted, so that the neighbor decides again
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
        """Note that the head of an answer that passes through has left."""
        if (handed_over := self._open.get(ref)) is not None:
            handed_over.has_begun = True

    def _left(self, ref: int) -> None:
        """Forget a request, as the end of its answer has left."""
        if ref in self._open:
            self._take_out(ref)

    def _broke(self, ref: int) -> None:
        """Drop a request whose answer has lost its rest on the way back: nobody waits for it any
        more."""
        if ref in self._open:
            self._take_out(ref)
        self._feed(ev.Cancelled(ref))

    def ref_of(self, request_id: str, origin: int | None = None) -> int | None:
        """Returns the ref of this request's visit that is under way, from one neighbor or from
        any."""
        if origin is not None:
            return self._refs.get((origin, request_id))
        refs = (self._refs.get((neighbor, request_id)) for neighbor in self._emulated_links)
        return next((ref for ref in refs if ref is not None), None)

    def abandon(self, ref: int) -> None:
        """Abandon a request whose neighbor has gone or wants it no more. An answer that has not
        left never does."""
        handed_over = self._open.get(ref)
        parcel = None if handed_over is None else handed_over.parcel
        if parcel is not None and parcel.withdraw():
            self._take_out(ref)
        self._feed(ev.Cancelled(ref))

    def _send_back(self, ref: int, told: Told) -> None:
        """Send the outcome back to the neighbor that waits for it. If the node ends, `close` does
        that."""
        handed_over = self._open.get(ref)
        if handed_over is None or told is None:
            return
        emulated_link = self._emulated_links.get(handed_over.key[0])
        # If the link has left, nothing is emulated any more, and its connection is still open.
        if emulated_link is None or emulated_link.is_clear:
            self._take_out(ref).settle(ref, told, 0.0)
        else:
            arrive = partial(self._arrive, ref, told, time.monotonic())
            handed_over.parcel = emulated_link.send(arrive, partial(self._lose, ref))

    def close(self) -> None:
        """End with the node, and tell each neighbor that still waits. An answer that has begun is
        broken off, even if its end waits on the emulated link: it never leaves."""
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
