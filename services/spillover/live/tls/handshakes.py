"""Handshakes in turns. A step of one takes up to a millisecond of processor time, and a neighbor
that comes back may have dozens of them at once: few are taken in a turn of the loop, and all else
goes on in between. What is shown in a handshake is not known here.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from asyncio.sslproto import SSLProtocol
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast
from weakref import WeakKeyDictionary

from spillover.live.engine.reads import SharedReads
from spillover.live.tls.contexts import HANDSHAKE_S, SHUTDOWN_S
from spillover.model.addresses import of_socket

STEPS_PER_TURN = 4
"""A client has two, and so has a server: a hello, and what the other end shows."""

SHORTEST_S = 0.001
"""The time left for what comes in the last instant: no time at all is none that loops take."""

OnFailed: TypeAlias = Callable[[Exception, str | None], None]
"""Is called with what a handshake ended with, and with the address of the other end."""


@dataclass(frozen=True, slots=True)
class Front:
    """How to listen with TLS: each handshake goes by the `newest` context; `failed` hears of each
    that came to nothing."""

    newest: Callable[[], ssl.SSLContext]
    failed: OnFailed = lambda *_: None


class Turns:
    """The handshakes of one loop take turns, in order."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_due = False

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop) -> Turns:
        """Returns those of this loop."""
        return _turns.setdefault(loop, cls())

    def add(self, step: Callable[[], None]) -> None:
        self._waiting.append(step)
        self._ask_for_turn()

    def _ask_for_turn(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._take)

    def _take(self) -> None:
        self._is_due = False
        try:
            for _ in range(min(STEPS_PER_TURN, len(self._waiting))):
                self._waiting.popleft()()
        finally:
            if self._waiting:
                self._ask_for_turn()


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


class Handshake(asyncio.Protocol):
    """Has a socket's bytes until its handshake is over, after which the loop's own protocol for TLS
    has them, and `app` what they mean. It is a client's where `server_name` is given, which is whom
    the other end has to prove to be. Sets `over`, if given, and is in `under_way` until then; it
    does not begin once nobody waits for that. `failed` hears what it ended with, if not well."""

    def __init__(
        self,
        app: asyncio.Protocol,
        newest: Callable[[], ssl.SSLContext],
        under_way: set[Handshake],
        server_name: str | None = None,
        over: asyncio.Future[None] | None = None,
        failed: OnFailed | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._turns = Turns.of(self._loop)
        self._app = app
        self._newest = newest
        self._server_name = server_name
        self._under_way = under_way
        self._over = over
        self._failed = failed
        self._address: str | None = None
        self._secure: Any = None
        """The loop's own protocol. It has large buffers: a server makes none for who is silent."""
        self._silent: asyncio.TimerHandle | None = None
        """Ends the connection of a client that says nothing at all for too long. Whoever speaks has
        what is left of the time for all else."""
        self._left_s = HANDSHAKE_S
        self._received = b""
        self.transport: asyncio.Transport | None = None
        """The transport for what is not encrypted, once the handshake has succeeded."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._under_way.add(self)
        self._socket = cast("asyncio.Transport", transport)
        if self._failed is not None:  # later the socket may be closed
            self._address = _address_of(self._socket)
        if self._server_name is None:
            self._silent = self._loop.call_later(HANDSHAKE_S, self._said_nothing)
        else:
            self._secure = self._make_secure()
            self._socket.pause_reading()
            self._turns.add(partial(self._do, self._begin))

    def data_received(self, data: bytes) -> None:
        # A loop may read more than once before a pause counts.
        self._received += data
        self._socket.pause_reading()
        if self._silent is not None:
            self._hears()
            self._turns.add(partial(self._do, self._begin))
        self._turns.add(partial(self._do, self._go_on))

    def eof_received(self) -> None:
        """Nothing is left to be read: while something was, the socket was not."""
        if self._secure is not None:
            self._secure.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._under_way.discard(self)
        self._hears()
        if self._secure is not None:
            self._secure.connection_lost(exc)
        # Loops tell what a handshake failed for nowhere else; once it has succeeded, nothing here.
        if self._failed is not None and exc is not None:
            self._failed(exc, self._address)

    def pause_writing(self) -> None:
        self._secure.pause_writing()

    def resume_writing(self) -> None:
        self._secure.resume_writing()

    def _do(self, step: Callable[[], None]) -> None:
        """Loops close a connection whose protocol raises; what is done later is on its own."""
        try:
            step()
        except BaseException:
            self._socket.abort()
            raise

    def _hears(self) -> None:
        if self._silent is not None:
            self._silent.cancel()
            self._left_s = max(self._silent.when() - self._loop.time(), SHORTEST_S)
            self._silent = None

    def _said_nothing(self) -> None:
        if self._failed is not None:
            self._failed(ConnectionAbortedError("it said nothing"), self._address)
        self._socket.abort()

    def _begin(self) -> None:
        is_unwanted = self._over is not None and self._over.done()
        if not (is_unwanted or self._socket.is_closing()):
            if self._secure is None:
                self._secure = self._make_secure()
            self._secure.connection_made(self._socket)
            if not self._received:
                self._socket.resume_reading()

    def _make_secure(self) -> Any:
        is_server, begins = self._server_name is None, _Beginning(self._succeed)
        return _kind_of(self._loop)(
            self._loop,
            begins,
            self._newest(),
            self._over,
            is_server,
            self._server_name,
            ssl_handshake_timeout=self._left_s,
            ssl_shutdown_timeout=SHUTDOWN_S,
        )

    def _go_on(self) -> None:
        if self._socket.is_closing():
            return
        self._received, left = b"", memoryview(self._received)
        while left:
            room = self._secure.get_buffer(len(left))
            taken = min(len(room), len(left))
            room[:taken] = left[:taken]
            self._secure.buffer_updated(taken)
            left = left[taken:]
        if not self._socket.is_closing():
            self._socket.resume_reading()

    def _succeed(self, transport: asyncio.Transport) -> None:
        self._under_way.discard(self)
        self.transport = transport
        self._socket.set_protocol(self._secure)
        transport.set_protocol(SharedReads(self._app))
        self._app.connection_made(transport)


class _Beginning(asyncio.Protocol):
    """The protocol of a connection until the handshake is over."""

    def __init__(self, succeed: Callable[[asyncio.Transport], None]) -> None:
        self._succeed = succeed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._succeed(cast("asyncio.Transport", transport))


def _kind_of(loop: asyncio.AbstractEventLoop) -> type[Any]:
    """The protocol for TLS of a loop, as in connections that it opens itself."""
    own = (vars(sys.modules[kind.__module__]).get("SSLProtocol") for kind in type(loop).__mro__)
    return next(filter(None, own), SSLProtocol)


def at_door(
    make: Callable[[], asyncio.Protocol],
    tls: Front | None,
    under_way: set[Handshake],
) -> Callable[[], asyncio.Protocol]:
    """Returns what a loop's `create_server` is to make for each connection, where one is to be
    served by what `make` gives. Handshakes are in `under_way` until they are over."""
    if tls is None:
        return make
    return lambda: Handshake(make(), tls.newest, under_way, failed=tls.failed)


def _address_of(transport: asyncio.BaseTransport) -> str | None:
    told = of_socket(transport.get_extra_info("peername"))
    return None if told is None else told[0]
