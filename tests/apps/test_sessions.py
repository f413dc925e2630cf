"""Clients that have sessions at nodes: what they are told, who is let in, and where they go."""

import asyncio
import json

import yaml

from spillover.client import AsyncSpillover
from spillover.core.membership.session_events import TimerFired


async def change(node, edit):
    """Have the federation go by another configuration."""
    told = (await node.get("/admin/config"))[1]
    fields = yaml.safe_load(told["topology"])
    edit(fields)
    body = json.dumps({"if_version": told["version"], "topology": fields}).encode()
    status, _, answer = await node.send("PUT", "/admin/config", body)
    assert status == 200, answer


async def connected(node):
    return (await node.get("/state"))[1]["clients"]["connected"]


async def test_who_has_no_name_has_no_session(nodes):
    async with nodes.alone() as node:
        for query in ("", "client=", "client=%0a"):
            status, _, body = await node.send("GET", f"/session?{query}")
            assert (status, body["reason"]) == (422, "invalid")


async def test_what_a_client_is_told(nodes):
    """Where it is at once, what changes later, that the node ends; and the node knows of it."""
    async with nodes.Federation(nodes.topology_of("a", "b")) as federation:
        a, lines = federation["a"], []
        reading = asyncio.create_task(
            a.client.stream_lines("/session?client=me", lines.append, silence_s=5.0)
        )
        await nodes.until(lambda: lines)
        told = json.loads(lines[0])
        assert [told["cluster"], told["version"], told["clients"], told["rank"]] == [
            "a", 0, 1, 0,
        ]  # fmt: skip
        assert told["servers"] == [{"id": name, "url": federation[name].url} for name in ("a", "b")]
        assert await connected(a) == 1
        b = federation["b"]
        await nodes.until(lambda: next(iter(b.machine.neighbors)).report.clients == 1)  # in reports
        await change(b, lambda fields: fields.update(max_hops=3))
        await nodes.until(lambda: len(lines) == 2)
        assert json.loads(lines[1])["version"] == 1
        await a.send("POST", "/admin/drain")
        await nodes.until(lambda: len(lines) == 3)
        assert json.loads(lines[2]) == {"within_s": 1.0, "parting": True}
        status, headers, body = await a.send("GET", "/session?client=other")
        assert (status, body["reason"]) == (503, "draining")
        assert headers[b"retry-after"] == b"1"
        _, _, gone = await a.send("DELETE", "/session?client=me&moved=1")
        assert gone == {"found": True}
        await reading
        _, state = await a.get("/state")
        assert state["clients"] == {"connected": 0, "moved_away": 1, "put_off": 0}
        assert (await a.send("DELETE", "/session?client=me"))[2] == {"found": False}


async def test_so_many_a_second_and_so_many_in_all(nodes):
    limits = {"client_connects_per_s": 0.001, "client_connects_burst": 2}
    topology = nodes.topology_of("a", **limits, client_sessions_max=1)
    async with nodes.Federation(topology) as federation:
        a, lines = federation["a"], []
        begin = a.client.stream_lines("/session?client=me", lines.append, silence_s=5.0)
        reading = asyncio.create_task(begin)
        await nodes.until(lambda: lines)
        status, headers, body = await a.send("GET", "/session?client=other")
        assert (status, body["reason"]) == (503, "too_many_clients")
        assert int(headers[b"retry-after"]) >= 1
        # Whoever comes again takes its own place, and has to keep to the rate all the same.
        again = asyncio.create_task(
            a.client.stream_lines("/session?client=me", lines.append, silence_s=5.0)
        )
        await reading
        await nodes.until(lambda: len(lines) == 2)
        status, _, body = await a.send("GET", "/session?client=me")
        assert (status, body["reason"]) == (503, "reconnect_limit")
        metrics = (await a.client.request("GET", "/metrics", timeout_s=5.0)).body
        assert b'spillover_client_connects_refused_total{cluster="a"} 2.0' in metrics
        again.cancel()
        # Another configuration lets in more.
        more = {"client_sessions_max": 9, "client_connects_per_s": 1e6}
        await change(a, lambda fields: fields.update(more))
        others = []
        other = asyncio.create_task(
            a.client.stream_lines("/session?client=other", others.append, silence_s=5.0)
        )
        await nodes.until(lambda: others)
        other.cancel()


async def test_a_client_that_follows_outlives_the_node_that_it_was_given(nodes):
    topology = nodes.topology_of("a", "b", "c")
    async with nodes.Federation(topology) as federation:
        urls = {node.url for node in federation.nodes.values()}
        async with AsyncSpillover(federation["a"].url, follow=True) as spillover:
            await spillover.run({"service_ms": 1})
            following = spillover._following
            await nodes.until(lambda: following.session.in_use is not None)
            following.session._machine._act_s = 0.0  # it need not wait
            following.session._feed(TimerFired())
            await nodes.until(lambda: set(spillover.nodes.urls) == urls)
            await federation.stop("a")
            answer = await spillover.run({"service_ms": 1})
            assert answer.path[0] != "a"
            await nodes.until(lambda: following.session.in_use.id != "a")
            await nodes.until(lambda: spillover.nodes.current != topology.clusters[0].url)
            counts = [await connected(node) for node in federation.nodes.values()]
            assert sum(counts) == 1
