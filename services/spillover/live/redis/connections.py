"""Connections of the library, of either kind, that are opened as all others are (`live.hosts`), and
encrypted as `secured` says. What of the library is not meant for others is used here alone;
`tests/live/redis` fails where it is gone.

Whoever imports this has the library.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

from redis import asyncio as redis_asyncio
from redis import connection

from spillover.live.hosts import blocking, dialing
from spillover.live.redis.secured import redis_context


def _limit_s(of: Any) -> float:
    limit_s: float = of.socket_connect_timeout
    return limit_s


class Plain(connection.Connection):
    """A connection for threads."""

    def _connect(self) -> socket.socket:
        opened = blocking.connect(self.host, self.port, _limit_s(self))
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.socket_keepalive:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in self.socket_keepalive_options.items():
                opened.setsockopt(socket.IPPROTO_TCP, option, value)
        opened.settimeout(self.socket_timeout)
        return opened


class Secured(connection.SSLConnection, Plain):
    """The same, with TLS."""

    def _wrap_socket_with_ssl(self, sock: socket.socket) -> ssl.SSLSocket:
        context = redis_context(self.ca_certs, verifies=self.cert_reqs != ssl.CERT_NONE)
        return context.wrap_socket(sock, server_hostname=self.host.removesuffix("."))


class PlainAsync(redis_asyncio.Connection):
    """A connection for tasks."""

    _opened: socket.socket | None = None

    async def _connect(self) -> None:
        limit_s = _limit_s(self)
        async with asyncio.timeout(limit_s):
            opened = self._opened = await dialing.open_socket(self.host, self.port, limit_s)
        try:
            await super()._connect()  # type: ignore[no-untyped-call]
        except BaseException:
            opened.close()
            raise
        finally:
            self._opened = None

    def _connection_arguments(self) -> Any:
        return {"sock": self._opened}


class SecuredAsync(redis_asyncio.SSLConnection, PlainAsync):
    """The same, with TLS."""

    def _connection_arguments(self) -> Any:
        told = self.ssl_context
        if told.context is None:
            verifies = told.cert_reqs != ssl.CERT_NONE
            told.context = redis_context(told.ca_certs, verifies=verifies)
        return {**super()._connection_arguments(), "server_hostname": self.host.removesuffix(".")}


OURS: dict[Any, Any] = {
    connection.Connection: Plain,
    connection.SSLConnection: Secured,
    redis_asyncio.Connection: PlainAsync,
    redis_asyncio.SSLConnection: SecuredAsync,
}
"""Classes that take the place of the library's. Those to a socket in a file stay."""
