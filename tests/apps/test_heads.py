"""HEAD: what GET would answer, without the body, on every route that has one."""

from __future__ import annotations

import asyncio

import pytest

GET_PATHS = [
    *("/state", "/federation", "/metrics", "/healthz", "/readyz", "/openapi.json", "/console"),
    *("/console/", "/requests/done", "/explain/done", "/requests/nothing", "/nothing"),
    *("/console/events", "/console/assets/x/y"),
]


async def exchange(node, *lines, head=b""):
    port = int(node.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"".join(b"%b HTTP/1.1\r\nHost: x\r\n%b\r\n" % (line, head) for line in lines))
    return reader, writer


async def head_of(node, method, path):
    """The status line and header of an answer, whatever follows."""
    reader, writer = await exchange(node, f"{method} {path}".encode())
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
    writer.close()
    return lines[0], dict(line.split(": ", 1) for line in lines[1:-2])


CHANGING = ("/metrics", "/state", "/federation")
"""Their bodies tell ages and loads, which are others the next time."""


@pytest.mark.parametrize("path", GET_PATHS)
def test_the_header_is_that_of_get_and_nothing_follows(nodes, path):
    """So that the connection stays in step: the next request on it gets its own answer."""

    async def main():
        async with nodes.Federation(nodes.topology_of("a")) as federation:
            node = federation["a"]
            await node.post(1, headers=[(b"Idempotency-Key", b"done")])
            of_get = await head_of(node, "GET", path)
            of_head = await head_of(node, "HEAD", path)
            assert of_head[0] == of_get[0]
            for told in (of_get[1], of_head[1]):
                told.pop("transfer-encoding", None)
                told.pop("content-length" if path in CHANGING else "", None)
            if "content-length" in of_head[1] and path in ("/nothing", "/requests/nothing"):
                del of_head[1]["content-length"], of_get[1]["content-length"]  # names the method
            assert of_head[1] == of_get[1]
            reader, writer = await exchange(node, f"HEAD {path}".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 ")
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            rest = await reader.read()
            assert rest.startswith(b"HTTP/1.1 200"), rest[:200]
            assert rest.endswith(b'{"status":"ok"}')
            writer.close()

    nodes.run(main)


def test_several_in_a_row_on_one_connection(nodes):
    """Also sent without waiting, and mixed with others."""

    async def main():
        async with nodes.Federation(nodes.topology_of("a")) as federation:
            lines = (b"HEAD /state", b"GET /healthz", b"HEAD /requests/x", b"HEAD /requests")
            reader, writer = await exchange(federation["a"], *lines, b"GET /healthz")
            statuses = []
            for line in (*lines, b"GET"):
                head = await reader.readuntil(b"\r\n\r\n")
                statuses.append(int(head.split()[1]))
                if line.startswith(b"GET"):
                    assert await reader.readuntil(b"}") == b'{"status":"ok"}'
            assert statuses == [200, 200, 404, 405, 200]
            writer.close()

    nodes.run(main)


def test_a_look_without_the_answer_fetches_nothing(nodes):
    """A result that was only asked about is still waited for at the end."""

    async def main():
        async with nodes.Federation(nodes.topology_of("a")) as federation:
            node = federation["a"]
            headers = [(b"Idempotency-Key", b"k"), (b"Prefer", b"respond-async")]
            assert (await node.post(1, headers=headers)).status == 202
            home_requests = node.shell.requests.home
            await nodes.until(lambda: node.ledger.home["done"] == 1)
            assert (await head_of(node, "HEAD", "/requests/k"))[0] == "http/1.1 200 ok"
            assert home_requests.unfetched == 1
            assert (await node.get("/requests/k"))[0] == 200
            assert home_requests.unfetched == 0

    nodes.run(main)


def test_who_only_looks_does_not_wait(nodes):
    """For an end of which a head tells nothing."""

    async def main():
        async with nodes.Federation(nodes.topology_of("a")) as federation:
            node = federation["a"]
            headers = [(b"Idempotency-Key", b"k"), (b"Prefer", b"respond-async")]
            assert (await node.post({"service_ms": 2000}, headers=headers)).status == 202
            looked = await head_of(node, "HEAD", "/requests/k?wait_ms=9000")
            assert looked[0] == "http/1.1 200 ok"
            assert node.machine.servers.busy == 1
            await node.send("DELETE", "/requests/k")

    nodes.run(main)


def test_a_stream_that_is_only_looked_at_leaves_nothing_behind(nodes):
    """Nobody listens, nothing polls."""

    async def main():
        async with nodes.Federation(nodes.topology_of("a")) as federation:
            node = federation["a"]
            tasks = len(node.server.server_state.tasks)
            status, headers = await head_of(node, "HEAD", "/console/events")
            assert (status, headers["content-type"]) == ("http/1.1 200 ok", "text/event-stream")
            await nodes.until(lambda: len(node.server.server_state.tasks) == tasks)

    nodes.run(main)
