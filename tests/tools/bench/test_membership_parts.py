"""Parts of `spillover bench membership`: who the clients are, how nodes are told to go by another
configuration, and when a change is over."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from itertools import repeat
from multiprocessing import Pipe
from types import SimpleNamespace

import pytest

from spillover.inputs.topology_file import read_topology
from spillover.model.errors import RunError
from spillover.tools.bench.membership import crowd, measuring, one_node
from spillover.tools.bench.membership.crowd import CrowdProcess
from spillover.tools.bench.membership.measuring import _Federation, _Watch, load_of
from spillover.tools.bench.membership.rules import EVEN, RULES, Simulated, simulate
from spillover.tools.bench.membership.steps import EVENTS, Look, Run, Step
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.nodes import cluster, topology_of
from spillover.tools.bench.session import Session
from support.benches import do
from support.children import in_this_loop
from support.loop import until
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
    assert topology.version == 0, "the node gives it one"
    assert [link.between for link in topology.links] == [("a", "c")]
    with pytest.raises(RunError, match=r"to be taken, got 409: .*another version"):
        gone_by(answer(200, {"version": 7}), problem(409, "conflict", "another version"))
    with pytest.raises(RunError, match="to be taken, got 500: \N{REPLACEMENT CHARACTER}!"):
        gone_by(answer(200, {"version": 7}), answer(500, b"\xff!"))
    with pytest.raises(RunError, match=r"got 500: x{200}$"):  # no more of a whole page
        gone_by(answer(200, {"version": 7}), answer(500, b"x" * 300))


def look(clients, moved=0, unconnected=0, put_off=0):
    return {"clients": clients, "moved": moved, "unconnected": unconnected, "put_off": put_off}


LOOK_S = 0.25
UP_S = 64.0


@pytest.fixture
def clock(monkeypatch):
    """That a watch goes by, in s: of a machine that is up. It stands still but for looks, each of
    which takes as long."""
    now = SimpleNamespace(s=UP_S)
    monkeypatch.setattr(measuring, "time", SimpleNamespace(monotonic=lambda: now.s))
    return now


async def tell(connection, heard_by, clock, looks):
    """Looks, each once the one before has been seen and acted on, until there is a word."""
    looks = iter(looks)
    while not connection.poll() and (one := next(looks, None)):
        clock.s += LOOK_S
        connection.send(one)
        await until(lambda: not heard_by.poll(), every_s=0)


def watched(clock, looks, is_over=lambda watch: watch.is_quiet, within_s=60.0):
    """A watch of a crowd that says this, until it is over: by itself, when nobody moves any
    more."""

    async def main():
        run = Run(EVEN, 1, NOTHING)
        crowd = CrowdProcess(load_of(EVEN, QUICK, 1, 3, URLS))

        async def work(connection):
            await tell(connection, crowd.connection, clock, looks)

        async with in_this_loop(crowd, work) as crowd:
            watch = _Watch(crowd, run)
            assert watch.last == Look(0.0, {}, 0, 0, 0), "nobody has been seen yet"
            in_time = await watch.until(["a", "b"], lambda: is_over(watch), within_s)
            return watch, run, in_time

    return limited(main())


def test_a_change_is_over_when_nobody_has_moved_for_a_while(clock):
    """For a second, neither from one to another nor away and back; all looks are kept."""
    moves = [look({"a": 3}), look({"a": 2, "b": 1}), look({"a": 2, "b": 1}, moved=2)]
    rests = [look({"a": 2, "b": 1}, moved=2, put_off=n) for n in range(9)]
    watch, run, in_time = watched(clock, [*moves, *rests])
    assert in_time is True
    assert [seen[0] for seen in run.over_time] == [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75]
    counts = [(0, 1.5, 3), (1, 1.5, 2), (1, 1.5, 2)]
    assert [seen[1:] for seen in run.over_time[:3]] == counts
    assert (watch.moved_s, watch.now_s) == (0.75, 1.75)
    assert watch.last == Look(1.75, {"a": 2, "b": 1}, 0, 2, 3)


def test_who_has_never_moved_is_quiet_after_a_second(clock):
    watch, _, in_time = watched(clock, [look({})] * 9)
    assert (in_time, watch.now_s, watch.moved_s) == (True, 1.0, 0.0)


def test_a_change_that_does_not_end_is_given_up(clock):
    """With the first look after its time."""
    looks = [look({"a": 3}, moved=n) for n in range(12)]
    watch, run, in_time = watched(clock, looks, within_s=1.0)
    assert in_time is False
    assert (watch.now_s, len(run.over_time)) == (1.25, 5)


def changed(clock, moves, there=3):
    """A run of three clients, of whom so many are there. After the first change they move that
    often, one move a look."""
    lists = [["a", "b"], ["a"], ["a", "b", "c"], ["b", "c"], ["a", "c"]]
    said, seen, here, run = [], [], [], Run(EVEN, 1, NOTHING)

    def looks():
        moved = 0
        while True:
            changes = sum(line.startswith("PUT") for line, _ in seen[0])
            moved = min(moved + 1, moves if changes else 0)
            yield look({"a": there - 1, "b": 1}, moved=moved)

    async def clients(_, connection):
        await tell(connection, here[0].children[0].connection, clock, looks())
        connection.recv()
        connection.send({"timeline": [], "requests": {"ok": 7}})

    async def work(told):
        here.append(told)
        async with scripted(answer(200, {"version": 1})) as server:
            seen.append(server.seen)
            load = load_of(EVEN, QUICK, 1, 3, URLS)
            federation = _Federation(mesh(), server.url)
            await measuring._one_run(Session(QUICK, said.append), federation, run, load, lists)

    do(work, {crowd._work: clients})
    return run, said, [tuple(servers) for servers in lists[1:]]


def test_a_step_has_all_moves_of_its_change(clock):
    """It ends when those are over, or after the time that they may take: 0.5 s for clients to wait,
    and 2 s. Before the first, all have to be quiet for a second."""
    run, said, lists = changed(clock, 25)
    assert [step.servers for step in run.steps] == lists
    assert [step.moved for step in run.steps] == [25, 0, 0, 0]
    # Of 26 looks the first comes before the nodes have heard of it, the last has the 25th move.
    assert [step.begun_s for step in run.steps] == [1.25, 8.75, 11.25, 13.75]
    assert [step.after.at_s for step in run.steps] == [8.75, 11.25, 13.75, 16.25]
    assert [step.done_s for step in run.steps] == [6.5, 0.0, 0.0, 0.0]
    assert run.over_time[0] == (0.25, 1, 1.5, 2), "of the servers that there are at first"
    assert run.requests == {"ok": 7}
    assert said == [f"{EVEN.label}: {what}" for what in ("3 clients connect", *EVENTS)]


def test_who_never_stops_moving_is_measured_all_the_same(clock):
    """Each change for 20 s more than it may take, from when the nodes have heard of it."""
    run, _, _ = changed(clock, 10_000)
    assert [step.after.at_s - step.begun_s for step in run.steps] == [23.0] * 4
    assert [step.done_s for step in run.steps] == [23.0] * 4


def test_nothing_is_changed_before_all_clients_are_there(clock):
    """For which they have a minute."""
    with pytest.raises(RunError, match="2 of 3 clients were connected in time"):
        changed(clock, 1, there=2)
    assert clock.s - UP_S == 60.25


def test_clients_leave_at_a_word_and_listen_for_no_other():
    """Else the loop would be told of that one again and again, until they have left."""

    async def main():
        ours, theirs = Pipe()
        with ours, theirs:
            load = replace(load_of(EVEN, QUICK, 1, 1, {"a": "http://127.0.0.1:1"}), rate_per_s=0.0)
            leaving = asyncio.create_task(crowd._have_clients(load, theirs))
            ours.send(None)
            result = await leaving
            return result, asyncio.get_running_loop().remove_reader(theirs.fileno())

    result, listened = limited(main())
    assert (result["unconnected"], listened) == (1, False)


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


def test_each_figure_is_beside_what_is_expected_of_it():
    """Worst states of each simulated run, moves in all, and the time that a change may take: the
    clients' wait of 5 s, and 2 s. What is not asked for is not there."""
    looks = [Look(0.0, {"a": 30, "b": 30}, 0, 5, 1), Look(5.0, {"a": 24, "c": 36}, 0, 40, 3)]
    simulated = Simulated(
        moved=((1.0, 9.0, 3.0), (4.0, 2.0, 5.0)),
        fullest=((1.0, 1.2, 1.1), (1.5, 1.0, 1.3)),
        emptiest=((0.9, 0.8, 0.7), (0.6, 0.85, 0.75)),
    )
    runs = [Run(EVEN, 1, simulated, steps=[Step(("a", "c"), *looks, 1.0, 4.5)])]
    runs.append(replace(runs[0], simulated=NOTHING, steps=runs[0].steps * 2))
    for run in runs:
        run.requests = {"ok": 8, "failed": 2, "unknown": 1}
    label = EVEN.label
    expected = [
        (f"{label}: fullest server", "x mean", (1.2, 1.2), "simulated", (1.5, 1.2, 1.3)),
        (f"{label}: emptiest server", "x mean", (0.8, 0.8), "simulated", (0.6, 0.8, 0.7)),
        (f"{label}: clients moved", "in all", (35.0, 70.0), "simulated", (5.0, 11.0, 8.0)),
        (f"{label}: clients moved", "in all", (35.0, 70.0), "least possible", (30.0, 60.0)),
        (f"{label}: requests failed", "in all", (3.0, 3.0), None, ()),
        (f"{label}: connects put off", "in all", (2.0, 4.0), None, ()),
        (f"{label}: until done", "s", (4.5, 4.5), "wait + 2 s", (7.0,)),
    ]
    for case in ("", "moved"):
        session = Session(BenchPlan(case=case), print)
        measuring._add_rows(session, EVEN, runs)
        told = [(row.case, row.unit, row.values, row.peer, row.peer_values) for row in session.rows]
        assert told == [row for row in expected if case in row[0]]


def test_a_server_without_clients_is_the_emptiest():
    empty = Look(9.0, {"a": 6}, 0, 3, 0)
    assert empty.spread(["a", "b", "c"]) == (9.0, 0, 2.0, 6)
    step = Step(("a", "b"), Look(1.0, {"a": 6}, 0, 0, 0), empty, 2.0, 1.0)
    assert (step.min_over_mean, step.as_dict()["clients"]) == (0.0, {"a": 6, "b": 0})


def test_circles_have_as_many_points_a_server_as_they_are_called_by():
    """Others have none to speak of."""
    circles = {one.label: one.virtual_nodes for one in RULES if one.rule == "consistent-hash"}
    assert circles == {f"consistent hashing, k = {points}": points for points in (1, 5, 20)}


def test_clients_without_a_node_are_not_waited_for_without_end(clock, monkeypatch):
    """Clients that find no node are given up after a minute, with the first look after it."""
    monkeypatch.setattr(one_node, "time", measuring.time)

    async def main():
        crowd = CrowdProcess(load_of(EVEN, QUICK, 1, 3, URLS))
        looks = repeat({"unconnected": 2})

        async def work(connection):
            await tell(connection, crowd.connection, clock, looks)

        async with in_this_loop(crowd, work) as crowd:
            with pytest.raises(RunError, match="2 clients have no session after all that time"):
                await one_node._until(crowd, lambda _: False)
            return clock.s - UP_S

    assert limited(main()) == 60.25
