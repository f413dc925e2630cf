"""Which runs figures are made of when they are computed as the papers have them."""

from __future__ import annotations

import math
from itertools import product

import pytest

from spillover.sim.theory.queue.chain import solve
from spillover.tools.reproduce import policies, policies_bed, probing, tokens
from spillover.tools.reproduce.figure import Effort
from spillover.tools.reproduce.policies_bed import Cell, arrivals_of, topology_of

DEFAULT, FULL = Effort(full=False), Effort(full=True)
LOADS = {"load 50 %": 50, "load 100 %": 100, "load 150 %": 150, "load 200 %": 200}
HOPS = list(range(1, 11))


# --- queues with probes ---------------------------------------------------------------------------


def usual(system, **changes):
    """Whether it is that of section 4.1.1 but for that."""
    told = {
        "consumers": 100, "consumption_rate": 0.01, "message_time": 1.0, "buffers": 5,
        "max_hops": 3, "producers_per_consumer": None, **changes,
    }  # fmt: skip
    return all(getattr(system, name) == value for name, value in told.items())


def kinds(system):
    return [(kind.count, round(kind.rate, 6), round(kind.access, 6)) for kind in system.kinds]


def test_one_to_ten_probes_at_four_loads():
    systems = probing.by_hops()
    assert list(systems) == list(LOADS)
    for name, consumers in LOADS.items():
        assert list(systems[name]) == HOPS
        for hops, system in systems[name].items():
            assert usual(system, consumers=consumers, max_hops=hops)
            assert kinds(system) == [(100, 0.01, 1.0)]


def test_more_and_more_producers():
    systems = probing.by_producers()
    assert {name: list(along) for name, along in systems.items()} == {
        "h_max 5": [100, 300, 1000], "h_max 10": [100, 300, 1000],
    }  # fmt: skip
    for count, system in systems["h_max 10"].items():
        assert usual(system, consumers=count, max_hops=10)
        assert kinds(system) == [(count, 0.01, 1.0)]


def test_one_to_twenty_buffers():
    systems = probing.by_buffers()
    for name, consumers in LOADS.items():
        assert list(systems[name]) == [1, 2, 3, 4, 5, 6, 8, 10, 15, 20]
        for buffers, system in systems[name].items():
            assert usual(system, consumers=consumers, max_hops=5, buffers=buffers)


def test_steadier_production_takes_50_to_100():
    """75 on average, give or take a third; the load is by what is made then, 4 in 3 a tick."""
    low, high = (probing.UNIFORM_MEAN * (1.0 + sign * probing.UNIFORM_SPREAD) for sign in (-1, 1))
    assert (low, high) == (pytest.approx(50.0), pytest.approx(100.0))
    systems = probing.by_hops_steadier()
    for name, consumers in zip(LOADS, (67, 133, 200, 267), strict=True):
        for hops, system in systems[name].items():
            assert usual(system, consumers=consumers, max_hops=hops)
            assert kinds(system) == [(100, round(1 / 75, 6), 1.0)]


def test_unlike_producers_make_as_much_as_alike_ones():
    """50 twice as fast as 50; 10 nine times as fast as 90. Probed alike, or more and more often the
    fast ones."""
    alike, by_access = probing.unlike_by_hops(), probing.unlike_by_access()
    made = probing.made_by_fast()
    names = list(alike)
    assert names == list(by_access) == list(made) == [
        "67 % of objects from 50 % of producers", "50 % of objects from 10 % of producers",
    ]  # fmt: skip
    assert [round(share, 3) for share in made.values()] == [0.667, 0.5]
    for name, fast, times in zip(names, (50, 10), (2.0, 9.0), strict=True):
        assert list(alike[name]) == HOPS
        assert list(by_access[name]) == [k / 20 for k in range(1, 20)]
        for x, system in [*alike[name].items(), *by_access[name].items()]:
            of = sorted(system.kinds, key=lambda kind: kind.rate)
            assert [kind.count for kind in of] == [100 - fast, fast]
            assert of[1].rate / of[0].rate == pytest.approx(times)
            assert sum(kind.count * kind.rate for kind in of) == pytest.approx(1.0)
            access = fast / 100 if isinstance(x, int) else x
            assert of[1].access == pytest.approx(access)
            assert usual(system, max_hops=x if isinstance(x, int) else 3)


def test_each_consumer_knows_some_of_the_producers():
    systems = probing.by_width()
    assert list(systems) == ["h_max 1", "h_max 3", "h_max 5", "h_max 10"]
    for hops, along in zip((1, 3, 5, 10), systems.values(), strict=True):
        assert list(along) == [1, 2, 3, 4, 5, 6, 8, 11, 15, 20, 50, 100]
        for width, system in along.items():
            assert usual(system, max_hops=hops, producers_per_consumer=width)


@pytest.fixture
def simulated(monkeypatch):
    """[(system, objects, seed, options)] of the simulations that have been run; 50 objects stand
    for 150 000 by default, and 80 for a million."""
    compiled = pytest.importorskip("spillover.sim.queue.compiled")
    simulate, runs = compiled.simulate, []
    assert (probing.OBJECTS, probing.OBJECTS_FULL) == (150_000, 1_000_000)
    monkeypatch.setattr(probing, "OBJECTS", 50)
    monkeypatch.setattr(probing, "OBJECTS_FULL", 80)

    def noted(system, objects, seed, **options):
        runs.append((system, objects, seed, options))
        return simulate(system, objects, seed, **options)

    monkeypatch.setattr(compiled, "simulate", noted)
    return runs


def computed(number, effort, seed):
    figure = probing.FIGURES[number - 2]
    assert figure.name == f"johnson-{number}"
    shares = []
    return figure.compute(effort, seed, shares.append), shares


def points(systems):
    return [system for along in systems.values() for system in along.values()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "systems", "options"),
    [
        (2, probing.by_hops, {}),
        (5, probing.by_buffers, {}),
        (6, probing.by_hops_steadier, {"production_spread": probing.UNIFORM_SPREAD}),
        (7, probing.unlike_by_hops, {}),
        (8, probing.unlike_by_access, {}),
        (9, probing.by_width, {}),
    ],
)
def test_each_point_has_a_seed_of_its_own(number, systems, options, simulated):
    """Its model is that of its system; more effort is more objects."""
    found, shares = computed(number, FULL if number == 5 else DEFAULT, 7)
    objects = 80 if number == 5 else 50
    assert simulated == [
        (system, objects, 7000 + place, options) for place, system in enumerate(points(systems()))
    ]
    assert found["objects"] == objects
    assert shares == [pytest.approx((k + 1) / len(simulated)) for k in range(len(simulated))]
    for name, along in systems().items():
        told = found["curves"][name]
        assert [point["x"] for point in told] == list(along)
        for point, system in zip(told, along.values(), strict=True):
            assert point["model"] == solve(system).as_dict()
            assert (number == 9) is ("printed" in point)
            if number == 9:
                assert point["printed"] == solve(system, independent=True).as_dict()


@pytest.mark.slow
def test_more_producers_have_seeds_and_objects_of_their_own(simulated):
    """20 times as many objects; both halves take half of the time."""
    found, shares = computed(3, DEFAULT, 7)
    first, more = points(probing.by_hops()), points(probing.by_producers())
    assert simulated == [
        *((system, 50, 7000 + place, {}) for place, system in enumerate(first)),
        *((system, 1000, 8000 + place, {}) for place, system in enumerate(more)),
    ]
    assert shares[len(first) - 1] == 0.5
    assert shares[-len(more) :] == [pytest.approx(0.5 + k / 12) for k in range(1, 7)]
    assert (found["objects"], list(found["curves"])) == (50, list(LOADS))
    assert list(found["many_producers"]) == ["h_max 5", "h_max 10"]


@pytest.mark.slow
def test_where_no_objects_are_asked_for_the_model_is_alone(simulated):
    found, shares = computed(4, DEFAULT, 7)
    assert simulated == []
    assert shares[-1] == 1.0
    for name, along in probing.by_hops().items():
        assert found["curves"][name] == [
            {"x": hops, "model": solve(system).as_dict()} for hops, system in along.items()
        ]


# --- policies -------------------------------------------------------------------------------------


def test_the_gap_is_at_load_90():
    assert list(policies.GAP_CELLS) == [
        Cell(shape, 0.9, "exponential", rtt, period)
        for shape, rtt, period in product(("4x8", "8x5"), (0.02, 0.5), (0.05, 0.2, 1.0, 3.0, 10.0))
    ]


def test_the_grid_has_every_kind_of_load():
    """2 shapes, 4 loads, 3 laws, 4 ways, 3 periods."""
    laws, ways = ("constant", "exponential", "hyperexponential"), (0.0, 0.02, 0.5, 2.0)
    assert list(policies.GRID_CELLS) == [
        Cell(*one)
        for one in product(("4x8", "unlike"), (0.5, 0.7, 0.9, 0.98), laws, ways, (0.05, 1.0, 10.0))
    ]


def test_overload_and_hot_neighbors_have_deadlines():
    assert list(policies.OVERLOAD_CELLS) == [
        Cell(shape, load, "exponential", 0.07, 0.05, 10.0)
        for shape, load in product(("4x8", "8x5", "unlike"), (1.5, 3.0))
    ]
    assert list(policies.HOT_CELLS) == [
        Cell("4x8", cold, "exponential", 0.02, 0.05, 60.0, hot=hot)
        for hot, cold in ((2.0, 0.6), (3.0, 0.6), (4.0, 0.3))
    ]
    assert Cell("4x8", 0.9, "constant", 0.0, 1.0).requests == 50_000


@pytest.mark.parametrize(
    ("shape", "servers", "degree"),
    [
        ("4x8", [8] * 4, 3),
        ("8x5", [5] * 8, 4),
        ("unlike", [2, 4, 8, 16], 3),
        ("uneven", [8] * 4, 3),
    ],
)
def test_federations_are_as_their_names_say(shape, servers, degree):
    topology = topology_of(Cell(shape, 0.9, "constant", 0.5, 0.25, 7.0))
    assert [cluster.server_count for cluster in topology.clusters] == servers
    assert {cluster.service_ms for cluster in topology.clusters} == {1000.0}
    assert {cluster.delivery_ms for cluster in topology.clusters} == {0.0}
    assert all(len(topology.neighbors(one)) == degree for one in topology.cluster_ids)
    assert (topology.gossip_period_ms, topology.default_deadline_ms) == (250.0, 7000.0)
    ways = sorted(link.delay_ms for link in topology.links)
    if shape == "uneven":
        assert ways == pytest.approx([25.0, 75.0, 250.0, 250.0, 500.0, 1250.0])
    else:
        assert set(ways) == {250.0}
    assert all(cluster.queue_limit >= 50_000 for cluster in topology.clusters)


def test_a_ring_of_eight_knows_the_next_but_one():
    topology = topology_of(Cell("8x5", 0.9, "constant", 0.5, 0.25))
    assert {one.id for one in topology.neighbors("s1")} == {"s2", "s3", "s7", "s8"}


def t_below(value, freedom, steps=20_000):
    """How likely Student's t is below a value: Simpson's rule from 0 on."""
    density = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(freedom * math.pi)
    width = value / steps
    total = sum(
        (1 if k in {0, steps} else 4 if k % 2 else 2)
        * (1 + (k * width) ** 2 / freedom) ** (-(freedom + 1) / 2)
        for k in range(steps + 1)
    )
    return 0.5 + density * total * width / 3


def test_half_widths_are_of_95_percent():
    for freedom, t in enumerate(policies_bed.T95, start=1):
        assert t_below(t, freedom) == pytest.approx(0.975, abs=2e-5)
    assert policies_bed.half_width([1.0]) == math.inf
    assert policies_bed.half_width([1.0, 3.0]) == pytest.approx(12.706)
    eleven = [float(k) for k in range(11)]
    assert policies_bed.half_width(eleven) == pytest.approx(2.228 * math.sqrt(11.0) / math.sqrt(11))
    twelve = [float(k) for k in range(12)]
    assert policies_bed.half_width(twelve) == pytest.approx(1.96 * math.sqrt(13.0) / math.sqrt(12))
    assert policies_bed.paired([0.0, 0.0], [0.0, 0.0]) == policies_bed.Paired(1.0, 0.0)
    assert policies_bed.paired([1.0, 0.0], [0.0, 0.0]).ratio == math.inf


def test_requests_are_those_of_the_seed_the_number_and_the_federation():
    pytest.importorskip("numba")
    one = arrivals_of(Cell("4x8", 0.5, "constant", 0.0, 1.0, requests=50), 1)
    assert len(one.time_s) == 50
    faster = arrivals_of(Cell("4x8", 1.0, "constant", 2.0, 3.0, requests=50), 1)
    assert (faster.time_s * 2).tolist() == pytest.approx(one.time_s.tolist())
    assert (faster.cluster == one.cluster).all()


# --- tokens ---------------------------------------------------------------------------------------


def test_loads_have_the_critical_ones_among_them():
    assert (tokens.LOADS[0], tokens.LOADS[-1], len(tokens.LOADS)) == (1 / 24, 2.5, 60)
    assert {5 / 6, 1.0, 5 / 3} <= set(tokens.LOADS)
    assert (tokens.MARKS[0], tokens.MARKS[-1], len(tokens.MARKS)) == (0.5, 2.5, 12)
    assert all(load in tokens.LOADS for load in tokens.MARKS)
    assert {4 / 3, 5 / 3, 2.0} <= set(tokens.MARKS)
    assert list(tokens.MARKS) == sorted(set(tokens.MARKS))


@pytest.mark.slow
def test_as_many_jobs_as_the_papers_runs_together(monkeypatch):
    """100 runs of a million jumps; a seed for each mark."""
    pytest.importorskip("numba")
    from spillover.sim import tokens as simulation

    asked = []
    run_tokens = simulation.run_tokens

    def few(pool, jobs, seed, **options):
        asked.append((jobs, seed, options["sizes"]))
        return run_tokens(pool, 2_000, seed, **options)

    monkeypatch.setattr("spillover.sim.tokens.run_tokens", few)
    told = []
    found = tokens.FIGURES[3].compute(FULL, 3, told.append)
    assert {jobs for jobs, _, _ in asked} == {100_000_000}
    assert [seed for _, seed, _ in asked] == list(range(72, 96))
    assert [sizes for _, _, sizes in asked] == ["hyper"] * 12 + ["hyper-by-class"] * 12
    assert (found["jobs"], told[-1]) == (100_000_000, 1.0)
    assert told == sorted(told)
    assert tokens.FIGURES[3].compute(DEFAULT, 3, told.append)["jobs"] == 15_000_000


@pytest.mark.slow
def test_tokens_of_figure_10():
    pytest.importorskip("numpy")
    found = tokens.FIGURES[1].compute(DEFAULT, 3, lambda _: None)
    assert list(found["curves"]) == ["1", "2", "3", "6", "10"]
    assert list(found["at_load_1"]) == ["1", "2", "3", "6", "10", "20", "50", "100", "200"]
    at_1 = found["loads"].index(1.0)
    for number, curve in found["curves"].items():
        assert curve["blocking"][at_1] == pytest.approx(found["at_load_1"][number])
    slow = tokens.FIGURES[0].compute(DEFAULT, 3, lambda _: None)["slow_servers"]
    # A slow server gets a tenth of the jobs and does 1 of 25, with six places: M/M/1/6.
    assert slow == {"critical_load": pytest.approx(0.4), "blocking_there": pytest.approx(1 / 7)}
