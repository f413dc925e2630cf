"""Whole benchmarks of `spillover bench membership`, as in `test_whole_benches`: real nodes, and
real clients that follow them, of which there are few here."""

from __future__ import annotations

import logging
from itertools import combinations, pairwise

import pytest

from spillover.sim.membership.rebalancing import reconfigurations
from spillover.tools.bench.membership import measuring, one_node
from spillover.tools.bench.membership.measuring import FIGURES
from spillover.tools.bench.membership.rules import EVEN, RULES, simulate
from spillover.tools.bench.membership.steps import EVENTS
from spillover_loadgen import clients_driver
from support.benches import played

CROWD = "the clients' process"


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    """Clients, who are looked at often."""
    monkeypatch.setattr(measuring, "CLIENTS", (6, 6))
    monkeypatch.setattr(one_node, "CLIENTS", (6, 6))
    monkeypatch.setattr(clients_driver, "LOOK_S", 0.02)
    logging.disable(logging.CRITICAL)  # neighbors do not hear of each other's change at once
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.slow
def test_the_configuration_changes_four_times_on_the_same_nodes(monkeypatch):
    """Rule after rule, once for each seed, of which the nodes have their names. What is simulated
    has the same lists."""
    monkeypatch.setattr(measuring, "DONE_AFTER_S", 0.1)
    monkeypatch.setattr(measuring, "QUIET_S", 0.06)
    here, session = played(measuring.STAGES, case="stratified", seed=3, runs=2)
    labels = ["stratified", EVEN.label]
    assert [bed.told["seed"] for bed in here.beds] == [3, 4]
    loads = [load for name, load in here.started if name == CROWD]
    assert [load.seed for load in loads] == [3, 3, 4, 4]
    assert [bool(load.starts) for load in loads] == [False, True] * 2
    assert {load.clients for load in loads} == {6}
    told = session.details
    assert [(one["rule"], one["seed"]) for one in told] == [
        (label, seed) for label in labels for seed in (3, 4)
    ]
    for seed, bed in zip((3, 4), here.beds, strict=True):
        names = [f"s{place}-{seed}" for place in range(1, 6)]
        assert {c.id: c.servers for c in bed.wanted.clusters} == dict.fromkeys(names, 1)
        assert [link.between for link in bed.wanted.links] == list(combinations(names, 2))
        assert bed.told["drain_timeout_s"] == 0.0
        lists = reconfigurations(names, seed)
        for one in told:
            if one["seed"] != seed:
                continue
            assert [step["servers"] for step in one["steps"]] == [list(of) for of in lists[1:]]
            assert [step["event"] for step in one["steps"]] == list(EVENTS)
            simulated = simulate(RULES[labels.index(one["rule"]) + 1], 6, lists, 10)
            assert [step["simulated"] for step in one["steps"]] == [
                simulated.medians(number) for number in range(4)
            ]
            begun_s = [step["begun_s"] for step in one["steps"]]
            # A wait of 0.025 s, and as much again as a change may take.
            assert all(b - a >= 0.125 for a, b in pairwise(begun_s))
            assert begun_s[0] >= 0.06
            assert one["requests"]["ok"] > 0
    rows = [(row.case, row.unit, row.peer) for row in session.rows]
    beside = {
        "fullest server": ["simulated"],
        "emptiest server": ["simulated"],
        "clients moved": ["simulated", "least possible"],
        "until done": ["wait + 2 s"],
    }
    assert rows == [
        (f"{label}: {what}", unit, peer)
        for label in labels
        for what, unit in FIGURES
        for peer in beside.get(what, [None])
    ]
    assert {row.peer_values for row in session.rows if row.peer == "wait + 2 s"} == {(0.125,)}
    assert {len(row.values) for row in session.rows} == {2}
    assert here.said[:3] == [
        "5 nodes start: run 1 of 2",
        "stratified: 6 clients connect",
        "stratified: one removed",
    ]
    who = "6 clients on 5 nodes, all in one mesh; they wait up to 0.025 s"
    assert session.notes == [
        f"{who}; a removed node's process stays up",
        "fullest and emptiest: over the mean, the worst of the states after the 4 changes",
    ]


def test_what_idle_clients_cost_is_measured_at_a_node_of_their_own():
    """That takes all of them at once, and is asked for nothing."""
    here, session = played(one_node.STAGES, case="idle clients", seed=3, runs=2)
    assert [bed.told["seed"] for bed in here.beds] == [3, 4]
    for bed in here.beds:
        assert [(c.id, c.servers) for c in bed.wanted.clusters] == [("a", 1)]
        assert bed.wanted.client_connects_burst == 6
    loads = [load for _, load in here.started]
    assert [(load.seed, load.clients, load.rate_per_s) for load in loads] == [(3, 6, 0), (4, 6, 0)]
    assert {load.rule for load in loads} == {EVEN.rule}
    for load, bed in zip(loads, here.beds, strict=True):
        assert load.nodes == tuple(bed.urls.values())
    assert here.jobs[CROWD] == [None, None]
    assert [(row.case, row.unit, row.peer, row.peer_values) for row in session.rows] == [
        ("idle clients: memory that they add to a node", "MB", "wanted, at most", (60.0,)),
        (
            "idle clients: processor time that they add to a node",
            "% of a core",
            "wanted, at most",
            (5.0,),
        ),
    ]
    assert {len(row.values) for row in session.rows} == {2}
    assert session.notes == ["idle clients: 6 at one node, for 0.05 s"]
    assert here.said == [f"{one_node.MEMORY}: run {number} of 2" for number in (1, 2)]
