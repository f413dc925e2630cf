"""Connections for threads that wait."""

from __future__ import annotations

import selectors
import socket
import threading
import time

from spillover.core.hosts.answers import Address
from spillover.live.hosts.attempts import Attempts
from spillover.live.hosts.lookups import HOSTS, Hosts, is_literal, literal


def connect(host: str, port: int, limit_s: float, hosts: Hosts = HOSTS) -> socket.socket:
    """Returns a connected socket, as `socket.create_connection` does, whose limit a lookup does not
    keep. Raises OSError, and TimeoutError after `limit_s`, which is that of what the socket does
    then, too."""
    until_s = time.monotonic() + limit_s
    addresses = (literal(host),) if is_literal(host) else _find(host, until_s, hosts)
    attempts = Attempts(addresses, port, limit_s)
    try:
        opened = _first(attempts, until_s)
    finally:
        hosts.tried(host, *attempts.close(time.monotonic()))
    if opened is None:
        raise _late(host, hosts)
    opened.settimeout(limit_s)
    return opened


def _find(name: str, until_s: float, hosts: Hosts) -> tuple[Address, ...]:
    while True:
        told = hosts.ask(name)
        if not isinstance(told, float):
            return told
        woken = threading.Event()
        if hosts.join(name, woken.set):
            left_s = min(until_s - time.monotonic(), told - hosts.clock())
            woken.wait(left_s)
            hosts.leave(name, woken.set)
            if time.monotonic() >= until_s:
                raise _late(name, hosts)


def _first(attempts: Attempts, until_s: float) -> socket.socket | None:
    """Returns the first that is connected, None if there is none in time."""
    with selectors.DefaultSelector() as selector:
        while True:
            now_s = time.monotonic()
            for begun in attempts.begin(now_s):
                selector.register(begun, selectors.EVENT_WRITE)
            if attempts.is_over:
                return attempts.take()
            if now_s >= until_s:
                return None
            for key, _ in selector.select(min(until_s, attempts.race.due_s) - now_s):
                selector.unregister(key.fileobj)
                attempts.end(key.fileobj)  # type: ignore[arg-type]


def _late(host: str, hosts: Hosts) -> TimeoutError:
    why = hosts.why_late(host)
    return TimeoutError(f"no connection in time ({why})" if why else "no connection in time")
