"""One schedule through both engines of the overflow simulation, and federations drawn for that."""

from spillover.model.schedule import Arrival
from spillover.model.topology import Cluster, Link, Topology
from spillover.sim.engine.world import World
from spillover.sim.overflow.federation import build_federation, request_of

OUTCOMES = {0: None, 1: "done", 2: "expired", 3: "refused"}


def each_in_full(topology, schedule, seed):
    """What the full engine makes of each request: outcome, system time, hops; and the clusters."""
    world = World()
    clusters = build_federation(topology, world, seed)
    found = {}

    def submit(number, arrival):
        def answered(answer):
            done = answer.outcome == "done"
            time_ms = answer.total_s * 1e3 if done else None
            found[number] = str(answer.outcome), time_ms, len(answer.path) - 1 if done else None

        def refused(_):
            found[number] = "refused", None, None

        work = None if arrival.service_ms is None else arrival.service_ms / 1e3
        request = request_of(number, None, work, "default")
        deadline_s = world.now_s + topology.default_deadline_ms / 1e3
        clusters[arrival.cluster].submit(request, deadline_s, answered, refused)

    for number, arrival in enumerate(schedule):
        world.at(arrival.time_s, submit, number, arrival)
    world.run(lambda: len(found) == len(schedule))
    return [found[number] for number in range(len(schedule))], list(clusters.values())


def each_in_fast(fast, topology, schedule, seed):
    """The same of the compiled engine, and its run."""
    run = fast.run_fast(topology, schedule, seed)
    found = []
    columns = run.requests.outcome, run.requests.system_time_ms, run.requests.hops
    for code, time_ms, hops in zip(*(column.tolist() for column in columns), strict=True):
        done = code == 1
        found.append((OUTCOMES[code], time_ms if done else None, hops if done else None))
    return found, run


def assert_alike(fast, topology, schedule, seed):
    """Play it in both. Returns what became of each request, and the clusters of the full engine."""
    ours, run = each_in_fast(fast, topology, schedule, seed)
    full, clusters = each_in_full(topology, schedule, seed)
    for number, (one, other) in enumerate(zip(ours, full, strict=True)):
        assert one == other, (number, schedule[number])
    assert run.reports == sum(cluster.reports for cluster in clusters)
    assert run.queue_length_max == max(cluster.queue_length_max for cluster in clusters)
    return ours, clusters


def unlike_federation(random, policy):
    """Clusters and links of every kind, some without links, and bounds that are met."""
    count = random.randint(1, 6)
    ids = "abcdef"[:count]
    pairs = [(x, y) for x in ids for y in ids if x < y and random.random() < 0.6]
    random.shuffle(pairs)
    return Topology(
        name="unlike",
        policy=policy,
        clusters=tuple(
            Cluster(
                id=i,
                servers=random.randint(1, 4),
                service_ms=random.choice((0.0, 10.0, 40.0, 33.3)),
                delivery_ms=random.choice((0.0, 6.0)),
                queue_limit=random.choice((0, 1, 3, 10, 11, 10_000)),
            )
            for i in ids
        ),
        links=tuple(
            Link(between=pair, delay_ms=random.choice((0.0, 1.7, 35.0, 400.0))) for pair in pairs
        ),
        gossip_period_ms=random.choice((1.0, 50.0, 333.0, 1200.0, 10_000.0)),
        max_hops=random.choice((0, 1, 2, 3, 16)),
        default_deadline_ms=random.choice((97.123, 230.77, 60_000.0)),
    )


def trace(random, topology, *, count, spread_s):
    """Mostly at the first cluster; some bring their own service time, some come together, unless
    deadlines are met: those that fall together with something else are not quite the same."""
    cluster_ids = topology.cluster_ids
    digits = (2, 9) if topology.default_deadline_ms > 1000 else (9,)
    times_s = sorted(round(random.random() * spread_s, random.choice(digits)) for _ in range(count))
    return [
        Arrival(
            time_s,
            cluster_ids[0] if random.random() < 0.6 else random.choice(cluster_ids),
            random.choice((None, None, 5.0, 80.0, random.random() * 100)),
        )
        for time_s in times_s
    ]
