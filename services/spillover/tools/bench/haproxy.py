"""HAProxy as a process: found, started with somebody's configuration, and never left behind.

What it is to do is known to those who write the configuration; here is only that of a mere relay.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from spillover.live.process.listening import bind_socket
from spillover.model.errors import InputError, RunError
from spillover.tools.bench.servers import HOST, READY_POLL_S, READY_WITHIN_S, Server

HOW_TO_GET_IT = (
    "expected it on the PATH, got none (Debian: apt install haproxy, macOS: brew install haproxy)"
)

SYSTEM_DIRECTORIES = ("/usr/local/sbin", "/usr/sbin")
"""Where packages put it, and which are not on the PATH of every user."""

# Told its process id, the shell ends HAProxy when its own input ends: so it never outlives us.
_GUARD = '"$@" & echo $!; cat >/dev/null; kill $!; wait'

_RELAY = """\
global
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    http-reuse always
frontend public
    bind "fd@{descriptor}"
    default_backend upstream
backend upstream
    server upstream {address}
"""


def find_haproxy() -> str | None:
    """Returns the one on the PATH, or where packages put it."""
    places = (os.environ.get("PATH", os.defpath), *SYSTEM_DIRECTORIES)
    return shutil.which("haproxy", path=os.pathsep.join(places))


def check_haproxy() -> str:
    """Returns the one that is found. Raises InputError, which says how to get one."""
    binary = find_haproxy()
    if binary is None:
        raise InputError("haproxy", "", HOW_TO_GET_IT)
    return binary


@asynccontextmanager
async def haproxy_relay(upstream: str) -> AsyncIterator[Server]:
    """Starts HAProxy as a relay on one thread. Raises as `running_haproxy`."""
    address = upstream.removeprefix("http://")
    with bind_socket(HOST, 0) as listening:
        text = _RELAY.format(descriptor=listening.fileno(), address=address)
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
        guard = await asyncio.create_subprocess_exec(
            *("sh", "-c", _GUARD, "sh", binary, "-db", "-q", "-f", str(file)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            pass_fds=[listening.fileno()],
            start_new_session=True,
        )
        try:
            yield await _ready(guard, listening)
        finally:
            if guard.stdin is not None:
                guard.stdin.close()
            await guard.wait()


async def _ready(guard: asyncio.subprocess.Process, listening: socket.socket) -> Server:
    if guard.stdout is None:
        raise RunError("HAProxy has no output")
    url = f"http://{HOST}:{listening.getsockname()[1]}"
    pid = int(await guard.stdout.readline())
    listening.close()  # it has its own by now: else the port would seem open when it is not
    limit_s = time.monotonic() + READY_WITHIN_S
    async with httpx.AsyncClient(trust_env=False) as client:
        while True:
            if await _answers(client, url):
                return Server(url, pid)
            if guard.returncode is not None or time.monotonic() > limit_s:
                raise RunError("HAProxy did not start")
            await asyncio.sleep(READY_POLL_S)


async def _answers(client: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await client.get(url)).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False
