"""A neighbor that says whatever `support.fuzzed` makes: reports, answers to what it is handed, and
calls of its own, in both versions of the protocol. What a node must do with it is in tests.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Self
from urllib.parse import quote

from spillover.live.overflow import passed_wire, protocol, report_lines, wire
from spillover.live.overflow.identity import HELLO, hello_of
from spillover.live.overflow.report_lines import encode_report
from spillover.model.load import LoadReport
from spillover.model.passed import Fields, PassedHead, PassedRequest, encode_fields
from spillover.model.request import DONE, Answer
from support.fuzzed import ODD, Fuzzed
from support.loop import turn
from support.malformed import BATCH, Sender
from support.talking import talking

LINES_AT_ONCE = 50
PIECES_MAX = 40
"""Of a stream of reports: then it ends, one way or another."""
STATUSES = (*[200] * 12, 400, 403, 404, 408, 413, 429, 500, 502, *[503] * 3, 504, 206, 302)
GONE = (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, RuntimeError)
"""What ends a conversation. uvloop raises RuntimeError where the other end has broken it off."""
BEGUN = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BUSY = json.dumps({"service_ms": 0.1}).encode()


class RogueNode:
    """Cluster `name`, at `url`, a neighbor of `home`, whose node is at `home_url`. `said` counts
    what it has said, by door."""

    def __init__(self, name: str, url: str, home: str, home_url: str, seed: object) -> None:
        self.name, self.home = name, home
        self.said: Counter[str] = Counter()
        self.state: dict[str, object] = {}
        """What its answers to questions about the federation begin with."""
        self.configuration: dict[str, object] = {}
        """The one that its own are made of."""
        self.passes = False
        self.pause_s = 0.0
        """Between pieces of reports."""
        self._port = int(url.rpartition(":")[2])
        self._version = 0
        self._epoch = self._sequence = self._count = 0
        self._last = b""
        self.fuzz = Fuzzed(f"{seed} {name}", (home, name))
        self.fuzz.given = {
            "LoadBody.epoch": lambda: self._epoch,
            "LoadBody.sequence": self._next,
            "ReportLine.epoch": lambda: self._epoch,
            "ReportLine.sequence": self._next,
            "ReportLine.accepting": lambda: self._draws(0.9),
            "ReportLine.hears": lambda: [home] if self._draws(0.9) else [],
            "ReportLine.configuration": self._stamp,
            "ReportLine.passes": lambda: self.passes,
            "ForwardBody.id": self._id,
            "ForwardBody.path": lambda: [name],
            "ForwardBody.remaining_ms": lambda: 5e3 if self._draws(0.8) else -1.0,
            "ForwardBody.payload": lambda: BUSY,
            "ForwardBody.type": lambda: "default",
            "CancelBody.id": self._id,
            "AnswerBody.path": lambda: [home, name],
            "HeadBody.path": lambda: [home, name],
        }
        host, _, port = home_url.removeprefix("http://").rpartition(":")
        self._caller = Caller(host, int(port), self._calls)
        self._hello = hello_of(wire.Caller(name, home, "test"))

    async def __aenter__(self) -> Self:
        self._talking = talking(self._talk, self._port)
        await self._talking.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._talking.__aexit__(None, None, None)

    async def call(self, count: int) -> None:
        """Make so many calls; raises AssertionError for an answer that must not be."""
        first = self.said["calls"] // BATCH
        await self._caller.run(range(first, first + max(1, count // BATCH)))

    @property
    def statuses(self) -> dict[int, int]:
        """How often its calls were answered with each."""
        return self._caller.answers.by_status

    # --- what is drawn ------------------------------------------------------------------------

    def _draws(self, share: float) -> bool:
        return self.fuzz.draw.random() < share

    def _next(self) -> int:
        self._sequence += 1
        if self._draws(0.001):  # the next one is of another life
            self._epoch, self._sequence = self._epoch + 1, 0
            return 2**53
        return self._sequence

    def _id(self) -> str:
        self._count += self._draws(0.9)
        return f"{self.name}-{self._count}"

    def _stamp(self) -> str:
        if self._draws(0.99):
            return ""
        if self._draws(0.3):
            return self.fuzz.odd_text()
        self._version += self._draws(0.2)
        return f"{self._version} {self.name} 1"

    # --- what it is asked ---------------------------------------------------------------------

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(*GONE):
            while await self._answer(reader, writer):
                await writer.drain()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        target = head.split(b" ", 2)[1].decode()
        length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
        if length:
            await reader.readexactly(int(length))
        if "/reports" in target:
            return await self._report(writer)
        if self._draws(0.01):
            writer.write(self.fuzz.broken(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
            return False
        door, body, lines = self._said_of(target)
        self.said[door] += 1
        status = 200 if door == "configuration" else self.fuzz.draw.choice(STATUSES)
        if "answers" in door and self._draws(0.7):  # who only fails is handed nothing more
            status, body = 200, self._true_answer(target)
        writer.write(b"HTTP/1.1 %d X\r\n%bContent-Length: %d\r\n\r\n" % (status, lines, len(body)))
        writer.write(body)
        return True

    def _said_of(self, target: str) -> tuple[str, bytes, bytes]:
        """Which door that is, the body of an answer, and lines of its head."""
        fuzz = self.fuzz
        if target == protocol.PASS:
            line = b"Content-Type: " + protocol.STREAM + b"\r\n"
            return "passed answers", self._whole() if self._draws(0.5) else self._frames(), line
        if target == protocol.CONFIGURATION:
            stamp, *lineage = [[one, self.name, 1] for one in range(self._version, 0, -1)] or [[0]]
            told = self.configuration | {"stamp": stamp, "lineage": lineage[:2]}
            return "configuration", fuzz.spoiled(told), b""
        if target.endswith("/federation"):
            return "states", fuzz.spoiled({"clusters": {self.name: self.state}}), b""
        if target.endswith("/cancel"):
            return "cancels", fuzz.message(wire.CancelAnswer), b""
        load = fuzz.message(wire.LoadBody)
        if not load.isascii() or not load.decode().isprintable():
            load = b"[1]"
        lines = b"%b: %b\r\n" % (wire.LOAD, load[:500])
        lines += b"%b: %b\r\n" % (wire.UPSTREAM_STATUS, fuzz.draw.choice((b"503", b"x", b"99999")))
        return "answers", fuzz.message(wire.AnswerBody), lines

    def _true_answer(self, target: str) -> bytes:
        answer, stay = Answer(DONE, (self.home, self.name)), wire.Stay(0.0, 0.0, 0.0)
        if target != protocol.PASS:
            return wire.encode_answer(answer, stay)
        return passed_wire.encode_whole(PassedHead(200, b"OK", ()), b"hello", (), answer, stay)

    def _whole(self) -> bytes:
        """An answer that passes through, at once; its parts and their lengths spoiled."""
        fuzz = self.fuzz
        told, head = fuzz.message(wire.AnswerBody), self._head()
        lengths = [len(told), len(head), 5]
        if self._draws(0.1):
            lengths[fuzz.draw.randrange(3)] = fuzz.draw.choice((0, 1, 2**31, 2**32 - 1))
        message = passed_wire._LENGTHS.pack(*lengths) + told + head + b"hello"
        return fuzz.broken(message) if self._draws(0.2) else message

    def _frames(self) -> bytes:
        """One that comes in frames, some of them spoiled, or in another order."""
        fuzz = self.fuzz
        head = passed_wire._message(
            passed_wire.HEAD, fuzz.message(passed_wire.HeadBody), self._head()
        )
        pieces = [passed_wire.piece_head(5) + b"hello"] * fuzz.draw.randrange(4)
        trailers: Fields = ((b"a", b"b"),) if self._draws(0.3) else ()
        end = passed_wire._message(
            passed_wire.END, fuzz.message(wire.AnswerBody), encode_fields(trailers)
        )
        frames = [head, *pieces, end]
        if self._draws(0.1):
            fuzz.draw.shuffle(frames)
        message = b"".join(frames)
        return fuzz.broken(message) if self._draws(0.2) else message

    def _head(self) -> bytes:
        odd = self.fuzz.draw.choice(ODD)[:100]
        status = self.fuzz.draw.choice((200, 200, 204, 404, 503, 999, 100, -1))
        headers = ((b"Content-Type", b"text/plain"), (b"X-Odd", odd), (odd, b"x"))
        encoded = PassedHead(status, b"OK", headers[: self.fuzz.draw.randrange(4)]).encode()
        return self.fuzz.broken(encoded) if self._draws(0.1) else encoded

    async def _report(self, writer: asyncio.StreamWriter) -> bool:
        self._epoch += 1
        writer.write(BEGUN)
        for _ in range(self.fuzz.draw.randint(1, PIECES_MAX)):
            lines = [self._line() + b"\n" for _ in range(LINES_AT_ONCE - 1)]
            piece = b"".join((*lines, self._true_line()))
            self.said["reports"] += LINES_AT_ONCE
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            await turn(self.pause_s)
        writer.write(self.fuzz.draw.choice((b"0\r\n\r\n", b"zz\r\n", b"")))
        return self._draws(0.5)

    def _line(self) -> bytes:
        """Of reports. Its end cuts it where it has line ends in it."""
        how = self.fuzz.draw.random()
        if how < 0.7:
            self._last = self.fuzz.message(report_lines.ReportLine)
        elif how < 0.85:
            self._last = self.fuzz.message(report_lines.AskLine)
        elif how < 0.95:
            return b"{}"
        return self._last

    def _true_line(self) -> bytes:
        """As of a neighbor that is idle, so that it is handed something."""
        return encode_report(
            LoadReport(
                self._epoch, self._next(), 1.0, 1.0, 0, 4, accepting=True, hears=(self.home,),
                ahead=-4, departure_s=0.001, passes=self.passes,
            )
        )  # fmt: skip

    # --- what it asks -------------------------------------------------------------------------

    def _calls(self, seed: int) -> list[bytes]:
        del seed
        self.said["calls"] += BATCH
        return [self._call() for _ in range(BATCH)]

    def _call(self) -> bytes:
        fuzz = self.fuzz
        calls = fuzz.draw.choice(protocol.SPOKEN)
        lines = b"%b: %b\r\n" % (HELLO, self._hello)
        if self._draws(0.02):
            lines = b"%b: %b\r\n" % (HELLO, quote(fuzz.odd_text(), safe="=&").encode())
        how = fuzz.draw.random()
        if how < 0.01:
            query = f"from={self.name}&to={self.home}&delay_ms={quote(fuzz.odd_text())}"
            head = b"GET %b?%b HTTP/1.1\r\nHost: a\r\n%b\r\n"
            return head % (calls.reports.encode(), query.encode()[:2000], lines)
        if how < 0.03:
            told = {"query": f"q{self._id()}", "visited": [self.name], "remaining_ms": 50.0}
            path, body = calls.federation, fuzz.spoiled(told)
        elif how < 0.2:
            path, body = calls.cancel, fuzz.spoiled(fuzz.valid(wire.CancelBody))
        elif how < 0.4:
            path, body = protocol.PASS, self._pass()
            lines = b"%b: %b\r\n" % (HELLO, self._hello)
        else:
            path, body = calls.forward, fuzz.spoiled(fuzz.valid(wire.ForwardBody))
        head = b"POST %b HTTP/1.1\r\nHost: a\r\n%bContent-Length: %d\r\n\r\n"
        return head % (path.encode(), lines, len(body)) + body

    def _pass(self) -> bytes:
        fuzz = self.fuzz
        told = fuzz.spoiled(fuzz.valid(wire.ForwardBody))
        work = PassedRequest("POST", b"/x", ((b"Host", b"x"),), b"{}").encode()
        if self._draws(0.2):
            work = fuzz.broken(work)
        return len(told).to_bytes(4, "big") + told + work


class Caller(Sender):
    """Sends what it is given, some connections at a time, and looks at each answer."""

    def __init__(self, host: str, port: int, make: Callable[[int], list[bytes]]) -> None:
        super().__init__(host, port, None)
        self._make = make

    async def job(self, number: int) -> None:
        messages = self._make(number)
        said = [message[:2000] for message in messages]
        try:
            async with asyncio.timeout(60):
                await self.in_a_row(messages)
        except Exception as error:  # noqa: BLE001 - told with what brought it about
            left = said[len(said) - len(messages) :][:2]
            self.failures.append(f"job {number}: {error!r}\n{left}")
