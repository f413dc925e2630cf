"""TLS to Redis: whom one believes, and connections of the library that go by it, since its own
believe the system's CAs besides those of the url. What of the library is not meant for others is
used here alone; `tests/live/redis/test_rediss.py` fails where it is gone.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from spillover.live.tls.contexts import harden

if TYPE_CHECKING:
    import socket


def redis_context(ca_file: str | None, *, verifies: bool) -> ssl.SSLContext:
    """Returns how to call a Redis whom these CAs vouch for, or the system's where none are given;
    any Redis unless it `verifies`. Raises OSError for a file that holds none."""
    context = ssl.create_default_context(cafile=ca_file or None)
    harden(context)
    if not verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def secure(pool: Any) -> None:
    """Have a pool of the library, of either kind, make connections that go by `redis_context`, if
    its url wants TLS."""
    from redis import asyncio as redis_asyncio  # noqa: PLC0415 - only who needs it pays for it
    from redis import connection  # noqa: PLC0415 - as above

    class SecuredAsync(redis_asyncio.SSLConnection):
        def _connection_arguments(self) -> Any:
            told = self.ssl_context
            if told.context is None:
                verifies = told.cert_reqs != ssl.CERT_NONE
                told.context = redis_context(told.ca_certs, verifies=verifies)
            return super()._connection_arguments()

    class Secured(connection.SSLConnection):
        def _wrap_socket_with_ssl(self, sock: socket.socket) -> ssl.SSLSocket:
            context = redis_context(self.ca_certs, verifies=self.cert_reqs != ssl.CERT_NONE)
            return context.wrap_socket(sock, server_hostname=self.host)

    kinds = {redis_asyncio.SSLConnection: SecuredAsync, connection.SSLConnection: Secured}
    pool.connection_class = kinds.get(pool.connection_class, pool.connection_class)
