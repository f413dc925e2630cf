"""Servers that a test plays, and that end with it: no conversation outlives the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from support.loop import turn

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

LET_IN = 3
"""The turns that a loop takes at most from an accepted connection to its conversation."""


class _Conversations:
    """Holds `talk` on each connection. A task that is cancelled before its first step does nothing
    at all: so they are known from when they are made, and closed from outside."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._held: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._held[asyncio.create_task(self._hold(reader, writer))] = writer

    async def _hold(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._talk(reader, writer)
        finally:
            writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        task = asyncio.current_task()
        assert task is not None
        self._held.pop(task, None)

    async def end(self) -> None:
        """Break all of them off. Raises what one of them has raised itself."""
        held, self._held = self._held, {}
        for task, writer in held.items():
            task.cancel()
            writer.transport.abort()
        closed = (writer.wait_closed() for writer in held.values())
        await asyncio.gather(*closed, return_exceptions=True)
        for told in await asyncio.gather(*held, return_exceptions=True):
            if isinstance(told, Exception):
                raise told


@asynccontextmanager
async def talking(talk: Talk, port: int = 0, **options: Any) -> AsyncIterator[asyncio.Server]:
    """A server at 127.0.0.1 that holds this conversation with whoever connects; at the end of the
    block all of them are over, and their connections closed. The options are those of
    `asyncio.start_server`."""
    conversations = _Conversations(talk)
    server = await asyncio.start_server(conversations.begin, "127.0.0.1", port, **options)
    try:
        yield server
    finally:
        server.close()
        for _ in range(LET_IN):
            await turn(0)
        await conversations.end()
