"""Everything that is no proper request: broken HTTP, broken JSON, wrong framing, cut-off bodies,
mutations; who sends it, and looks at each answer. What a service understands is its `Dialect`.

All is drawn from SPILLOVER_SEED (1 unless given): a failure names the job, which can be made anew.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import ssl
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from spillover.apps.http.problems import STATUS_BY_REASON

SEED = int(os.environ.get("SPILLOVER_SEED", "1"))
IS_SOAK = "SPILLOVER_SOAK_S" in os.environ
BATCH = 25
"""Requests in a row on one connection, where all of them are framed well."""
CLIENTS = 24
QUIET_S = 0.05
"""How long a request that may be incomplete is waited for."""
JOB_S = 60.0
"""For all requests of a job: ten seconds, where load is thirteen for each core."""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """What a service is asked."""

    fields: Mapping[bytes, Sequence[bytes]]
    """Of the bodies, by path."""
    good: Mapping[bytes, bytes]
    """Values of fields that are right."""
    odd_paths: Sequence[bytes]
    seeds: Sequence[bytes]
    """Requests that are right, to be spoiled."""
    headers: Mapping[bytes, Sequence[bytes]] = field(default_factory=dict)
    """Lines of headers by path, of which each request there has one."""
    odd_headers: Sequence[bytes] = ()


SCALARS = [
    b"", b"null", b"true", b"0", b"-1", b"1e999", b"-0.0", b"1e-400", b"9" * 400, b"01", b"+1",
    b"NaN", b"Infinity", b'""', b'"\\ud800"', b'"\xff"', b'"\x00"', b'"\\u0000"', b"'a'", b"{",
    b"[", b"}", b'"', b"\xef\xbb\xbfnull", b"\xff\xfe{}", b"nul", b"{}{}", b"[1,]", b"\x00", b"[]",
    b"{}", b'{"":{}}', b"[" * 50_000, b'{"a":' * 5_000, b"[" * 500 + b"]" * 500, b"1" * 60_000,
    b'"' + b"x" * 600 + b'"', b'"a\\r\\nb"', b'" a"', b"18446744073709551616", b'"\\u2028"',
    b'"' + b"x" * 70_000 + b'"',
]  # fmt: skip

ODD_VALUES = [
    b"", b" ", b"nan", b"-1", b"1e999", b"inf", b"0x10", b"1_0", b"\xff\xfe", b"\xc3\xa9",
    b"x" * 300, b"x" * 30_000, b"a,b", b'"', b"1 2", b"\t", b"100-continue", b"respond-async",
    b"0", b"10", b"a\tb", b"respond-async; wait=1", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01",
    b"\x80", b"\x7f",
]  # fmt: skip

HEADERS = [
    b"Idempotency-Key", b"Spillover-Deadline-Ms", b"Spillover-Type", b"Spillover-Priority",
    b"Prefer", b"traceparent", b"Content-Type", b"Accept", b"Expect", b"Connection", b"Upgrade",
    b"Spillover-Path", b"Spillover-Hops", b"Spillover-Origin", b"Host", b"Cookie",
    b"X-" + b"x" * 900,
]  # fmt: skip

METHODS = [b"GET", b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"TRACE"]

BODY = b'{"payload":1}'

BROKEN = [
    b"", b"\r\n\r\n", b"\x00" * 100, b"GET\r\n\r\n", b"GET /state\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET /state HTTP/9.9\r\n\r\n", b"get /state HTTP/1.1\r\n\r\n", b"GET /state HTTP/1.0\r\n\r\n",
    b"GET  /state HTTP/1.1\r\n\r\n", b"GET /state HTTP/1.1\n\n",
    b"GET http://x:99999/state HTTP/1.1\r\nHost: a\r\n\r\n",
    b"CONNECT x:1 HTTP/1.1\r\n\r\n",
    b"GET /\xff\xc3\xa9 HTTP/1.1\r\n\r\n", b"GET /state HTTP/1.1\r\nA b: c\r\n\r\n",
    b"GET /state HTTP/1.1\r\n: c\r\n\r\n", b"GET /st\x00 HTTP/1.1\r\n\r\n",
    b"GET /state HTTP/1.1\r\nA: b\r\n folded\r\n\r\n", b"GET /state HTTP/1.1\r\nA: \x00\r\n\r\n",
    b"GET /state HTTP/1.1\r\n" + b"A: b\r\n" * 9000, b"GET /" + b"x" * 70_000,
    b"GET /state HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
    b"GET /state HTTP/1.1\rA: b\r\r", b"HEAD /state HTTP/1.1\r\nHost: a\r\n\r\n",
    b"HEAD /nowhere HTTP/1.1\r\nHost: a\r\n\r\n", b"HEAD /requests HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /state HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
]  # fmt: skip

FRAMINGS = [
    b"Content-Length: -1", b"Content-Length: +5", b"Content-Length: 0x5", b"Content-Length: 5 5",
    b"Content-Length: " + b"9" * 30, b"Content-Length: 13\r\nContent-Length: 2",
    b"Content-Length:", b"Content-Length: 13\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked, chunked", b"Transfer-Encoding: gzip",
    b"Transfer-Encoding: xchunked", b"Transfer-Encoding: \x0bchunked",
    b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", b"Content-Length: 99999999",
    b"Content-Length: 13\r\nExpect: 100-continue", b"Expect: 100-continue", b"Content-Length: 1",
]  # fmt: skip

CHUNKS = [
    b"zz\r\n", b"-1\r\n", b"ffffffffffffffffff\r\n",
    b"5;" + b"x" * 5000 + b"\r\nabcde\r\n0\r\n\r\n", b"d\r\n" + BODY + b"\r\n0\r\n\r\n",
    b"d\r\n" + BODY + b"0\r\n\r\n", b"d\n" + BODY + b"\n0\n\n", b"0\r\nA: b\r\n\r\n",
    b"0\r\n" + b"A: b\r\n" * 20_000, b"5\r\nabcdefgh\r\n0\r\n\r\n", b"\r\n", b"5",
]  # fmt: skip


def framed(draw: Random, of: Dialect) -> bytes:
    """A request of which the end is clear, whatever it says."""
    kind = draw.randrange(4)
    if kind == 0:
        method, path = draw.choice(METHODS), draw.choice(of.odd_paths)
        return b"%b %b HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}" % (method, path)
    path = draw.choice(list(of.fields))
    names = of.fields[path]
    values = {name: of.good[name] for name in names if name in of.good}
    headers = draw.choice(of.headers.get(path, (b"",)))
    if kind == 1:
        body = draw.choice(SCALARS)
    else:
        for name in draw.sample(names, min(len(names), kind == 2)):
            values[name] = draw.choice(SCALARS)
            if draw.random() < 0.2:
                del values[name]
        body = b"{%b}" % b",".join(b'"%b":%b' % pair for pair in values.items())
    if kind == 3:
        known = [*HEADERS, *of.odd_headers]
        lines = [(draw.choice(known), draw.choice(ODD_VALUES)) for _ in range(2)]
        # An Expect or a Connection that means something changes how the answer ends.
        lines = [line for line in lines if line[0] not in (b"Connection", b"Upgrade", b"Host")]
        headers += b"".join(b"%b: %b\r\n" % line for line in lines if b"\x7f" not in line[1])
    method = b"PUT" if path.startswith(b"/admin") else b"POST"
    head = b"%b %b HTTP/1.1\r\nHost: a\r\n%bContent-Length: %d\r\n\r\n"
    return head % (method, path, headers, len(body)) + body


def loose(draw: Random, of: Dialect) -> bytes:
    """Bytes that may be a request, several, half of one, or none."""
    kind = draw.randrange(4)
    if kind == 0:
        return draw.choice(BROKEN)
    if kind == 1:
        head = b"POST %b HTTP/1.1\r\nHost: a\r\n" % draw.choice(list(of.fields))
        tail = draw.choice(CHUNKS) if draw.random() < 0.5 else BODY
        return head + draw.choice(FRAMINGS) + b"\r\n\r\n" + tail
    message = bytearray(draw.choice(of.seeds))
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(message) + 1)
        match draw.randrange(4):
            case 0:
                message[at : at + 1] = bytes([draw.randrange(256)])
            case 1:
                message[at:at] = draw.choice(SCALARS)[:50]
            case 2:
                del message[at : at + draw.randint(1, 8)]
            case 3:
                message[at:at] = message[at : at + draw.randint(1, 40)]
    return bytes(message)


def cut_off(draw: Random, of: Dialect) -> bytes:
    """A valid beginning."""
    message = draw.choice(of.seeds)
    return message[: draw.randrange(len(message))]


# --- what comes back ------------------------------------------------------------------------------


OF_HEADS = {("malformed", 417), ("malformed", 505)}
"""Of heads that are malformed in ways that have statuses of their own."""


class Unfit(AssertionError):
    """An answer that must not be."""


@dataclass
class Answers:
    """Counted by status, all of them looked at."""

    by_status: dict[int, int] = field(default_factory=dict)
    sent: int = 0

    async def read(self, reader: asyncio.StreamReader, *, head: bool = False) -> bool:
        """One answer; whether the connection goes on."""
        lines = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        status_line = re.fullmatch(rb"HTTP/1\.1 ([1-5][0-9]{2}) [ -~]*", lines[0])
        if status_line is None:
            raise Unfit(f"status line {lines[0]!r}")
        status = int(status_line[1])
        if status == 100:
            return await self.read(reader, head=head)
        headers = dict(line.lower().split(b": ", 1) for line in lines[1:-2])
        if headers.get(b"content-type") == b"application/x-ndjson":
            return False  # a mutation has hit upon a neighbor's name: reports without end
        length = 0 if status == 204 else int(headers[b"content-length"])
        body = b"" if head else await reader.readexactly(length)
        self.look(status, headers, body, head=head)
        return headers.get(b"connection") != b"close"

    def look(self, status: int, headers: dict[bytes, bytes], body: bytes, *, head: bool) -> None:
        self.by_status[status] = self.by_status.get(status, 0) + 1
        if b"Traceback" in body:
            raise Unfit(f"{status} with a traceback: {body[:500]!r}")
        if b"set-cookie" in headers:
            raise Unfit("a header that a client made up")
        if status < 400:
            return
        if headers.get(b"content-type") != b"application/problem+json":
            raise Unfit(f"{status} is no problem+json: {headers} {body[:200]!r}")
        if head:
            return
        problem = json.loads(body)
        reason = problem["reason"]
        fits = STATUS_BY_REASON.get(reason) == status or (reason, status) in OF_HEADS
        if status == 500 or not fits or problem["status"] != status:
            raise Unfit(f"{status} {body[:500]!r}")


@dataclass
class Sender:
    """Sends the jobs, CLIENTS at a time."""

    host: str
    port: int
    dialect: Dialect
    tls: ssl.SSLContext | None = None
    """The other end has to prove that it is `localhost`."""
    answers: Answers = field(default_factory=Answers)
    failures: list[str] = field(default_factory=list)

    async def run(self, jobs: range) -> None:
        remaining = iter(jobs)

        async def client() -> None:
            for number in remaining:
                if not self.failures:
                    await self.job(number)

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        assert not self.failures, self.failures[0]

    async def job(self, number: int) -> None:
        """BATCH requests: in a row on one connection, or each on one of its own."""
        draw = Random(f"{SEED} {number}")
        kind = number % 5
        make = framed if kind < 3 else loose if kind == 3 else cut_off
        messages = [make(draw, self.dialect) for _ in range(BATCH)]
        self.answers.sent += BATCH
        try:
            async with asyncio.timeout(JOB_S):
                if make is framed:
                    await self.in_a_row(messages)
                    return
                for message in messages:
                    await self.alone(message, patient=make is loose, reset=draw.random() < 0.5)
        except Exception as error:  # noqa: BLE001 - told with what brought it about
            said = [message[:300] for message in messages]
            self.failures.append(f"SPILLOVER_SEED={SEED}, job {number}: {error!r}\n{said}")

    async def in_a_row(self, messages: list[bytes]) -> None:
        """Each gets an answer, on the next connection where one said that it closes."""
        while messages:
            reader, writer = await self._connected()
            writer.write(b"".join(messages))
            goes_on = True
            try:
                while messages and goes_on:
                    goes_on = await self.answers.read(reader)
                    del messages[0]
            finally:
                writer.transport.abort()

    async def alone(self, message: bytes, *, patient: bool, reset: bool) -> None:
        """Read what comes until it is quiet, and hang up, abruptly or not."""
        reader, writer = await self._connected()
        if reset:
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try:
            writer.write(message)
            async with asyncio.timeout(QUIET_S if patient else 0.0):
                while await self.answers.read(reader, head=message.startswith(b"HEAD")):
                    pass
        except (TimeoutError, ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        name = None if self.tls is None else "localhost"
        return await asyncio.open_connection(
            self.host, self.port, ssl=self.tls, server_hostname=name
        )
