"""An object in the hands of whoever handles it, until it is settled. What is told of that to its
producer, and when, is the machine's business (`core.queue.consumer`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from spillover.core.queue import consumer_events as cn
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.live.queue.client_wire import Received
from spillover.model.errors import GrantLost, OutcomeUnknown

ANSWER_S = 10.0
"""The time within which whoever acknowledges an object or gives it back hears of that. Its producer
is told again and again after that, too, until its grant must have ended."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class HeldObject:
    """An object in the hands of whoever handles it."""

    def __init__(self, received: Received, feed: Callable[[cn.Event], None]) -> None:
        self.received = received
        self._feed = feed
        self._ended: asyncio.Future[bool | None] | None = None
        self._well = False
        self.taker: object = None
        self.lost = asyncio.Event()
        """Set when its grant has ended while it was handled, and when it was acknowledged and that
        was too late or not heard: somebody else may be given it."""

    @property
    def is_settled(self) -> bool:
        """Returns whether it was acknowledged or given back, heard or not."""
        return self._ended is not None

    def settle(self, *, well: bool, rest_s: float | None = None) -> None:
        """Say how it ended, once; one that was not handled rests for `rest_s`, None: as its
        producer has it. Raises RuntimeError where the opposite was said before."""
        if self._ended is None:
            self._ended = asyncio.get_running_loop().create_future()
            self._well = well
            self._feed(cn.Handled(self.received.grant, well, rest_s))
        elif self._well is not well:
            said = "acknowledged" if self._well else "given back"
            raise RuntimeError(f"object {self.received.id} was {said} before")

    def came_out(self, known: bool | None) -> None:  # noqa: FBT001 - all that there is to say
        """Nothing more is told of it."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(known)
            if self._well and not known:
                self.lost.set()

    async def acknowledge(self) -> None:
        """It has been handled. Raises GrantLost if its grant had ended before, OutcomeUnknown if
        that is not known, or not yet."""
        self.settle(well=True)
        known = await self._come_out()
        if known:
            return
        self.lost.set()
        name, producer = self.received.id, self.received.producer
        if known is None:
            missed = "did not answer to an acknowledgement"
            raise OutcomeUnknown(f"producer {producer} {missed}; object {name} may come again")
        late = "had ended before it was acknowledged"
        raise GrantLost(f"the grant of object {name} {late}: it may have gone to another")

    async def end(self, *, well: bool, failed: bool = True) -> None:
        """Settle it if nobody has; one whose handling has not `failed`, but was ended, may be given
        to another at once. What comes of an acknowledgement is told by `lost`, not raised:
        to end a loop over many objects, of many producers, would be no answer to that."""
        if self.is_settled:
            return
        if not well:
            await self.give_back(None if failed else 0.0)
            return
        try:
            await self.acknowledge()
        except (GrantLost, OutcomeUnknown) as error:
            producer = self.received.producer
            said = Message("an object may be handled twice", peer=producer, problem=str(error))
            _log.warning(said)

    async def give_back(self, rest_s: float | None = None) -> None:
        """It has not been handled: it returns, now or when its grant ends, as `settle` says."""
        self.settle(well=False, rest_s=rest_s)
        await self._come_out()

    async def _come_out(self) -> bool | None:
        """Returns whether its producer knew the grant; None if it has not answered."""
        assert self._ended is not None  # noqa: S101 - it was settled
        await asyncio.wait([self._ended], timeout=ANSWER_S)
        return self._ended.result() if self._ended.done() else None
