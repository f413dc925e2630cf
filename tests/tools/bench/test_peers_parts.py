"""What stands beside a federation in `spillover bench peers`, in one loop: servers whose times are
exact, ways that take as long as links, and what HAProxy is told."""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import asynccontextmanager
from random import Random

import pytest

from spillover.live.engine.alarms import finest_alarm
from spillover.live.engine.timers import Timers
from spillover.live.http.client import HttpClient
from spillover.live.overflow.emulated_link import EmulatedLink
from spillover.live.process.listening import bind_socket
from spillover.model.ids import ClusterId
from spillover.model.schedule import Arrival
from spillover.model.topology import Cluster, Link, Topology
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.nodes import DEADLINE_MS
from spillover.tools.bench.peers import emulated_servers, measuring, relays, sites, workloads
from spillover.tools.bench.peers.outcome import Done, values_of
from spillover.tools.bench.peers.sides import Federation, Played, ThresholdSites, simulate
from spillover.tools.bench.session import Session
from support.children import doing
from support.scripted_server import answer, scripted

A, B = ClusterId("a"), ClusterId("b")
TOPOLOGY = Topology(
    name="two",
    clusters=(
        Cluster(id=A, servers=2, service_ms=30.0, delivery_ms=6.0),
        Cluster(id=B, servers=1, service_ms=30.0),
    ),
    links=(Link(between=(A, B), delay_ms=40.0),),
)
LATE_MS = 5_000.0
"""What a busy machine may add."""


def limited(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 20.0))


@asynccontextmanager
async def process(work, *told):
    """One of the processes, whose work is in this loop: what it tells first."""
    async with doing(work, *told) as child:
        yield await child.receive(5.0)


def served(*asked):
    """(total of what it told, all that it told) of requests to the first server of a cluster, one
    after the other: which, home, when it came, and its payload. That is said by when the last one
    came, and when its service ended."""

    async def main():
        found = []
        async with process(emulated_servers._serve, TOPOLOGY) as ports:
            assert [len(own) for own in ports] == [2, 1]
            clients = [HttpClient(f"http://127.0.0.1:{own[0]}") for own in ports]
            came_s = end_s = 0.0
            for which, home, when, payload in asked:
                came_s = when(came_s, end_s)
                headers = [
                    (b"x-home", home.encode()),
                    (b"x-came-us", b"%d" % round(came_s * 1e6)),
                ]
                body = json.dumps({"payload": payload}).encode()
                said = await clients[which].request(
                    "POST", "/requests", headers=headers, body=body, timeout_s=10.0
                )
                assert said.status == 200
                told = json.loads(said.body)
                total_ms = told["timing_ms"]["total"]
                end_s = came_s + (total_ms - TOPOLOGY.clusters[which].delivery_ms) / 1e3
                found.append((total_ms, told))
            for client in clients:
                await client.close()
        return found

    return limited(main())


def now(*_):
    return time.time()


def at_the_same_time(came_s, _):
    return came_s


def before_the_end(_, end_s):
    """Nearer than the neighbor is, but only just."""
    return end_s - 0.030


@pytest.mark.parametrize(
    ("which", "home", "payload", "path", "least_ms"),
    [
        (0, "a", {"service_ms": 20}, ["a"], 26.0),
        (0, "a", {}, ["a"], 36.0),
        (0, "b", {"service_ms": 0}, ["b", "a"], 6.0),
        (1, "b", {"service_ms": 20}, ["b"], 20.0),
    ],
)
def test_a_server_answers_as_a_node_does(which, home, payload, path, least_ms):
    """From its client's asking on, until the end of the service and its delivery."""
    ((total_ms, told),) = served((which, home, now, payload))
    assert (told["cluster"], told["path"], told["hops"]) == ("ab"[which], path, len(path) - 1)
    assert least_ms <= total_ms + 0.01
    assert total_ms < least_ms + LATE_MS


def test_services_of_those_who_waited_follow_each_other_exactly():
    """Each begins at the end of the one before: so a chain lasts as long as all of them. Who can
    only have come after that end begins when it is here."""
    long = {"service_ms": 50}
    same = [(0, "a", now, long)]
    same += [(0, home, at_the_same_time, long) for home in "ab"]
    first, second, third = (total_ms for total_ms, _ in served(*same))
    assert second - first == pytest.approx(50.0, abs=0.01)
    assert third - second == pytest.approx(50.0, abs=0.01)
    _, (near, _) = served(same[0], (0, "a", before_the_end, long))
    assert near == pytest.approx(30.0 + 50.0 + 6.0, abs=0.01)
    _, (far, _) = served(same[0], (0, "b", before_the_end, long))
    assert far > 86.02
    _, (later, _) = served(same[0], (0, "a", now, long))
    assert later >= 50.0 + 6.0 - 0.01


def test_one_request_too_many_spoils_the_run():
    """A server takes one at a time, and the next once it has answered."""

    async def main():
        async with process(emulated_servers._serve, TOPOLOGY) as ports:
            client = HttpClient(f"http://127.0.0.1:{ports[1][0]}")
            headers = [(b"x-home", b"b"), (b"x-came-us", b"%d" % (time.time() * 1e6))]
            body = b'{"payload": {"service_ms": 300}}'

            def ask():
                return client.request(
                    "POST", "/requests", headers=headers, body=body, timeout_s=10.0
                )

            both = [answer.status for answer in await asyncio.gather(ask(), ask())]
            after = (await ask()).status
            await client.close()
            return both, after

    both, after = limited(main())
    assert sorted(both) == [200, 500]
    assert after == 200


def test_a_way_takes_as_long_as_a_link_each_way():
    """From the first byte on, and what comes before there is a connection is kept."""

    async def main():
        async with scripted(answer(200, b"far"), answer(200, b"end")) as server:
            port = int(server.url.rpartition(":")[2])
            ways = {(A, B): (port, 0.05), (B, A): (port, 0.0)}
            async with process(relays._relay, ways) as near:
                took_s, said = {}, []
                for way in ways:
                    client = HttpClient(f"http://127.0.0.1:{near[way]}")
                    began_s = time.monotonic()
                    said.append((await client.request("GET", "/", timeout_s=10.0)).body)
                    took_s[way] = time.monotonic() - began_s
                    await client.close()
                return near, took_s, said

    near, took_s, said = limited(main())
    assert len(set(near.values())) == 2
    assert said == [b"far", b"end"]
    assert 0.1 <= took_s[A, B] < 5.0
    assert took_s[B, A] < 5.0


@pytest.mark.parametrize("who", ["near", "far"])
def test_a_connection_that_ends_at_one_end_ends_at_the_other(who):
    """A delay later, after all that was written before."""

    async def main():
        far = asyncio.get_running_loop().create_future()

        async def talk(reader, writer):
            await reader.readexactly(2)
            writer.write(b"last")
            if who == "far":
                writer.close()
            far.set_result((await reader.read(), time.monotonic()))
            writer.close()

        async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with process(relays._relay, {(A, B): (port, 0.03)}) as near:
                reader, writer = await asyncio.open_connection("127.0.0.1", near[A, B])
                writer.write(b"hi")
                said = await reader.readexactly(4)
                began_s = time.monotonic()
                if who == "far":
                    assert await reader.read() == b""
                else:
                    writer.close()
                rest, ended_s = await far
                writer.close()
                return said, rest, ended_s - began_s

    said, rest, took_s = limited(main())
    assert (said, rest) == (b"last", b"")
    assert took_s >= (0.03 if who == "near" else -5.0)


class Written:
    """Stands where an end writes."""

    def __init__(self):
        self.done = []

    def writelines(self, parts):
        self.done += parts

    def write(self, data):
        self.done.append(data)

    def close(self):
        self.done.append("closed")


def test_what_comes_before_there_is_a_connection_is_kept_for_it():
    """In its order, and the end of it, too; nothing is taken after that."""

    async def main():
        link = EmulatedLink(Timers(asyncio.get_running_loop(), finest_alarm), Random(0), 0.0)
        ends = []
        for closes in (False, True):
            end, written = relays._End(link), Written()
            end.other = relays._End(link)
            for data in (b"one", b"two"):
                end.write(data)
            if closes:
                end.close()
                end.write(b"late")
            end.connection_made(written)
            if not closes:
                end.write(b"three")
            ends.append(written.done)
            end.connection_lost(None)
            end.write(b"to nobody")
            assert b"to nobody" not in end._early
        return ends

    assert limited(main()) == [[b"one", b"two", b"three"], [b"one", b"two", "closed"]]


def test_a_way_to_nobody_is_closed():
    async def main():
        with bind_socket("127.0.0.1", 0) as taken:
            port = taken.getsockname()[1]
        async with process(relays._relay, {(A, B): (port, 0.0)}) as near:
            reader, writer = await asyncio.open_connection("127.0.0.1", near[A, B])
            said = await reader.read()
            writer.close()
            return said

    assert limited(main()) == b"", "at once: nobody waits until time is up"


@pytest.mark.parametrize(
    ("place", "name", "sizes", "full_s", "deadline_ms", "together"),
    [
        (1, "jobs", [8] * 4, 120.0, None, True),
        (2, "unlike", [2, 4, 8, 16], 120.0, None, True),
        (3, "overload", [8] * 4, 80.0, 10_000.0, True),
    ],
)
def test_workloads_are_what_they_are_called(place, name, sizes, full_s, deadline_ms, together):
    """In a full run and a quick one; with a deadline nodes know it, too."""
    workload = workloads.WORKLOADS[place]
    assert (workload.name, workload.topology.name) == (name, name)
    clusters = workload.topology.clusters
    assert [cluster.servers for cluster in clusters] == sizes
    assert {(c.service_ms, c.queue_limit) for c in clusters} == {(1000.0, 100_000)}
    assert (workload.deadline_ms, workload.together) == (deadline_ms, together)
    assert workload.topology.default_deadline_ms == (deadline_ms or DEADLINE_MS)
    for plan, lasts_s in ((BenchPlan(), full_s), (BenchPlan(quick=True), 4.0)):
        schedule = workload.schedule(plan, 1)
        assert schedule[0].time_s > 2.0
        assert lasts_s - 2.0 < schedule[-1].time_s <= lasts_s
    load = 1.5 if name == "overload" else 0.9
    done_ms = sum(arrival.service_ms for arrival in workload.schedule(BenchPlan(), 1))
    assert done_ms / 1e3 / (full_s - 2.0) / sum(sizes) == pytest.approx(load, rel=0.1)
    assert (workload.settled_s, workload.figures[0].case) == (
        (20.0, "goodput") if name == "overload" else (0.0, "mean wait")
    )


def test_bursts_are_those_of_the_paper():
    """One side after the other: they need the processors."""
    bursts = workloads.WORKLOADS[0]
    assert (bursts.name, bursts.together, bursts.deadline_ms) == ("bursts", False, None)
    assert bursts.topology.cluster_ids == ("a", "b", "c", "d", "e")
    assert bursts.topology.default_deadline_ms == DEADLINE_MS
    assert 4.0 < bursts.schedule(BenchPlan(quick=True), 1)[-1].time_s <= 5.0
    assert bursts.figures[0].case == "mean"


def test_haproxy_is_told_its_servers_its_neighbors_and_its_threshold():
    """One request at a time at each server; those that have waited too long are given up."""
    with bind_socket("127.0.0.1", 0) as door:
        text = sites.configuration(A, door, 3, 1.0001, [4001, 4002], [5001])
        descriptor = door.fileno()
    lines = [line.strip() for line in text.splitlines()]
    assert f'bind "fd@{descriptor}"' in lines
    assert [line for line in lines if line.startswith("server ")] == [
        "server s0 127.0.0.1:4001 maxconn 1",
        "server s1 127.0.0.1:4002 maxconn 1",
        "server n0 127.0.0.1:5001",
    ]
    own, neighbors = text.index("\nbackend own"), text.index("\nbackend neighbors")
    assert own < text.index("4001") < text.index("4002") < neighbors < text.index("5001")
    assert "acl long queue(own) ge 3" in lines
    assert "acl full be_conn_free(own) le 0" in lines
    assert "use_backend neighbors if !spilled full long" in lines
    assert "timeout queue 1001ms" in lines
    assert re.search(r"timeout client 3600s\n *timeout server 3600s\n", text)
    assert "http-request set-header x-home a unless spilled" in lines
    assert "http-request set-header x-came-us %[date(0,us)] unless spilled" in lines
    assert "http-request set-header x-spilled 1" in lines


def test_what_is_simulated_says_what_became_of_each_request():
    """Its time until the service's end, and how often it was moved; isolated it never is."""
    one = workloads.WORKLOADS[1]
    schedule = [Arrival(2.0 + n * 0.001, A, service_ms=100.0) for n in range(12)]
    fates = simulate(one, "isolated", schedule, 1)
    alone = fates[0]
    assert alone == Done(pytest.approx(100.0, abs=1.0), 0)
    assert [fate.hops for fate in fates] == [0] * 12
    assert fates[8].system_time_ms == pytest.approx(192.0, abs=1.0), "the first of eight is over"
    expired = workloads.WORKLOADS[-1]
    long = [Arrival(2.0, A, service_ms=30_000.0)] * 9
    assert simulate(expired, "isolated", long, 1)[8] is None


def test_sides_are_called_by_their_policy_or_threshold():
    assert Federation("paper").name == "paper"
    assert ThresholdSites(2).name == "HAProxy, queue 2"
    assert measuring.POLICIES == ("adaptive",)
    assert measuring.THRESHOLDS == (0, 1, 2, 4)


def test_sites_are_linked_each_with_each_as_in_the_paper():
    one = workloads.mesh("m", (2, 4, 8), deadline_ms=7.0)
    assert [(c.id, c.servers) for c in one.clusters] == [("a", 2), ("b", 4), ("c", 8)]
    assert {(c.service_ms, c.delivery_ms) for c in one.clusters} == {
        (1000.0, Cluster(id=A, servers=1).delivery_ms)
    }
    assert {link.between for link in one.links} == {("a", "b"), ("a", "c"), ("b", "c")}
    assert {link.delay_ms for link in one.links} == {35.0}
    assert one.default_deadline_ms == 7.0
    assert min(c.queue_limit for c in one.clusters) >= 100_000


def test_what_is_played_is_what_it_is_called():
    """Loads, deadlines, and what counts."""
    bursts, jobs, unlike, overload = workloads.WORKLOADS
    assert [one.name for one in workloads.WORKLOADS] == ["bursts", "jobs", "unlike", "overload"]
    assert [one.together for one in workloads.WORKLOADS] == [False, True, True, True]
    assert [one.deadline_ms for one in workloads.WORKLOADS] == [None, None, None, 10_000.0]
    assert [one.settled_s for one in workloads.WORKLOADS] == [0.0, 0.0, 0.0, 20.0]
    assert bursts.figures == workloads.SYSTEM_TIMES
    assert jobs.figures == unlike.figures == workloads.WAITS
    assert overload.figures == workloads.GOODPUT
    assert [c.servers for c in unlike.topology.clusters] == [2, 4, 8, 16]
    for one in (jobs, overload):
        assert [c.servers for c in one.topology.clusters] == [8] * 4
    assert overload.topology.default_deadline_ms == 10_000.0
    assert len(bursts.topology.clusters) == 5
    assert bursts.topology.default_deadline_ms > 1e7


@pytest.mark.parametrize(("place", "load"), [(1, 0.9), (3, 1.5)])
def test_jobs_come_at_the_load_from_two_seconds_on(place, load):
    """In order of time, and of a mean of a second."""
    one = workloads.WORKLOADS[place]
    schedule = one.schedule(BenchPlan(duration_s=200.0), 1)
    times = [arrival.time_s for arrival in schedule]
    assert times == sorted(times)
    assert 2.0 <= times[0] < 2.5
    assert 199.0 < times[-1] < 200.0
    assert len(times) == pytest.approx(32 * load * 198.0, rel=0.05)
    mean_ms = sum(arrival.service_ms for arrival in schedule) / len(schedule)
    assert mean_ms == pytest.approx(1000.0, rel=0.05)
    assert schedule != one.schedule(BenchPlan(duration_s=200.0), 2)
    full_s = {1: 120.0, 3: 80.0}[place]
    assert full_s - 0.5 < one.schedule(BenchPlan(), 1)[-1].time_s < full_s
    assert 3.0 < one.schedule(BenchPlan(quick=True), 1)[-1].time_s < 4.0


def played(side, schedule, seed, lag_ms=1.0):
    """What this policy makes of a schedule in virtual time, as if it had been live."""
    fates = simulate(workloads.WORKLOADS[2], side, schedule, seed)
    return Played(fates, {"nodes": 0.5}, lag_ms)


@pytest.mark.slow
def test_each_policy_is_beside_the_best_threshold_itself_simulated_and_the_first():
    """Of two thresholds that which waits less; of sides that were late it is told whoever they
    are, and that two seeds are too few."""
    workload, session = workloads.WORKLOADS[2], Session(BenchPlan(runs=2, seed=4), print)
    schedules = [workload.draw(12.0, seed) for seed in (4, 5)]
    seeded = list(zip(schedules, (4, 5), strict=True))
    plays = {
        "paper": [played("paper", *one) for one in seeded],
        "isolated": [played("isolated", *one) for one in seeded],
        "HAProxy, queue 1": [played("isolated", *one, lag_ms=1e3) for one in seeded],
        "HAProxy, queue 4": [played("paper", *one) for one in seeded],
    }
    measuring._tell(session, workload, ("paper", "isolated"), (1, 4), schedules, plays)
    rows = {(row.case, row.peer): row for row in session.rows}
    assert len(rows) == len(session.rows) == 5 * (2 + 3)
    of = {
        policy: [values_of(workload, *one) for one in zip(schedules, fates, strict=True)]
        for policy, runs in plays.items()
        for fates in [[play.fates for play in runs]]
    }
    for figure in workload.figures:
        ours = tuple(run[figure] for run in of["paper"])
        others = tuple(run[figure] for run in of["isolated"])
        for policy, values in (("paper", ours), ("isolated", others)):
            case = f"unlike, {policy}: {figure.case}"
            assert rows[case, "itself, simulated"].values == values
            assert rows[case, "itself, simulated"].peer_values == values
            assert rows[case, "HAProxy, queue 4"].peer_values == ours
        assert rows[f"unlike, isolated: {figure.case}", "paper"].peer_values == ours
        assert (f"unlike, paper: {figure.case}", "paper") not in rows
    means = [sum(run[workload.figures[0]] for run in of[name]) / 2 for name in list(of)[2:]]
    first, *efforts, _, few = session.notes
    assert first == (
        f"unlike: HAProxy's mean wait by threshold, ms: 1: {means[0]:.1f}, 4: {means[1]:.1f}"
    )
    assert [note.partition(": of one core")[0] for note in efforts] == [
        f"unlike, {name}" for name in plays
    ]
    assert [note.endswith("TOO LATE, these figures are not to be used") for note in efforts] == [
        False, False, True, False,
    ]  # fmt: skip
    assert few == "Too few seeds to claim anything: take --runs 6 or more."


def test_who_is_neither_best_nor_late_is_not_told_of():
    workload, session = workloads.WORKLOADS[2], Session(BenchPlan(runs=1, seed=4), print)
    schedule = workload.draw(12.0, 4)
    names = {"paper": "paper", "HAProxy, queue 1": "isolated", "HAProxy, queue 4": "paper"}
    plays = {name: [played(side, schedule, 4)] for name, side in names.items()}
    measuring._tell(session, workload, ("paper",), (1, 4), [schedule], plays)
    told = [note.partition(":")[0] for note in session.notes if "of one core" in note]
    assert told == ["unlike, paper", "unlike, HAProxy, queue 4"]
