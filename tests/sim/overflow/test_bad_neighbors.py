"""A neighbor that says that it is well, and loses what it is given or answers it late: home is to
find out by what comes back. Home has 2 servers of 40 ms; its clients bring 0.7 of what it can do.
"""

from functools import cache

import pytest

from spillover.model.faults import ClusterFault
from spillover.model.topology import Cluster, Link, Topology
from support.failing_sites import play
from support.few import all_in_soak, few_at_first, in_soak

FAILS_S, ENDS_S = 5.0, in_soak(65, 45)
RATE = 35.0
SEEDS = few_at_first(all_in_soak(range(1, 21), 1), 1)
BAD = {
    "swallows": {"share": 1.0},
    "hangs": {"share": 1.0},
    "late": {"late_ms": 4000.0},
}


@cache
def played(policy, neighbors, seed, bad=None, *, keyed=False, heals_s=None):
    """Home is `a`; the first of its neighbors is bad."""
    names = "abcd"[: neighbors + 1]
    clusters = tuple(Cluster(id=name, servers=2, service_ms=40.0) for name in names)
    links = tuple(Link(between=("a", name), delay_ms=5.0) for name in names[1:])
    told = {"policy": policy, "default_deadline_ms": 5000.0}
    topology = Topology(name="star", clusters=clusters, links=links, **told)
    faults = []
    if bad is not None:
        faults.append(ClusterFault(at_s=FAILS_S, action=bad, cluster="b", **BAD[bad]))
    if heals_s is not None:
        faults.append(ClusterFault(at_s=heals_s, action=bad, cluster="b"))
    rates = {"a": RATE} | dict.fromkeys(names[1:], 5.0)
    return play(seed, faults, rates=rates, lasts_s=ENDS_S, keyed=keyed, topology=topology)


def of_home(story, from_s=FAILS_S):
    return [end for end in story.ends if end[1] == "a" and end[0] >= from_s]


def suffered(story, from_s=FAILS_S, late=""):
    """How many were not done, or by this neighbor, which is late."""
    return sum(outcome != "done" or at == late for _, _, outcome, at in of_home(story, from_s))


CASES = [
    *(("adaptive", "swallows", 1), ("adaptive", "hangs", 3), ("adaptive", "late", 3)),
    *(("paper", "late", 1), ("paper", "late", 3), ("two-choice", "swallows", 3)),
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("case", few_at_first(CASES, 1), ids=str)
def test_few_of_homes_requests_suffer(case, seed):
    """At most 2 % of a minute's, then one in ten seconds, by one bad neighbor or by one of
    three."""
    policy, bad, neighbors = case
    story = played(policy, neighbors, seed, bad)
    late = "b" if bad == "late" else ""
    assert suffered(story, FAILS_S, late) <= 0.02 * 60 * RATE
    assert suffered(story, FAILS_S + 20.0, late) <= in_soak(4, 3)
    if neighbors == 3:
        shares = [sum(end[3] == name for end in of_home(story, 20.0)) for name in "cd"]
        assert min(shares) > 30 / 45 * (ENDS_S - 20.0), "the others help as before"


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_with_keys_none_does(seed):
    assert suffered(played("adaptive", 3, seed, "late", keyed=True)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_once_healed_it_helps_again_within_a_quarter_of_a_minute(seed):
    story = played("adaptive", 1, seed, "swallows", heals_s=15.0)
    healthy = played("adaptive", 1, seed)
    helps, usually = (one.done_at("b", 30.0, ENDS_S) for one in (story, healthy))
    assert helps > 0.9 * usually
