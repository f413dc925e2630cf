"""The figure of what is wrong: which faults its runs have, when, and what is made of them."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

import pytest

from spillover.model.faults import ClusterFault, FaultSchedule
from spillover.model.request import Outcome
from spillover.model.schedule import Arrival
from spillover.sim.overflow.run import run_overflow
from spillover.tools.reproduce import policies_faults as faults
from spillover.tools.reproduce.figure import Effort
from spillover.tools.reproduce.policies_bed import Cell, arrivals_of, play, topology_of

pytestmark = pytest.mark.slow

REQUESTS = 150
SOUND = Cell("4x8", 0.7, "exponential", 0.07, 0.05, 60.0, REQUESTS)
WRONG = {
    "a site dies": ({"action": "crash"}, {"action": "restart"}),
    "a site is slow (3 x)": (
        {"action": "slow", "factor": 3.0}, {"action": "slow", "factor": 1.0},
    ),
    "a site answers 503 at once": (
        {"action": "failing", "share": 1.0, "status": 503}, {"action": "failing", "share": 0.0},
    ),
    "a site answers 500 at once": (
        {"action": "failing", "share": 1.0, "status": 500}, {"action": "failing", "share": 0.0},
    ),
}  # fmt: skip
UNEVEN = Cell("uneven", 0.9, "exponential", 0.2, 0.05)
ODD = {
    "reports stop": Cell("4x8", 0.9, "exponential", 0.07, 2_000.0),
    "links of unlike length": UNEVEN,
    "and old reports": replace(UNEVEN, period=10.0),
}


@pytest.fixture
def few(monkeypatch):
    """Cases with few requests to a run, those that are named only."""

    def keep(*names):
        kept = [case for case in faults.CASES if case.name in names]
        assert len(kept) == len(names)
        small = [
            case if case.cell is None else replace(case, cell=replace(case.cell, requests=REQUESTS))
            for case in kept
        ]
        monkeypatch.setattr(faults, "CASES", tuple(small))
        monkeypatch.setattr(faults, "_SOUND", replace(faults._SOUND, requests=REQUESTS))

    return keep


def compute(seed, *, full=False):
    told = []
    cases = faults.compute_faults(Effort(full=full), seed, told.append)["cases"]
    assert told == [(place + 1) / len(cases) for place in range(len(cases))]
    return cases


def test_there_is_one_of_each_kind():
    assert [case.name for case in faults.CASES] == [*WRONG, *ODD]


def at_a_site(name, policy, seed):
    """(mean wait in services, share done) with the fault in the second third, at the first."""
    arrivals = arrivals_of(SOUND, seed)
    topology = topology_of(SOUND).with_policy(policy)
    schedule = [
        Arrival(float(at_s), topology.cluster_ids[home], float(service_ms))
        for at_s, home, service_ms in zip(
            arrivals.time_s, arrivals.cluster, arrivals.service_ms, strict=True
        )
    ]
    begins, ends = WRONG[name]
    third_s = schedule[-1].time_s / 3
    wrong = FaultSchedule("one", (
        ClusterFault(at_s=third_s, cluster="s1", **begins),
        ClusterFault(at_s=schedule[-1].time_s * 2 / 3, cluster="s1", **ends),
    ))  # fmt: skip
    run = run_overflow(topology, schedule, seed, faults=wrong, check=False)
    done = run.outcomes[Outcome.DONE]
    time_s = sum(sum(own) for own in run.system_time_ms.values()) / done / 1_000
    return time_s - fmean(arrivals.service_ms) / 1_000, done / REQUESTS


@pytest.mark.parametrize("name", WRONG)
def test_a_site_that_is_wrong_for_a_third_of_the_time(name, few):
    few(name)
    (case,) = compute(4)
    assert case["case"] == name
    for policy in ("adaptive", "paper", "two-choice", "isolated"):
        told = list(zip(case["wait"][policy], case["done"][policy], strict=True))
        assert told == [pytest.approx(at_a_site(name, policy, seed)) for seed in (4, 5, 6)]


def test_what_is_wrong_with_all_links_is_a_cell(few):
    few(*ODD)
    for case, (name, cell) in zip(compute(4), ODD.items(), strict=True):
        assert case["case"] == name
        runs = [play(replace(cell, requests=REQUESTS), "paper", seed) for seed in (4, 5, 6)]
        assert case["wait"]["paper"] == [run.wait_mean for run in runs]
        assert case["done"]["paper"] == [run.done_share for run in runs]


def test_more_effort_is_more_seeds(few):
    few("reports stop")
    assert len(compute(4, full=True)[0]["wait"]["adaptive"]) == 8
