"""Waves of requests with large answers through a real node: a service behind it, clients before it,
and what the system says of the node's memory. Linux only, by /proc.

Tests get this module as the fixture `waves`.
"""

import asyncio
from collections import Counter
from pathlib import Path

MIB = 2**20
MARGIN_BYTES = 40 * MIB
"""For connections, what the allocator keeps on purpose, and the collector's own pace."""

CAN_LOOK = Path("/proc/self/clear_refs").exists()

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def resident_bytes(pid, entry="VmRSS"):
    """What the process has in memory now, or (VmHWM) had at most since `forget_peak`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{entry}:"))
    return int(line.split()[1]) * 1024


def forget_peak(pid):
    Path(f"/proc/{pid}/clear_refs").write_text("5")


class _Service(asyncio.Protocol):
    """Answers each request with the same bytes."""

    def __init__(self, answer, open_ones):
        self.answer = answer
        self.open_ones = open_ones
        self.received = b""

    def connection_made(self, transport):
        self.transport = transport
        self.open_ones.add(transport)

    def connection_lost(self, _):
        self.open_ones.discard(self.transport)

    def data_received(self, data):
        self.received += data
        head, blank, rest = self.received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        if blank and len(rest) >= length:
            self.received = rest[length:]
            self.transport.writelines(self.answer)


async def serve(size_bytes):
    """A service whose every answer has so many bytes: its port, and how to end it."""
    answer = (HEAD % size_bytes, b'"' + b"x" * (size_bytes - 2) + b'"')
    loop = asyncio.get_running_loop()
    open_ones = set()
    server = await loop.create_server(lambda: _Service(answer, open_ones), "127.0.0.1", 0)

    async def close():
        server.close()
        for transport in list(open_ones):
            transport.abort()
        await server.wait_closed()

    return server.sockets[0].getsockname()[1], close


async def send(url, bodies, *, key=None):
    """All of them at once, each on a connection of its own, answers read and thrown away; how many
    had which status."""
    host, _, port = url.removeprefix("http://").rpartition(":")

    async def send_one(number, body):
        reader, writer = await asyncio.open_connection(host, int(port), limit=MIB)
        named = b"" if key is None else b"Idempotency-Key: %b-%d\r\n" % (key, number)
        lines = b"Host: a\r\nContent-Length: %d\r\n%b\r\n" % (len(body), named)
        writer.write(b"POST /requests HTTP/1.1\r\n" + lines + body)
        head = await reader.readuntil(b"\r\n\r\n")
        left = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while left:
            left -= len(await reader.read(min(left, MIB)))
        writer.transport.abort()
        return int(head.split()[1])

    return Counter(await asyncio.gather(*(send_one(n, body) for n, body in enumerate(bodies))))
