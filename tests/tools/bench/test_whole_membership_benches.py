"""Whole benchmarks of `spillover bench membership`, as in `test_whole_benches`: real nodes, and
real clients that follow them, of which there are few here."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import signal
import time
from itertools import combinations, pairwise

import pytest

from spillover.live.membership.session_wire import SIGN_OF_LIFE_S
from spillover.sim.membership.rebalancing import reconfigurations
from spillover.tools.bench.membership import crowd, measuring, one_node
from spillover.tools.bench.membership.measuring import FIGURES
from spillover.tools.bench.membership.rules import EVEN, RULES, simulate
from spillover.tools.bench.membership.steps import EVENTS
from spillover_loadgen import clients_driver
from support.benches import played
from support.loop import turn, until

CROWD = "the clients' process"


def _patch(patch):
    """Few clients, who are looked at often."""
    patch.setattr(measuring, "CLIENTS", (6, 6))
    patch.setattr(one_node, "CLIENTS", (6, 6))
    patch.setattr(clients_driver, "LOOK_S", 0.02)
    # Neighbors do not hear of each other's change at once, and log it.
    patch.setattr(logging.getLogger("spillover"), "disabled", True)


@pytest.fixture(autouse=True)
def _few(monkeypatch):
    _patch(monkeypatch)


LABELS = ["stratified", EVEN.label]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Of what was seen, where drawings can be made."""
    if importlib.util.find_spec("matplotlib") is None:
        return None
    return tmp_path_factory.mktemp("pages") / "page.html"


@pytest.fixture(scope="module")
def changed(page):
    """Two runs of two rules, of which each takes half a second, and what they did."""
    with pytest.MonkeyPatch.context() as patch:
        _patch(patch)
        patch.setattr(measuring, "DONE_AFTER_S", 0.1)
        patch.setattr(measuring, "QUIET_S", 0.06)
        return played(measuring.STAGES, case="stratified", seed=3, runs=2, report=page)


@pytest.mark.slow
def test_nodes_are_started_for_each_seed_and_clients_for_each_rule(changed, page):
    """Of the seed the nodes have their names."""
    here, session = changed
    assert [bed.told["seed"] for bed in here.beds] == [3, 4]
    loads = [load for name, load in here.started if name == CROWD]
    assert [load.seed for load in loads] == [3, 3, 4, 4]
    assert [bool(load.starts) for load in loads] == [False, True] * 2
    assert {load.clients for load in loads} == {6}
    for seed, bed in zip((3, 4), here.beds, strict=True):
        names = names_of(seed)
        assert {c.id: c.servers for c in bed.wanted.clusters} == dict.fromkeys(names, 1)
        assert [link.between for link in bed.wanted.links] == list(combinations(names, 2))
        assert bed.told["drain_timeout_s"] == 0.0
    assert here.said[:3] == [
        "5 nodes start: run 1 of 2",
        "stratified: 6 clients connect",
        "stratified: one removed",
    ]
    who = "6 clients on 5 nodes, all in one mesh; they wait up to 0.025 s"
    assert session.notes == [
        f"{who}; a removed node's process stays up",
        "fullest and emptiest: over the mean, the worst of the states after the 4 changes",
        *([f"the report is in {page}"] if page else []),
    ]
    assert page is None or all(label in page.read_text("utf-8") for label in LABELS)


def names_of(seed):
    return [f"s{place}-{seed}" for place in range(1, 6)]


@pytest.mark.slow
def test_the_configuration_changes_four_times_on_the_same_nodes(changed):
    """Each time for as long as a change may take; what is simulated has the same lists."""
    _, session = changed
    told = session.details
    assert [(one["rule"], one["seed"]) for one in told] == [
        (label, seed) for label in LABELS for seed in (3, 4)
    ]
    for one in told:
        lists = reconfigurations(names_of(one["seed"]), one["seed"])
        assert [step["servers"] for step in one["steps"]] == [list(of) for of in lists[1:]]
        assert [step["event"] for step in one["steps"]] == list(EVENTS)
        simulated = simulate(RULES[LABELS.index(one["rule"]) + 1], 6, lists, 10)
        assert [step["simulated"] for step in one["steps"]] == [
            simulated.medians(number) for number in range(4)
        ]
        begun_s = [step["begun_s"] for step in one["steps"]]
        # A wait of 0.025 s, and as much again as a change may take.
        assert all(b - a >= 0.125 for a, b in pairwise(begun_s))
        assert begun_s[0] >= 0.06
        assert one["requests"]["ok"] > 0


@pytest.mark.slow
def test_each_rule_is_beside_what_is_simulated(changed):
    _, session = changed
    beside = {
        "fullest server": ["simulated"],
        "emptiest server": ["simulated"],
        "clients moved": ["simulated", "least possible"],
        "until done": ["wait + 2 s"],
    }
    assert [(row.case, row.unit, row.peer) for row in session.rows] == [
        (f"{label}: {what}", unit, peer)
        for label in LABELS
        for what, unit in FIGURES
        for peer in beside.get(what, [None])
    ]
    assert {row.peer_values for row in session.rows if row.peer == "wait + 2 s"} == {(0.125,)}
    assert {len(row.values) for row in session.rows} == {2}


def test_a_node_is_killed_once_all_clients_are_there(monkeypatch):
    """The first of a mesh; what counts is what the others' clients do, and how long its own
    take."""
    monkeypatch.setattr(one_node, "SERVERS", (3, 3))
    killed, done, words = [], [], []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))

    async def clients(load, there):
        place = len(done)
        done.append(load)
        for there_by_now in (1, 2):
            seen = {"s1": there_by_now, "s2": 3, "s3": 1}
            there.send({"clients": seen, "lost": 0, "unconnected": 0})
        await until(lambda: len(killed) > place)
        for lost, unconnected in ((1, 0), (2, 1), (2, 0)):
            await turn(0.005)
            words.append(there.poll())
            there.send({"clients": {}, "lost": lost, "unconnected": unconnected})
        await asyncio.to_thread(there.recv)
        told = {"elsewhere_ms": {"p50": 5.0, "p99": 40.0 + place}, "lost": 3, "moved": 4}
        there.send({"timeline": [], **told})

    here, session = played(
        one_node.STAGES, {crowd._work: clients}, case="killed node", seed=3, runs=2
    )
    names = ["s1", "s2", "s3"]
    assert [bed.told["seed"] for bed in here.beds] == [3, 4]
    for bed, load in zip(here.beds, done, strict=True):
        assert [(c.id, c.servers) for c in bed.wanted.clusters] == [(name, 1) for name in names]
        assert [link.between for link in bed.wanted.links] == list(combinations(names, 2))
        assert (load.nodes, load.clients) == (tuple(bed.urls.values()), 6)
        assert (load.rule, load.rate_per_s) == (EVEN.rule, 0.0)
    assert [load.seed for load in done] == [3, 4]
    assert killed == [(os.getpid(), signal.SIGKILL)] * 2
    assert here.jobs[CROWD] == [None, None]
    assert words == [False] * 6, "not before all that were there are elsewhere"
    assert {row.peer for row in session.rows} == {"wanted, at most"}
    assert [(row.case, row.unit, row.values, row.peer_values) for row in session.rows] == [
        (one_node.ELSEWHERE, "ms", (40.0, 41.0), (1000.0,)),
        (one_node.OTHERS, "in all", (5.0, 5.0), (0.0,)),
    ]
    assert session.notes == ["killed node: one of 3, with 6 clients in all"]
    assert here.said == [f"{one_node.ELSEWHERE}: run {number} of 2" for number in (1, 2)]


def test_in_full_two_signs_of_life_come_to_each_idle_client():
    full_s, _ = one_node.IDLE_S
    assert full_s == 2 * SIGN_OF_LIFE_S


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
    for load, bed, at_s in zip(loads, here.beds, here.started_s, strict=True):
        assert load.nodes == tuple(bed.urls.values())
        assert at_s >= bed.ready_s + 0.05, "as long without clients as with them"
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
    # All that a process has and has used since its start would be more.
    grown_mb, more_percent = (row.values for row in session.rows)
    assert all(abs(value) < 50.0 for value in grown_mb)
    assert all(abs(value) < 400.0 for value in more_percent)
    assert session.notes == ["idle clients: 6 at one node, for 0.05 s"]
    assert here.said == [f"{one_node.MEMORY}: run {number} of 2" for number in (1, 2)]


def test_idle_clients_count_from_when_all_of_them_are_there():
    """And are looked at all the time, so that they can tell."""
    seen = []

    async def clients(_, there):
        for count in (1, 5):
            there.send({"clients": {"a": count}})
            await turn(0.03)
        began_s, looks = time.monotonic(), 0
        while not there.poll():
            there.send({"clients": {"a": 6}})
            looks += 1
            await turn(0.01)
        seen.append((looks, time.monotonic() - began_s))
        there.send({"timeline": []})

    played(one_node.STAGES, {crowd._work: clients}, case="idle clients")
    ((looks, took_s),) = seen
    assert looks >= 2
    assert took_s >= 0.05
