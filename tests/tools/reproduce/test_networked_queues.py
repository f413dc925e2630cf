"""The figures of Lai & Polak: small runs give what the full ones give, and claims can fail."""

from __future__ import annotations

import copy
import importlib.util
import json

import pytest

from spillover.inputs.builtin import builtin_topology
from spillover.sim.overflow.run import run_overflow
from spillover.tools.reproduce import networked_queues, watched_queues
from spillover.tools.reproduce.figure import Effort
from spillover.tools.reproduce.networked_queues import FIGURES
from spillover_loadgen import workloads

pytestmark = pytest.mark.slow

EFFORT = Effort(full=False)


@pytest.fixture(scope="module")
def numba(require):
    require(importlib.util.find_spec("numba"), "numba, from the extra `sim`")


@pytest.fixture(scope="module")
def measured(numba):
    """Figure name to measured values; two seeds stand for twenty, as JSON that was read back."""
    patched = pytest.MonkeyPatch()
    patched.setattr(networked_queues, "SEEDS", 2)
    data = {}
    for figure in FIGURES:
        told = []
        data[figure.name] = figure.compute(EFFORT, 3, told.append)
        assert told == sorted(told)
        assert told[-1] == 1.0
        if figure.name == "lai-polak-8":  # three federations
            assert told == [pytest.approx(k / 6) for k in range(1, 7)]
    patched.undo()
    return json.loads(json.dumps(data))


def test_watching_changes_nothing(measured):
    """The watched run is the one that the simulator gives for the same seed."""
    topology = builtin_topology("ring5")
    schedule = workloads.bursts(topology.cluster_ids, duration_s=45, seed=3)
    run = run_overflow(topology, schedule, 3)
    longest = max(measured["lai-polak-5"]["queue_length_max"]["networked"].values())
    assert 0 < longest <= run.queue_length_max
    assert len(measured["lai-polak-5"]["times_s"]) == 451


def test_pairs_are_of_the_same_requests(measured):
    """Each seed's summaries are the full engine's."""
    topology = builtin_topology("ring5")
    schedule = workloads.bursts(topology.cluster_ids, duration_s=45, seed=4)
    run = next(run for run in measured["lai-polak-7"]["runs"] if run["seed"] == 4)
    for policy, side in (("isolated", "isolated"), ("paper", "networked")):
        full = run_overflow(topology.with_policy(policy), schedule, 4).as_dict()
        assert run["all"][side] == pytest.approx(full["system_time_ms"])


def test_larger_federations_are_beside_the_one_of_figure_7(measured):
    """Of their runs only the speed-ups are kept."""
    found = measured["lai-polak-8"]
    assert found["seeds"] == [3, 4]
    assert list(found["topologies"]) == ["ring5", "chord10", "chord20"]
    five = dict(measured["lai-polak-7"])
    del five["runs"]
    assert found["topologies"]["ring5"] == five
    assert len(found["topologies"]["chord20"]["speedup_per_cluster"]) == 20


def test_claims_come_from_the_values_alone(measured):
    """They hold for what was measured, and not for values that contradict them. Two seeds do not
    say what more clusters do to the spread."""
    for figure in FIGURES:
        claims = figure.claims(measured[figure.name])
        refuted = [claim.text for claim in claims if not claim.holds]
        assert refuted == (["but the standard deviation more"] if "8" in figure.name else [])
    worse = copy.deepcopy(measured["lai-polak-7"])
    for statistic in worse["speedup"].values():
        statistic["median"] = 0.9
    assert not any(claim.holds for claim in networked_queues.claim_system_times(worse))
    flat = copy.deepcopy(measured["lai-polak-5"])
    flat["queue_length_max"]["networked"] = flat["queue_length_max"]["isolated"]
    flat["pressed_s"]["isolated"] = dict.fromkeys(flat["pressed_s"]["isolated"], 1.0)
    held = [claim.holds for claim in watched_queues.claim_queue_lengths(flat)]
    assert held == [True, False, False, True]


def test_what_increases_a_little_does_not_increase_sharply():
    """The document's word is taken at its word."""
    spread = {"median": 4.0, "min": 3.0, "max": 5.0}

    def of(mean, std):
        return {"speedup": {"mean": spread | {"median": mean}, "std": spread | {"median": std},
                            "max": spread | {"median": std}}}  # fmt: skip

    data = {"topologies": {"ring5": of(4.9, 20), "chord10": of(4, 21), "chord20": of(3, 22)}}
    assert [claim.holds for claim in networked_queues.claim_larger(data)] == [True, False, True]


def test_every_figure_can_be_drawn(measured, require, tmp_path):
    """From what was read back, onto an empty figure."""
    require(importlib.util.find_spec("matplotlib"), "matplotlib, from the extra `report`")
    from matplotlib.figure import Figure

    for drawn in FIGURES:
        figure = Figure(layout="constrained")
        drawn.draw(measured[drawn.name], figure)
        figure.savefig(tmp_path / "figure.png", dpi=40)
        assert figure.axes
        for axes in figure.axes:
            # A bar on a logarithmic axis begins anywhere, since there is no zero.
            assert axes.get_yscale() != "log" or not axes.patches
            shown = "".join(label.get_text() for label in axes.get_yticklabels())
            assert "$" not in shown, "powers of ten"
