"""What operators change while a node runs: its policy, and in a testbed the ways to neighbors."""

import asyncio
import json
from contextlib import asynccontextmanager

from spillover.apps.http.server import HttpServer
from spillover.apps.node.app import create_app
from spillover.live.http1.client import HttpClient
from spillover.live.process.listening import bind_socket


async def put(client, path, body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = await client.request("PUT", path, body=data, timeout_s=5)
    return response.status, json.loads(response.body)


@asynccontextmanager
async def as_testbed(node):
    """A client of the same node as one started with --testbed serves it."""
    with bind_socket("127.0.0.1", 0) as listening:
        server = HttpServer(create_app(node.shell, testbed=True))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await server.ready.wait()
        client = HttpClient(f"http://127.0.0.1:{listening.getsockname()[1]}")
        yield client
        await client.close()
        server.stop()
        await serving


@asynccontextmanager
async def a_pair(nodes, **fields):
    topology = nodes.topology_of("a", "b", delay_ms=5.0, **fields)
    async with nodes.Federation(topology) as federation, as_testbed(federation["a"]) as client:
        yield federation, client


async def test_the_policy_is_changed(nodes):
    """The state says so at once, and decisions are by the new one."""
    async with a_pair(nodes) as (federation, client):
        node = federation["a"]
        status, state = await put(client, "/admin/policy", {"policy": "isolated"})
        assert (status, state["policy"]) == (200, "isolated")
        assert (await node.get("/state"))[1]["policy"] == "isolated"
        sent = [node.post({"service_ms": 20}, id=f"r{i}") for i in range(4)]
        await asyncio.gather(*sent)
        assert {json.loads(answer.result().body)["cluster"] for answer in sent} == {"a"}
        _, told = await node.get("/explain/r3")
        assert told["decisions"][0]["policy"] == "isolated"


async def test_a_shadow_is_set_kept_and_taken_away(nodes):
    """What is left out stays, null takes it away; the policy in force is another matter."""
    async with a_pair(nodes) as (federation, client):
        node = federation["a"]
        for body, shadow in (
            ({"policy": "paper", "shadow": "adaptive"}, "adaptive"),
            ({"policy": "two-choice"}, "adaptive"),
            ({"policy": "two-choice", "shadow": "isolated"}, "isolated"),
            ({"policy": "two-choice", "shadow": None}, None),
            ({"policy": "two-choice"}, None),
        ):
            status, state = await put(client, "/admin/policy", body)
            assert (status, state["policy"]) == (200, body["policy"])
            assert (state["shadow"] or {}).get("policy") == node.machine.shadow == shadow


async def test_a_link_is_changed_and_put_back(nodes):
    """What is left out stays; /state shows what differs from the topology, and only that."""
    async with a_pair(nodes) as (federation, client):

        async def shown():
            return (await federation["a"].get("/state"))[1]["neighbors"][0]["link"]

        assert await shown() is None
        for change, expected in (
            ({}, {"delay_ms": 5.0, "loss": 0.0, "cut": False}),
            ({"delay_ms": 12.5}, {"delay_ms": 12.5, "loss": 0.0, "cut": False}),
            ({"loss": 0.25}, {"delay_ms": 12.5, "loss": 0.25, "cut": False}),
            ({"cut": True, "delay_ms": 0}, {"delay_ms": 0.0, "loss": 0.25, "cut": True}),
        ):
            assert await put(client, "/admin/links/b", change) == (200, expected)
            assert await shown() == (expected if change else None)
        back = {"delay_ms": 5, "loss": 0, "cut": False}
        assert (await put(client, "/admin/links/b", back))[1] == back
        assert await shown() is None
        assert (await federation["b"].get("/state"))[1]["neighbors"][0]["link"] is None


NO_CHANGES = [
    *({"delay_ms": -1}, {"delay_ms": 60_001}, {"delay_ms": "5"}, {"delay_ms": True}),
    *({"loss": 1.5}, {"loss": -0.1}, {"cut": 1}, {"cut": "yes"}, {"speed": 1}, [], b"{"),
    b'{"delay_ms": NaN}',
]


async def test_changes_that_are_none(nodes):
    """A problem that names the field, or the link; it stays as it is."""
    async with a_pair(nodes) as (federation, client):
        for change in NO_CHANGES:
            status, problem = await put(client, "/admin/links/b", change)
            assert (status, problem["reason"]) == (422, "invalid"), change
            assert problem["detail"].startswith("body")
        status, problem = await put(client, "/admin/links/z", {"cut": True})
        assert (status, problem["reason"]) == (404, "not_found")
        assert (await federation["a"].get("/state"))[1]["neighbors"][0]["link"] is None


async def test_links_are_left_alone_outside_of_a_testbed(nodes):
    """Whatever is asked for, and of whom."""
    async with a_pair(nodes) as (federation, _):
        for path in ("/admin/links/b", "/admin/links/z"):
            status, problem = await put(federation["a"].client, path, {"cut": True})
            assert (status, problem["reason"]) == (403, "not_a_testbed")
