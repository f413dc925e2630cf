"""`GET /federation`: an echo wave along the links, around what is dead, slow or talks nonsense."""

import asyncio
import json
import logging
import socket
from contextlib import suppress
from functools import partial

import pytest

from spillover.apps.node import federation as wave
from spillover.live.http1.client import HttpClient
from spillover.live.overflow.identity import HELLO, hello_of
from spillover.live.overflow.protocol import SPOKEN
from spillover.live.overflow.wire import Caller

TRIES = 10


async def awake(federation):
    """What a node makes when it is first asked is no part of what a question takes."""
    for node in federation.nodes.values():
        await node.get("/healthz")


async def shown(federation, cluster="a"):
    """(the clusters, links, how long that took in seconds)."""
    began_s = asyncio.get_running_loop().time()
    status, told = await federation[cluster].get("/federation")
    took_s = asyncio.get_running_loop().time() - began_s
    assert status == 200
    return told["clusters"], told["links"], took_s


async def shown_within(limit_s, federation, expected, cluster="a", before=lambda: None):
    """The first of some looks that took no longer and has reached those, each after `before()`. A
    busy machine makes a look longer, or a node too late for it."""
    for _ in range(TRIES):
        before()
        *told, took_s = await shown(federation, cluster)
        if took_s < limit_s and reached(told[0]) == expected:
            break
    assert reached(told[0]) == expected
    assert took_s < limit_s
    return *told, took_s


def reached(clusters):
    return {cluster for cluster, state in clusters.items() if "unreachable" not in state}


async def redirect(node, neighbor, url):
    """Have the node take what is at this url for its neighbor."""
    link = node.shell.neighborhood.links[node.machine.neighbors.index[neighbor]]
    await link._client.close()
    link._client = HttpClient(url)


async def ask_wave(node, sender="b", **fields):
    query = {"query": "q1", "visited": ["b"], "remaining_ms": 500.0} | fields
    hello = hello_of(Caller(sender))
    client = HttpClient(node.url, headers=[(HELLO, hello)])  # a neighbor's connection is its own
    body = json.dumps(query).encode()
    response = await client.request("POST", SPOKEN[0].federation, body=body, timeout_s=10.0)
    await client.close()
    return response.status, response.headers, json.loads(response.body)


async def test_every_cluster_is_shown_from_every_other(nodes):
    """States are those of /state, links and their delays those of the topology."""
    links = [("b", "a"), ("b", "c"), ("c", "d"), ("d", "a"), ("b", "d")]
    topology = nodes.topology_of(*"abcde", links=[*links, ("d", "e")], delay_ms=3.0)
    async with nodes.Federation(topology) as federation:
        await awake(federation)
        for cluster in "abcde":
            clusters, told, _ = await shown_within(0.9, federation, set("abcde"), cluster)
            assert list(clusters) == ["a", "b", "c", "d", "e"]
            for name, state in clusters.items():
                assert state["cluster"] == name
                assert state.keys() == (await federation[name].get("/state"))[1].keys()
            assert {"between": ["a", "b"], "delay_ms": 3.0} in told
            assert len(told) == 6


@pytest.fixture
def frozen():
    """A socket that takes connections and never says anything, as a stopped process does."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


async def test_a_frozen_cluster_takes_no_other_along(nodes, frozen):
    """Whether neighbors know already that it is silent or not, and within the limit."""
    links = [("a", "b"), ("b", "c"), ("c", "f"), ("a", "f")]
    topology = nodes.topology_of(*"abcf", links=links)
    async with nodes.Federation(topology, absent=("f",)) as federation:
        await awake(federation)
        for cluster in "ac":
            await redirect(federation[cluster], "f", frozen)
        await shown_within(0.6, federation, set("abc"))

        def is_known(known):
            for cluster in "ac":
                neighbors = federation[cluster].machine.neighbors
                neighbors.by_handle[neighbors.index["f"]].known = known

        # As they are in the first second.
        before = partial(is_known, True)
        _, _, new_s = await shown_within(1.1, federation, set("abc"), before=before)
        assert new_s > 0.8
        is_known(False)


async def test_who_was_asked_before_answers_nothing(nodes):
    """Once each question; each other one anew."""
    async with nodes.Federation(nodes.topology_of("a", "b", "c")) as federation:
        status, _, told = await ask_wave(federation["b"], sender="a", visited=["a"])
        assert (status, set(told["clusters"])) == (200, {"b", "c"})
        status, _, told = await ask_wave(federation["b"], sender="c", visited=["c"])
        assert (status, told) == (200, {"clusters": {}})
        status, _, told = await ask_wave(federation["b"], sender="c", query="q2", visited=[])
        assert set(told["clusters"]) == {"a", "b", "c"}
        status, _, told = await ask_wave(federation["b"], sender="c", query="q3", remaining_ms=0)
        assert set(told["clusters"]) == {"b"}


NO_QUESTIONS = [
    ({"sender": "z"}, 403, "not_a_neighbor"),
    ({"sender": "a"}, 403, "not_a_neighbor"),
    ({"visited": "b"}, 422, "invalid"),
    ({"visited": ["not an id"]}, 422, "invalid"),
    ({"visited": ["b"] * 1001}, 422, "invalid"),
    ({"visited": ["b" * 63] * 3000}, 413, "too_large"),
    ({"query": ""}, 422, "invalid"),
    ({"query": "q" * 65}, 422, "invalid"),
    ({"remaining_ms": -1}, 422, "invalid"),
    ({"remaining_ms": 1e9}, 422, "invalid"),
    ({"remaining_ms": "5"}, 422, "invalid"),
]
NO_BODIES = [b"", b"{", b"[]", b"null", b"\xff", b'{"query": "q"}', b"[" * 5000]


async def test_questions_that_are_none(nodes):
    """Each is a problem with its reason."""
    async with nodes.Federation(nodes.topology_of("a", "b")) as federation:
        node = federation["a"]
        for fields, status, reason in NO_QUESTIONS:
            got, headers, problem = await ask_wave(node, **fields)
            assert (got, problem["reason"]) == (status, reason), fields
            assert headers[b"content-type"] == b"application/problem+json"
        for body in NO_BODIES:
            status, _, problem = await node.send("POST", SPOKEN[0].federation, body)
            assert (status, problem["reason"]) == (422, "invalid"), body


NONSENSE = [
    *(b"", b"<html>", b"[]", b"{}", b'{"clusters": 5}', b'{"clusters": {"b": {}}}'),
    *(b'{"clusters": {"no id": {}}}', b'{"clusters": {"b": "\xff"}}'),
]


async def test_a_neighbor_that_talks_nonsense(nodes, caplog, monkeypatch):
    """What it says is dropped, with a line in the log; the others are shown."""
    monkeypatch.setattr(wave, "SILENT_S", wave.LIMIT_S)  # nobody is left out for being slow
    said = b""
    ended = []

    async def answer(reader, writer):
        end = asyncio.get_running_loop().create_future()
        ended.append(end)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(said), said))
        with suppress(ConnectionError):
            await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        end.set_result(None)

    caplog.set_level(logging.WARNING, logger=wave.__name__)
    topology = nodes.topology_of("a", "b", "c", links=[("a", "b"), ("a", "c")])
    async with nodes.Federation(topology, absent=("b",)) as federation:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await redirect(federation["a"], "b", url)
        try:
            for said in NONSENSE:  # noqa: B007 - it is what `answer` says
                caplog.clear()
                wave._log.filters[0]._next_s.clear()  # as if the last line were long ago
                clusters, _, _ = await shown(federation)
                assert reached(clusters) == {"a", "c"}
                (line,) = [r.getMessage() for r in caplog.records if r.name == wave.__name__]
                start = "neighbor told no states of the federation neighbor=b reason="
                assert line.startswith(start)
                assert "\n" not in line
        finally:
            server.close()
        await asyncio.gather(*ended)
