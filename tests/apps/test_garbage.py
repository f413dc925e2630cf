"""A node leaves nothing of a request behind that only a garbage collection would find, on neither
side of a link, however the request ends."""

import asyncio
import contextlib
import gc

import pytest

pytestmark = pytest.mark.slow

LARGE = 1_000_000
"""More than the direct path waits for."""
SMALL = 100_000


def post(size, *headers, service_ms=1, path="/requests", method="POST"):
    """The bytes of a request with a payload of that size."""
    body = b'{"payload":{"service_ms":%d,"x":"%b"}}' % (service_ms, b"x" * size)
    lines = "".join(f"{line}\r\n" for line in headers)
    head = f"{method} {path} HTTP/1.1\r\nHost: a\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def get(path):
    return f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode()


READ, GONE = True, False
CASES = {
    "done, small": ([post(SMALL)], READ),
    "done, large": ([post(LARGE)], READ),
    "closed by the server": ([post(LARGE, "Connection: close")], READ),
    "keyed": ([post(LARGE, "Idempotency-Key: k")], READ),
    "asynchronous": ([post(LARGE, "Prefer: respond-async"), get("/requests/x")], READ),
    "too large": ([post(3 * LARGE)], READ),
    "gone within the body": ([post(LARGE)[:-9]], GONE),
    "gone within a small body": ([post(SMALL)[:-9]], GONE),
    "gone while it runs": ([post(LARGE, service_ms=200)], GONE),
    "small one gone while it runs": ([post(SMALL, service_ms=200)], GONE),
    "too late": ([post(SMALL, "Spillover-Deadline-Ms: 30", service_ms=200)], READ),
    "invalid": ([post(LARGE, "Spillover-Deadline-Ms: x")], READ),
    "unknown path": ([post(SMALL, path="/nowhere")], READ),
    "cold body": ([post(1000, path="/admin/policy", method="PUT")], READ),
    "state and metrics": ([get("/state"), get("/metrics"), get("/healthz")], READ),
    "no HTTP": ([b"garbage\r\n\r\n"], READ),
    "handed on": ([post(LARGE, service_ms=50)] * 6, READ),
    "handed on and gone": ([post(LARGE, service_ms=200)] * 6, GONE),
    "in a pipeline, gone": ([post(SMALL, service_ms=50) * 3] * 2, GONE),
}


async def call(url, request, reads):
    """One connection, closed at the end; the address that it came from."""
    host, _, port = url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    address = writer.get_extra_info("sockname")
    writer.write(request)
    if reads:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(length))
    else:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.05)
    writer.transport.abort()
    return address


async def play(nodes, federation, requests, reads):
    """All of them at once, until nothing of them is under way."""
    a = federation["a"]
    callers = await asyncio.gather(*(call(a.url, request, reads) for request in requests))
    connected = a.server.server_state.connections
    await nodes.until(lambda: not any(getattr(one, "client", 0) in callers for one in connected))
    for node in federation.nodes.values():
        machine = node.machine
        await nodes.until(lambda m=machine: not (m.held.request_bytes or m.servers.busy))
        # A body of which part has come is let go of with the word that nobody wants it any more.
        await nodes.until(lambda n=node: not n.shell.room.moving.bytes)
    await nodes.turn()


async def test_nothing_is_left_for_the_collector(nodes):
    """With the collector off, what it would find afterwards holds nothing of ours."""
    clusters = {"a": {"queue_limit": 50}, "b": {"servers": 4}}
    topology = nodes.topology_of("a", "b", clusters=clusters, payload_limit_bytes=2 * LARGE)
    async with nodes.Federation(topology) as federation:
        for case in CASES.values():
            await play(nodes, federation, *case)
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for name, case in CASES.items():
                await play(nodes, federation, *case)
                gc.collect(1)
                assert not left(), name
            gc.collect()
            assert not left()
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()


def left():
    """What is ours, or holds much."""
    found = [t for t in gc.garbage if type(t).__module__.startswith("spillover.")]
    return found + [t for t in gc.garbage if any(map(is_large, gc.get_referents(t)))]


def is_large(thing):
    return isinstance(thing, bytes | bytearray) and len(thing) > SMALL // 2
