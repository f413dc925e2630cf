"""A million requests through one node, and its memory after a fifth of them and after all.

What is remembered of requests (answers, decisions) is full after some ten thousand of them.
"""

from __future__ import annotations

import asyncio

import pytest
import uvloop

REQUESTS = 1_000_000
PER_SECOND = 2000
"""What is surely reached: a short soak sends fewer."""
CONNECTIONS, IN_A_ROW = 16, 25
GROWTH_BYTES = 4 * 2**20

ONE = "clusters: [{id: a, servers: 64, service_ms: 0}]\n"
BODY = b'{"payload":{"n":"' + b"x" * 200 + b'"}}'
REQUEST = b"POST /requests HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


async def send(host: str, port: int, count: int) -> None:
    """So many requests, all of them done."""

    async def send_some(rows: int) -> None:
        reader, writer = await asyncio.open_connection(host, port)
        for _ in range(rows):
            writer.write(REQUEST * IN_A_ROW)
            done = 0
            while done < IN_A_ROW:
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 "), head
                length = head.rpartition(b"content-length: ")[2]
                await reader.readexactly(int(length))
                done += 1
        writer.transport.abort()

    rows = count // (CONNECTIONS * IN_A_ROW)
    await asyncio.gather(*(send_some(rows) for _ in range(CONNECTIONS)))


@pytest.mark.timeout(0)
def test_memory_is_steady(tmp_path, up, ask, gauge, soak_s):
    (tmp_path / "one.yaml").write_text(ONE)
    bed, urls = up("one.yaml", cwd=tmp_path)
    url = urls["a"]
    host, _, port = url.removeprefix("http://").rpartition(":")
    fifth = int(min(REQUESTS, soak_s * PER_SECOND)) // 5
    rss_bytes = []
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for _ in range(5):
            runner.run(send(host, int(port), fifth))
            rss_bytes.append(gauge(url, "process_resident_memory_bytes"))
    done = ask(f"{url}/state")[1]["ledger"]["home"]["done"]
    shown = ", ".join(f"{rss / 2**20:.1f}" for rss in rss_bytes)
    print(f"{done} requests; RSS after each fifth in MiB: {shown}")  # noqa: T201
    assert done > fifth * 4.9
    assert rss_bytes[-1] - rss_bytes[0] < GROWTH_BYTES
    assert bed.end() == 0
