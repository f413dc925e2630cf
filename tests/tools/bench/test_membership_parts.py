"""Parts of `spillover bench membership`: who the clients are, how nodes are told to go by another
configuration, and when a change is over."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from spillover.inputs.topology_file import read_topology
from spillover.model.errors import RunError
from spillover.tools.bench.membership import crowd, measuring
from spillover.tools.bench.membership.crowd import CrowdProcess
from spillover.tools.bench.membership.measuring import _Federation, _Watch, load_of
from spillover.tools.bench.membership.rules import EVEN, RULES, Simulated, simulate
from spillover.tools.bench.membership.steps import EVENTS, Look, Run, Step
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.nodes import cluster, topology_of
from spillover.tools.bench.session import Session
from support.benches import do
from support.children import in_this_loop
from support.loop import turn, until
from support.scripted_server import answer, problem, scripted

URLS = {"a": "http://a:1", "b": "http://b:2", "c": "http://c:3"}
QUICK = BenchPlan(quick=True)
NOTHING = Simulated(moved=(), fullest=(), emptiest=())


def limited(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 20.0))


def test_clients_begin_where_the_rule_has_them_and_stay_until_they_are_told():
    load = load_of(EVEN, QUICK, 7, 5, URLS)
    assert load.nodes == tuple(URLS.values())
    assert load.starts == tuple(URLS[name] for name in "abcab")
    assert (load.clients, load.rule, load.virtual_nodes, load.seed) == (5, "stratified", 1, 7)
    assert (load.rate_per_s, load.service_ms) == (20.0, 5.0)
    assert (load.change_wait_s, load.connect_over_s) == (0.5, 1.0)
    assert load.duration_s >= 24 * 3600.0
    full = load_of(RULES[-1], BenchPlan(), 8, 5, URLS)
    assert (full.change_wait_s, full.connect_over_s) == (5.0, 3.0)
    assert (full.rule, full.virtual_nodes) == ("consistent-hash", 20)
    assert full.run_id != load.run_id, "names carry the seed"
    assert load_of(RULES[0], QUICK, 7, 5, URLS).starts == ()


def mesh():
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    return topology_of([cluster(name, servers=1, queue_limit=9) for name in "abc"], pairs)


def gone_by(*answers):
    async def main():
        async with scripted(*answers) as server:
            await _Federation(mesh(), server.url).go_by(["a", "c"])
            await until(lambda: not server._connections, what="the end of the connection")
            return server.seen, server.bodies

    return limited(main())


def test_nodes_go_by_those_of_the_list_and_the_links_between_them():
    """On top of the version that there is."""
    seen, bodies = gone_by(answer(200, {"version": 7}), answer(200, {}))
    assert [line for line, _ in seen] == ["GET /admin/config", "PUT /admin/config"]
    assert seen[1][1]["content-type"] == "application/json"
    asked = json.loads(bodies[1])
    assert asked["if_version"] == 7
    topology = read_topology(asked["topology"], "asked", "asked")
    assert topology.cluster_ids == ("a", "c")
    assert [link.between for link in topology.links] == [("a", "c")]
    with pytest.raises(RunError, match=r"to be taken, got 409: .*another version"):
        gone_by(answer(200, {"version": 7}), problem(409, "conflict", "another version"))
    with pytest.raises(RunError, match="to be taken, got 500: \N{REPLACEMENT CHARACTER}!"):
        gone_by(answer(200, {"version": 7}), answer(500, b"\xff!"))


def look(clients, moved=0, unconnected=0, put_off=0):
    return {"clients": clients, "moved": moved, "unconnected": unconnected, "put_off": put_off}


def watched(looks, within_s=10.0, quiet_s=0.05):
    """A watch of a crowd that says this, until nobody moves any more."""

    async def tell(connection):
        for one in looks:
            connection.send(one)
            await turn(0.03)
        await asyncio.Event().wait()

    async def main():
        run = Run(EVEN, 1, NOTHING)
        crowd = CrowdProcess(load_of(EVEN, QUICK, 1, 3, URLS))
        async with in_this_loop(crowd, tell) as crowd:
            watch = _Watch(crowd, run)
            in_time = await watch.until(["a", "b"], lambda: watch.is_quiet, within_s)
            return watch, run, in_time

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "QUIET_S", quiet_s)
        patch.setattr("support.children.ENDS_S", 0.01)
        return limited(main())


def test_a_change_is_over_when_nobody_has_moved_for_a_while():
    """Neither from one to another nor away and back; all looks are kept."""
    moves = [look({"a": 3}), look({"a": 2, "b": 1}), look({"a": 2, "b": 1}, moved=2)]
    rests = [look({"a": 2, "b": 1}, moved=2, put_off=n) for n in range(4)]
    began_s = time.monotonic()
    watch, run, in_time = watched([*moves, *rests])
    assert in_time
    assert time.monotonic() - began_s >= 0.05
    assert len(run.over_time) >= 4
    assert [seen[1:] for seen in run.over_time[:3]] == [(0, 1.5, 3), (1, 1.5, 2), (1, 1.5, 2)]
    times = [seen[0] for seen in run.over_time]
    assert times == sorted(times)
    assert watch.moved_s == times[2]
    assert watch.last.at_s == times[-1]
    assert watch.now_s - watch.moved_s >= 0.05
    assert (watch.last.clients, watch.last.moved) == ({"a": 2, "b": 1}, 2)


def test_a_change_that_does_not_end_is_given_up():
    looks = [look({"a": 3}, moved=n) for n in range(12)]
    _, run, in_time = watched(looks, within_s=0.1, quiet_s=5.0)
    assert not in_time
    assert len(run.over_time) >= 1


def changed(moves, there=3):
    """A run of three clients, of whom so many are there. After the first change they move that
    often, one move after the other."""
    lists = [["a", "b"], ["a"], ["a", "b", "c"], ["b", "c"], ["a", "c"]]
    said, seen, run = [], [], Run(EVEN, 1, NOTHING)

    async def clients(_, connection):
        moved = 0
        ending = asyncio.create_task(asyncio.to_thread(connection.recv))
        while not ending.done():
            changes = sum(line.startswith("PUT") for line, _ in seen[0])
            moved = min(moved + 1, moves if changes else 0)
            connection.send(look({"a": there - 1, "b": 1}, moved=moved))
            await turn(0.02)
        connection.send({"timeline": [], "requests": {"ok": moved}})

    async def work(_):
        async with scripted(answer(200, {"version": 1})) as server:
            seen.append(server.seen)
            load = replace(load_of(EVEN, QUICK, 1, 3, URLS), change_wait_s=0.0)
            federation = _Federation(mesh(), server.url)
            await measuring._one_run(Session(QUICK, said.append), federation, run, load, lists)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "QUIET_S", 0.08)
        patch.setattr(measuring, "DONE_AFTER_S", 0.25)
        patch.setattr(measuring, "CONNECTED_WITHIN_S", 0.3)
        do(work, {crowd._work: clients})
    return run, said, [tuple(servers) for servers in lists[1:]]


def test_a_step_has_all_moves_of_its_change():
    """It ends when those are over, or after the time that they may take."""
    run, said, lists = changed(25)
    assert [step.servers for step in run.steps] == lists
    assert [step.moved for step in run.steps] == [25, 0, 0, 0]
    first, *others = run.steps
    assert first.begun_s >= 0.08, "they have to be quiet before, too"
    assert 0.45 <= first.done_s < first.after.at_s - first.begun_s
    assert [step.done_s for step in others] == [0.0] * 3
    assert all(b.begun_s - a.begun_s >= 0.25 for a, b in pairwise(run.steps))
    assert run.requests == {"ok": 25}
    assert said == [f"{EVEN.label}: {what}" for what in ("3 clients connect", *EVENTS)]


def test_nothing_is_changed_before_all_clients_are_there():
    with pytest.raises(RunError, match="2 of 3 clients were connected in time"):
        changed(1, there=2)


def test_the_crowd_ends_with_its_result_and_not_before():
    """Looks that come meanwhile are none."""
    result = {"timeline": [], "requests": {"ok": 1}}

    async def tell(connection):
        connection.send(look({"a": 1}))
        await asyncio.to_thread(connection.recv)
        connection.send(look({"a": 0}))
        connection.send(result)
        connection.send(result)

    async def main():
        crowd = CrowdProcess(load_of(EVEN, QUICK, 1, 3, URLS))
        async with in_this_loop(crowd, tell) as crowd:
            first = await crowd.look()
            ended = await crowd.finish()
            with pytest.raises(RunError, match="the clients ended before they were to"):
                await crowd.look()
            return first, ended

    assert limited(main()) == (look({"a": 1}), result)


def test_a_look_is_another_one_if_somebody_moved():
    one = Look.of(look({"a": 1}, 2, 3, 4), 5.0)
    assert one == Look(5.0, {"a": 1}, 3, 2, 4)
    assert one.is_as(Look(9.0, {"a": 1}, 0, 2, 0))
    assert not one.is_as(Look(5.0, {"a": 1}, 3, 1, 4))
    assert not one.is_as(Look(5.0, {"b": 1}, 3, 2, 4))


def test_a_run_is_what_its_steps_come_to():
    """The worst of the states, and all that moved; what is told of a step is its own."""
    first = Look(0.0, {"a": 30, "b": 30}, 0, 5, 1)
    second = Look(5.0, {"a": 24, "b": 16, "c": 20}, 0, 30, 3)
    third = Look(9.0, {"a": 33, "c": 27}, 0, 49, 7)
    steps = [
        Step(("a", "b", "c"), first, second, 1.0, 4.0),
        Step(("a", "c"), second, third, 6.0, 3.0),
    ]
    simulated = Simulated(
        moved=((1.0, 9.0, 3.0), (4.0,)), fullest=((1.0,), (1.5,)), emptiest=((0.9,), (0.8,))
    )
    requests = {"ok": 8, "failed": 2, "unknown": 1}
    run = Run(EVEN, 3, simulated, [(1.23456, 1, 2.0, 3)], steps, requests)
    assert (run.max_over_mean, run.min_over_mean) == (1.2, 0.8)
    assert (run.moved, run.moved_min, run.put_off) == (44, 36, 6)
    assert (run.done_s, run.failed) == (4.0, 3)
    with pytest.raises(ValueError, match="zip"):
        run.as_dict()  # of four steps
    run.steps *= 2
    run.simulated = Simulated(*([*one, *one] for one in (simulated.moved, *both(simulated))))
    told = run.as_dict()
    assert told["over_time"] == [[1.235, 1, 2.0, 3]]
    assert (told["rule"], told["seed"], told["requests"]) == (EVEN.label, 3, requests)
    assert told["steps"][0] == {
        "event": "one removed",
        "servers": ["a", "b", "c"],
        "clients": {"a": 24, "b": 16, "c": 20},
        "begun_s": 1.0,
        "moved": 25,
        "moved_min": 20,
        "max_over_mean": 1.2,
        "min_over_mean": 0.8,
        "put_off": 2,
        "done_s": 4.0,
        "simulated": {"moved": 3.0, "max_over_mean": 1.0, "min_over_mean": 0.9},
    }


def both(simulated):
    return simulated.fullest, simulated.emptiest


def test_machines_in_virtual_time_do_what_the_rule_says():
    """From an even start to one server fewer and back: by step and run, seed after seed."""
    lists = [["a", "b", "c"], ["a", "b"], ["a", "b", "c"]]
    simulated = simulate(EVEN, 30, lists, 3)
    assert len(simulated.moved) == len(simulated.fullest) == len(simulated.emptiest) == 2
    assert {len(runs) for runs in (*simulated.moved, *simulated.fullest)} == {3}
    for moved in simulated.moved:
        assert all(9.0 <= one <= 12.0 for one in moved)
    for fullest, emptiest in zip(simulated.fullest, simulated.emptiest, strict=True):
        assert all(1.0 <= one <= 1.2 for one in fullest)
        assert all(0.8 <= one <= 1.0 for one in emptiest)
    circle = RULES[-1]
    assert simulate(circle, 30, lists, 1) == simulate(circle, 30, lists, 1)
    assert simulate(EVEN, 30, lists, 1).moved[0] == simulated.moved[0][:1]
