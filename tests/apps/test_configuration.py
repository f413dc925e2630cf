"""A federation whose configuration changes while it runs: nodes in one process, over sockets."""

import asyncio
import json
import logging
from dataclasses import replace

import yaml

from spillover.apps.node.console_view import cluster_view
from spillover.apps.node.views import NodeState
from spillover.inputs.topology_file import short_text
from spillover.model.topology import Link


async def put(node, topology, if_version=None):
    """Set a topology, as a text or its fields; (status, body)."""
    if if_version is None:
        if_version = (await node.get("/admin/config"))[1]["version"]
    told = topology if isinstance(topology, str | dict) else short_text(topology)
    body = json.dumps({"if_version": if_version, "topology": told}).encode()
    status, _, answer = await node.send("PUT", "/admin/config", body)
    return status, answer


async def fields_of(node):
    """What the node goes by, as fields to change."""
    return yaml.safe_load((await node.get("/admin/config"))[1]["topology"])


def version(node):
    return node.shell.neighborhood.configured.stamp.version


async def test_what_is_set_at_one_node_all_go_by(nodes):
    """Over two hops, limits and the policy too."""
    async with nodes.Federation(nodes.topology_of("a", "b", "c")) as federation:
        a, c = federation["a"], federation["c"]
        told = await fields_of(a)
        told |= {"default_deadline_ms": 900.0, "payload_limit_bytes": 100, "policy": "paper"}
        told["clusters"][2] |= {"queue_limit": 7, "servers": 3}
        status, answer = await put(a, told, 0)
        assert (status, answer["version"], answer["by"]) == (200, 1, "a")
        await nodes.until(lambda: all(version(node) == 1 for node in federation.nodes.values()))
        assert (c.machine.settings.queue_limit, c.machine.servers.total) == (7, 3)
        assert c.machine.policy == "paper"
        assert (await c.post("x" * 100)).status == 413
        _, state = await c.get("/state")
        told = {"version": 1, "by": "a", "superseded": None, "removed": False}
        assert state["configuration"] == told
        metrics = (await c.client.request("GET", "/metrics", timeout_s=5.0)).body
        assert b'spillover_configuration_version{cluster="c"} 1.0' in metrics
        assert b'spillover_configuration_changes_total{cluster="c"} 1.0' in metrics


async def test_a_cluster_comes_and_goes(nodes):
    """It gets work from those that it is linked to, and says that it is removed once it is."""
    whole = nodes.topology_of("a", "b", "f", links=[("a", "b"), ("b", "f")])
    federation = nodes.Federation(whole)
    async with federation:
        whole = federation.topology
        small = replace(
            whole, clusters=whole.clusters[:2], links=(Link(between=("a", "b"), delay_ms=0.0),)
        )
        a, b, f = (federation[c] for c in "abf")
        assert (await put(a, small))[0] == 200
        await nodes.until(lambda: f.shell.neighborhood.configured.removed)
        await nodes.until(lambda: not f.machine.neighbors.index)
        await nodes.until(lambda: set(b.machine.neighbors.index) == {"a"})
        assert f.machine.draining
        assert (await f.get("/state"))[1]["configuration"]["removed"]
        assert version(f) == 1

        assert (await put(a, whole))[0] == 200
        await nodes.until(lambda: "f" in b.machine.neighbors.index)
        await nodes.until(lambda: "b" in f.machine.neighbors.index)
        await nodes.until(lambda: b.may_send_to("f") and f.may_send_to("b"))
        neighbors = b.machine.neighbors
        joined = neighbors.by_handle[neighbors.index["f"]]
        assert joined.ramp_since_s is not None, "it is given little at first"
        assert not f.machine.draining
        assert not (await f.get("/state"))[1]["configuration"]["removed"]
        assert [version(node) for node in (a, b, f)] == [2, 2, 2]


def cut(federation, one, other, *, is_cut):
    """Nothing gets through between the two, either way; or it does again."""
    for here, there in ((one, other), (other, one)):
        shell = federation[here].shell
        shell.neighborhood.emulated[shell.machine.neighbors.index[there]].set_faults(cut=is_cut)


async def test_of_two_that_are_set_apart_the_higher_wins_and_the_loser_is_told(nodes, caplog):
    """In `/state`, by a metric and in the log; its text is there for another try."""
    caplog.set_level(logging.WARNING)
    async with nodes.Federation(nodes.topology_of("a", "b")) as federation:
        a, b = federation["a"], federation["b"]
        cut(federation, "a", "b", is_cut=True)
        await nodes.until(lambda: not a.knows("b") and not b.knows("a"))
        told = await fields_of(a)
        assert (await put(a, told | {"max_hops": 3}))[0] == 200
        assert (await put(b, told | {"max_hops": 4}))[0] == 200
        cut(federation, "a", "b", is_cut=False)
        await nodes.until(lambda: a.shell.neighborhood.configured.superseded is not None)
        assert 'configuration superseded version=1 by="1 of b"' in caplog.messages
        assert [one.machine.settings.max_hops for one in (a, b)] == [4, 4]
        whole = (await a.get("/state"))[1]
        state = whole["configuration"]
        assert (state["version"], state["by"], state["superseded"]) == (1, "b", 1)
        drawn = cluster_view("a", NodeState.model_validate(whole))
        assert (drawn["configuration"], drawn["clients"]) == (state, whole["clients"])
        lost = (await a.get("/admin/config"))[1]["superseded"]
        assert yaml.safe_load(lost["topology"])["max_hops"] == 3
        metrics = (await a.client.request("GET", "/metrics", timeout_s=5.0)).body
        assert b'spillover_configuration_superseded_total{cluster="a"} 1.0' in metrics

        assert (await put(a, lost["topology"], 1))[0] == 200
        await nodes.until(lambda: b.machine.settings.max_hops == 3)
        assert (await a.get("/state"))[1]["configuration"]["superseded"] is None


WRONG = [
    (lambda _: "", "topology"),
    (lambda told: told | {f"k{n}": n for n in range(60_000)}, "topology"),
    (lambda told: told | {"clusters": []}, "topology.clusters"),
    (lambda told: told | {"clusters": told["clusters"] * 2}, "topology.clusters[2].id"),
    (lambda told: told | {"links": [{"between": ["a", "z"]}]}, "topology.links[0].between"),
    (lambda told: told | {"clusters": told["clusters"][1:], "links": []}, "topology.clusters"),
    (
        lambda told: told | {"clusters": [*told["clusters"], {"id": "c", "servers": 1}]},
        "topology.clusters[2].url",
    ),
    (lambda told: told | {"name": "another"}, "topology.name"),
    (lambda told: told | {"nonsense": 1}, "topology.nonsense"),
]
"""Each of these changes, and the field that it is told of by. Files are tested in tests/inputs."""


async def test_what_is_wrong_is_refused_in_one_line_and_nothing_changes(nodes):
    async with nodes.Federation(nodes.topology_of("a", "b")) as federation:
        a = federation["a"]
        told = await fields_of(a)
        for change, field in WRONG:
            status, answer = await put(a, change(told), 0)
            assert (status, answer["reason"]) == (422, "invalid"), field
            assert answer["detail"].startswith(f"body.{field}: "), answer["detail"]
            assert "expected" in answer["detail"]
            assert "\n" not in answer["detail"]
        assert version(a) == 0
        assert (await put(a, told, 0))[0] == 200
        status, answer = await put(a, told, 0)
        assert (status, answer["reason"]) == (409, "version_conflict")
        assert (answer["version"], answer["by"]) == (1, "a")


async def test_only_nodes_of_the_federation_are_told(nodes):
    async with nodes.Federation(nodes.topology_of("a", "b")) as federation:
        a = federation["a"]
        for hello, status in [
            ("from=z&to=a&federation=test", 200),
            ("from=z&to=a&federation=other", 403),
            ("from=z&to=b&federation=test", 403),
            ("nonsense", 403),
        ]:
            headers = [(b"spillover-peer", hello.encode())]
            told = await a.send("GET", "/peer/v2/configuration", headers=headers)
            assert told[0] == status, told
        assert (await a.send("GET", "/peer/v2/configuration"))[0] == 403


async def test_a_site_that_goes_by_its_own_operators_takes_no_configuration_from_a_neighbor(
    nodes, caplog
):
    """Whatever a neighbor that was broken into announces; clients are not told of it either. What
    operators set there counts, whatever the others go by."""
    caplog.set_level(logging.WARNING)
    async with nodes.Federation(nodes.topology_of("a", "b"), wary=("b",)) as federation:
        a, b = federation["a"], federation["b"]
        told = await fields_of(a)
        for hops in (3, 4):
            assert (await put(a, told | {"max_hops": hops}))[0] == 200
        told["clusters"].append({"id": "evil", "servers": 1, "url": "http://evil.example"})
        assert (await put(a, told))[0] == 200
        await nodes.until(lambda: "not taken from a neighbor" in caplog.text)
        assert (version(a), version(b)) == (3, 0)
        assert b.machine.settings.max_hops == 16
        heard = []
        reading = asyncio.create_task(
            b.client.stream_lines("/session?client=me", heard.append, silence_s=5.0)
        )
        await nodes.until(lambda: heard)
        assert [one["id"] for one in json.loads(heard[0])["servers"]] == ["a", "b"]
        reading.cancel()
        own = await fields_of(b)
        assert (await put(b, own | {"max_hops": 5}))[0] == 200
        assert (version(b), b.machine.settings.max_hops) == (1, 5)
        assert b.may_send_to("a")
    words = [one.msg.words for one in caplog.records if "not taken" in str(one.msg)]
    assert 1 <= len(words) <= 3  # each of them once, however often it is heard
