"""The two channels of a lease group: hints that somebody challenges, or that a partition is free.

Channels lose what is sent while nobody listens, so that each subscription, the first as well as any
later, says `on_resync`: then the hashes are to be read. A connection that has been silent for one
period is asked for a sign of life, and replaced if it gives none for another: a broken way can look
like a quiet one for hours. What follows from a hint is decided by the member.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from spillover.live.leases.redis_values import GroupKeys
from spillover.live.redis.connection import (
    cancels_so_far,
    close_quietly,
    failures,
    open_client,
    told_error,
)
from spillover.live.redis.rotation import RedisAddress, RedisUrl
from spillover.model.errors import StoreRefused, StoreUnreachable
from spillover.policy.backoff import backoff_s

if TYPE_CHECKING:
    from redis.asyncio.client import PubSub

PING_PERIOD_S = 2.0
PARTITION_DIGITS_MAX = 9
RETRY_FIRST_S = 0.1
RETRY_LONGEST_S = 5.0


def _ignore(_: StoreRefused | StoreUnreachable) -> None:
    return


class Hints:
    """`run()` listens until it is cancelled. Callbacks must not block.

    `on_lost` gets the error each time that a subscription ends or cannot be had.
    """

    def __init__(
        self,
        url: RedisUrl | RedisAddress,
        group: str,
        *,
        on_challenge: Callable[[int], None],
        on_allocated: Callable[[int], None],
        on_resync: Callable[[], None],
        random: Random,
        on_lost: Callable[[StoreRefused | StoreUnreachable], None] = _ignore,
        ping_period_s: float = PING_PERIOD_S,
    ) -> None:
        keys = GroupKeys.of(group)
        self._reactions = {keys.grab_channel: on_challenge, keys.allocated_channel: on_allocated}
        self._on_resync = on_resync
        self._on_lost = on_lost
        self._random = random
        self._address = RedisAddress.of(url)
        self._ping_period_s = ping_period_s
        self._failures = 0
        self.is_subscribed = False

    async def run(self) -> None:
        """Subscribe, listen, and begin again whenever it breaks. Raises InputError if `url` is no
        address or the library is not there."""
        while True:
            try:
                await self._subscribe_and_listen()
            except failures() as error:
                if cancels_so_far():
                    # The library makes other errors of being cancelled, if that is while it
                    # connects or closes.
                    raise asyncio.CancelledError from None
                self._on_lost(told_error(error, self._address.place))
            pause_s = backoff_s(
                self._failures, RETRY_FIRST_S, RETRY_LONGEST_S, self._random.random()
            )
            self._failures += 1
            await asyncio.sleep(pause_s)

    async def _subscribe_and_listen(self) -> None:
        client = open_client(self._address, self._ping_period_s, connections=1)
        channels = client.pubsub()
        try:
            await channels.subscribe(*self._reactions)
            await self._listen(channels)
        finally:
            self.is_subscribed = False
            # Not in place of the error that says why it has ended.
            pool = client.connection_pool
            await close_quietly(channels.aclose, client.aclose, pool.disconnect)

    async def _listen(self, channels: PubSub) -> None:
        confirmed = 0
        asked = False
        while True:
            if cancels_so_far():
                raise asyncio.CancelledError
            message = await channels.get_message(timeout=self._ping_period_s)
            if message is None:
                if asked:
                    raise TimeoutError
                asked = True
                await channels.ping()
                continue
            asked = False
            if message["type"] == "subscribe":
                confirmed += 1
                # Again and again, should the library have reconnected by itself.
                if confirmed % len(self._reactions) == 0:
                    self.is_subscribed = True
                    self._failures = 0
                    self._on_resync()
            elif message["type"] == "message":
                self._react(message)

    def _react(self, message: dict[str, Any]) -> None:
        """Anyone can publish anything: what is no number of a partition is no hint."""
        said = str(message["data"])
        if said.isdecimal() and len(said) <= PARTITION_DIGITS_MAX:
            self._reactions[message["channel"]](int(said))
