"""An HTTP server on loopback that answers as a node would, as the request's `type` asks it to."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest


@dataclass
class Received:
    """One request as it came in; `at_s` is of `time.monotonic()`."""

    at_s: float
    path: str
    headers: dict[str, str]
    body: dict


@dataclass
class ScriptedNode:
    """Runs in a thread of its own. By the request's type:

    `default`  200 at once, executed at b after one hop, in 12.5 ms
    `503:why`  that status, a problem with that reason (and so for any status)
    `garbage`  200 without a node's answer
    `reset`    the connection breaks after the request was read
    `stall`    200, but not before `release`

    Asked for its state it is the cluster of `is_called`; if that is None it is no node.
    """

    is_called: str | None = "a"

    received: list[Received] = field(default_factory=list)
    connections: int = 0
    url: str = ""

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(10)

    def release(self) -> None:
        self._loop.call_soon_threadsafe(self._released.set)

    def wait_for(self, count: int) -> None:
        """Until that many requests have come in."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.received) >= count, timeout=30)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._released = asyncio.Event()
        self._closing = asyncio.Event()
        self._handlers: set[asyncio.Task] = set()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=1024)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._ready.set()
        await self._closing.wait()
        # asyncio accepts connections in tasks of their own, which fail once the server is closed.
        while accepting := asyncio.all_tasks() - self._handlers - {asyncio.current_task()}:
            await asyncio.gather(*accepting)
        server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        handler = asyncio.create_task(self._converse(reader, writer))
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)
        # Here, since a task that is cancelled before it starts cleans nothing up.
        handler.add_done_callback(lambda _: writer.transport.abort())

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The client may leave when it likes.
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while received := await _read(reader):
                if received.path == "/state":
                    writer.write(
                        _plain({} if self.is_called is None else {"cluster": self.is_called})
                    )
                    continue
                with self._changed:
                    self.received.append(received)
                    self._changed.notify_all()
                if not await self._answer(received, writer):
                    return

    async def _answer(self, received: Received, writer: asyncio.StreamWriter) -> bool:
        wish = received.body.get("type", "default")
        if wish == "reset":
            return False
        if wish == "stall":
            await self._released.wait()
        status, body = 200, _answer_body(received)
        if wish == "garbage":
            body = b"it works!"
        elif wish[0].isdigit():
            code, _, reason = wish.partition(":")
            status, body = int(code), json.dumps({"reason": reason, "status": int(code)}).encode()
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
        await writer.drain()
        return True


async def _read(reader: asyncio.StreamReader) -> Received | None:
    start = await reader.readline()
    if not start:
        return None
    headers = {}
    while line := (await reader.readline()).decode().strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    told = json.loads(body) if body else {}
    return Received(time.monotonic(), start.decode().split()[1], headers, told)


def _plain(told: dict) -> bytes:
    body = json.dumps(told).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def _answer_body(received: Received) -> bytes:
    name = received.body.get("id") or received.headers.get("idempotency-key") or "a-made"
    timing = {"queued": 2.0, "network": 0.5, "service": 10.0, "return": 1.0, "total": 12.5}
    answer = {
        "id": name,
        "result": {"slept_ms": 10},
        "cluster": "b",
        "path": ["a", "b"],
        "hops": 1,
        "timing_ms": timing,
    }
    return json.dumps(answer).encode()


@pytest.fixture
def node() -> Iterator[ScriptedNode]:
    node = ScriptedNode()
    yield node
    node.release()
    node.close()
