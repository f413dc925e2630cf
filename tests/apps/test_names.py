"""Names over HTTP: replay, conflict, asynchronous requests, asking for and cancelling them."""

import asyncio
import json
from urllib.parse import quote

LONG = {"service_ms": 60_000}


def keyed(name):
    return [(b"Idempotency-Key", name.encode())]


def body(payload=None, **fields):
    return json.dumps({"payload": payload, **fields}).encode()


async def state_of(node, name):
    status, shown = await node.get(f"/requests/{quote(name, safe='')}")
    return shown["state"] if status == 200 else shown["reason"]


async def until_state(nodes, node, name, state):
    async with asyncio.timeout(nodes.LIMIT_S):
        while await state_of(node, name) != state:
            await nodes.turn()


def starts(node):
    """How many requests this node has answered as done."""
    return node.ledger.home["done"]


async def test_the_same_request_under_the_same_name_gets_the_first_answer(nodes):
    """By key, by id in the body, or both; the work is done once."""
    async with nodes.alone() as node:
        first = await node.send("POST", "/requests", body({"service_ms": 1}), keyed("k"))
        assert b"spillover-replayed" not in first[1]
        for headers, fields in ((keyed("k"), {}), ((), {"id": "k"}), (keyed("k"), {"id": "k"})):
            status, sent, answer = await node.send(
                "POST", "/requests", body({"service_ms": 1}, **fields), headers
            )
            assert (status, answer) == (200, first[2])
            assert sent[b"spillover-replayed"] == b"true"
        assert starts(node) == 1


async def test_another_request_under_the_same_name_is_a_conflict(nodes):
    """While the first runs and after it, whether payload or type differ."""
    async with nodes.alone() as node:
        first = node.post({"service_ms": 50}, headers=keyed("k"))
        await nodes.until(lambda: node.machine.servers.busy)
        for other in (body({"service_ms": 51}), body({"service_ms": 50}, type="other")):
            status, _, problem = await node.send("POST", "/requests", other, keyed("k"))
            assert (status, problem["reason"], problem["id"]) == (409, "conflict", "k")
        assert (await first).status == 200
        status, _, problem = await node.send("POST", "/requests", body(1), keyed("k"))
        assert (status, problem["reason"]) == (409, "conflict")


async def test_who_joins_waits_no_longer_than_its_own_deadline(nodes):
    """The work goes on for the first."""
    async with nodes.alone() as node:
        first = node.post(LONG, headers=keyed("k"))
        await nodes.until(lambda: node.machine.servers.busy)
        short = [*keyed("k"), (b"Spillover-Deadline-Ms", b"20")]
        status, _, problem = await node.send("POST", "/requests", body(LONG), short)
        assert (status, problem["reason"]) == (504, "deadline_exceeded")
        assert node.machine.servers.busy == 1
        await node.send("DELETE", "/requests/k")
        assert (await first).status == 409


async def test_the_ways_a_request_can_end_are_remembered(nodes):
    """Whoever asks is shown the problem that the client was told; only some are given again."""
    async with nodes.alone() as node:
        deadline = [*keyed("late"), (b"Spillover-Deadline-Ms", b"20")]
        status, _, told = await node.send("POST", "/requests", body(LONG), deadline)
        assert (status, told["reason"]) == (504, "deadline_exceeded")
        shown = (await node.get("/requests/late"))[1]
        assert (shown["state"], shown["problem"]) == ("expired", told)
        post = node.post(LONG, headers=keyed("gone"))
        await nodes.until(lambda: node.machine.servers.busy)
        await node.send("DELETE", "/requests/gone")
        told = json.loads((await post).body)
        shown = (await node.get("/requests/gone"))[1]
        assert (shown["state"], shown["problem"]) == ("cancelled", told)
        status, headers, again = await node.send("POST", "/requests", body(LONG), keyed("gone"))
        assert (status, again, headers[b"spillover-replayed"]) == (409, told, b"true")


async def test_cancelling_what_waits_and_what_runs(nodes):
    """200 with the final state; whoever waits gets 409; finished stays finished."""
    async with nodes.alone() as node:
        running = node.post(LONG, headers=keyed("runs"))
        await nodes.until(lambda: node.machine.servers.busy)
        waiting = node.post(LONG, headers=keyed("waits"))
        await nodes.until(lambda: node.machine.queue_length)
        for name, post in (("waits", waiting), ("runs", running)):
            status, _, shown = await node.send("DELETE", f"/requests/{name}")
            assert (status, shown["state"]) == (200, "cancelled")
            assert shown["problem"]["reason"] == "cancelled"
            response = await post
            assert (response.status, json.loads(response.body)["reason"]) == (409, "cancelled")
        assert (node.machine.servers.busy, node.machine.queue_length) == (0, 0)
        await node.send("POST", "/requests", body({"service_ms": 1}), keyed("done"))
        status, _, shown = await node.send("DELETE", "/requests/done")
        assert (status, shown["state"], shown["result"]) == (200, "done", {"service_ms": 1})


def blocked(nodes):
    """Three clusters: a keeps nothing, and what comes to b then is handed on to c."""
    return nodes.topology_of("a", "b", "c", clusters={"a": {"queue_limit": 0}})


async def block(nodes, a, b):
    """Occupy the servers of a and b, and have two wait at b, which makes c's queue the shorter."""
    pairs = ((a, "x0"), (b, "x1"), (b, "x2"), (b, "x3"))
    posts = [node.post(LONG, headers=keyed(name)) for node, name in pairs]
    await nodes.until(lambda: a.machine.servers.busy and b.machine.queue_length == 2)
    return posts


async def unblock(a, b, posts):
    for node, name in ((a, "x0"), (b, "x1"), (b, "x2"), (b, "x3")):
        await node.send("DELETE", f"/requests/{name}")
    await asyncio.gather(*posts)


async def test_a_disconnect_cancels_unkeyed_work_through_every_hop(nodes):
    """Keyed work goes on."""
    async with nodes.Federation(blocked(nodes)) as federation:
        a, b, c = (federation[i] for i in "abc")
        blockers = await block(nodes, a, b)
        post = a.post(LONG)
        await nodes.until(lambda: c.machine.servers.busy)
        post.cancel()
        await nodes.until(lambda: c.machine.servers.busy == 0)
        assert a.ledger.home["cancelled"] == 1
        post = a.post({"service_ms": 30}, headers=keyed("k"))
        await nodes.until(lambda: c.machine.servers.busy)
        post.cancel()
        await until_state(nodes, a, "k", "done")
        await unblock(a, b, blockers)
