"""The configuration in Redis: taken by compare-and-set, and told to who listens. A channel loses
what is sent while nobody listens, so that it is read anew with each subscription, and now and then.

The library, and what its errors mean, is in `live.redis`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from spillover.live.membership.reading import TopologyReader
from spillover.live.membership.wire import encode_configuration
from spillover.live.process.logs import Message, OncePerPeriod
from spillover.live.redis.connection import (
    RedisLink,
    Script,
    cancels_so_far,
    close_quietly,
    failures,
    open_client,
    told_error,
)
from spillover.live.redis.rotation import RedisAddress, RedisUrl
from spillover.model.configuration import Configuration, Stamp
from spillover.model.errors import InputError, StoreRefused, StoreUnreachable
from spillover.policy.backoff import backoff_s

if TYPE_CHECKING:
    from redis.asyncio.client import PubSub

TIMEOUT_S = 1.0
"""The time limit of each answer. An operator waits for two or three of them."""

POLL_S = 5.0
"""So often the store is read where nothing is heard of it."""

RETRY_FIRST_S, RETRY_LONGEST_S = 0.1, 5.0

AWAY = "the store of the configuration is away"

_PUT = Script.load("spillover.live.membership", "put")

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class ConfigurationStore:
    """The store of one federation's configuration, in the Redis at `url`. Raises InputError if that
    is no address, or the library is not there."""

    def __init__(self, url: RedisUrl, federation: str) -> None:
        self.address = RedisAddress.of(url)
        self._reading = TopologyReader(federation)
        self._key = f"{{spillover:{federation}}}:configuration"
        self._link = RedisLink(self.address, TIMEOUT_S, connections=2)
        self._random = Random()  # only spreads attempts to connect
        self.failures = 0
        """The failures of listening, in a row: the pause before the next attempt grows with
        them."""
        self._wrong: type[Exception] | None = None
        """The last problem; it is logged once, until all is well again."""

    async def put(self, configuration: Configuration, expected: Stamp) -> Configuration | None:
        """Keep this one, if what is there is not above `expected`; None if it is kept, else what is
        there. Raises StoreRefused, StoreUnreachable: then nobody can say."""
        while True:
            held = await self._link.call("HGET", self._key, "stamp") or ""
            there = await self.get() if held else None
            if there is not None and there.stamp > expected:
                return there
            said = encode_configuration(configuration).decode()
            if await self._link.run(_PUT, [self._key], held, configuration.stamp.told, said):
                return None

    async def get(self) -> Configuration | None:
        """Returns what is kept; None where that is nothing, or nothing that can be read. Raises
        StoreRefused, StoreUnreachable."""
        body = await self._link.call("HGET", self._key, "body")
        kept = (await self._reading.read(body, self._link.place))[0] if body else None
        if isinstance(kept, InputError):
            self._complain("the store has no configuration", kept)
            return None
        self._all_is_well()
        return kept

    async def listen(self, on_news: Callable[[Configuration], None]) -> None:
        """Tell what is kept, at once and whenever that may have changed, until cancelled."""
        while True:
            try:
                await self._subscribed(on_news)
            except failures() as error:
                if cancels_so_far():
                    raise asyncio.CancelledError from None
                self._complain(AWAY, told_error(error, self.address.place))
            except (StoreRefused, StoreUnreachable) as error:
                self._complain(AWAY, error)
            draw = self._random.random()
            pause_s = backoff_s(self.failures, RETRY_FIRST_S, RETRY_LONGEST_S, draw)
            self.failures += 1
            await asyncio.sleep(pause_s)

    async def close(self) -> None:
        await self._link.close()

    async def _subscribed(self, on_news: Callable[[Configuration], None]) -> None:
        client = open_client(self.address, TIMEOUT_S, connections=1)
        channel = client.pubsub()
        try:
            await channel.subscribe(self._key)
            while await self._heard(channel):
                self.address.look()
                kept = await self.get()
                self.failures = 0
                if kept is not None:
                    on_news(kept)
        finally:
            pool = client.connection_pool
            await close_quietly(channel.aclose, client.aclose, pool.disconnect)

    async def _heard(self, channel: PubSub) -> bool:
        """Wait for news, or until it is time to look anyway."""
        if cancels_so_far():
            raise asyncio.CancelledError
        if await channel.get_message(timeout=POLL_S) is None:
            await channel.ping()  # which breaks where nobody is there any more
        return True

    def _complain(self, words: str, error: Exception) -> None:
        if self._wrong is not type(error):
            self._wrong = type(error)
            _log.warning(Message(words, reason=str(error)))

    def _all_is_well(self) -> None:
        if self._wrong is not None:
            self._wrong = None
            _log.info(Message("the store of the configuration can be read again"))
