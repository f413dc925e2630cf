"""Programs of others as processes: found, started with somebody's configuration, never left behind.

What they are to do is known to those who write the configuration.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx

from spillover.model.errors import RunError
from spillover.tools.bench.servers import HOST, READY_POLL_S, READY_WITHIN_S, Server

SYSTEM_DIRECTORIES = ("/usr/local/sbin", "/usr/sbin")
"""Where packages put them, and which are not on the PATH of every user."""

# The shell ends the program, whose process id it tells, when its own input ends: it never outlives
# us.
_GUARD = '"$@" & echo $!; cat >/dev/null; kill $!; wait'


def find_program(name: str) -> str | None:
    """Returns the one on the PATH, or where packages put it."""
    places = (os.environ.get("PATH", os.defpath), *SYSTEM_DIRECTORIES)
    return shutil.which(name, path=os.pathsep.join(places))


@asynccontextmanager
async def foreign_server(
    name: str, command: Sequence[str], listening: socket.socket
) -> AsyncIterator[Server]:
    """Starts a program that takes over `listening`, by its descriptor or by its port; from then on
    that is closed here. Gives it once it answers a GET by 200. Raises RunError if it does not
    start."""
    guard = await asyncio.create_subprocess_exec(
        *("sh", "-c", _GUARD, "sh", *command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        pass_fds=[listening.fileno()],
        start_new_session=True,
    )
    try:
        yield await _ready(name, guard, listening)
    finally:
        if guard.stdin is not None:
            guard.stdin.close()
        await guard.wait()


async def _ready(name: str, guard: asyncio.subprocess.Process, listening: socket.socket) -> Server:
    if guard.stdout is None:
        raise RunError(f"{name} has no output")
    url = f"http://{HOST}:{listening.getsockname()[1]}"
    pid = int(await guard.stdout.readline())
    listening.close()  # it has its own by now: else the port would seem open when it is not
    limit_s = time.monotonic() + READY_WITHIN_S
    async with httpx.AsyncClient(trust_env=False) as client:
        while True:
            if await _answers(client, url):
                return Server(url, pid)
            if _has_ended(pid) or time.monotonic() > limit_s:
                raise RunError(f"{name} did not start")
            await asyncio.sleep(READY_POLL_S)


def _has_ended(pid: int) -> bool:
    """Whether the program has, which its shell would wait for."""
    import psutil  # noqa: PLC0415 - of an extra: who lacks it is told so in one line

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


async def _answers(client: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await client.get(url)).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False
