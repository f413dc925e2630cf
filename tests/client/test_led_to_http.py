"""Who was given https shows nothing over http, whatever an answer says: API tokens would go in the
clear to wherever it leads.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import asynccontextmanager

import pytest

from spillover.cli.explain import _follow
from spillover.cli.node_answers import is_producer
from spillover.cli.node_calls import NodeCalls
from spillover.cli.producers import ask_peers
from spillover.client import consume
from spillover.live.http1.bearer import bearer_headers
from spillover.live.tls.contexts import server_context
from spillover.live.tls.material import read_material
from spillover.model.addresses import may_be_led_to
from support.certificates import Authority, put
from support.loop import until

COUNTS = dict.fromkeys(
    (
        *("buffered", "buffers", "granted", "dead", "waiting", "takes", "parked", "produced"),
        "acknowledged",
    ),
    0,
)
SECRET = "spillover_of-nobody-else"  # noqa: S105 - it is none
HEADERS = bearer_headers(SECRET)


def a_producer(_, there):
    return {"producer": "p1", "producers": {"p2": there}, "peers": {"p2": there}, **COUNTS}


def a_node(path, there):
    if path == "/state":
        neighbors = [{"id": "b", "url": there}]
        fields = {"servers": 1, "busy": 0, "queue_length": 0, "ledger": {}}
        return {"cluster": "a", "neighbors": neighbors, **fields}
    decision = {"outcome": "forwarded", "neighbor": "b", "neighbors": []}
    return {"id": "x", "cluster": "a", "decisions": [decision], "story": []}


@asynccontextmanager
async def serving(answer, context=None):
    """A url, and the paths that were asked for there, with what was shown."""
    seen = []

    async def serve(reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                seen.append(head)
                body = json.dumps(answer(head.split()[1].decode())).encode()
                start = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                writer.write(start + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    scheme = "http" if context is None else "https"
    try:
        yield f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}", seen
    finally:
        server.close()


async def take_one(url):
    async with consume(url, token=SECRET) as objects:
        await anext(aiter(objects))


async def consumed(url, seen):
    taking = asyncio.create_task(take_one(url))
    await until(lambda: any(b"POST /take" in head for head in seen))
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)


async def explained(url, _):
    await _follow(url, "x", HEADERS)


async def looked_at(url, _):
    async with NodeCalls(url, HEADERS) as calls:
        own = await calls.call("GET", "/state", is_producer)
    assert (await ask_peers(own, url, HEADERS))["p2"] is None


@pytest.mark.parametrize(
    ("answer", "ask"), [(a_producer, consumed), (a_producer, looked_at), (a_node, explained)]
)
def test_a_secret_is_not_led_from_https_to_http(answer, ask, tmp_path, monkeypatch):
    authority = Authority()
    files = put(tmp_path, "a", authority.sign("localhost", addresses=("127.0.0.1",)), authority)
    monkeypatch.setenv("SPILLOVER_CA_FILE", files.ca)
    context = server_context(read_material(files, None), callers=ssl.CERT_NONE)

    async def main():
        async with serving(lambda _: {}) as (there, stolen):
            async with serving(lambda path: answer(path, there), context) as (url, seen):
                await ask(url, seen)
                assert any(SECRET.encode() in head for head in seen)
            assert not stolen

    asyncio.run(main())


def test_where_one_may_be_led():
    given = ["https://a", "http://b"]
    assert may_be_led_to("https://c", given)
    assert may_be_led_to("http://b", given)
    assert not may_be_led_to("http://c", given)
    assert may_be_led_to("http://c", ["http://a"])
