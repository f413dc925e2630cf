"""Who was given https shows nothing over http, whatever an answer says: API tokens would go in the
clear to wherever it leads.
"""

import asyncio
import ssl

import pytest

pytest.importorskip("cryptography")

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
from support.scripted_server import answer, scripted

SECRET = "spillover_of-nobody-else"  # noqa: S105 - it is none
COUNTS = dict.fromkeys(
    (
        *("buffered", "buffers", "granted", "dead", "waiting", "takes", "parked", "produced"),
        "acknowledged",
    ),
    0,
)
HEADERS = bearer_headers(SECRET)


def a_producer(there):
    peers = {"p2": there}
    return [answer(200, {"producer": "p1", "producers": peers, "peers": peers, **COUNTS})]


def a_node(there):
    fields = {"servers": 1, "busy": 0, "queue_length": 0, "ledger": {}}
    state = {"cluster": "a", "neighbors": [{"id": "b", "url": there}], **fields}
    decision = {"outcome": "forwarded", "neighbor": "b", "neighbors": []}
    told = {"id": "x", "cluster": "a", "decisions": [decision], "story": []}
    return [answer(200, state), answer(200, told)]


async def take_one(url):
    async with consume(url, token=SECRET) as objects:
        await anext(aiter(objects))


async def consumed(server):
    taking = asyncio.create_task(take_one(server.url))
    await until(lambda: any(words.startswith("POST /take") for words, _ in server.seen))
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)


async def looked_at(server):
    async with NodeCalls(server.url, HEADERS) as calls:
        own = await calls.call("GET", "/state", is_producer)
    assert (await ask_peers(own, server.url, HEADERS))["p2"] is None


async def explained(server):
    await _follow(server.url, "x", HEADERS)


@pytest.mark.parametrize(
    ("told", "ask"), [(a_producer, consumed), (a_producer, looked_at), (a_node, explained)]
)
async def test_a_secret_is_not_led_from_https_to_http(told, ask, tmp_path, monkeypatch):
    authority = Authority()
    files = put(tmp_path, "a", authority.sign("localhost", addresses=("127.0.0.1",)), authority)
    monkeypatch.setenv("SPILLOVER_CA_FILE", files.ca)
    context = server_context(read_material(files, None), callers=ssl.CERT_NONE)
    async with scripted(answer(200, {})) as thief, scripted(tls=context) as server:
        server.answers(*told(thief.url))
        await ask(server)
        assert server.seen
        assert all(SECRET in headers["authorization"] for _, headers in server.seen)
        assert not thief.seen


def test_where_one_may_be_led():
    given = ["https://a", "http://b"]
    assert may_be_led_to("https://c", given)
    assert may_be_led_to("http://b", given)
    assert not may_be_led_to("http://c", given)
    assert may_be_led_to("http://c", ["http://a"])
