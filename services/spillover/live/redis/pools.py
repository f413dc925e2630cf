"""Pools of the library, of either kind, whose connections can be made anew without any being taken
from a call that uses it. The library's own `disconnect` takes them from calls under way and from
those that begin at the same time, of which nobody would know what came.

Whoever imports this has the library.
"""

from __future__ import annotations

from typing import Any, Self
from weakref import WeakKeyDictionary

import redis
import redis.asyncio

from spillover.live.redis.connections import OURS
from spillover.live.redis.rotation import RedisAddress


class _Ages:
    """Which connections were made before it was said that all be made anew."""

    def __init__(self) -> None:
        self._now = 0
        self._of: WeakKeyDictionary[Any, int] = WeakKeyDictionary()

    def pass_(self) -> None:
        self._now += 1

    def is_over(self, connection: object) -> bool:
        """Returns whether it was made before; from now on it counts as new."""
        age = self._of.get(connection, self._now)
        self._of[connection] = self._now
        return age < self._now


class _Credentials(redis.CredentialProvider):
    """The name and the password by which a connection is opened: those that the address has by
    then."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address

    def get_credentials(self) -> Any:
        """Returns the credentials as the library wants them; () asks for no AUTH."""
        self._address.look()
        return self._address.credentials

    async def get_credentials_async(self) -> Any:
        """Do the same as the library's."""
        return self.get_credentials()


class _Pool:
    """The common part of both kinds of pools."""

    connection_class: Any

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._ages = _Ages()
        super().__init__(*arguments, **options)
        self.connection_class = OURS.get(self.connection_class, self.connection_class)

    @classmethod
    def at(cls, address: RedisAddress, **options: Any) -> Self:
        """Returns a pool of connections to there, with options of the library."""
        kind: Any = cls
        pool = kind.from_url(address.url, **options)
        for name in ("username", "password"):
            pool.connection_kwargs.pop(name, None)
        pool.connection_kwargs["credential_provider"] = _Credentials(address)
        made: Self = pool
        return made

    def connect_anew(self) -> None:
        """Have each connection made anew before it is used the next time."""
        self._ages.pass_()


class BlockingPool(_Pool, redis.BlockingConnectionPool):
    """A pool of connections for threads."""

    def get_connection(self, *arguments: Any, **options: Any) -> Any:
        """Do the same as the library's."""
        connection: Any = super().get_connection(*arguments, **options)  # type: ignore[no-untyped-call]
        if self._ages.is_over(connection):
            try:
                connection.disconnect()
                connection.connect()
            except BaseException:
                self.release(connection)  # type: ignore[no-untyped-call]
                raise
        return connection


class AsyncPool(_Pool, redis.asyncio.BlockingConnectionPool):
    """A pool of connections for tasks of one event loop."""

    async def get_connection(self, *arguments: Any, **options: Any) -> Any:
        """Do the same as the library's."""
        connection: Any = await super().get_connection(*arguments, **options)  # type: ignore[no-untyped-call]
        if self._ages.is_over(connection):
            try:
                await connection.disconnect(nowait=True)
                await connection.connect()
            except BaseException:
                await self.release(connection)
                raise
        return connection
