"""A node whose servers are unlike: how they are shared, what is told of their tokens, and what
operators change of them while it runs."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace

from spillover.core.overflow.events import SettingsChanged
from spillover.model.signals import tokens as signals
from spillover.model.signals.signal import Signal
from spillover.model.unlike_servers import JobType, Server, ServerClass

FIGURE_11 = {
    "servers": tuple(Server(id=f"s{k}") for k in range(1, 7)),
    "classes": tuple(ServerClass(id=f"c{k}", servers=(f"s{k}",), tokens=3) for k in range(1, 7)),
    "types": (
        JobType(id="t1", classes=("c1", "c2", "c3", "c4")),
        JobType(id="t2", classes=("c3", "c4", "c5", "c6")),
    ),
    "on_block": "refuse",
}
"""Six servers; two types that share the middle ones, as in Comte's figure 11."""

LONG_MS = 5_000.0


@asynccontextmanager
async def a_pool(nodes, ids=("a",), topology=None, **fields):
    clusters = {"a": FIGURE_11 | fields}
    made = nodes.topology_of(*ids, clusters=clusters, **(topology or {}))
    async with nodes.Federation(made) as federation:
        yield federation["a"]


async def tokens_of(node):
    """The pool as `/state` has it, every token in one place."""
    tokens = (await node.get("/state"))[1]["tokens"]
    for row in tokens["classes"]:
        there = row["available"] + row["held"] + row["out"]
        assert there == row["limit"] + row["retiring"], row
    assert tokens["unaccounted"] == 0
    return tokens


async def put(node, change):
    body = change if isinstance(change, bytes) else json.dumps(change).encode()
    status, _, told = await node.send("PUT", "/admin/tokens", body)
    return status, told


async def metrics_of(node):
    """The samples of the node, by name and labels."""
    response = await node.client.request("GET", "/metrics", timeout_s=5)
    lines = [line for line in response.body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def running(nodes, node, count):
    await nodes.until(lambda: node.machine.servers.jobs == count)


def total(tokens, name):
    return sum(row[name] for row in tokens["classes"])


# --- jobs ---------------------------------------------------------------------------------------


async def test_a_type_takes_only_tokens_of_its_classes_and_is_refused_without_one(nodes):
    """All that t1 may take is held: the next one is 429 `blocked`, and t2 has two servers yet."""
    async with a_pool(nodes) as node:
        held = [node.post({"service_ms": LONG_MS}, type="t1", id=f"r{n}") for n in range(12)]
        await running(nodes, node, 12)
        blocked = await node.post({}, type="t1")
        problem = json.loads(blocked.body)
        assert (blocked.status, problem["reason"]) == (429, "blocked")
        assert (await node.post({"service_ms": 1}, type="t2")).status == 200
        tokens = await tokens_of(node)
        assert {row["id"]: row["held"] for row in tokens["classes"]} == {
            **dict.fromkeys(("c1", "c2", "c3", "c4"), 3), "c5": 0, "c6": 0,
        }  # fmt: skip
        assert [(row["id"], row["blocked_total"]) for row in tokens["types"]] == [
            *(("t1", 1), ("t2", 0)),
        ]
        assert [row["arrived"] for row in tokens["types"]] == [13, 1]
        assert tokens["classes"][0]["servers"] == ["s1"]
        samples = await metrics_of(node)
        assert samples['spillover_blocked_total{cluster="a",type="t1"}'] == 1.0
        assert samples['spillover_tokens_available{class="c1",cluster="a"}'] == 0.0
        assert samples['spillover_tokens_held{class="c1",cluster="a"}'] == 3.0
        assert samples['spillover_tokens_limit{class="c5",cluster="a"}'] == 3.0
        assert samples['spillover_server_jobs{cluster="a",server="s4"}'] == 3.0
        refused = 'spillover_type_requests_total{cluster="a",outcome="refused",type="t1"}'
        assert samples[refused] == 1.0
        done = 'spillover_type_requests_total{cluster="a",outcome="done",type="t2"}'
        assert samples[done] == 1.0
        assert not [name for name in samples if 'type="t3"' in name]
        for n in range(12):
            await node.send("DELETE", f"/requests/r{n}")
        assert {(await one).status for one in held} == {409}
        assert total(await tokens_of(node), "available") == 18


async def test_metrics_tell_every_signal_of_a_pool(nodes):
    """Each with a series: rates begin at 0."""
    async with a_pool(nodes) as node:
        told = [value for value in vars(signals).values() if isinstance(value, Signal)]
        assert len(told) >= 8
        names = {name.partition("{")[0] for name in await metrics_of(node)}
        assert {signal.name for signal in told} <= names


# --- what operators change ------------------------------------------------------------------------


async def test_limits_and_servers_are_changed(nodes):
    """Nothing is taken from what runs: a limit below what is held says how many retire."""
    async with a_pool(nodes) as node:
        held = [node.post({"service_ms": LONG_MS}, type="t1", id=f"r{n}") for n in range(12)]
        await running(nodes, node, 12)
        status, told = await put(node, {"classes": {"c1": 1, "c5": 9}})
        assert status == 200
        first = told["classes"][0]
        assert (first["limit"], first["held"], first["retiring"]) == (1, 3, 2)
        assert told["classes"][4]["available"] == 9
        status, told = await put(node, {"servers": {"s2": "out", "s6": "out"}})
        assert [row["state"] for row in told["servers"]] == ["up", "out", *["up"] * 3, "out"]
        assert (told["classes"][5]["available"], told["classes"][5]["out"]) == (0, 3)
        assert node.machine.servers.jobs == 12
        for n in range(12):
            await node.send("DELETE", f"/requests/r{n}")
        await asyncio.wait(held)
        tokens = await tokens_of(node)
        assert tokens["classes"][0]["available"] == 1
        assert (tokens["classes"][1]["available"], tokens["classes"][1]["out"]) == (0, 3)
        status, told = await put(node, {"servers": {"s2": "in"}, "classes": {"c1": 3}})
        assert (status, told["classes"][0]["available"]) == (200, 3)
        assert 1 <= told["classes"][1]["available"] < 3  # one after another
        for _ in range(40):
            assert (await node.post({"service_ms": 0.1}, type="t1")).status == 200
        assert (await tokens_of(node))["classes"][1]["available"] == 3


BAD = [
    (b"[]", "body: "),
    (b"", "body: "),
    (b'{"classes": {"c1": 0}}', "body.classes.c1: "),
    (b'{"classes": {"c1": true}}', "body.classes.c1: "),
    (b'{"classes": {"c1": 1.5}}', "body.classes.c1: "),
    (b'{"classes": {"c1": 10001}}', "body.classes.c1: "),
    (b'{"classes": {"c7": 1}}', "body.classes: expected the id of a class (c1, c2, c3, c4, c5, c6"),
    (b'{"classes": 1}', "body.classes: "),
    (b'{"servers": {"s1": "off"}}', "body.servers.s1: "),
    (b'{"servers": {"s7": "in"}}', "body.servers: expected the id of a server (s1, s2, s3, s4, s5"),
    (b'{"servers": {"%b": "in"}}' % (b"s" * 50_000), "body.servers."),
    (b'{"limits": {}}', "body.limits: "),
]


async def test_a_change_that_makes_no_sense_changes_nothing(nodes):
    async with a_pool(nodes) as node:
        before = await tokens_of(node)
        for body, says in BAD:
            status, problem = await put(node, body)
            assert (status, problem["reason"]) == (422, "invalid")
            assert problem["detail"].startswith(says)
            assert "\n" not in problem["detail"]
        assert await tokens_of(node) == before


async def test_nodes_that_share_servers_which_run_one_after_another_keep_single_tokens(nodes):
    classes = tuple(replace(each, tokens=1) for each in FIGURE_11["classes"])
    async with a_pool(nodes, classes=classes, discipline="fcfs") as node:
        node.shell.feed(SettingsChanged(nodes=2))
        before = await tokens_of(node)
        status, problem = await put(node, {"classes": {"c1": 1, "c2": 2}})
        assert (status, problem["reason"]) == (422, "invalid")
        assert problem["detail"].startswith("body.classes.c2: expected 1, got 2: ")
        assert await tokens_of(node) == before


async def test_a_cluster_of_servers_alike_has_no_tokens(nodes):
    async with nodes.Federation(nodes.topology_of("a")) as federation:
        node = federation["a"]
        status, problem = await put(node, {"classes": {}})
        assert (status, problem["reason"]) == (409, "servers_alike")
        assert (await node.get("/state"))[1]["tokens"] is None
        assert not [name for name in await metrics_of(node) if "tokens" in name]
