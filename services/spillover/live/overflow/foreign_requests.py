"""The requests that neighbors have handed over, and the way back of their answers.

Each waits on the exchange on which it came, as one of the `waiters`. What goes back leaves through
the emulated link, as everything that goes there: late, and not at all if the link loses it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from spillover.core.overflow import events as ev
from spillover.live.overflow.emulated_link import EmulatedLink, Parcel
from spillover.live.overflow.passed_back import Outlet, PassedBack, Way
from spillover.live.overflow.relay import Relays
from spillover.live.overflow.waiters import Told, Waiters
from spillover.live.overflow.wire import Forwarded
from spillover.model.load import LoadNow
from spillover.model.request import Answer, Refusal, Request

Settled: TypeAlias = Answer | ev.Refuse
"""What a request that was handed over comes to."""


class Settling(asyncio.Future[Settled | None]):
    """What a request will come to: None for an answer that has begun, and leaves as it comes.
    Cancelled if there will be none: because the node ends, or because the link has lost it."""

    waited_s = 0.0
    """How long it waited on the emulated link, once it is settled: what emulates the link back."""
    lost = False
    """Whether it is cancelled because the link has lost the answer. Its asker must not be told
    anything then: the connection is to be broken off."""
    parcel: Parcel | None = None
    """The answer on the emulated link."""
    back: PassedBack | None = None
    """What takes an answer that passes through."""
    key = (ev.HOME, "")
    """By which link it came, and its id."""


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
        self._open: dict[int, Settling] = {}
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
        request: Request,
        deadline_s: float,
        origin: int,
        load: LoadNow | None = None,
        pulled: bool = False,  # noqa: FBT001, FBT002 - as `Arrived`
    ) -> tuple[int, Settling]:
        """Take a request over. The future comes to an answer or a refusal, or is cancelled."""
        ref = self._next_ref()
        future = Settling(loop=asyncio.get_running_loop())
        if self.closed:  # surely not accepted, which lets the neighbor decide again
            future.set_result(ev.Refuse(ref, origin, Refusal.DRAINING, 0.0))
            return ref, future
        future.key = (origin, request.id)
        self._open[ref] = future
        self._refs[future.key] = ref
        self._waiters.wait(ref, partial(self._send_back, ref))
        self._feed(ev.Arrived(ref, request, deadline_s, origin, load, pulled))
        return ref, future

    def take_passed(
        self, forwarded: Forwarded, deadline_s: float, origin: int, outlet: Outlet
    ) -> tuple[int, Settling]:
        """Take a request over that passes through. If its answer begins, it leaves by the outlet,
        and the future comes to None."""
        ref, request = self._next_ref(), forwarded.request
        future = Settling(loop=asyncio.get_running_loop())
        if self.closed:
            future.set_result(ev.Refuse(ref, origin, Refusal.DRAINING, 0.0))
            return ref, future
        future.key = (origin, request.id)
        self._open[ref] = future
        self._refs[future.key] = ref
        way = Way(
            self._emulated_links.get(origin),
            partial(self._send_back, ref),
            partial(self._began, ref),
            partial(self._left, ref),
            partial(self._broke, ref),
        )
        future.back = PassedBack(outlet, way)
        self._relays.open(ref, future.back)
        load, pulled = forwarded.load, forwarded.pulled
        self._feed(ev.Arrived(ref, request, deadline_s, origin, load, pulled))
        return ref, future

    def _began(self, ref: int) -> None:
        """The head of an answer that passes through has left."""
        if (future := self._open.get(ref)) is not None and not future.done():
            future.set_result(None)

    def _left(self, ref: int) -> None:
        """So has its end."""
        if ref in self._open:
            _ = self._take_out(ref)

    def _broke(self, ref: int) -> None:
        """The rest of an answer is lost on its way back: nobody waits for it any more."""
        if ref in self._open:
            self._lose(ref)
        self._feed(ev.Cancelled(ref))

    def ref_of(self, request_id: str, origin: int | None = None) -> int | None:
        """Returns the visit of this request that is under way, from one neighbor or from any."""
        if origin is not None:
            return self._refs.get((origin, request_id))
        refs = (self._refs.get((neighbor, request_id)) for neighbor in self._emulated_links)
        return next((ref for ref in refs if ref is not None), None)

    def abandon(self, ref: int) -> None:
        """Its neighbor has gone or wants it no more; an answer that has not left never does."""
        future = self._open.get(ref)
        if future is not None and future.parcel is not None and future.parcel.withdraw():
            self._lose(ref)
        self._feed(ev.Cancelled(ref))

    def _send_back(self, ref: int, told: Told) -> None:
        """What waits for the end, for the neighbor. If the node ends, `close` tells."""
        future = self._open.get(ref)
        if future is None or told is None:
            return
        emulated_link = self._emulated_links.get(future.key[0])
        now_s = time.monotonic()
        # One that has left: nothing is emulated any more, and its connection is still open.
        if emulated_link is None or emulated_link.is_clear:
            self._arrive(ref, told, now_s)
        else:
            arrive = partial(self._arrive, ref, told, now_s)
            future.parcel = emulated_link.send(arrive, partial(self._lose, ref))

    def close(self) -> None:
        """The node ends: whoever still waits is told by a cancelled future. An answer that has
        begun is broken off, also one whose end waits on the emulated link: it never leaves."""
        self.closed = True
        for future in list(self._open.values()):
            if future.back is not None and future.done():
                future.back.break_off(None)
            else:
                future.cancel()
        self._open.clear()
        self._refs.clear()

    def _arrive(self, ref: int, settled: Settled, sent_s: float) -> None:
        future = self._take_out(ref)
        if not future.done():
            future.waited_s = time.monotonic() - sent_s
            future.set_result(settled)

    def _lose(self, ref: int) -> None:
        future = self._take_out(ref)
        future.lost = True
        future.cancel()

    def _take_out(self, ref: int) -> Settling:
        future = self._open.pop(ref)
        if self._refs.get(future.key) == ref:
            del self._refs[future.key]
        self.settled.set()
        return future
