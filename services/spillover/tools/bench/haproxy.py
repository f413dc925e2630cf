"""HAProxy as a process: found, started with somebody's configuration, and never left behind.

What it is to do is known to those who write the configuration; here is only that of a mere relay.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from spillover.live.process.listening import bind_socket
from spillover.model.errors import InputError
from spillover.tools.bench.foreign import find_program, foreign_server
from spillover.tools.bench.servers import HOST, Server

HOW_TO_GET_IT = (
    "expected it on the PATH, got none (Debian: apt install haproxy, macOS: brew install haproxy)"
)

_RELAY = """\
global
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    http-reuse always
{options}frontend public
    bind "fd@{descriptor}"
    default_backend upstream
backend upstream
    server upstream {address}
"""


def find_haproxy() -> str | None:
    """Returns the one on the PATH, or where packages put it."""
    return find_program("haproxy")


def check_haproxy() -> str:
    """Returns the one that is found. Raises InputError, which says how to get one."""
    binary = find_haproxy()
    if binary is None:
        raise InputError("haproxy", "", HOW_TO_GET_IT)
    return binary


@asynccontextmanager
async def haproxy_relay(upstream: str, *options: str) -> AsyncIterator[Server]:
    """Starts HAProxy as a relay on one thread, with more lines of its defaults. Raises as
    `running_haproxy`."""
    address = upstream.removeprefix("http://")
    with bind_socket(HOST, 0) as listening:
        lines = "".join(f"    {option}\n" for option in options)
        text = _RELAY.format(descriptor=listening.fileno(), address=address, options=lines)
        async with running_haproxy(text, listening) as server:
            yield server


@asynccontextmanager
async def running_haproxy(configuration: str, listening: socket.socket) -> AsyncIterator[Server]:
    """Starts HAProxy, which takes over `listening` by its descriptor; from then on it is closed
    here. Gives it once it answers a GET by 200.

    Raises InputError if there is none, RunError if it does not start.
    """
    binary = check_haproxy()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "haproxy.cfg"
        file.write_text(configuration, encoding="utf-8")
        command = (binary, "-db", "-q", "-f", str(file))
        async with foreign_server("HAProxy", command, listening) as server:
            yield server
