"""The rule of Lai & Polak as it is written in the models that stand beside our engines, one
decision at a time."""

from __future__ import annotations

import importlib.util
from random import Random
from types import SimpleNamespace

import pytest

from spillover.model.ids import ClusterId
from spillover.model.schedule import Arrival
from spillover.model.topology import Cluster, Link, Topology

IDS = [ClusterId(name) for name in "abc"]


def chain(servers=2):
    """Of three, the middle one with both as neighbors."""
    clusters = [Cluster(id=name, servers=servers, service_ms=40.0, delivery_ms=6.0) for name in IDS]
    pairs = [(IDS[0], IDS[1]), (IDS[1], IDS[2])]
    links = tuple(Link(between=pair, delay_ms=35.0) for pair in pairs)
    return Topology(name="chain", clusters=tuple(clusters), links=links)


class Drawn:
    """Chance that was settled beforehand: numbers, and the last of what is to be chosen from."""

    def __init__(self, *numbers):
        self.numbers = list(numbers)
        self.chosen = []

    def random(self):
        return self.numbers.pop(0)

    def choices(self, among, weights=None):
        self.chosen.append((list(among), weights))
        return [among[-1]]

    def choice(self, among):
        return self.choices(among)[0]


ARRIVALS = [Arrival(0.25 * n, IDS[n % 2]) for n in range(8)]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["simpy", "ciw"])
def test_what_is_alone_takes_a_service_and_a_delivery(require, model):
    """All of them count, from when they come; at a server each the next one waits for the last."""
    require(importlib.util.find_spec(model), f"{model}, from the extra `bench`")
    run = run_of(model)
    assert run(chain(), ARRIVALS, 1) == pytest.approx([0.046] * 8)
    assert run(chain(), [], 1) == []
    # With one server, kept there by a neighbor that nobody has heard of yet.
    at_once = [Arrival(0.0, IDS[0]), Arrival(0.01, IDS[0]), Arrival(0.06, IDS[0])]
    alone = chain(servers=1)
    assert run(alone, at_once, 1) == pytest.approx([0.046, 0.076, 0.066])


def run_of(model):
    if model == "simpy":
        from spillover.tools.bench.sim.simpy_model import run_simpy as run
    else:
        from spillover.tools.bench.sim.ciw_model import run_ciw as run
    return run


@pytest.fixture
def sites(require):
    """Of SimPy: the middle one of the chain and its neighbors, of which it has heard."""
    require(importlib.util.find_spec("simpy"), "simpy, from the extra `bench`")
    import simpy

    from spillover.tools.bench.sim.simpy_model import Site

    env, rng = simpy.Environment(), Drawn()
    left, middle, right = (Site(env, cluster, rng) for cluster in chain().clusters)
    middle.links = [(left, 0.035), (right, 0.035)]
    middle.heard = {left: (0.5, 0.75), right: (0.25, 0.375)}
    return env, rng, left, middle, right


def occupied(site, waiting):
    """Both servers, and so many that wait."""
    for _ in range(2 + waiting):
        site.servers.request()


def test_a_site_accepts_the_less_the_more_wait(sites):
    *_, middle, _ = sites
    assert middle.accept == 1.0
    occupied(middle, 2)
    assert middle.accept == 0.5


def test_a_site_hands_on_to_whom_would_rather_have_it(sites):
    """By the weight 1 - (1 - R) / (1 - P) of each, none below 0; with P it stays."""
    _, rng, left, middle, right = sites
    occupied(middle, 2)
    rng.numbers = [0.49]
    assert middle.choose({middle}) is None
    rng.numbers = [0.5]
    assert middle.choose({middle}) == (right, 0.035)
    assert rng.chosen == [([(left, 0.035), (right, 0.035)], [0.5, 0.0])]


@pytest.mark.parametrize(
    ("visited", "unheard", "among"),
    [(["left"], [], ["right"]), (["left", "right"], [], None), ([], ["right"], ["left"])],
)
def test_a_site_hands_on_to_nobody_twice_nor_to_a_stranger(sites, visited, unheard, among):
    _, rng, left, middle, right = sites
    by_name = {"left": left, "right": right}
    occupied(middle, 2)
    for name in unheard:
        del middle.heard[by_name[name]]
    rng.numbers = [0.9]
    way = middle.choose({middle, *(by_name[name] for name in visited)})
    if among is None:
        assert (way, rng.chosen) == (None, [])
    else:
        assert [one for one, _ in rng.chosen[0][0]] == [by_name[name] for name in among]


def test_where_no_neighbor_is_better_off_chance_decides(sites):
    _, rng, left, middle, right = sites
    occupied(middle, 2)
    middle.heard = dict.fromkeys((left, right), (0.1, 0.2))
    rng.numbers = [0.9]
    assert middle.choose({middle}) == (right, 0.035)
    assert rng.chosen == [([(left, 0.035), (right, 0.035)], None)]


def test_reports_come_a_delay_later_each_period(sites):
    """P, and R = 1 - (1 - P) times what the neighbors would not take; the first one by chance."""
    env, rng, left, middle, right = sites
    occupied(middle, 2)
    rng.numbers = [0.5]
    env.process(middle.gossip(0.2))
    env.run(until=0.134)
    assert left.heard == {}
    env.run(until=0.136)
    # 1 - 0.5 * 0.5 * 0.75
    assert left.heard[middle] == right.heard[middle] == (0.5, 0.8125)
    middle.heard.clear()
    env.run(until=0.334)
    assert left.heard[middle] == (0.5, 0.8125)
    env.run(until=0.336)
    assert left.heard[middle] == (0.5, 0.5)


def test_a_network_gets_each_request_when_it_comes(require):
    """At the door of its cluster."""
    require(importlib.util.find_spec("ciw"), "ciw, from the extra `bench`")
    import ciw

    from spillover.tools.bench.sim import ciw_model

    table = ciw_model.Table(chain(), Random(1))
    came = [Arrival(0.25 * n + 0.1, IDS[n % 2]) for n in range(6)]
    simulation = ciw.Simulation(ciw_model._network(chain(), came, table))
    simulation.table = table
    simulation.simulate_until_max_time(5.0)
    records = [one for one in simulation.get_all_records() if one.node in table.doors]
    seen = sorted((round(one.arrival_date, 9), table.doors.index(one.node)) for one in records)
    assert seen == [(round(one.time_s, 9), IDS.index(one.cluster)) for one in came]
    # Reports, each period from some instant of the first one on.
    reports = sorted(
        one.arrival_date for one in simulation.get_all_records() if one.node == table.reports[0]
    )
    period_s = chain().gossip_period_ms / 1e3
    assert 0.0 <= reports[0] <= period_s
    assert len(reports) == pytest.approx(5.0 / period_s, abs=2)


@pytest.fixture
def network(require):
    """Of Ciw: the same, as far as a decision looks at it; how many are at each queue is in
    `at`."""
    require(importlib.util.find_spec("ciw"), "ciw, from the extra `bench`")
    from spillover.tools.bench.sim import ciw_model

    table = ciw_model.Table(chain(), Drawn())
    table.heard[1] = {0: (0.5, 0.75), 2: (0.25, 0.375)}
    nodes = [SimpleNamespace(number=n, number_of_individuals=0) for n in range(1 + 3 * 3 + 4 + 1)]
    door = ciw_model.Door(1)
    door.simulation = SimpleNamespace(nodes=nodes, table=table)
    return ciw_model, door, table, nodes


def test_a_network_has_a_place_for_each_door_queue_report_and_end_of_a_link(network):
    _, _, table, _ = network
    assert (table.doors, table.queues, table.reports) == ([1, 2, 3], [4, 5, 6], [7, 8, 9])
    assert table.roads == [{1: 10}, {2: 11, 0: 12}, {1: 13}]
    assert table.servers == [2, 2, 2]


def test_a_door_decides_as_a_site_does(network):
    _, door, table, nodes = network
    queue = nodes[5]
    queue.number_of_individuals = 1
    assert door.next_node(SimpleNamespace()) is queue, "a server is free"
    queue.number_of_individuals = 2
    assert table.waiting(door.simulation, 1) == 0
    table.rng.numbers = [0.99]
    assert door.next_node(SimpleNamespace()) is queue, "nobody waits"
    queue.number_of_individuals = 4
    assert (table.waiting(door.simulation, 1), table.accept(door.simulation, 1)) == (2, 0.5)
    table.rng.numbers = [0.49, 0.5, 0.5, 0.5]
    assert door.next_node(SimpleNamespace()) is queue
    request = SimpleNamespace()
    assert door.next_node(request) is nodes[12]
    assert table.rng.chosen == [([2, 0], [0.0, 0.5])]
    assert request.visited == {1}
    request.visited.add(0)
    assert door.next_node(request) is nodes[11]
    assert table.rng.chosen[1] == ([2], None)
    request.visited.add(2)
    assert door.next_node(request) is queue


def test_what_is_reported_is_so_when_it_leaves_and_is_known_where_it_comes(network):
    model, door, table, nodes = network
    nodes[5].number_of_individuals = 4
    report = SimpleNamespace(simulation=door.simulation)
    assert model.ReportWay(1, 0.035).sample(ind=report) == 0.035
    assert report.report == (0.5, 0.8125)
    reported = model.Reported(1)
    reported.simulation = door.simulation
    assert reported.next_node(report) is nodes[-1]
    assert table.heard[0] == table.heard[2] == {1: (0.5, 0.8125)}


def test_gaps_come_in_their_order_and_then_always_the_last(network):
    model, *_ = network
    gaps = model.Gaps([0.1, 0.2], 9.0)
    assert [gaps.sample() for _ in range(4)] == [0.1, 0.2, 9.0, 9.0]
