"""Several sites that fail at once: a1 and a2 depend on the same service, or each on its own that is
broken, while b is well and idle. All clients come to a1, and must not notice for long: by a way to
b of its own, or over a2.

2 seeds each, 20 in `make soak`, one in `make check`.
"""

from collections import Counter
from itertools import pairwise

import pytest

from spillover.core.overflow.health import HANDED_ON_PAUSE_S, PAID_PAUSE_S_MAX
from spillover.model.topology import Cluster, Link, Topology
from support.failing_sites import failing, play
from support.few import all_in_soak, few_at_first

RATE = 11.0
FAILS_S, FOUND_S, ENDS_S = 5.0, 10.0, 50.0
LASTED_S = FAILS_S + 31.0
"""From then on the failure is a lasting one, also for who found it out a second late."""
SEEDS = few_at_first(all_in_soak(range(1, 21), 1), 1)
MESH = [("a1", "a2"), ("a2", "b"), ("a1", "b")]
CHAIN = MESH[:2]
BROKEN = ("a1", "a2")


def three_sites(links, policy, servers, **told):
    told = {"servers": servers, "service_ms": 100.0, **told}
    clusters = tuple(Cluster(id=name, **told) for name in ("a1", "a2", "b"))
    joined = tuple(Link(between=pair, delay_ms=5.0) for pair in links)
    return Topology(name="three-sites", clusters=clusters, links=joined, policy=policy)


def play_three(seed, faults, topology, *, keyed=False, ends_s=ENDS_S):
    """All clients are at a1."""
    told = {"rates": {"a1": RATE}, "lasts_s": ends_s, "keyed": keyed, "topology": topology}
    return play(seed, faults, **told)


def outcomes(played, from_s, until_s=float("inf")):
    """Of clients' requests that ended between these instants."""
    return Counter(outcome for at_s, _, outcome, _ in played.ends if from_s <= at_s < until_s)


def failures_at(played, cluster, from_s):
    """When requests failed there, in order."""
    ends = played.ends
    return [
        at_s
        for at_s, _, outcome, at in ends
        if (outcome, at) == ("failed", cluster) and at_s >= from_s
    ]


def breaking(**how):
    return [failing(FAILS_S, cluster=name, **how) for name in BROKEN]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("keyed", "links", "policy", "servers"),
    [
        (False, MESH, "paper", 2),
        (False, CHAIN, "adaptive", 4),
        (True, MESH, "adaptive", 2),
    ],
)
def test_broken_sites_do_not_acquit_each_other(keyed, links, policy, servers, seed):
    """Of what ends from five seconds on, some 2 % fail, and none with a key. Once that has lasted
    for half a minute it is one in ten seconds at a1, and fewer at a2: all its neighbors' clients
    are a1's, and pay there. Who is broken stays degraded, and says so."""
    played = play_three(seed, breaking(), three_sites(links, policy, servers), keyed=keyed)
    late = outcomes(played, FOUND_S)
    assert late["failed"] <= (0 if keyed else 0.03 * late.total())
    assert set(late) <= {"done", "failed"}
    paid_s = {name: failures_at(played, name, LASTED_S) for name in BROKEN}
    for name, pause_s in (("a1", PAID_PAUSE_S_MAX), ("a2", HANDED_ON_PAUSE_S)):
        assert all(late - early >= pause_s for early, late in pairwise(paid_s[name]))
    assert played.clusters["a1"].machine.condition == "degraded"
    assert [len(played.changes[name]) <= 1 for name in ("a1", "a2")] == [True, True]
    assert played.changes["b"] == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_nor_where_a_part_of_it_fails(seed):
    """That is found in some 30 requests at each of the two. Nothing goes back and forth: at most
    three changes in 45 s, and mostly one."""
    played = play_three(seed, breaking(share=0.7), three_sites(CHAIN, "paper", 2))
    late = outcomes(played, FOUND_S + 20.0)
    assert late["failed"] <= 0.08 * late.total()
    assert all(len(changes) <= 3 for changes in played.changes.values())


@pytest.mark.slow
@pytest.mark.parametrize("seed", all_in_soak([4, *range(1, 21)], 1))
def test_nor_do_three_in_a_chain_of_which_only_the_last_can_reach_a_well_one(seed):
    """Neither of the first two is excused by the share that fails at its neighbors."""
    told = {"servers": 2, "service_ms": 100.0}
    sites = ("a1", "a2", "a3", "b")
    clusters = tuple(Cluster(id=name, **told) for name in sites)
    links = tuple(Link(between=pair, delay_ms=5.0) for pair in pairwise(sites))
    topology = Topology(name="chain", clusters=clusters, links=links, policy="adaptive")
    faults = [failing(FAILS_S, cluster=name, share=0.6) for name in ("a1", "a2", "a3")]
    late = outcomes(play_three(seed, faults, topology, ends_s=35.0), FOUND_S)
    assert late["failed"] <= 0.05 * late.total()


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("keyed", "within_s"), [(True, 5.0), (False, 11.0)])
def test_a_site_that_is_healed_is_used_again_soon(keyed, within_s, seed):
    """However long it was broken: by its own clients' requests, within five seconds if they have
    keys, else at the next look."""
    healed_s = 25.0
    faults = breaking() + [failing(healed_s, share=0.0, cluster=name) for name in BROKEN]
    told = {"keyed": keyed, "ends_s": healed_s + 12.0}
    played = play_three(seed, faults, three_sites(MESH, "paper", 2), **told)
    began, ended = played.changes["a1"]
    assert began < FAILS_S + 1.0
    assert healed_s < ended < healed_s + within_s


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_site_without_clients_of_its_own_is_used_again_soon(seed):
    """By work of its neighbors, at the next look: b has too much of it, and a2 was broken."""
    healed_s = 40.0
    faults = [failing(FAILS_S, cluster="a2"), failing(healed_s, share=0.0, cluster="a2")]
    topology = three_sites(CHAIN, "adaptive", 2)
    played = play(
        seed, faults, rates={"b": 30.0}, lasts_s=healed_s + 12.0, keyed=False, topology=topology
    )
    began, ended = played.changes["a2"]
    assert began < FAILS_S + 1.0
    assert healed_s < ended < healed_s + 11.0


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_where_the_service_can_be_asked_no_client_pays_for_it(seed):
    """`probe: GET /health`, without keys: not one failure once it is found, and use again within
    five seconds of the healing."""
    healed_s = 25.0
    asks = {"handler": "http:http://127.0.0.1:9/", "probe": "GET /health"}
    topology = three_sites(MESH, "paper", 2, **asks)
    faults = breaking() + [failing(healed_s, share=0.0, cluster=name) for name in BROKEN]
    played = play_three(seed, faults, topology, ends_s=healed_s + 7.0)
    assert outcomes(played, FOUND_S)["failed"] == 0
    _, ended = played.changes["a1"]
    assert ended < healed_s + 5.0
