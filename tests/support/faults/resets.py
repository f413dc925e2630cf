"""A way between two nodes on which connections are reset in the middle of what they carry.

A TCP proxy on loopback; it knows bytes, and nothing of what they mean.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Self

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER of 0 s: closing sends RST and drops what is unsent."""

PIECE_BYTES = 65_536

READ_S = 0.01
"""For the part that came through to be read, before the reset follows it."""


@dataclass
class ResettingWay:
    """From a port of its own to `port`. While `armed`, each connection ends with a reset to both
    sides after 1 to `after_bytes_max` more bytes of what is cut: "answers", what the server says,
    or "requests", what the client says. As a context manager, inside one event loop."""

    port: int
    cuts: str
    random: Random
    after_bytes_max: int = 1500
    own_port: int = 0
    armed: bool = False
    resets: int = 0
    _carrying: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.own_port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.own_port)
        self.own_port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._carrying:
            task.cancel()
        if self._carrying:
            await asyncio.wait(self._carrying)

    async def _accept(
        self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)
        with suppress(OSError, asyncio.CancelledError):
            from_server, to_server = await asyncio.open_connection("127.0.0.1", self.port)
            ends = (to_client, to_server)
            requests = self._carry(from_client, to_server, ends, cut=self.cuts == "requests")
            answers = self._carry(from_server, to_client, ends, cut=self.cuts == "answers")
            both = [asyncio.ensure_future(requests), asyncio.ensure_future(answers)]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in both:
                    one.cancel()
                await asyncio.wait(both)
                to_server.close()
        to_client.close()

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        ends: tuple[asyncio.StreamWriter, ...],
        *,
        cut: bool,
    ) -> None:
        left_bytes: int | None = None
        with suppress(OSError):
            while piece := await reader.read(PIECE_BYTES):
                if cut and self.armed:
                    left_bytes = left_bytes or self.random.randint(1, self.after_bytes_max)
                    if len(piece) >= left_bytes:
                        writer.write(piece[:left_bytes])
                        await asyncio.sleep(READ_S)
                        self._reset(ends)
                        return
                    left_bytes -= len(piece)
                writer.write(piece)

    def _reset(self, ends: tuple[asyncio.StreamWriter, ...]) -> None:
        self.resets += 1
        for end in ends:
            end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            end.transport.abort()
