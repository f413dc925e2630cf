"""A producer as its process runs it, in the loop of the test: what it was told to be, what a signal
makes of it, and how it ends. What only a process of its own shows is in `tests/e2e`.
"""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spillover.apps.http import token_files
from spillover.apps.http.console.console import EVENTS_PATH
from spillover.apps.http.token_files import TokenFiles
from spillover.apps.queue import server
from spillover.core.queue.settings import ProducerSettings
from spillover.inputs.api_tokens import dump_api_token, new_api_token
from spillover.live.queue.history import QueueHistory
from spillover.model.access import Role
from support.loop import until
from support.queue_service import LIMIT_S, Answer, Producer, call, connected


@pytest.fixture(autouse=True)
def _file_limit_of_others() -> Iterator[None]:
    """It raises that of its process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@dataclass
class Running:
    """One that is served, and how to ask it from the loop that serves it."""

    told_url: str
    producer: Producer
    serving: asyncio.Task[None]

    async def ask(self, method: str, *given: Any, **more: Any) -> Any:
        return await asyncio.to_thread(partial(getattr(self.producer, method), *given, **more))

    async def state(self) -> Any:
        return await asyncio.to_thread(lambda: self.producer.state)

    async def waits(self) -> bool:
        """Whether an object waits for its place."""
        return bool((await self.state())["waiting"])


@asynccontextmanager
async def running(**given: Any) -> AsyncIterator[Running]:
    """From when it is ready. It ends at once, unless the test has ended it."""
    settings = ProducerSettings(id="p1", buffers=1, visibility_s=20.0)
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[str] = loop.create_future()
    with closing(server.bind_socket("127.0.0.1", 0)) as free:
        bind = free.getsockname()[:2]
    serving = asyncio.create_task(
        server.serve_producer(
            *(settings, {}, None),
            **{"bind": bind, "object_limit_bytes": 1_000_000, "on_ready": ready.set_result} | given,
        )
    )
    await asyncio.wait([ready, serving], return_when=asyncio.FIRST_COMPLETED)
    try:
        url = ready.result()
        yield Running(url, Producer(f"http://{bind[0]}:{bind[1]}"), serving)
    finally:
        if not serving.done():
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
        with suppress(RuntimeError):
            await asyncio.wait_for(serving, LIMIT_S)


async def test_consumers_reach_it_where_it_was_told_that_they_do() -> None:
    """Behind a proxy that is not where it listens."""
    async with running(url="http://outside.example:9") as one:
        assert one.told_url == "http://outside.example:9"
        state = await one.state()
        assert state["url"] == state["producers"]["p1"] == "http://outside.example:9"


async def test_each_answer_of_one_that_drains_is_the_last_of_its_connection() -> None:
    """And who asks nothing is let go of."""
    async with running() as one:
        port = int(one.told_url.rpartition(":")[2])
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        (reader, writer), (idle, idle_writer) = opened
        assert (await one.ask("put", b"x")).status == 201
        writer.write(b"POST /admin/drain HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), LIMIT_S)
        assert b"connection: close\r\n" in answer
        assert await asyncio.wait_for(idle.read(), LIMIT_S) == b""
        for one_writer in (writer, idle_writer):
            one_writer.close()


async def test_an_error_of_its_own_is_how_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever watches over it would take it for one that was told to end."""

    def broken(*_: Any) -> None:
        raise RuntimeError("a bug")

    async with running() as one:
        monkeypatch.setattr(QueueHistory, "did", broken)
        assert (await one.ask("put", b"x")).status == 500
        with pytest.raises(RuntimeError, match="a bug"):
            await asyncio.wait_for(one.serving, LIMIT_S)


async def test_sighup_has_api_tokens_read_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is how one that has leaked is shut out."""
    monkeypatch.setattr(token_files, "LOOK_S", 3600.0)
    file = tmp_path / "tokens.yaml"
    file.write_text(dump_api_token(new_api_token("one", "first", "shop", [Role.READ])))
    files = TokenFiles([str(file)])
    async with running(token_files=files) as one:

        def status(secret: str) -> int:
            headers = {"Authorization": f"Bearer {secret}"}
            answer: Answer = call(f"{one.producer.url}/state", headers=headers)
            return answer.status

        assert await asyncio.to_thread(status, "first") == 200
        file.write_text(dump_api_token(new_api_token("two", "second", "shop", [Role.READ])))
        signal.raise_signal(signal.SIGHUP)
        await until(lambda: [token.name for token in files.tokens] == ["two"])
        assert await asyncio.to_thread(status, "first") == 401
        assert await asyncio.to_thread(status, "second") == 200


async def test_a_page_that_looks_on_is_told_the_end_and_does_not_put_it_off() -> None:
    def rest(line: socket.socket) -> bytes:
        told = b""
        while part := line.recv(65_536):
            told += part
        return told

    async with running() as one:
        with closing(connected(one.producer.url)) as line:
            line.sendall(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % EVENTS_PATH.encode())
            said = await asyncio.to_thread(line.recv, 65_536)
            assert said.startswith(b"HTTP/1.1 200 ")
            signal.raise_signal(signal.SIGTERM)
            told = await asyncio.to_thread(rest, line)
            assert told.endswith(b"0\r\n\r\n"), "it is not cut off"
