"""HEAD: what GET would answer, without the body, on every route that has one."""

from support.waiting import slack

GET_PATHS = [
    *("/state", "/federation", "/metrics", "/healthz", "/readyz", "/openapi.json", "/console"),
    *("/console/", "/requests/done", "/explain/done", "/requests/nothing", "/nothing"),
    *("/console/events", "/console/assets/x/y"),
]


async def exchange(node, *lines, head=b""):
    reader, writer = await node.connect()
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


async def test_the_header_is_that_of_get_and_nothing_follows(nodes):
    """So that the connection stays in step: the next request on it gets its own answer."""
    async with nodes.alone() as node:
        await node.post(1, headers=[(b"Idempotency-Key", b"done")])
        tasks = len(node.server.server_state.tasks)
        for path in GET_PATHS:
            of_get = await head_of(node, "GET", path)
            of_head = await head_of(node, "HEAD", path)
            assert of_head[0] == of_get[0]
            for told in (of_get[1], of_head[1]):
                told.pop("transfer-encoding", None)
                told.pop("content-length" if path in CHANGING else "", None)
            if "content-length" in of_head[1] and path in ("/nothing", "/requests/nothing"):
                del of_head[1]["content-length"], of_get[1]["content-length"]  # names the method
            assert of_head[1] == of_get[1], path
            reader, writer = await exchange(node, f"HEAD {path}".encode(), b"GET /healthz")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 ")
            rest = await reader.readuntil(b'{"status":"ok"}')
            assert rest.startswith(b"HTTP/1.1 200"), rest[:200]
            writer.close()
        await nodes.until(lambda: len(node.server.server_state.tasks) == tasks)  # of streams


async def test_a_look_without_the_answer_fetches_nothing_and_does_not_wait(nodes):
    """A result that was only asked about is still waited for at the end; of an end a head tells
    nothing."""
    async with nodes.alone() as node:
        headers = [(b"Idempotency-Key", b"k"), (b"Prefer", b"respond-async")]
        assert (
            await node.post({"service_ms": round(200 * slack())}, headers=headers)
        ).status == 202
        home_requests = node.shell.requests.home
        looked = await head_of(node, "HEAD", "/requests/k?wait_ms=9000")
        assert (looked[0], node.machine.servers.busy) == ("http/1.1 200 ok", 1)
        await nodes.until(lambda: node.ledger.home["done"] == 1)
        assert (await head_of(node, "HEAD", "/requests/k"))[0] == "http/1.1 200 ok"
        assert home_requests.unfetched == 1
        assert (await node.get("/requests/k"))[0] == 200
        assert home_requests.unfetched == 0
