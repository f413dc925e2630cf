"""What is told of a request by whoever has it, field by field: in each state, at its home, at the
cluster that runs it for another, and at its end.
"""

import asyncio
import json

LONG = {"service_ms": 60_000}
SOON = [(b"Prefer", b"respond-async")]


def accept(node, name, payload=LONG, **fields):
    body = json.dumps({"payload": payload, "id": name, **fields}).encode()
    return node.send("POST", "/requests", body, SOON)


async def test_at_a_cluster_that_hands_it_on_and_at_the_one_that_runs_it(nodes):
    """The home says where it went, and who runs it by which way it came."""
    topology = nodes.topology_of("a", "b", clusters={"a": {"queue_limit": 0}})
    async with nodes.Federation(topology) as federation:
        a, b = federation["a"], federation["b"]
        assert (await accept(a, "x"))[2]["state"] == "running"
        post = a.post(LONG, id="k", type="words")
        await nodes.until(lambda: b.machine.servers.busy)
        at_home = {"id": "k", "state": "forwarded", "type": "words", "forwarded_to": "b"}
        assert await a.get("/requests/k") == (200, at_home)
        there = {"id": "k", "state": "running", "type": "words", "path": ["a", "b"]}
        assert await b.get("/requests/k") == (200, there)
        assert (await b.get("/requests/x"))[0] == 404
        status, _, shown = await b.send("DELETE", "/requests/k")
        assert (status, set(shown)) == (200, {*there, "problem"})
        assert (shown["id"], shown["state"], shown["path"]) == ("k", "cancelled", ["a", "b"])
        assert (shown["problem"]["id"], shown["problem"]["status"]) == ("k", 409)
        assert (await post).status == 409
        assert (await a.send("DELETE", "/requests/x"))[0] == 200


async def test_at_the_end_of_a_node_whoever_waits_has_the_name_and_the_type(nodes):
    """By a look and by the request itself; of what ran and of what never did."""
    async with nodes.Federation(nodes.topology_of("a")) as federation:
        node = federation["a"]
        posts = {}
        for name in ("runs", "waits"):
            posts[name] = node.post(LONG, id=name, type="words")
            await nodes.until(lambda: node.machine.register.visits)
        await nodes.until(lambda: node.machine.queue_length == 1)
        looks = {
            name: asyncio.ensure_future(node.get(f"/requests/{name}?wait_ms=60000"))
            for name in posts
        }
        entries = {name: node.shell.requests.home.find(name) for name in posts}
        await nodes.until(
            lambda: all(len(node.shell.requests.waiters.of(e.ref)) == 2 for e in entries.values())
        )
        await node.shell.close()
        for name, reason in (("runs", "outcome_unknown"), ("waits", "draining")):
            status, shown = await looks[name]
            assert (status, set(shown)) == (200, {"id", "state", "type", "problem"})
            told = (shown["id"], shown["state"], shown["type"])
            assert told == (name, "failed", "words")
            problem = shown["problem"]
            assert (problem["id"], problem["reason"]) == (name, reason)
            response = await posts[name]
            assert json.loads(response.body) == problem
            assert response.headers[b"spillover-request-id"] == name.encode()
