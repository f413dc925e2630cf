"""A pool of which one server does not do a type that the topology says it serves: what clients get,
what becomes of its tokens, and what operators read."""

import logging

import pytest

from spillover.model.unlike_servers import JobType, Server, ServerClass
from support.scripted_server import answer, scripted

JOBS = 40
DOES_NONE = "a server does no job of a type that it is to serve"
HAS_CHANGED = "a server has changed"

LIES = {
    "not_run": (answer(503, {"error": "no such model"}), {}, {200}),
    "rests": (answer(503, b"", retry_after="30"), {}, {200}),
    "rejects": (answer(404, {"error": "no such model"}), {}, {200, 404}),
    "told": (answer(404, {"error": "no such model"}), {"not_run_statuses": (404,)}, {200}),
    "no_json": (answer(200, b"<html>"), {}, {200, 502}),
}
"""What the server answers, what else the topology says, and what clients may get."""


def pool(url, name, liar):
    servers = (Server(id="big", handler="sleep"), Server(id=name, handler=f"http:{liar}"))
    return {
        "servers": servers,
        "classes": tuple(ServerClass(id=f"c-{each.id}", servers=(each.id,), tokens=3)
                         for each in servers),
        "types": (JobType(id="batch", classes=("c-big", f"c-{name}")),),
    } | url  # fmt: skip


def lines(caplog, words):
    """(level, fields) of each such line."""
    return [
        (record.levelname, record.msg.fields)
        for record in caplog.records
        if getattr(record.msg, "words", "") == words
    ]


@pytest.mark.parametrize("name", LIES)
def test_a_server_that_lies_about_its_type(nodes, caplog, name):
    """Whatever it says, each token comes back once, and what surely did not run is run by the
    other one. A line says which server it is, and what it answered."""
    said, fields, statuses = LIES[name]
    seen = []

    async def main():
        async with scripted(said) as liar:
            topology = nodes.topology_of("a", clusters={"a": pool(fields, name, liar.url)})
            async with nodes.Federation(topology) as federation:
                node = federation["a"]
                got = [
                    (await node.post({"service_ms": 1}, type="batch", id=f"r{n}")).status
                    for n in range(JOBS)
                ]
                assert set(got) == statuses
                await nodes.until(lambda: node.machine.servers.jobs == 0)
                tokens = (await node.get("/state"))[1]["tokens"]
                assert tokens["unaccounted"] == 0
                for row in tokens["classes"]:
                    assert row["held"] == row["retiring"] == 0
                    assert row["available"] + row["out"] == row["limit"] == 3
                assert node.machine.condition != "resting"
                due = DOES_NONE if name == "rejects" else HAS_CHANGED
                await nodes.until(lambda: lines(caplog, due))  # with the next report
                told = (await node.get("/explain/r1"))[1]["story"]
                seen.extend((tokens["servers"][1], told))

    with caplog.at_level(logging.INFO):
        nodes.run(main)
    server, story = seen
    runs = lines(caplog, DOES_NONE)
    turns = [(level, told["server"], told["state"]) for level, told in lines(caplog, HAS_CHANGED)]
    assert len(runs) <= 1
    if name == "rejects":
        ((level, told),) = runs
        assert (level, told["cluster"], told["server"], told["type"]) == (
            *("WARNING", "a", name, "batch"),
        )
        assert told["look_at"].startswith("the topology says that it serves batch: classes c-rej")
        assert "answered 404" in told["answered"]
        assert (server["not_done"][0]["how"], server["state"], turns) == ("rejected", "up", [])
    else:
        state = "resting" if name == "rests" else "degraded"
        assert turns[0] == ("WARNING", name, state)
    refused = [one["server"] for one in story if one["event"] == "not_started"]
    assert refused == ([name] if statuses == {200} else []), "r1 was at the liar first"
