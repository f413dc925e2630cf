"""Producers of the distributed queue in a thread of the test's process, on real sockets, and how
their users call them. No rule of the product lives here.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvloop

from spillover.apps.http.server import HttpServer, url_of
from spillover.apps.queue.app import QueueApp
from spillover.core.queue.settings import ProducerSettings
from spillover.live.process.listening import bind_socket
from spillover.live.queue.shell import QueueShell
from spillover.live.queue.store import ObjectStore
from support import waiting

LIMIT_S = 30.0
OBJECT_LIMIT_BYTES = 1_000_000

until = partial(waiting.until, limit_s=LIMIT_S)
_names = itertools.count()


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def told(self) -> Any:
        return json.loads(self.body)


def call(
    url: str,
    method: str = "GET",
    body: bytes | Iterator[bytes] | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    deadline_ms: float | None = None,
) -> Answer:
    """One call on a connection of its own."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=LIMIT_S)
    told = dict(headers or {})
    if deadline_ms is not None:
        told["Spillover-Deadline-Ms"] = str(deadline_ms)
    try:
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        connection.request(method, target, body, told)
        response = connection.getresponse()
        names = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, names, response.read())
    finally:
        connection.close()


def connected(url: str) -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


class Producer:
    """One producer as its users see it; `shell` is what runs and `connections` are those of its
    server, for looking inside."""

    def __init__(
        self, url: str, shell: QueueShell | None = None, connections: AbstractSet[Any] = frozenset()
    ) -> None:
        self.url = url
        self.shell = shell
        self.connections = connections

    def put(self, content: bytes, *, deadline_ms: float = 20_000, **headers: str) -> Answer:
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        return call(f"{self.url}/objects", "POST", content, told, deadline_ms=deadline_ms)

    def take(self, *, deadline_ms: float = 20_000, **asked: Any) -> Answer:
        told = {"consumer": "c", "probe_id": f"take-{next(_names)}", **asked}
        body = json.dumps(told).encode()
        return call(f"{self.url}/take", "POST", body, deadline_ms=deadline_ms)

    def tell(self, grant: str, what: str, body: bytes = b"") -> Answer:
        return call(f"{self.url}/grants/{grant}/{what}", "POST", body)

    @property
    def state(self) -> Any:
        return call(f"{self.url}/state").told


def fetched(answer: Answer) -> tuple[bytes, str, str]:
    """The object of an answer to a take, where it came from, and its grant."""
    if answer.status == 303:
        where = answer.headers["location"]
        answer = call(where)
        base = where.rpartition("/objects/")[0]
    else:
        base = ""
    assert answer.status == 200, answer
    return answer.body, base, answer.headers["spillover-grant"]


@contextmanager
def producers(
    count: int = 1,
    *,
    stores: Path | None = None,
    object_limit_bytes: int = OBJECT_LIMIT_BYTES,
    **changed: Any,
) -> Iterator[list[Producer]]:
    """So many that know each other: p1, p2, ..."""
    changed["object_limit_bytes"] = object_limit_bytes
    running: list[Producer] = []
    ready, stop = threading.Event(), asyncio.Event()
    errors: list[BaseException] = []
    loops: list[asyncio.AbstractEventLoop] = []

    def work() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_serve(count, stores, changed, loops, running, ready, stop))
        except BaseException as error:  # noqa: BLE001 - told where the test is
            errors.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait(LIMIT_S)
    try:
        assert not errors, errors
        yield running
    finally:
        if thread.is_alive():
            loops[0].call_soon_threadsafe(stop.set)
        thread.join(LIMIT_S)
        assert not errors, errors


async def _serve(
    count: int,
    stores: Path | None,
    changed: dict[str, Any],
    loops: list[asyncio.AbstractEventLoop],
    running: list[Producer],
    ready: threading.Event,
    stop: asyncio.Event,
) -> None:
    loops.append(asyncio.get_running_loop())
    sockets = {f"p{k + 1}": bind_socket("127.0.0.1", 0) for k in range(count)}
    urls = {name: url_of(one) for name, one in sockets.items()}
    told = {"buffers": 5, "visibility_s": 20.0, **changed}
    limit_bytes = told.pop("object_limit_bytes")
    ends: list[Callable[[], Any]] = []
    for name, listening in sockets.items():
        store = None if stores is None else ObjectStore(stores / name, name, "test")
        peers = {peer: url for peer, url in urls.items() if peer != name}
        shell = QueueShell(ProducerSettings(id=name, **told), peers, store, urls[name])
        app = QueueApp(shell, object_limit_bytes=limit_bytes)
        server = HttpServer(app)
        serving = asyncio.create_task(server.serve([listening]))
        await server.ready.wait()
        running.append(Producer(urls[name], shell, server.connections))
        ends += [app.cold.state.console.close, shell.close, server.stop, partial(_wait, serving)]
    ready.set()
    await stop.wait()
    for end in ends:
        if (left := end()) is not None:
            await left


async def _wait(task: asyncio.Task[None]) -> None:
    await task
