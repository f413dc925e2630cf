"""Connections for tasks of an event loop, of any kind."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from spillover.core.hosts.answers import Address
from spillover.core.hosts.race import DELAY_S
from spillover.live.hosts.attempts import Attempts, in_words
from spillover.live.hosts.lookups import HOSTS, Hosts, is_literal, literal

Made = tuple[asyncio.Transport, asyncio.Protocol]


async def connect(
    make: Callable[[], asyncio.Protocol],
    host: str,
    port: int,
    limit_s: float,
    hosts: Hosts = HOSTS,
) -> Made:
    """Do the same as `loop.create_connection`. Addresses share `limit_s`, after which the caller
    ends the wait. Raises OSError."""
    addresses = (literal(host),) if is_literal(host) else await _find(host, hosts)
    _, place, _, scope = addresses[0]
    if len(addresses) == 1 and not scope and "%" not in place:
        return await _connect_only(make, host, addresses[0], port, hosts)
    opened = await _open_first(host, addresses, port, limit_s, hosts)
    try:
        return await asyncio.get_running_loop().create_connection(make, sock=opened)
    except BaseException:
        opened.close()
        raise


async def open_socket(host: str, port: int, limit_s: float, hosts: Hosts = HOSTS) -> socket.socket:
    """Returns a socket that is connected and does not block; as `connect`."""
    addresses = (literal(host),) if is_literal(host) else await _find(host, hosts)
    return await _open_first(host, addresses, port, limit_s, hosts)


async def _connect_only(
    make: Callable[[], asyncio.Protocol], host: str, address: Address, port: int, hosts: Hosts
) -> Made:
    """Connect as most do, whose hosts have one address: the loop does it in fewer steps."""
    began_s = time.monotonic()
    try:
        return await asyncio.get_running_loop().create_connection(make, address[1], port)
    except OSError as error:
        hosts.tried(host, None, {address: in_words(error)})
        raise
    except asyncio.CancelledError:
        if time.monotonic() - began_s >= DELAY_S:
            hosts.tried(host, None, {address: "no answer"})
        raise


async def _find(name: str, hosts: Hosts) -> tuple[Address, ...]:
    loop = asyncio.get_running_loop()
    while True:
        told = hosts.ask(name)
        if not isinstance(told, float):
            return told
        woken = loop.create_future()
        wake = partial(_wake, loop, woken)
        timer = None
        if told < math.inf:
            timer = loop.call_later(max(0.0, told - hosts.clock()), _settle, woken)
        try:
            if hosts.join(name, wake):
                await woken
        finally:
            hosts.leave(name, wake)
            if timer is not None:
                timer.cancel()


def _wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None]) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(_settle, woken)


def _settle(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


async def _open_first(
    host: str, addresses: tuple[Address, ...], port: int, limit_s: float, hosts: Hosts
) -> socket.socket:
    attempts = Attempts(addresses, port, limit_s)
    waits = _Waits(attempts)
    try:
        await waits.over
        return attempts.take()
    except asyncio.CancelledError:
        attempts.abandon()
        raise
    finally:
        waits.close()
        hosts.tried(host, *attempts.close(time.monotonic()))


class _Waits:
    """The files and times that a loop waits for while attempts are under way."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.over = self._loop.create_future()
        self._step()

    def _step(self) -> None:
        self._unset_timer()
        now_s = time.monotonic()
        for begun in self._attempts.begin(now_s):
            self._loop.add_writer(begun, self._ended, begun)
        due_s = self._attempts.race.due_s
        if self._attempts.is_over:
            _settle(self.over)
        elif due_s < math.inf:
            self._timer = self._loop.call_later(due_s - now_s, self._step)

    def _ended(self, opened: socket.socket) -> None:
        self._loop.remove_writer(opened)
        self._attempts.end(opened)
        self._step()

    def close(self) -> None:
        self._unset_timer()
        for opened in self._attempts.open:
            self._loop.remove_writer(opened)

    def _unset_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
