"""What stages make of what they measured: each figure in its row, beside its own peer and limit.

What is measured is given here; that it is measured is in the tests of each benchmark.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from spillover.model.ids import ClusterId
from spillover.sim.queue import wires as kinds
from spillover.tools.bench.leases import holding
from spillover.tools.bench.membership import measuring as membership
from spillover.tools.bench.membership import one_node
from spillover.tools.bench.membership.rules import RULES, Simulated
from spillover.tools.bench.model import BenchPlan, Figure
from spillover.tools.bench.peers import measuring as peers
from spillover.tools.bench.proxy import streams, turns
from spillover.tools.bench.proxy.readers import Arrived
from spillover.tools.bench.queue import waits
from spillover.tools.bench.queue.estimates import Estimate
from spillover.tools.bench.session import Session
from spillover.tools.bench.sim import scale
from spillover.tools.bench.tokens import sides
from spillover.tools.bench.tokens.workloads import WORKLOADS


def session_of(**fields):
    return Session(BenchPlan(**fields), say=lambda _: None)


def told(session):
    """(case, unit, values, peer, its values) of each row."""
    return [(row.case, row.unit, row.values, row.peer, row.peer_values) for row in session.rows]


def life(number, served_once=7, *, was_even=True):
    """A life whose figures are number, number + 1, and so on."""
    figures = {case: float(number + place) for place, case in enumerate(holding.UNITS)}
    calls = {
        "get": 3.0,
        "evalsha": number / 5,
        "ping": 0.4,
        "set": 2.0,
        "a": 1.0,
        "b": 1.5,
        "c": 0.9,
    }
    return holding.Life(
        figures=figures, was_even=was_even, served_once=served_once, calls_per_s=calls
    )


LIVES = {
    "guarded": [life(100), life(200)],
    "blog": [life(300, 5, was_even=False), life(400, 6, was_even=False)],
    "locks": [life(500), life(600)],
}


def test_what_leases_cost_is_beside_each_other_rule_and_its_limit():
    session = session_of()
    holding._add_rows(session, LIVES)
    expected = []
    for place, (case, unit) in enumerate(holding.UNITS.items()):
        ours = (100.0 + place, 200.0 + place)
        if case in holding.LIMITS:
            expected.append((case, unit, ours, "limit", (holding.LIMITS[case],)))
        blog, locks = ((at + place, at + 100.0 + place) for at in (300.0, 500.0))
        expected.append((case, unit, ours, "blog rule", blog))
        expected.append((case, unit, ours, "redis-py Lock for each partition", locks))
    assert told(session) == expected
    small = session_of(quick=True, case=holding.TRIPS)
    holding._add_rows(small, LIVES)
    assert [(row.case, row.peer) for row in small.rows] == [
        (holding.TRIPS, peer) for peer in holding.PEERS.values()
    ], "limits are those of the large group"


def test_what_leases_cost_is_explained():
    """The six calls that came most in the last run; who was not even in time is told."""
    session = session_of()
    holding._add_notes(session, LIVES, members=50, partitions=1000)
    notes = "\n".join(session.notes)
    assert "50 members, 1000 partitions" in notes
    assert "; 5 processes host the members" in notes
    for rule, count in {"guarded": 40, "blog": 80, "locks": 120}.items():
        calls = f"evalsha {count}/s, get 3/s, set 2/s, b 2/s, a 1/s, c 1/s"
        assert f"{rule}, at rest, as Redis counts (within scripts, too): {calls}" in session.notes
    (late,) = (note for note in session.notes if "not even after" in note)
    assert late.startswith("blog: in 2 of 2 runs not even after 5 s")
    assert "as few as 5 of 1000 partitions" in late
    # Of each partition, once a second: one of each member, and two more.
    assert "calculated, 52 000 round trips/s; what is shown is what they managed" in notes
    assert "a round trip is one read of Redis from a client" in notes


def test_who_is_not_even_has_the_time_that_was_waited_for():
    session = session_of()
    lives = {rule: [life(100, was_even=False), life(200)] for rule in ("guarded", "locks")}
    holding._add_notes(session, lives, members=50, partitions=1000)
    late = [note.partition(", which")[0] for note in session.notes if "not even after" in note]
    assert late == [
        "guarded: in 1 of 2 runs not even after 60 s",
        "locks: in 1 of 2 runs not even after 5 s",
    ]


def run_of(number):
    """What a run of clients came to: number, number + 1, and so on."""
    names = ("max_over_mean", "min_over_mean", "moved", "moved_min", "failed", "put_off", "done_s")
    simulated = Simulated(
        moved=((7.0,), (8.0,)), fullest=((1.5,), (1.7,)), emptiest=((0.5,), (0.3,))
    )
    values = {name: number + place for place, name in enumerate(names)}
    return SimpleNamespace(simulated=simulated, **values)


def test_clients_of_a_federation_that_changes_are_beside_what_is_simulated_and_possible():
    session = session_of()
    membership._add_rows(session, RULES[0], [run_of(10), run_of(20)])
    label = RULES[0].label
    assert told(session) == [
        (f"{label}: fullest server", "x mean", (10.0, 20.0), "simulated", (1.7,)),
        (f"{label}: emptiest server", "x mean", (11.0, 21.0), "simulated", (0.3,)),
        (f"{label}: clients moved", "in all", (12.0, 22.0), "simulated", (15.0,)),
        (f"{label}: clients moved", "in all", (12.0, 22.0), "least possible", (13.0, 23.0)),
        (f"{label}: requests failed", "in all", (14.0, 24.0), None, ()),
        (f"{label}: connects put off", "in all", (15.0, 25.0), None, ()),
        (f"{label}: until done", "s", (16.0, 26.0), "wait + 2 s", (7.0,)),
    ]
    one = session_of(case="connects put off")
    membership._add_rows(one, RULES[0], [run_of(10)])
    assert [row.case for row in one.rows] == [f"{label}: connects put off"]


def test_what_a_crowd_costs_is_beside_what_is_wanted():
    session = session_of(case=one_node.CPU)
    for case in (one_node.MEMORY, one_node.CPU):
        one_node._add(session, case, [3.0, 4.0])
    assert told(session) == [
        (one_node.CPU, one_node.UNITS[one_node.CPU], (3.0, 4.0), "wanted, at most",
         (one_node.WANTED[one_node.CPU],))
    ]  # fmt: skip


def test_ways_to_a_service_are_measured_in_turn_and_put_beside_ours():
    """The order is turned round on every other run; alone, ours has a row without a peer."""
    session, order = session_of(runs=2), []
    ways = [SimpleNamespace(name=name) for name in ("nodes", "nginx", "HAProxy")]

    async def measure(way):
        order.append(way.name)
        return len(order)

    taken = asyncio.run(turns.turns(session, "c", ways, measure))
    assert order == ["nodes", "nginx", "HAProxy", "HAProxy", "nginx", "nodes"]
    assert taken == {"nodes": [1, 6], "nginx": [2, 5], "HAProxy": [3, 4]}
    turns.add_rows(session, "c", "us", taken)
    turns.add_rows(session, "alone", "us", {"nodes": [1.0]})
    assert told(session) == [
        ("c", "us", (1, 6), "nginx", (2, 5)),
        ("c", "us", (1, 6), "HAProxy", (3, 4)),
        ("alone", "us", (1.0,), None, ()),
    ]
    other = session_of(case="another")
    turns.add_rows(other, "c", "us", taken)
    assert not other.rows


def test_runs_beside_peers_are_pairs_of_the_same_requests():
    mean, tail = Figure("mean", "ms"), Figure("p99", "ms")
    workload = SimpleNamespace(name="chord20", figures=(mean, tail))
    session = session_of()
    ours = [{mean: 1.0, tail: 2.0}, {mean: 3.0, tail: 4.0}]
    theirs = {"HAProxy": [{mean: 5.0, tail: 6.0}, {mean: 7.0, tail: 8.0}]}
    peers._add_rows(session, workload, "adaptive", ours, theirs)
    assert told(session) == [
        ("chord20, adaptive: mean", "ms", (1.0, 3.0), "HAProxy", (5.0, 7.0)),
        ("chord20, adaptive: p99", "ms", (2.0, 4.0), "HAProxy", (6.0, 8.0)),
    ]
    assert all(row.paired for row in session.rows)


def test_a_circle_is_as_busy_as_is_said():
    """Of clusters of five servers and 40 ms: 80 % where requests are many, and so near to all of it
    that most are decided about where neighbors are."""
    one = scale.circulant(6, 2)
    assert [len(one.neighbors(ClusterId(f"c{n}"))) for n in range(6)] == [4] * 6
    assert {(c.servers, c.service_ms, c.delivery_ms) for c in one.clusters} == {(5, 40.0, 6.0)}
    assert {link.delay_ms for link in one.links} == {35.0}
    capacity_per_s = 5 / 0.040
    assert scale.RATE_PER_S / capacity_per_s == pytest.approx(0.8)
    assert 0.9 < scale.BUSY_RATE_PER_S / capacity_per_s < 1.0


@pytest.mark.parametrize("ports", [None, range(4001, 4021)])
def test_a_node_has_the_pool_that_is_measured(ports):
    """Its rates, classes, limits and types, whether its servers sleep or listen."""
    workload = WORKLOADS[0]
    pool = workload.pool
    ports = ports and ports[: len(pool.servers)]
    node = sides.cluster(ClusterId("a"), workload, ports)
    assert len({one.rate for one in node.servers}) == 2
    assert [(one.id, one.rate) for one in node.servers] == [(s.id, s.rate) for s in pool.servers]
    listening = [f"http:http://127.0.0.1:{port}/" for port in ports or ()]
    assert [one.handler for one in node.servers] == (listening or [None] * len(pool.servers))
    assert [(one.id, one.servers, one.tokens) for one in node.classes] == [
        (one.id, one.servers, one.tokens) for one in pool.classes
    ]
    assert [(one.id, one.classes) for one in node.types] == [(t.id, t.classes) for t in pool.types]
    assert (node.on_block, node.service_ms) == ("refuse", workload.job_ms)


def test_whether_the_generator_was_in_time_is_told():
    """The shares are those of the median run, the lateness that of the worst."""
    session, workload = (
        session_of(),
        SimpleNamespace(name="mesh", figures=(SimpleNamespace(case="mean", unit="ms"),)),
    )
    shares = (
        {"node": 0.5, "relays": 0.2},
        {"node": 0.9, "relays": 0.1},
        {"node": 0.6, "relays": 0.3},
    )
    runs = [SimpleNamespace(cpu_share=share, lag_ms=3.0 + n) for n, share in enumerate(shares)]
    peers._note_effort(session, workload, "HAProxy", runs)
    late = SimpleNamespace(cpu_share={"node": 1.0}, lag_ms=1_000.0)
    peers._note_effort(session, workload, "nodes", [late])
    peers._note_thresholds(session, workload, {2: 61.25, 8: 70.0})
    late_by = "requests left late by"
    unusable = ": TOO LATE, these figures are not to be used"
    assert session.notes == [
        f"mesh, HAProxy: of one core node 60%, relays 20%; {late_by} 5.0 ms (p99, worst run)",
        f"mesh, nodes: of one core node 100%; {late_by} 1000.0 ms (p99, worst run){unusable}",
        "mesh: HAProxy's mean by threshold, ms: 2: 61.2, 8: 70.0",
    ]


def turn_of(number):
    """A turn of a way: its figures are multiples of the number, each another one."""
    arrived = Arrived(events=100 * number, took_s=2.0, p50_ms=7.0 * number, p99_ms=11.0 * number)
    return streams._Turn([2.0 * number, 3.0 * number], arrived, 5.0 * number, 13.0 * number)


def test_streams_are_what_a_way_adds_to_none_at_all():
    """Of each run that of the direct way is taken off, but for CPU and cancels: it has none."""
    session = session_of()
    ways = {"nodes": (4, 9), streams.DIRECT: (1, 2), "nginx": (3, 5)}
    streams._add(session, "one hop", {name: [turn_of(n) for n in ns] for name, ns in ways.items()})
    expected = {
        f"{streams.FIRST}, one hop, p50": ("ms", (6.0, 14.0), (4.0, 6.0)),
        f"{streams.DELAY}, one hop, p50": ("ms", (21.0, 49.0), (14.0, 21.0)),
        f"{streams.FIRST}, one hop, p99": ("ms", (9.0, 21.0), (6.0, 9.0)),
        f"{streams.DELAY}, one hop, p99": ("ms", (33.0, 77.0), (22.0, 33.0)),
        f"{streams.CPU}, one hop": ("us", (20.0, 45.0), (15.0, 25.0)),
        f"{streams.LEAVES}, one hop, p99": ("ms", (52.0, 117.0), (39.0, 65.0)),
    }
    assert {case: (unit, *both) for case, unit, *both in without_peers(session)} == expected
    assert set(expected) == set(streams._cases("one hop"))


def without_peers(session):
    """The rows, all beside nginx."""
    assert {row.peer for row in session.rows} == {"nginx"}
    return [(case, unit, ours, theirs) for case, unit, ours, _, theirs in told(session)]


def test_many_streams_are_measured_where_nothing_is_forwarded():
    with_many = [set(streams.MANY_CASES) <= set(stage.cases) for stage in streams.STAGES]
    assert with_many == [True, False, False]


def test_many_streams_are_told_as_they_are():
    """Who has no processes takes no CPU."""
    session = session_of()
    ways = {"nodes": 4, streams.DIRECT: 1}
    taken = {name: [(turn_of(n).arrived, 5.0 * n)] for name, n in ways.items()}
    streams._add_many(session, taken)
    arrived, cpu, delay = streams.MANY_CASES
    assert told(session) == [
        (arrived, "per s", (200.0,), streams.DIRECT, (50.0,)),
        (cpu, "us", (20.0,), None, ()),
        (delay, "ms", (44.0,), streams.DIRECT, (11.0,)),
    ]


@pytest.mark.parametrize(("max_hops", "found_ms"), [(3, 0.25 * 0.75 * 70.0), (1, 0.0)])
def test_what_messages_take_beyond_the_model(max_hops, found_ms):
    """Half a probe more than one each, of which a fourth goes to its own sender; and an offer, a
    pointer and a fetch where an object is found elsewhere, which one probe never does."""
    system = SimpleNamespace(producers=4, max_hops=max_hops, message_time=0.002)
    model = SimpleNamespace(probes_mean=1.5, empty_probability=0.25)
    legs = {kinds.PROBE: 0.010, kinds.OFFER: 0.010, kinds.POINTER: 0.020, kinds.FETCH: 0.040}
    sent_on_ms = 0.5 * (0.75 * 10.0 - 2.0)
    beyond_s = waits._beyond_model_s(system, model, legs | {kinds.TAKE: 1.0, kinds.OBJECT: 1.0})
    assert beyond_s * 1e3 == pytest.approx(sent_on_ms + found_ms)


def test_what_is_known_of_messages_widens_the_interval_of_a_wait():
    live, twin = Estimate(0.004, (0.001, -0.001, 0.003)), Estimate(0.005, (0.002, -0.001, 0.001))
    row = waits._beside_twin("c", "ms", 1e3, live, twin, 0.0012)
    beside_ms = live.half_width_beside(twin) * 1e3
    assert (row.values, row.peer_values, row.unit) == ((4.0,), (5.0,), "ms")
    assert row.half_width == pytest.approx((beside_ms**2 + 1.2**2) ** 0.5)
    assert row.peer_half_width == pytest.approx(twin.half_width * 1e3)
