"""`/state` number by number, and what the console draws of it: none stands under another's name, in
another unit, or is left out. No node runs here: its parts are told what has happened.
"""

from __future__ import annotations

import asyncio

import pytest

from spillover import __version__
from spillover.apps.node.console_view import cluster_view
from spillover.apps.node.views import NodeState, Unreachable, node_state
from spillover.live.overflow.shell import NodeShell
from spillover.model.request import Answer, Outcome, Refusal
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


def ends(shell):
    """Clients' requests that have ended: 2 done, 1 failed and 2 unknown, 4 rejected, and so on."""
    metrics = shell.metrics
    for queued_s in (0.25, 0.5):
        done = Answer(Outcome.DONE, ("a",), queued_s=queued_s, network_s=1.0, service_s=2.0)
        metrics.home_ended(done)
    counts = {Outcome.FAILED: 1, Outcome.UNKNOWN: 2, Outcome.REJECTED: 4, Outcome.EXPIRED: 5}
    for outcome, count in counts.items():
        for _ in range(count):
            metrics.home_ended(Answer(outcome, ("a",)))
    for _ in range(6):
        metrics.home_refused(Refusal.QUEUE_FULL)


def test_how_requests_ended_is_counted_by_kind():
    """Since the start and of late; what nobody knows counts as failed."""
    state = state_of(ends)
    assert (state.answered, state.system_time_sum_ms) == (2, 6750.0)
    counted = (state.failed, state.rejected, state.expired, state.refused)
    assert counted == (3, 4, 5, 6)
    recent = state.recent
    late = (recent.done, recent.failed, recent.rejected, recent.expired, recent.refused)
    assert late == (2, *counted)
    assert recent.p50_ms == pytest.approx(3250.0, rel=0.06)
    assert recent.p99_ms == pytest.approx(3500.0, rel=0.06)
    assert state_of(lambda _: None).recent.p50_ms is None


def test_what_a_cluster_is_stands_there():
    def tell(shell):
        shell.metrics.count_clients = lambda: (5, 6, 7)

    state = state_of(tell)
    assert (state.cluster, state.url, state.version) == ("a", "http://a.example:1", __version__)
    assert (state.servers, state.busy, state.queue_length) == (2, 0, 0)
    assert (state.foreign_waiting, state.foreign_waiting_limit) == (0, 7)
    assert (state.held_bytes, state.held_limit_bytes, state.kept_bytes) == (0, 5_000_000, 0)
    assert (state.policy, state.shadow, state.tokens) == ("two-choice", None, None)
    assert state.clients.model_dump() == {"connected": 5, "moved_away": 6, "put_off": 7}
    assert (state.health, state.down, state.draining, state.drained) == ("well", *[False] * 3)
    assert state.ledger.home == dict.fromkeys(
        ["accepted", "done", "failed", "expired", "cancelled", "queued", "running", "away"], 0
    )


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
        shell.set_link(b.handle, delay_s=0.08, loss=0.25, cut=True)

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


@pytest.mark.parametrize("change", [{"delay_s": 0.0}, {"loss": 0.5}, {"cut": True}])
def test_a_link_that_somebody_has_changed_is_shown(change):
    """Whichever of the three it is; what is as the topology has it again is no change."""

    def tell(shell, **changes):
        shell.set_link(shell.machine.neighbors.index["c"], **changes)

    _, changed = state_of(lambda shell: tell(shell, **change)).neighbors
    expected = {"delay_ms": 12.5, "loss": 0.0, "cut": False}
    expected |= {"delay_ms": 0.0} if "delay_s" in change else change
    assert changed.link.model_dump() == expected
    _, same = state_of(lambda shell: tell(shell, delay_s=0.0125, loss=0.0, cut=False)).neighbors
    assert same.link is None


def told(**fields):
    """A cluster of which each number differs."""
    neighbor = {
        "id": "b",
        "url": "u",
        "accept_probability": 0.12344,
        "neighborhood_accept_probability": 0.23456,
        "queue_length": 31,
        "age_ms": 32.26,
        "alive": True,
        "forwards": 33,
        "pulls": 34,
        "degraded": True,
        "link": {"delay_ms": 35.5, "loss": 0.36, "cut": True},
    }
    counts = "servers busy queue_length foreign_waiting forwards pulls answered failed rejected"
    counts += " expired refused stuck"
    state = {name: number for number, name in enumerate(counts.split(), 1)}
    state |= {
        "cluster": "a",
        "url": "http://a.example:1",
        "accept_probability": 0.98765,
        "neighborhood_accept_probability": 0.87654,
        "policy": "paper",
        "shadow": {"policy": "adaptive", "same": 41, "other": 42, "saved_ms": 43, "lost_ms": 44},
        "home_load": 1.25,
        "version": "0.7",
        "configuration": {"version": 51, "by": "b", "superseded": 52, "removed": True, "more": 1},
        "clients": {"connected": 61, "moved_away": 62, "put_off": 63},
        "draining": True,
        "drained": False,
        "down": True,
        "system_time_sum_ms": 71.23456,
        "recent": {"p50_ms": 81.5, "p99_ms": 82.5, "done": 83},
        "health": "recovering",
        "degraded": True,
        "failed_share": 0.34567,
        "neighbors": [neighbor, {**neighbor, "id": "c", "age_ms": None, "link": None}],
        "ledger": {"epoch": 91, "home": {"accepted": 92}, "foreign": {"received": 93}},
    }
    return NodeState.model_validate(state | fields)


AS_IT_IS = [
    "url",
    "servers",
    "busy",
    "queue_length",
    "accept_probability",
    "policy",
    "home_load",
    "foreign_waiting",
    "pulls",
    "version",
    "draining",
    "drained",
    "down",
    "stuck",
    "forwards",
    "answered",
    "failed",
    "rejected",
    "expired",
    "refused",
    "health",
    "degraded",
]


def test_the_console_draws_each_number_under_its_name():
    """As `/state` has it; shares to four digits, sums to a thousandth, ages to a tenth."""
    state = told()
    drawn = cluster_view("a", state)
    whole = state.model_dump()
    assert {name: drawn.pop(name) for name in AS_IT_IS} == {name: whole[name] for name in AS_IT_IS}
    near = drawn.pop("neighbors")
    assert drawn == {
        "id": "a",
        "neighborhood_accept_probability": 0.8765,
        "shadow": whole["shadow"],
        "configuration": {"version": 51, "by": "b", "superseded": 52, "removed": True},
        "clients": {"connected": 61, "moved_away": 62, "put_off": 63},
        "epoch": 91,
        "home": {"accepted": 92},
        "system_time_sum_ms": 71.235,
        "recent": {"p50_ms": 81.5, "p99_ms": 82.5},
        "failed_share": 0.3457,
        "tokens": None,
    }
    b = {
        "id": "b",
        "accept_probability": 0.1234,
        "neighborhood_accept_probability": 0.2346,
        "queue_length": 31,
        "age_ms": 32.3,
        "alive": True,
        "forwards": 33,
        "pulls": 34,
        "degraded": True,
        "link": {"delay_ms": 35.5, "loss": 0.36, "cut": True},
    }
    assert near == [b, {**b, "id": "c", "age_ms": None, "link": None}]
    assert cluster_view("a", told(shadow=None))["shadow"] is None


def test_a_cluster_that_cannot_be_reached_is_drawn_as_such():
    drawn = cluster_view("b", Unreachable(last_seen_s=1.5))
    assert drawn == {"id": "b", "unreachable": True, "last_seen_s": 1.5}


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
    state = told(tokens=pool(count))
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
