"""`/state` number by number, and what the console draws of it: none stands under another's name, in
another unit, or is left out. No node runs here: its parts are told what has happened.
"""

import asyncio

import pytest

from spillover.apps.node.console_view import cluster_view
from spillover.apps.node.views import NodeState, node_state
from spillover.live.overflow.shell import NodeShell
from support.federation import topology_of

NOW_S = 10.0


def state_of(tell):
    """`/state` of cluster a, which has the neighbors b and c, once `tell(shell)` has told it what
    there is to tell."""

    async def main():
        urls = {c: {"url": f"http://{c}.example:1"} for c in "abc"}
        urls["a"] |= {"servers": 2, "queue_limit": 7, "held_limit_bytes": 5_000_000}
        links = [("a", "b"), ("a", "c")]
        topology = topology_of("a", "b", "c", delay_ms=12.5, links=links, clusters=urls)
        shell = NodeShell(topology, "a")
        try:
            tell(shell)
            return node_state(shell, NOW_S)
        finally:
            await shell.close()

    return asyncio.run(main())


def test_what_a_neighbor_has_told_and_been_given_stands_at_its_name():
    """Ages count from what it last told; times are milliseconds."""

    def tell(shell):
        near, metrics = shell.machine.neighbors, shell.metrics
        b, c = (near.by_handle[near.index[one]] for one in "bc")
        b.accept, b.reject_near, b.queue_length = 0.75, 0.125, 3
        b.reported_s, b.told_s = 8.5, 9.75
        b.ahead, b.load, b.degraded = 4, 1.5, True
        metrics.forwards_left |= {b.handle: 9, c.handle: 30}
        metrics.pulls_left |= {b.handle: 2, c.handle: 20}
        for end, count in (("answered", 4), ("refused", 3), ("lost", 2), ("recalled", 1)):
            for _ in range(count):
                metrics.forwarded("b", end)
        shell.neighborhood.emulated[b.handle].set_faults(delay_s=0.08, loss=0.25, cut=True)

    state = state_of(tell)
    assert (state.forwards, state.pulls) == (39, 22)
    b, c = (one.model_dump() for one in state.neighbors)
    assert b == {
        "id": "b",
        "url": "http://b.example:1",
        "accept_probability": 0.75,
        "neighborhood_accept_probability": 0.875,
        "queue_length": 3,
        "age_ms": 1500.0,
        "alive": False,
        "delay_ms": 12.5,
        "way_ms": 12.5,
        "forwards": 9,
        "pulls": 2,
        "came_back": {"answered": 4, "refused": 3, "lost": 2, "recalled": 1},
        "ahead": 4,
        "load": 1.5,
        "load_age_ms": 250.0,
        "link": {"delay_ms": 80.0, "loss": 0.25, "cut": True},
        "degraded": True,
        "avoided": False,
        "missed": 0,
        "disagreement": None,
    }
    assert (c["id"], c["url"], c["age_ms"], c["load_age_ms"]) == (
        "c",
        "http://c.example:1",
        None,
        None,
    )
    assert (c["forwards"], c["pulls"], c["link"], c["degraded"]) == (30, 20, None, False)
    assert set(c["came_back"].values()) == {0}


def pool(count):
    """With so many servers, classes and types."""
    failed = {"how": "failed", "in_a_row": 5, "done_elsewhere": 6, "problem": "no"}
    return {
        "discipline": "ps",
        "on_block": "overflow",
        "jobs": 7,
        "blocked": 8,
        "servers": [
            {"id": f"s{n}", "rate": 1.5, "state": "up", "jobs": 2, "queued": 3, "tokens": 4}
            | {"not_done": [{"type": f"t{k}", **failed} for k in range(6)]}
            for n in range(count)
        ],
        "classes": [
            {"id": f"c{n}", "servers": ["s0"], "limit": 10, "available": 5, "held": 3, "out": 2}
            | {"retiring": 0}
            for n in range(count)
        ],
        "types": [
            {"id": f"t{n}", "classes": ["c0"], "blocked": 1, "work_ms": 2.5} for n in range(count)
        ],
    }


@pytest.mark.parametrize(("count", "rows"), [(24, 24), (25, 24), (2, 2)])
def test_of_a_large_pool_the_first_rows_are_drawn_and_all_are_counted(count, rows):
    """Of what a server does not do, four types."""
    plain = state_of(lambda _: None).model_dump()
    state = NodeState.model_validate(plain | {"tokens": pool(count)})
    drawn = cluster_view("a", state)["tokens"]
    assert drawn["jobs"] == 7
    assert (drawn["held"], drawn["limit"]) == (3 * count, 10 * count)
    assert drawn["counts"] == dict.fromkeys(("servers", "classes", "types"), count)
    for name, letter in (("servers", "s"), ("classes", "c"), ("types", "t")):
        assert [row["id"] for row in drawn[name]] == [f"{letter}{n}" for n in range(rows)]
    whole = state.tokens.model_dump()
    assert drawn["classes"] == whole["classes"][:rows]
    assert drawn["types"] == whole["types"][:rows]
    first = whole["servers"][0]
    assert drawn["servers"][0] == {**first, "not_done": first["not_done"][:4]}
