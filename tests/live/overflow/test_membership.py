"""Nodes that become neighbors while they run, and cease to be."""

from __future__ import annotations

import json
from dataclasses import replace

from spillover.core.overflow import events as ev
from spillover.core.overflow import parting
from spillover.model.topology import Link


def join(one, other):
    """Both are told of the link, and that the other is its end."""
    linked = (Link(between=("a", "b"), delay_ms=0.0),)
    for node, there in ((one, other), (other, one)):
        node.shell.go_by(replace(node.shell.topology, links=linked))
        node.shell.feed(ev.Join(there.shell.cluster.id, 0.0))


def leave(node, cluster):
    node.shell.feed(ev.Part(node.machine.neighbors.index[cluster]))


async def heard(nodes, a, b):
    """Until a may send to b, and b knows a, which has no room for more."""
    await nodes.until(lambda: a.may_send_to("b") and b.knows("a"))


def body_of(response):
    return json.loads(response.body)


def apart(nodes):
    """Clusters a and b without a link; a has no queue."""
    return nodes.topology_of("a", "b", links=[], clusters={"a": {"queue_limit": 0}})


def test_a_node_that_joins_gets_work_until_it_leaves(nodes, monkeypatch):
    """Reports flow and work with them; once what is away has had its time it is lost or decided
    again, its copy is cancelled there, and neither states nor metrics know of the neighbor."""
    monkeypatch.setattr(parting, "PART_S_MAX", 0.0)

    async def main():
        async with nodes.Federation(apart(nodes)) as federation:
            a, b = federation["a"], federation["b"]
            held = a.post({"service_ms": 5000.0})
            await nodes.until(lambda: a.machine.servers.busy)
            assert (await a.post()).status == 429
            join(a, b)
            await heard(nodes, a, b)
            assert body_of(await a.post(id="one"))["path"] == ["a", "b"]
            _, state = await a.get("/state")
            assert [(row["id"], row["forwards"]) for row in state["neighbors"]] == [("b", 1)]

            unkeyed = a.post({"service_ms": 20000.0})
            await nodes.until(lambda: b.machine.servers.busy)
            leave(a, "b")
            assert body_of(await unkeyed)["reason"] == "outcome_unknown"
            await nodes.until(lambda: not b.machine.servers.busy)
            await nodes.until(lambda: not b.knows("a"))
            _, state = await a.get("/state")
            assert state["neighbors"] == []
            metrics = (await a.client.request("GET", "/metrics", timeout_s=5.0)).body
            assert b'neighbor="b"' not in metrics
            leave(b, "a")
            await nodes.until(lambda: "a" not in b.machine.neighbors.index)
            _, explained = await a.get("/explain/one")
            assert explained["decisions"][0]["neighbor"] == "b"

            join(a, b)
            await heard(nodes, a, b)
            assert (a.machine.neighbors.index, b.machine.neighbors.index) == ({"b": 1}, {"a": 1})
            keyed = a.post({"service_ms": 20000.0}, id="keyed")
            await nodes.until(lambda: b.machine.servers.busy)
            leave(a, "b")
            await nodes.until(lambda: a.machine.queue_length == 1)
            await nodes.until(lambda: not b.machine.servers.busy)
            held.cancel()
            keyed.cancel()

    nodes.run(main)
