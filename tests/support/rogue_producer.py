"""A producer of the queue that says whatever `support.fuzzed` makes: to its peer, whose probes and
offers it answers and which it tells its own, and to consumers. What they must do with it is in
tests.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Self

from spillover.live.queue import client_wire, wire
from support.fuzzed import ODD, Fuzzed
from support.malformed import BATCH
from support.rogue_node import GONE, Caller
from support.talking import talking

STATUSES = (*[200] * 6, 202, 202, 204, 303, 303, 400, 404, 429, 500, 503)
ID = "liar"


class RogueProducer:
    """The peer `liar` of the producer at `peer_url`, which is `peer`. `takes` tells which takes are
    under way there. `said` counts what it has said, by door."""

    def __init__(self, peer: str, seed: object, takes: Callable[[], Iterable[str]]) -> None:
        self.said: Counter[str] = Counter()
        self._peer, self._takes = peer, takes
        fuzz = self.fuzz = Fuzzed(f"{seed} {ID}", (ID, peer))
        shares = {peer: 0.5, ID: 0.5}
        fuzz.given = {
            "ProbeBody.id": self._take,
            "ProbeBody.first": lambda: ID,
            "ProbeBody.access": lambda: shares,
            "ProbeBody.left_ms": lambda: 5.0,
            "OfferBody.probe_id": self._take,
            "OfferBody.producer": lambda: ID,
        }
        self.url = ""

    async def __aenter__(self) -> Self:
        self._talking = talking(self._talk)
        server = await self._talking.__aenter__()
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._talking.__aexit__(None, None, None)

    def calls_to(self, url: str) -> Caller:
        """Returns what calls its peer."""
        host, _, port = url.removeprefix("http://").rpartition(":")
        return Caller(host, int(port), self._calls)

    def _take(self) -> str:
        return self.fuzz.draw.choice((*self._takes(), "p", "q"))

    def _calls(self, seed: int) -> list[bytes]:
        del seed
        self.said["calls"] += BATCH
        return [self._call() for _ in range(BATCH)]

    def _call(self) -> bytes:
        fuzz = self.fuzz
        path, kind = fuzz.draw.choice(
            ((wire.PROBE_PATH, wire.ProbeBody), (wire.OFFER_PATH, wire.OfferBody))
        )
        body = fuzz.message(kind)
        head = b"POST %b HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
        return head % (path.encode(), len(body)) + body

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(*GONE):
            while await self._answer(reader, writer):
                await writer.drain()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
        if length:
            await reader.readexactly(int(length))
        fuzz = self.fuzz
        if fuzz.draw.random() < 0.02:
            writer.write(fuzz.broken(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
            return False
        target = head.split(b" ", 2)[1]
        self.said[target.split(b"/")[1].decode() if b"peer" not in target else "answers"] += 1
        kind = fuzz.draw.choice((wire.TakenBody, client_wire._ProblemBody))
        status, body = fuzz.draw.choice(STATUSES), fuzz.message(kind)
        if status == 204:
            body = b""
        lines = b"".join(b"%b: %b\r\n" % pair for pair in self._fields())
        writer.write(b"HTTP/1.1 %d X\r\n%bContent-Length: %d\r\n\r\n" % (status, lines, len(body)))
        writer.write(body)
        return True

    def _fields(self) -> list[tuple[bytes, bytes]]:
        """What goes with an object, or leads to one."""
        draw, here = self.fuzz.draw, self.url.encode()
        told = {
            b"Spillover-Grant": b"g-%d" % draw.randrange(draw.choice((3, 10**9))),
            b"Spillover-Producer": draw.choice((ID.encode(), self._peer.encode(), b"else")),
            b"Spillover-Probes": b"2",
            b"Spillover-Object": b"liar-1",
            b"Spillover-Deliveries": b"1",
            b"Spillover-Visibility-Ms": b"50",
            b"Location": here + b"/objects/g",
            b"Content-Type": b"text/plain",
            b"Retry-After": b"0",
        }
        for name in told:
            if draw.random() < 0.15:
                told[name] = _line(draw.choice(ODD))
        return [pair for pair in told.items() if draw.random() < 0.97]


def _line(odd: bytes) -> bytes:
    """What can stand in a head: what cannot breaks the whole answer, which is another test's."""
    return bytes(byte for byte in odd if byte >= 32 and byte != 127)[:3000]
