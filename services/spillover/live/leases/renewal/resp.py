"""A synchronous connection to Redis that speaks just enough: one command out, one answer back.

The library's import costs 20 MB and 170 ms, more than all else that renewal needs. Each call ends
within its time limit, or the connection is closed. Nothing is tried again here.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Sequence

from spillover.live.hosts.blocking import connect
from spillover.live.hosts.lookups import HOSTS, Hosts
from spillover.live.redis.answers import of_no_single_server

READ_BYTES = 65_536

Reply = object
"""A reply: bytes, int, None, a list of replies, or ErrorReply."""


class RedisFailed(Exception):
    """No usable answer came. With `refused` the server said no; else it may have carried the
    command out."""

    def __init__(self, problem: str, *, refused: bool = False) -> None:
        super().__init__(problem)
        self.refused = refused


class ErrorReply(Exception):
    """An error that the server answered; the first word is its code."""


class RespConnection:
    """Connects at the first call, and after each failure at the next one."""

    def __init__(
        self,
        address: dict[str, object],
        timeout_s: float,
        on_call: Callable[[], None],
        hosts: Hosts = HOSTS,
    ) -> None:
        """`address`: what `live.redis.address` makes of one; its `file` is read again at each
        connect. `on_call`: before each call, which takes `timeout_s` at most."""
        self._on_call = on_call
        self._hosts = hosts
        self._address = address
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._unread = b""

    def call(self, payload: bytes) -> Reply:
        """Raises RedisFailed."""
        self._on_call()
        until_s = time.monotonic() + self._timeout_s
        try:
            connected = self._socket or self._connect(until_s)
            return self._exchange(connected, payload, until_s)
        except TimeoutError:
            self.close()
            raise RedisFailed("Redis did not answer in time") from None
        except (OSError, ValueError, IndexError) as error:
            self.close()
            raise RedisFailed(f"Redis cannot be reached: {error}") from None

    def close(self) -> None:
        self._unread = b""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self, until_s: float) -> socket.socket:
        self._read_again()
        connected = self._socket = self._open(until_s)
        connected.settimeout(max(0.001, until_s - time.monotonic()))
        if self._address["tls"]:
            connected = self._socket = self._wrap(connected)
        for command in self._greetings():
            answer = self._exchange(connected, pack(command), until_s)
            if isinstance(answer, ErrorReply):
                self.close()
                raise _refused(answer)
        return connected

    def _read_again(self) -> None:
        """Take the password that the file of the address has now; what cannot be used is told by
        the process that gave it."""
        if self._address.get("file"):
            from spillover.live.redis.address import read_again  # noqa: PLC0415 - only who needs it pays
            from spillover.model.errors import InputError  # noqa: PLC0415

            with contextlib.suppress(InputError):
                self._address = read_again(self._address)

    def _open(self, until_s: float) -> socket.socket:
        left_s = max(0.001, until_s - time.monotonic())
        path = str(self._address["path"])
        if path:
            opened = socket.socket(socket.AF_UNIX)
            opened.settimeout(left_s)
            try:
                opened.connect(path)
            except OSError:
                opened.close()
                raise
            return opened
        host, port = str(self._address["host"]), int(str(self._address["port"]))
        opened = connect(host, port, left_s, self._hosts)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened

    def _wrap(self, connected: socket.socket) -> socket.socket:
        from spillover.live.redis.secured import redis_context  # noqa: PLC0415 - only who needs it pays

        ca, verifies = str(self._address["ca"]), bool(self._address["verify"])
        context = redis_context(ca, verifies=verifies)
        return context.wrap_socket(connected, server_hostname=str(self._address["host"]))

    def _greetings(self) -> list[list[bytes]]:
        greetings = []
        user, password = str(self._address["user"]), str(self._address["password"])
        if user or password:
            given = [user, password] if user else [password]
            greetings.append([b"AUTH", *(part.encode() for part in given)])
        if self._address["number"]:
            greetings.append([b"SELECT", str(self._address["number"]).encode()])
        return greetings

    def _exchange(self, connected: socket.socket, payload: bytes, until_s: float) -> Reply:
        connected.settimeout(max(0.001, until_s - time.monotonic()))
        connected.sendall(payload)
        return self._read(connected, until_s)

    def _read(self, connected: socket.socket, until_s: float) -> Reply:
        line = self._line(connected, until_s)
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest
        if kind == b"-":
            return ErrorReply(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return self._bulk(connected, int(rest), until_s) if int(rest) >= 0 else None
        if kind == b"*":
            return [self._read(connected, until_s) for _ in range(int(rest))]
        raise ValueError("what answers there is not Redis")

    def _line(self, connected: socket.socket, until_s: float) -> bytes:
        while b"\r\n" not in self._unread:
            self._more(connected, until_s)
        line, self._unread = self._unread.split(b"\r\n", 1)
        return line

    def _bulk(self, connected: socket.socket, size: int, until_s: float) -> bytes:
        while len(self._unread) < size + 2:
            self._more(connected, until_s)
        bulk, self._unread = self._unread[:size], self._unread[size + 2 :]
        return bulk

    def _more(self, connected: socket.socket, until_s: float) -> None:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        connected.settimeout(left_s)
        data = connected.recv(READ_BYTES)
        if not data:
            raise ConnectionResetError("it closed the connection")
        self._unread += data


def pack(arguments: Sequence[bytes]) -> bytes:
    """Returns a command as bytes."""
    parts = [b"*%d\r\n" % len(arguments)]
    parts += [b"$%d\r\n%s\r\n" % (len(one), one) for one in arguments]
    return b"".join(parts)


def run_script(
    connection: RespConnection, script: str, digest: str, given: Sequence[bytes]
) -> Reply:
    """Run a script by its digest, and once in full if the server does not know it. Raises
    RedisFailed."""
    answer = connection.call(pack([b"EVALSHA", digest.encode(), *given]))
    if isinstance(answer, ErrorReply) and str(answer).startswith("NOSCRIPT"):
        answer = connection.call(pack([b"EVAL", script.encode(), *given]))
    if isinstance(answer, ErrorReply):
        with contextlib.suppress(OSError):
            connection.close()  # the name may lead to another server by now
        raise _refused(answer)
    return answer


def _refused(answer: ErrorReply) -> RedisFailed:
    why = of_no_single_server(str(answer))
    return RedisFailed(f"Redis refused: {answer}" if why is None else f"Redis {why}", refused=True)
