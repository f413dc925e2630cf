"""How a client opens a connection: a socket, and where its url is `https` a handshake, and proof
that both ends believe each other. When one is opened, and what for, is in `client`.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Callable
from typing import Protocol, cast

from spillover.live.hosts import dialing
from spillover.live.hosts.attempts import in_words
from spillover.live.hosts.lookups import HOSTS
from spillover.live.http1.awaited import Awaited
from spillover.live.http1.base_url import BaseUrl
from spillover.live.http1.connection import Connection, ConnectionOwner
from spillover.live.http1.keepalive import keep_alive
from spillover.live.http1.outgoing import OutgoingRequest
from spillover.live.http1.securing import Retired, Securing, Unproven
from spillover.live.process.own_lag import PatientTimeout
from spillover.live.tls import failures
from spillover.live.tls.contexts import HANDSHAKE_S
from spillover.live.tls.handshakes import Handshake
from spillover.model.errors import ConnectTimeout, NotBelieved, NotDelivered, PeerError

FIRST_LIMIT_BYTES = 65_536
"""The longest answer that comes before a connection counts."""


class Owner(ConnectionOwner, Protocol):
    """The owner of connections."""

    def take_idle(self) -> Connection | None:
        """Returns one that waits for a request, which it does no more; None if there is none."""

    def opened(self, connection: Connection) -> None:
        """It is open, although it may not count yet."""


class Opening:
    """Opens connections for one client; `securing` is None where nothing is encrypted. See
    HttpClient for the others."""

    def __init__(
        self,
        server: BaseUrl,
        make_connection: Callable[[ConnectionOwner], Connection],
        connect_timeout_s: float,
        user_timeout_s: float | None,
        securing: Securing | None,
    ) -> None:
        self._server = server
        self._make_connection = make_connection
        self._connect_s = connect_timeout_s
        self._timeout_s = connect_timeout_s + (0.0 if securing is None else HANDSHAKE_S)
        self._user_timeout_s = user_timeout_s
        self._securing = securing

    async def open(self, owner: Owner) -> Connection:
        """Returns one that is open; where a handshake would have to wait its turn that may be one
        that has become free meanwhile. Raises NotDelivered."""
        url, securing = self._server.url, self._securing
        try:
            async with PatientTimeout(self._timeout_s):
                if securing is None:
                    _, opened = await self._open_socket(lambda: self._make_connection(owner))
                    return cast("Connection", opened)
                return await self._open_securely(owner, securing)
        except TimeoutError:
            why = HOSTS.why_late(self._server.host)
            told = f" ({why})" if why else ""
            late = f"no connection within {self._timeout_s:g} s{told}"
            raise ConnectTimeout(f"{url}: {late}") from None
        except (OSError, UnicodeError) as error:
            self._tell_failed(error)
            told = f"{url}: cannot connect: {_in_words(error)}"
            if securing is None or not isinstance(error, ssl.SSLCertVerificationError):
                raise NotDelivered(told) from error
            shown = await securing.unbelieved.look(self._server.host, self._server.port)
            raise NotBelieved(told + shown) from error

    async def _open_socket(
        self, make: Callable[[], asyncio.Protocol]
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        host, port = self._server.host, self._server.port
        transport, protocol = await dialing.connect(make, host, port, self._connect_s)
        if self._user_timeout_s is not None:
            keep_alive(transport.get_extra_info("socket"), self._user_timeout_s)
        return transport, protocol

    async def _shake_hands(self, connection: Connection, securing: Securing) -> None:
        """Open it, with a handshake before it is told."""
        over = asyncio.get_running_loop().create_future()

        def make() -> Handshake:
            """Not before there is a socket: else loops complain that its transport is open."""
            return Handshake(connection, securing.newest, set(), securing.name, over)

        try:
            transport, protocol = await self._open_socket(make)
        except BaseException:
            over.cancel()  # a loop closes the socket, and tells nobody
            raise
        handshake = cast("Handshake", protocol)
        try:
            await over
        except BaseException:
            transport.abort()
            raise
        if handshake.transport is None:
            raise ConnectionResetError(errno.ECONNRESET, "it ended before the handshake")
        securing.opened(connection, handshake.transport)

    async def _open_securely(self, owner: Owner, securing: Securing) -> Connection:
        async with securing.turns:
            freed = owner.take_idle()
            if freed is not None:
                return freed
            context = securing.context
            connection = self._make_connection(owner)
            await self._shake_hands(connection, securing)
            owner.opened(connection)
            if securing.first is not None:
                connection.pool = Unproven(owner)
                await self._ask(connection, securing, securing.first)
            # What it was opened by may have been replaced meanwhile.
            connection.pool = owner if securing.context is context else Retired(owner)
            return connection

    async def _ask(self, connection: Connection, securing: Securing, path: str) -> None:
        """Ask for this on a new connection. Raises NotDelivered if no answer comes."""
        url = self._server.url
        answer = Awaited(loop=asyncio.get_running_loop())
        answer.exchange = OutgoingRequest("GET", url + path, answer.settle, FIRST_LIMIT_BYTES)
        connection.send(answer.exchange, self._server.head("GET", path, (), 0), (b"",))
        try:
            await answer
        except PeerError as error:
            securing.failed(failures.REFUSED)
            # Nobody tells: loops drop the alert along with the connection.
            why = "not accepted, perhaps for the certificate that was shown on it"
            raise NotBelieved(f"{url}: a new connection was {why}: {error}") from None
        finally:
            answer.cancel()

    def _tell_failed(self, error: BaseException) -> None:
        if self._securing is not None and failures.is_of_handshake(error):
            self._securing.failed(failures.reason_of(error))


def _in_words(error: OSError | UnicodeError) -> str:
    if failures.is_of_handshake(error):
        return failures.in_words(error)
    told = in_words(error) if isinstance(error, OSError) else str(error)
    return told or "the other end closed the connection"
