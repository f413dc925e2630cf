"""HTTP for a thread that waits: requests to one base URL over sockets that block.

The connections are those of `connection`: what an answer is, when one is broken, and when a
connection can be used again, stands there alone. Here is what asyncio would be else: a transport,
time limits, and idle connections. Plain http, and small requests: what is large might have to be
read while it is written.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import cast

from spillover.live.engine.write_batch import Buffer
from spillover.live.hosts.attempts import in_words
from spillover.live.hosts.blocking import connect
from spillover.live.http1.base_url import BaseUrl
from spillover.live.http1.connection import Connection
from spillover.live.http1.keepalive import keep_alive
from spillover.live.http1.outgoing import OnEnd, OutgoingExchange, OutgoingRequest
from spillover.model.errors import NotDelivered, OutcomeUnknown
from spillover.policy.reuse import AGE_S_MAX, IdleLimit, spread

READ_BYTES = 65_536
LOOK_S = 1.0
"""So often a thread that waits looks at the clock: the socket's own limit is set once for all."""
BODY_MAX_BYTES = 65_536
"""The most bytes of a request's body."""


class BlockingClient:
    """Connections to one server, used from any number of threads, each in one of them at a time."""

    def __init__(
        self,
        base_url: str,
        headers: Sequence[tuple[bytes, bytes]],
        *,
        connect_timeout_s: float,
        idle_s_max: float,
        body_limit_bytes: int,
        user_timeout_s: float,
    ) -> None:
        self._server = BaseUrl(base_url, headers)
        self._connect_timeout_s = connect_timeout_s
        self._idle_limit = IdleLimit(idle_s_max)
        self._random = Random()  # only spreads ends of connections
        self._body_limit_bytes = body_limit_bytes
        self._user_timeout_s = user_timeout_s
        self._idle: list[Connection] = []
        """The last one used is the last."""
        self._lines: dict[Connection, _Line] = {}

    def begin(self, method: str, path: str, on_end: OnEnd) -> OutgoingRequest:
        """Returns a request that is not on its way yet."""
        return OutgoingRequest(method, self._server.url + path, on_end, self._body_limit_bytes)

    def carry(
        self,
        exchange: OutgoingRequest,
        path: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        timeout_s: float,
    ) -> None:
        """Send it, and wait until it has ended, or somebody else has taken it over by another
        `on_end`. Where this is broken off from within (Ctrl-C) it goes on, for whoever waits."""
        on_end, until_s = exchange.on_end, time.monotonic() + timeout_s
        if timeout_s <= 0:
            exchange.break_off("no time was left to send it")
            return
        head = self._server.head(exchange.method, path, headers, len(body))
        connection = self._take_idle()
        if connection is None:
            try:
                connection = self._open(min(self._connect_timeout_s, timeout_s))
            except OSError as error:
                why = in_words(error)
                exchange.fail(NotDelivered(f"{self._server.url}: cannot connect: {why}"))
                return
            age_s_max = spread(AGE_S_MAX, self._random.random())
            connection.retires_s = time.monotonic() + age_s_max
        if exchange.on_end is not on_end:
            connection.close()
            return
        line = self._lines[connection]
        connection.send(exchange, head, (body,))
        while exchange.on_end is on_end:
            rest_s = until_s - time.monotonic()
            if rest_s <= 0:
                exchange.expire(timeout_s)
            else:
                line.read(exchange, min(rest_s, LOOK_S))

    def interrupt(self, exchange: OutgoingRequest) -> None:
        """Wake the thread that waits for it, whose answer nobody reads any more."""
        line = self._lines.get(cast("Connection", exchange.connection))
        if line is not None:
            line.stop_reading()

    def close(self) -> None:
        """Close what is idle. What is under way is its thread's."""
        while self._idle:
            self._idle.pop().close()

    def close_copies(self) -> None:
        """In a forked process: see `Connection.close_copy`."""
        for connection in self._lines:
            connection.close_copy()

    def _take_idle(self) -> Connection | None:
        oldest_s = time.monotonic() - self._idle_limit.limit_s
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.idle_since_s > oldest_s and self._lines[connection].is_quiet():
                return connection
            connection.close()

    def _open(self, timeout_s: float) -> Connection:
        """Raises OSError."""
        opened = connect(self._server.host, self._server.port, timeout_s)
        opened.settimeout(None)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keep_alive(opened, self._user_timeout_s)
        connection = Connection(self)
        line = self._lines[connection] = _Line(opened, connection)
        connection.connection_made(line)
        return connection

    # --- as connections have it of their pool ---------------------------------------------------

    def released(self, connection: Connection) -> None:
        """It can carry another request."""
        if connection.keep_s is not None:
            self._idle_limit.said(connection.keep_s)
            connection.keep_s = None
        if connection.idle_since_s >= connection.retires_s:
            connection.close()
        else:
            self._idle.append(connection)

    def dropped(self, connection: Connection) -> None:
        """It is about to close."""
        self._lines.pop(connection, None)

    lost = abandoned = dropped

    def unanswered(
        self,
        connection: Connection,  # noqa: ARG002 - of a pool
        exchange: OutgoingExchange,
        what: str,
        *,
        is_unread: bool,
    ) -> None:
        """It has ended without an answer: whoever asks decides what to do about it."""
        error = NotDelivered if is_unread else OutcomeUnknown
        exchange.fail(error(f"{exchange.method} {exchange.url}: {what}"))


class _Line(asyncio.Transport):
    """A blocking socket, as a connection sees its transport."""

    def __init__(self, opened: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        super().__init__({"socket": opened})
        self._socket = opened
        self._protocol = protocol
        self._limit_s = 0.0
        self._is_closing = False
        self._fault: OSError | None = None
        """The fault of a write, which the reader sees."""

    def read(self, exchange: OutgoingRequest, within_s: float) -> None:
        """Wait for what comes next, but not for longer, and hand it over."""
        if within_s != self._limit_s:
            self._limit_s = within_s
            whole_s = int(within_s)
            limit = struct.pack("ll", whole_s, max(1, int((within_s - whole_s) * 1e6)))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        protocol = self._protocol
        try:
            if self._fault is not None:
                raise self._fault
            if isinstance(protocol, asyncio.BufferedProtocol):
                got = self._socket.recv_into(protocol.get_buffer(-1))
                if got:
                    protocol.buffer_updated(got)
                    return
            else:
                data = self._socket.recv(READ_BYTES)
                if data:
                    cast("asyncio.Protocol", protocol).data_received(data)
                    return
        except BlockingIOError:
            return
        except OSError as error:
            if exchange.connection is not None:
                exchange.connection.broke(exchange, error)
            return
        cast("asyncio.Protocol", protocol).eof_received()

    def is_quiet(self) -> bool:
        """Returns whether nothing has come while it was idle, such as its end."""
        try:
            self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def stop_reading(self) -> None:
        """Whoever reads finds the end."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RD)

    # --- as asyncio has it ------------------------------------------------------------------------

    def write(self, data: Buffer) -> None:  # type: ignore[override]
        try:
            self._socket.sendall(data)
        except OSError as error:
            self._fault = error

    def writelines(self, list_of_data: Sequence[Buffer]) -> None:  # type: ignore[override]
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return 0

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_reading(self) -> bool:
        return False

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self._is_closing

    def abort(self) -> None:
        self._is_closing = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
