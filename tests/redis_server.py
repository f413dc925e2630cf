"""A real redis-server on loopback for tests, and a way to it that can be cut without a word.

Tests get this module as the fixture `redis_servers`, and one running server, which keeps nothing on
disk and is shared by all tests of a run, as `redis_server`.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
import uuid
from contextlib import contextmanager, suppress

LIMIT_S = 10.0
STARTS_MAX = 5


def is_installed():
    with suppress(ImportError):
        import redis  # noqa: F401

        return shutil.which("redis-server") is not None
    return False


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def new_name():
    """A group that no other test has."""
    return f"g-{uuid.uuid4().hex[:12]}"


async def until(condition, limit_s=LIMIT_S):
    """Wait for what `condition()` says, or what it answers when awaited."""
    async with asyncio.timeout(limit_s):
        while True:
            answer = condition()
            if asyncio.iscoroutine(answer):
                answer = await answer
            if answer:
                return answer
            with suppress(TimeoutError):
                async with asyncio.timeout(0.005):
                    await asyncio.get_running_loop().create_future()


class RedisServer:
    """One redis-server, ended by its id. `options` are those of its command line."""

    def __init__(self, directory, *options, password=None):
        self._directory = directory
        self._options = options
        self._password = password
        self.port = free_port()
        for _ in range(STARTS_MAX):
            if self._starts():
                return
            self.port = free_port()
        raise AssertionError("redis-server does not start")

    @property
    def url(self):
        return f"redis://127.0.0.1:{self.port}/0"

    def _starts(self):
        """Whether it runs and answers; not if somebody was faster at its port."""
        from redis import Redis, exceptions
        from redis.backoff import ConstantBackoff
        from redis.retry import Retry

        listen = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._directory))
        keep = ("--repl-diskless-sync-delay", "0")
        keep += () if "--appendonly" in self._options else ("--save", "", "--appendonly", "no")
        self.process = subprocess.Popen(
            ["redis-server", *listen, *keep, *self._options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.client = Redis(port=self.port, password=self._password, decode_responses=True)
        patient = Redis(
            port=self.port,
            password=self._password,
            retry=Retry(ConstantBackoff(0.02), int(LIMIT_S / 0.02)),
            retry_on_error=[exceptions.ConnectionError, exceptions.BusyLoadingError],
        )
        with patient, suppress(exceptions.RedisError):
            return patient.info("server")["process_id"] == self.process.pid
        self.stop()
        return False

    def restart(self):
        """Kill it, as a crash would; the next one has the port, and what was kept on disk."""
        if self.process.poll() is None:
            self.stop(signal.SIGKILL)
        assert self._starts()

    def follow(self, port):
        """Be a replica of whatever listens at `port`, and have its data."""
        self.client.replicaof("127.0.0.1", port)

    @property
    def follows(self):
        return self.client.info("replication").get("master_link_status") == "up"

    def stop(self, signal_number=signal.SIGTERM):
        self.client.close()
        self.process.send_signal(signal_number)
        self.process.wait(LIMIT_S)


@contextmanager
def running(directory, *options, **given):
    server = RedisServer(directory, *options, **given)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop(signal.SIGKILL)


class Way:
    """A TCP proxy to a port of loopback, in the test's own loop. Frozen, it forwards nothing and
    closes nothing, so that either end believes the other one to be quiet."""

    def __init__(self, port):
        self.target = port
        self.accepted = 0
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._tasks = set()
        self._writers = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._converse, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def freeze(self):
        self._thawed.clear()

    def thaw(self):
        self._thawed.set()

    def cut(self):
        """Break off all connections there are, as a peer that is gone."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def _converse(self, reader, writer):
        self.accepted += 1
        self._tasks.add(asyncio.current_task())
        self._writers.append(writer)
        with suppress(OSError):
            there = await asyncio.open_connection("127.0.0.1", self.target)
            self._writers.append(there[1])
            await asyncio.gather(self._forward(reader, there[1]), self._forward(there[0], writer))

    async def _forward(self, reader, writer):
        with suppress(OSError):
            while data := await reader.read(65_536):
                await self._thawed.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
