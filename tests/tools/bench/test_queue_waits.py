"""What `spillover bench queue` makes of the closed system: rows beside the same in virtual time and
beside the document's model, of loads and limits that are as they are called."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

import pytest

from spillover.core.queue.settings import ProducerSettings
from spillover.model.errors import RunError
from spillover.sim.queue import wires as kinds
from spillover.sim.queue.replay import Came, Instants
from spillover.sim.theory.queue.chain import solve
from spillover.sim.theory.queue.system import ProbingFigures, ProbingSystem, alike
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.queue import makers, waits
from spillover.tools.bench.queue.closed import ClosedLoad, Seen
from spillover.tools.bench.queue.legs import Legs
from spillover.tools.bench.queue.makers import Makers
from spillover.tools.bench.session import Session
from support.children import in_this_loop
from support.queue_producers import producers

FOUR = {"PRODUCERS": 4, "CONSUMERS": 4}
LEGS = Legs([0.002, 0.004], [0.006, 0.006], [0.008, 0.008], [0.002, 0.006], [0.005, 0.007])
"""A message is 1.5 ms, a probe 2, offer and pointer 2.5 together, a fetch 2.5 ms."""


@pytest.fixture
def few(monkeypatch):
    for name, count in {**FOUR, "WATCHED": 3}.items():
        monkeypatch.setattr(waits, name, count)
    monkeypatch.setattr(waits, "OBJECTS", (1000, 1000))


def load_of(max_hops=2):
    return ClosedLoad(
        consumers=4,
        production_rate=5.0,
        consumption_rate=7.5,
        max_hops=max_hops,
        warm_up_s=2.0,
        measured_s=20.0,
        seed=3,
    )


def drawn(load, seed):
    """What is chance in a run of it."""
    random = Random(seed)

    def instants(rate_per_s):
        times = [0.0]
        while times[-1] < load.ends_s:
            times.append(times[-1] + random.expovariate(rate_per_s))
        return times

    asked_s = [instants(load.consumption_rate) for _ in range(4)]
    ways = [[[random.randrange(4) for _ in range(load.max_hops)] for _ in of] for of in asked_s]
    return Instants([instants(load.production_rate)[1:] for _ in range(4)], asked_s, ways)


def played(case="c", max_hops=2):
    """Two runs whose consumers saw what virtual time says they would."""
    load = load_of(max_hops)
    runs = [Seen(drawn(load, seed)) for seed in (1, 2)]
    one = waits._Played(case, load, runs, LEGS)
    for run, came in zip(runs, one.replayed(), strict=True):
        run.came += came
    return one


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_what_was_seen_is_beside_the_same_instants_other_ones_and_the_model():
    """It is the same system: so it differs from the first by nothing, but for what is not known of
    messages, and from the others by little."""
    one, session = played(), Session(BenchPlan(quick=True), say=print)
    waits._note(one, session)
    rows = {(row.case, row.peer): row for row in session.rows}
    wait, probes = "c: wait for an object", "c: probes of a request"
    for case, unit in ((wait, "ms"), (probes, "each")):
        paired, alone, model = (
            rows[case, peer] for peer in (waits.PAIRED, waits.SIMULATED, waits.MODEL)
        )
        assert {paired.unit, alone.unit, model.unit} == {unit}
        assert paired.value == paired.peer_value == alone.value == model.value
        assert alone.half_width == model.half_width == paired.peer_half_width > 0.0
        assert alone.peer_value == pytest.approx(alone.value, rel=0.25)
        assert 0.0 < alone.peer_half_width < 0.3 * alone.peer_value
        assert model.peer_value == pytest.approx(alone.peer_value, rel=0.25)
        assert model.peer_half_width == 0.0
        assert alone.peer_half_width > 0.001 * alone.peer_value
    without_legs_ms = solve(one.system).wait_mean * 1e3
    assert rows[wait, waits.MODEL].peer_value > without_legs_ms
    counted = [came for run in one.seen for came in run.came if 2.0 <= came.at_s < 22.0]
    mean_ms = sum(came.wait_s for came in counted) / len(counted) * 1e3
    assert rows[wait, waits.PAIRED].value == pytest.approx(mean_ms)
    mean = sum(came.probes for came in counted) / len(counted)
    assert rows[probes, waits.PAIRED].value == pytest.approx(mean)
    unknown_ms = LEGS.half_width_s([came.probes for came in counted]) * 1e3
    assert rows[wait, waits.PAIRED].half_width == pytest.approx(unknown_ms)
    assert rows[probes, waits.PAIRED].half_width == 0.0
    legs_ms = [rows[f"c: {what}", None].value for what in (*waits.LEGS, waits.AT_DOOR)]
    assert legs_ms == pytest.approx([3.0, 2.0, 5.0, 6.0])
    assert {rows[f"c: {what}", None].unit for what in waits.LEGS} == {"ms"}
    (note,) = session.notes
    assert note.startswith(f"c: {len(counted)} objects; live and simulated, ")


@pytest.mark.parametrize(("max_hops", "beyond_ms"), [(1, 0.5), (2, 1.25), (3, 1.25)])
def test_legs_take_more_than_messages_where_others_are_asked(max_hops, beyond_ms):
    """Three of four probes go to others, and each of those in 4 ms, not the 1 ms of a message: so a
    quarter of a probe beyond the first takes 0.5 ms more. One that finds nothing waits there, and
    has its object in 5 ms more if it is elsewhere."""
    system = ProbingSystem(
        kinds=alike(4, 5.0),
        consumers=4,
        consumption_rate=7.5,
        message_time=0.001,
        buffers=2,
        max_hops=max_hops,
    )
    others = ("wait_mean", "producer_utilization", "consumer_utilization", "throughput")
    model = ProbingFigures(probes_mean=1.25, empty_probability=0.2, **dict.fromkeys(others, 0.5))
    legs = {kinds.PROBE: 0.004, kinds.OFFER: 0.001, kinds.POINTER: 0.001, kinds.FETCH: 0.003}
    beyond_s = waits._beyond_model_s(system, model, legs)
    assert beyond_s * 1e3 == pytest.approx(beyond_ms)


def test_of_one_probe_nothing_is_told_by_probes():
    session = Session(BenchPlan(quick=True), say=print)
    one = waits._Played("c", load_of(max_hops=1), [], LEGS)
    assert waits._note_by_probes(one, [], [], session) == ""
    assert session.rows == []


def test_who_was_given_no_object_ends_the_benchmark():
    """Or would be missing from the means: those that waited longest."""
    seen = Seen(Instants([], [], []), statuses=Counter({200: 5, 303: 2}))
    waits.check_statuses("a case", seen)
    seen.statuses[204] += 1
    with pytest.raises(RunError, match=r"^a case: expected objects, got by status .*204: 1"):
        waits.check_statuses("a case", seen)


def test_simulated_producers_are_those_of_the_bed_unless_told_otherwise():
    assert ProducerSettings(id="p1", buffers=1, visibility_s=1.0).probe_expiry_s == waits.EXPIRY_S


def test_a_kind_that_was_seen_thirty_times_is_told_of():
    """By both; of 29 nothing is said."""
    rows = []
    for count in (29, 30):
        came = [Came(2.0 + at / 2, 0.1, 1) for at in range(count)]
        session = Session(BenchPlan(quick=True), say=print)
        one = waits._Played("c", load_of(), [], LEGS)
        waits._note_by_probes(one, [came], [came], session)
        rows.append([row.case for row in session.rows])
    assert rows == [[], ["c: wait for an object, by one probe"]]


def test_what_is_unknown_of_messages_is_that_of_those_that_were_sent_here():
    """Of three probes the last is 8 ms, give or take 1 by two that were seen: 95 of 100 times less
    than 1.96 times that."""
    legs = Legs([0.002, 0.002], [0.006, 0.006], [0.007, 0.009], [0.004, 0.004], [0.005, 0.005])
    ours, twins = ([Came(2.0 + at / 2, 0.1, count) for at in range(40)] for count in (3, 5))
    session = Session(BenchPlan(quick=True), say=print)
    one = waits._Played("c", load_of(max_hops=5), [], legs)
    waits._note_by_probes(one, [ours], [twins], session)
    assert [row.half_width for row in session.rows] == [pytest.approx(1.96)]


@pytest.mark.usefixtures("few")
def test_runs_are_replayed_with_seeds_of_their_own():
    """And only what came once all was warm counts, up to the end."""
    one = played()
    assert [len(run.came) > 100 for run in one.seen] == [True, True]
    again = one.replayed()
    assert again == [run.came for run in one.seen]
    edges = [Came(at_s, 0.1, 1) for at_s in (1.9, 2.0, 21.9, 22.0)]
    assert one.counted(edges) == edges[1:3]


@pytest.mark.parametrize("name", ["load 50 %, one probe", "load 200 %, at most 10 probes"])
def test_cases_are_of_the_load_and_the_limit_that_they_are_called_by(name):
    share, hops = waits.CASES[name]
    told = f"load {share} %, " + ("one probe" if hops == 1 else f"at most {hops} probes")
    assert name == told
    assert len(waits.CASES) == len(waits.LOADS) * len(waits.HOPS)


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_a_case_is_played_at_its_rates_beside_those_who_watch():
    """At producers of which three are for watching alone; each run has a seed of its own."""

    async def main():
        said = []
        session = Session(BenchPlan(quick=True, runs=2, seed=5), said.append)
        async with producers(7, buffers=1) as running:
            urls = {one.id: one.url for one in running}
            async with in_this_loop(Makers(), makers._runs) as making:
                one = await waits._play("load 200 %, at most 3 probes", urls, making, session)
            produced = [each.objects.produced for each in running]
        return one, said, produced

    one, said, produced = asyncio.run(asyncio.wait_for(main(), 60.0))
    assert said == [f"load 200 %, at most 3 probes: run {n} of 2" for n in (1, 2)]
    load = one.load
    assert (load.consumers, load.production_rate, load.consumption_rate) == (4, 5.0, 10.0)
    assert (load.max_hops, load.warm_up_s, load.measured_s, load.seed) == (3, 0.5, 1.5, 5)
    assert len(one.seen) == 2
    first, second = (run.instants.made_s for run in one.seen)
    assert len(first) == len(second) == 4
    assert first != second
    assert min(map(len, (one.legs.at_once_s, one.legs.next_s, one.legs.after_s))) >= 2
    assert min(produced) > 0
    legs = one.legs.means_s()
    assert one.system.message_time == legs[kinds.TAKE] == legs[kinds.OBJECT]
    assert (one.system.producers, one.system.consumers, one.system.max_hops) == (4, 4, 3)
    assert (one.system.buffers, one.system.consumption_rate) == (2, 10.0)
