"""Simulated federations: repeatable, nothing lost, and better together than alone."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from spillover.inputs.topology_file import load_topology
from spillover.model.errors import InputError
from spillover.model.request import Outcome
from spillover.model.schedule import Arrival
from spillover.model.topology import Cluster, Link, Topology
from spillover.sim.engine.world import World, stream
from spillover.sim.overflow.federation import build_federation, request_of
from spillover.sim.overflow.run import check_length, run_overflow
from spillover.sim.overflow.shared import run_shared
from spillover.workloads.generated import bursts, bursts_duration_s
from support.few import all_in_soak


def federation(count=3, *, servers=2, delay_ms=5.0, **options):
    """Clusters a, b, c, ... in a line."""
    ids = "abcdefgh"[:count]
    return Topology(
        name="line",
        clusters=tuple(
            Cluster(id=i, servers=servers, service_ms=40, delivery_ms=6, queue_limit=50)
            for i in ids
        ),
        links=tuple(Link(between=pair, delay_ms=delay_ms) for pair in pairwise(ids)),
        **options,
    )


def overload(cluster_ids, count=600, seed=1, spread_s=4.0):
    """Requests at random instants: three quarters of them at the first cluster."""
    random = stream(seed, "overload")
    times = sorted(random.random() * spread_s for _ in range(count))
    first, *others = cluster_ids
    return [
        Arrival(time_s, first if random.random() < 0.75 or not others else random.choice(others))
        for time_s in times
    ]


@pytest.mark.parametrize(
    ("policy", "deadline_ms"), [("isolated", 60_000), ("paper", 60_000), ("adaptive", 150)]
)
def test_every_request_comes_to_one_outcome(policy, deadline_ms):
    """Done, expired or refused: they add up to what was sent, in the summary and in the ledgers.
    Only deadlines shorter than the queue make anything expire; what cannot leave is refused."""
    topology = federation(policy=policy, default_deadline_ms=deadline_ms)
    schedule = overload(topology.cluster_ids)
    run = run_overflow(topology, schedule, 1)
    told = run.as_dict()
    assert told["requests"] == len(schedule) == run.outcomes.total()
    assert set(run.outcomes) <= {Outcome.DONE, Outcome.EXPIRED, "refused"}
    assert sum(told["hops"].values()) == run.outcomes[Outcome.DONE]
    assert sum(len(times) for times in run.system_time_ms.values()) == run.outcomes[Outcome.DONE]
    undone = run.outcomes[Outcome.EXPIRED] + run.outcomes["refused"]
    assert (undone > 0) == (deadline_ms == 150 or policy == "isolated")
    assert (run.outcomes[Outcome.EXPIRED] > 0) == (deadline_ms == 150 and policy != "isolated")


def test_progress_is_told_each_thousand_requests():
    """Once at each, and not in between."""
    topology = federation()
    told = []
    run_overflow(topology, overload(topology.cluster_ids, 2500, spread_s=40.0), 1, told.append)
    assert told == [1000, 2000]


def test_an_empty_schedule_is_no_trouble():
    """Nothing was measured, and that is what is said."""
    told = run_overflow(federation(), [], 1).as_dict()
    assert (told["requests"], told["forwarded_share"], told["hops"]) == (0, 0.0, {})
    assert told["system_time_ms"]["mean"] is None


def test_an_undisturbed_request_takes_service_and_delivery():
    """40 ms and 6 ms; a request that brings its own service time takes that."""
    topology = federation(1)
    schedule = [Arrival(0.1, "a"), Arrival(1.0, "a", service_ms=12.5)]
    run = run_overflow(topology, schedule, 1)
    assert run.system_time_ms["a"] == pytest.approx([46.0, 18.5])
    burst = run_overflow(topology, overload("a"), 1).as_dict()
    assert burst["system_time_ms"]["min"] == pytest.approx(46.0)


@pytest.mark.parametrize("policy", ["paper", "adaptive"])
def test_system_times_agree_with_the_clock(policy):
    """What is summed up along the path (waits, ways, refusals, service) is the time that passed at
    the home until the answer was there, ways back included, to the nanosecond."""
    topology = federation(4, policy=policy, max_hops=3)
    topology = replace(
        topology, clusters=tuple(replace(c, queue_limit=4) for c in topology.clusters)
    )
    world = World()
    clusters = build_federation(topology, world, 1)
    answers, refusals = [], []

    def submit(number, home):
        sent_s = world.now_s
        request = request_of(number, None, None, "default")
        clusters[home].submit(
            request,
            sent_s + 60.0,
            lambda answer: answers.append((world.now_s - sent_s, answer)),
            refusals.append,
        )

    schedule = overload(topology.cluster_ids)
    for number, arrival in enumerate(schedule):
        world.at(arrival.time_s, submit, number, arrival.cluster)
    world.run(lambda: len(answers) + len(refusals) == len(schedule))
    assert len(refusals) < len(answers)
    for passed_s, answer in answers:
        assert answer.total_s + answer.return_s == pytest.approx(passed_s, abs=1e-9)
        assert len(set(answer.path)) == len(answer.path), "a cluster was visited twice"
        assert len(answer.path) <= 1 + topology.max_hops
    for cluster in clusters.values():
        cluster.machine.check()
        ledger = cluster.machine.ledger
        assert sum(ledger.home[s] + ledger.foreign[s] for s in ("queued", "running")) == 0
        assert not cluster._forwards
        assert not cluster._waiting


# By seed: requests by hops, mean and largest system time in ms, longest queue, reports, events.
GOLDEN = {
    1: ((11941, 1479, 261, 45, 41), 59.89456992823196, 269.2004139999789, 16, 9028, 61978),
    2: ((11607, 1334, 199, 17, 2), 57.744886747623134, 224.52835099999655, 15, 9030, 58629),
    3: ((11900, 1187, 78, 1), 54.74282902962049, 151.00000000000003, 12, 9046, 57340),
    4: ((11645, 1268, 254, 63, 49), 59.67720955380427, 277.7309789999834, 14, 9030, 60098),
    5: ((11885, 1399, 185, 11), 57.41088907759453, 175.41675899998373, 16, 9038, 59640),
}


@cache
def run_bursts(policy, seed, engine=run_overflow):
    """The paper's bursts over its ring of five, played once whoever asks."""
    topology = load_topology("ring5").with_policy(policy)
    schedule = bursts(topology.cluster_ids, duration_s=bursts_duration_s(5), seed=seed)
    return engine(topology, schedule, seed).as_dict()


@pytest.mark.slow
@pytest.mark.parametrize("seed", all_in_soak(GOLDEN, 1))
def test_the_papers_bursts_give_the_figures_that_they_always_gave(seed):
    """Whoever changes the order of events or of random draws changes every published figure, and
    has to do it on purpose."""
    told = run_bursts("paper", seed)
    hops, mean_ms, max_ms, *counts = GOLDEN[seed]
    assert tuple(told["hops"].values()) == hops
    assert [told[name] for name in ("queue_length_max", "reports", "events")] == counts
    assert told["system_time_ms"]["mean"] == pytest.approx(mean_ms, rel=1e-13)
    assert told["system_time_ms"]["max"] == pytest.approx(max_ms, rel=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("seed", all_in_soak([1, 2, 3], 1))
def test_the_papers_bursts_vanish_as_published(seed, fast):
    """Figure 7: networked queues beat isolated ones several times over in the mean."""
    isolated, networked = (
        run_bursts(policy, seed, fast.run_fast)["system_time_ms"]
        for policy in ("isolated", "paper")
    )
    assert isolated["mean"] / networked["mean"] > 2.5
    assert isolated["max"] / networked["max"] > 2.5
    assert isolated["min"] == pytest.approx(46.0)
    assert networked["min"] == pytest.approx(46.0)


@pytest.mark.parametrize("engine", [run_overflow, run_shared])
def test_times_that_count_from_an_epoch_are_refused(engine):
    """A federation would report to itself for years of silence."""
    expected = "schedule: time_s: expected at most 7142857 s with gossip_period_ms 50 and these "
    with pytest.raises(InputError, match=f"{expected}links, got 1700000000 s: times count from"):
        engine(federation(), [Arrival(1.0, "a"), Arrival(1_700_000_000.25, "a")], 1)


def test_the_longest_schedule_hangs_on_the_reports():
    """1e9 of them, with signs of life four times a second where periods are longer."""
    for period_ms, most_s in ((50.0, 1e9 * 0.05 / 7), (1e6, 1e9 * 0.25 / 7)):
        topology = federation(gossip_period_ms=period_ms)
        check_length(topology, 0.999 * most_s)
        for too_long_s in (1.001 * most_s, float("inf")):
            with pytest.raises(InputError, match="schedule: time_s: expected at most"):
                check_length(topology, too_long_s)
