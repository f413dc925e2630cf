"""Failures and refusals where they are looked for: `/state`, `/metrics`, `/explain`, probes."""

import asyncio
import json
from contextlib import asynccontextmanager

from spillover.apps.node import hot_paths
from spillover.apps.node.views import NodeState

ENDS = ("answered", "failed", "rejected", "expired", "refused")


async def serve(reader, writer):
    """Answers as the payload says: {"status": 500}."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].split()[0])
            status = json.loads(await reader.readexactly(length))["status"]
            body = b'{"said": "%d"}' % status
            told = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            writer.write(told % (status, len(body)) + body)
    except (asyncio.IncompleteReadError, OSError):
        pass
    finally:
        writer.close()


@asynccontextmanager
async def in_front_of_a_service(nodes, **fields):
    """A node whose service answers what it is asked to."""
    service = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = service.sockets[0].getsockname()[1]
    clusters = {"a": {"handler": f"http:http://127.0.0.1:{port}/", **fields}}
    try:
        async with nodes.Federation(nodes.topology_of("a", clusters=clusters)) as federation:
            yield federation["a"]
    finally:
        service.close()


async def test_every_end_is_counted_and_recent_ones_apart(nodes):
    """Of all time, and within the window with the times of what was done."""
    async with in_front_of_a_service(nodes) as node:
        for _ in range(3):
            assert (await node.post({"status": 200})).status == 200
        assert (await node.post({"status": 500}, id="fails")).status == 502
        late = [(b"Spillover-Deadline-Ms", b"0")]
        assert (await node.post({"status": 200}, headers=late)).status == 504
        await node.send("POST", "/admin/drain")
        assert (await node.post({"status": 200})).status == 503
        _, state = await node.get("/state")
        assert [state[end] for end in ENDS] == [3, 1, 0, 1, 1]
        assert state["ledger"]["home"]["failed"] == state["failed"] + state["rejected"]
        recent = state["recent"]
        assert [recent[end] for end in ("done", *ENDS[1:])] == [3, 1, 0, 1, 1]
        assert recent["window_s"] == 10
        assert 0.0 < recent["p50_ms"] <= recent["p99_ms"]


async def test_states_of_other_versions_are_read(nodes):
    """Of such as do not tell their failures yet, and of such as tell more."""
    async with nodes.Federation(nodes.topology_of("a", "b")) as federation:
        _, state = await federation["a"].get("/state")
        new = {"failed", "rejected", "expired", "refused", "recent", "degraded", "health"}
        old = {name: value for name, value in state.items() if name not in new}
        del old["failed_share"], old["neighbors"][0]["degraded"]
        more = {"health": "on vacation", "degraded": True, "recent": {"p50_ms": 1.5, "p9": 2}}
        read, later = (NodeState.model_validate(old | one) for one in ({}, more))
        assert read.failed == read.refused == later.failed == 0
        assert (read.degraded, read.health, read.recent.p50_ms) == (False, "well", None)
        assert (later.degraded, later.health, later.recent.p50_ms) == (True, "on vacation", 1.5)


async def test_a_bug_is_told_with_the_story_of_the_request(nodes, monkeypatch, caplog):
    """To its client, and in the log with the traceback; the node goes on."""

    def broken(*_):
        raise RuntimeError("a bug")

    async with nodes.Federation(nodes.topology_of("a")) as federation:
        node = federation["a"]
        with monkeypatch.context() as patch:
            patch.setattr(hot_paths, "encode", broken)
            response = await node.post(1, id="k")
        told = json.loads(response.body)
        assert (response.status, told["reason"], told["id"]) == (500, "internal", "k")
        assert told["story"][0]["event"] == "decided"
        (record,) = [one for one in caplog.records if one.exc_info]
        said = record.msg.fields
        assert (said["method"], said["path"]) == ("POST", "/requests")
        assert (said["request_id"], said["story"]) == ("k", told["story"])
        assert str(record.exc_info[1]) == "a bug"
        assert (await node.post(1, id="l")).status == 200
