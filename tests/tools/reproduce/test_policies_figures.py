"""Each figure of policies: which runs it is made of, what is claimed of them, what is drawn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spillover.tools.reproduce import policies
from spillover.tools.reproduce.figure import Effort
from spillover.tools.reproduce.policies_bed import SHARED, Cell, play, play_until
from support.drawn import drawn as all_drawn

FIGURES = {figure.name: figure for figure in policies.FIGURES}
QUICK, FULL = Effort(full=False), Effort(full=True)
REQUESTS = 300
FOUR = ("adaptive", "paper", "two-choice", "isolated")


def claims(name, **data):
    """[(measured, holds)]"""
    return [(claim.measured, claim.holds) for claim in FIGURES[name].claims(data)]


def drawn(name, **data):
    return all_drawn(FIGURES[name].draw, data)


def bursts(**ours):
    """100 of everything by the paper's rule; two-choice has 150, ours what is said."""
    measures = ("mean", "p99", "max", "forwards")
    runs = {"paper": 100.0, "two-choice": 150.0, "isolated": 300.0}
    told = {policy: {key: [value] * 3 for key in measures} for policy, value in runs.items()}
    return {
        name: {
            **told,
            "adaptive": {key: [value] * 3 for key, value in zip(measures, own, strict=True)},
        }
        for name, own in ours.items()
    }


ASKED = {"ring5": (100, 98, 87, 85), "chord10": (100, 84, 82, 82), "chord20": (100, 85, 80, 78)}
"""In percent of the paper's rule, as decision 0037 asks."""


def test_bursts_are_judged_by_what_was_asked_for():
    told = claims("policies-1", topologies=bursts(**ASKED))
    assert [holds for _, holds in told] == [True] * 12
    assert told[1] == ("0.980 ± 0.000", True)
    worse = {name: [value + 0.1 for value in own] for name, own in ASKED.items()}
    assert not any(holds for _, holds in claims("policies-1", topologies=bursts(**worse)))
    (mean, tail, longest, forwards, *_) = FIGURES["policies-1"].claims(
        {"topologies": bursts(**ASKED)}
    )
    assert [one.stated for one in (mean, tail, longest, forwards)] == [
        f"at most {limit}" for limit in ("1.00", "0.98", "0.87", "0.85")
    ]
    assert "ring5: the longest, as a share of" in longest.text


def test_bursts_are_bars_beside_the_papers_rule():
    rows = drawn("policies-1", topologies=bursts(**ASKED))
    assert [row["title"] for row in rows] == ["ring5", "chord10", "chord20"]
    first = rows[0]
    assert first["names"] == ["mean", "p99", "longest", "hops"]
    assert first["bars"]["adaptive"] == [
        (0.2, 0.0, 1.0),
        (1.2, 0.0, 0.98),
        (2.2, 0.0, 0.87),
        (3.2, 0.0, 0.85),
    ]
    assert first["bars"]["two-choice"] == [(x - 0.2, 0.0, 1.5) for x in range(4)]
    assert [y for _, y in first["lines"]["paper"]] == [1.0, 1.0]
    assert first["labels"][1] == "share of the paper's rule"
    assert sorted(rows[2]["legend"]) == ["adaptive", "paper", "two-choice"]
    assert rows[0]["legend"] == []


def gap(rtt, period, ours, shape="4x8"):
    wait = {"isolated": 100.0, SHARED: 0.0, "adaptive": ours, "paper": 40.0, "two-choice": 30.0}
    return {
        "shape": shape, "rtt": rtt, "period": period,
        "wait": {policy: [value, value] for policy, value in wait.items()},
        "forwards": dict.fromkeys(wait, 0.5),
    }  # fmt: skip


GAPS = [(0.02, 1.0, 6.0), (0.02, 10.0, 10.0), (0.5, 1.0, 22.0), (0.5, 10.0, 28.0)]
"""Round trip, period of reports, and the wait that is just short enough: 94, 90, 78, 72 %."""


def test_the_gap_is_judged_where_something_was_asked_for():
    cells = [gap(rtt, period, wait) for rtt, period, wait in GAPS]
    told = claims("policies-2", cells=[*cells, gap(0.5, 3.0, 99.0)])
    assert [holds for _, holds in told] == [True] * 4
    assert told[0][0] == "94.0% (paper 60.0%; wait 0.150 ± 0.000 of the paper's)"
    longer = [gap(rtt, period, wait + 0.1) for rtt, period, wait in GAPS]
    assert [holds for _, holds in claims("policies-2", cells=longer)] == [False] * 4


def test_the_gap_is_drawn_by_shape_and_way():
    cells = [
        gap(rtt, period, wait, shape)
        for shape in ("4x8", "8x5")
        for rtt in (0.02, 0.5)
        for period, wait in ((1.0, 5.0), (10.0, 20.0))
    ]
    rows = drawn("policies-2", cells=cells)
    assert [row["title"] for row in rows] == [
        f"{shape}, round trip {rtt} services" for shape in ("4x8", "8x5") for rtt in ("0.02", "0.5")
    ]
    for row in rows:
        assert row["lines"] == {
            "adaptive": [[1.0, 95.0], [10.0, 80.0]],
            "two-choice": [[1.0, 70.0], [10.0, 70.0]],
            "paper": [[1.0, 60.0], [10.0, 60.0]],
        }
        assert row["scales"] == ("log", "linear")
    assert rows[0]["legend"] == ["adaptive", "two-choice", "paper"]
    assert rows[0]["labels"][1] == "share of the gap closed, %"
    assert [row["labels"][0] for row in rows] == ["", "", *["reports each ... services"] * 2]


def grid(rtt, ours, *, load=0.5, shape="4x8", paper=(100.0, 100.0)):
    wait = {
        "adaptive": ours,
        "paper": list(paper),
        "two-choice": [130.0] * 2,
        "isolated": [150.0] * 2,
    }
    return {
        "shape": shape, "load": load, "law": "constant", "rtt": rtt, "period": 1.0, "wait": wait,
    }  # fmt: skip


def test_a_cell_is_lost_that_is_surely_above_the_best_rival():
    """By 1 %, which is noise. Pairs that differ much say little."""
    cells = [
        grid(0.0, [101.0, 101.0]),
        grid(0.02, [102.0, 102.0]),
        grid(0.02, [90.0, 90.0]),
        grid(0.5, [90.0, 130.0]),
        grid(2.0, [80.0, 80.0]),
        grid(2.0, [85.0, 85.0], load=0.98, shape="unlike"),
    ]
    found = FIGURES["policies-3"].claims({"cells": cells})
    assert [claim.holds for claim in found] == [True, False, True, True]
    assert found[0].measured.startswith("0, 0 of them")
    assert "cells of 2 in which" in found[1].text
    assert found[1].measured.startswith("1, 1 of them beyond their half-widths; the worst 1.020 ")
    assert found[2].measured.startswith("1, 0 of them")
    assert "0.850 ± 0.000 of paper (unlike, load 0.98, constant, reports 1)" in found[3].measured


def test_the_best_rival_is_the_one_that_waits_least():
    ours = [60.0, 60.0]
    assert policies.beside_best(grid(0.0, ours))[1] == "paper"
    found, best = policies.beside_best(grid(0.0, ours, paper=(200.0, 200.0)))
    assert (best, round(found.ratio, 3)) == ("two-choice", 0.462)


def test_the_grid_is_a_dot_for_each_cell():
    """Loads side by side around the place of their round trip."""
    cells = [
        grid(0.0, [50.0, 50.0]),
        grid(0.02, [80.0, 80.0], load=0.98),
        grid(2.0, [70.0, 70.0], load=0.7, shape="unlike"),
    ]
    (row,) = drawn("policies-3", cells=cells)
    assert row["lines"]["4x8"] == [[-0.27, 0.5], [1.27, 0.8]]
    assert row["lines"]["unlike"] == [[2.91, 0.7]]
    assert row["lines"]["the best rival"] == [[0.0, 1.0], [1.0, 1.0]]
    assert row["names"] == [f"round trip {rtt}" for rtt in ("0", "0.02", "0.5", "2")]
    assert row["legend"] == ["4x8", "unlike", "the best rival"]
    assert row["labels"][1] == "mean wait, share of the best rival's"
    assert row["title"] == "within each round trip: load 0.5, 0.7, 0.9, 0.98"
    assert row["limits"][1][0] == 0.0
    assert row["styles"]["4x8"][0] != row["styles"]["unlike"][0]


def overload(done, hops):
    return {
        "shape": "8x5", "load": 1.5,
        "done": {"adaptive": [done] * 2, "paper": [0.4] * 2, "isolated": [0.5] * 2},
        "forwards": {"adaptive": [hops] * 2, "paper": [1.0] * 2, "isolated": [0.0] * 2},
    }  # fmt: skip


def test_overload_is_judged_by_what_is_done_and_handed_on():
    """At least 99 % of what isolated queues do; a hop for each tenth request."""
    cells = [overload(0.495, 0.1), overload(0.494, 0.1), overload(0.495, 0.11)]
    told = claims("policies-4", cells=cells)
    assert [holds for _, holds in told] == [True, False, False]
    assert told[2][0] == "0.9900 ± 0.0000; 0.110"


def test_overload_is_drawn_in_percent():
    (row,) = drawn("policies-4", cells=[overload(0.45, 0.1), {**overload(0.3, 0.1), "load": 3.0}])
    assert row["names"] == ["8x5\n1.5 x", "8x5\n3 x"]
    assert row["bars"] == {
        "isolated": [(-0.26, 0.0, 50.0), (0.74, 0.0, 50.0)],
        "paper": [(0.0, 0.0, 40.0), (1.0, 0.0, 40.0)],
        "adaptive": [(0.26, 0.0, 45.0), (1.26, 0.0, 30.0)],
    }
    assert row["legend"] == ["isolated", "paper", "adaptive"]
    assert row["labels"][1] == "done in time, %"


def fault(name, waits, done):
    return {
        "case": name,
        "wait": {policy: [value] * 2 for policy, value in zip(FOUR, waits, strict=True)},
        "done": {policy: [value] * 2 for policy, value in zip(FOUR, done, strict=True)},
    }


def test_faults_are_judged_beside_the_best_that_does_as_much():
    """Who turns work away has short waits, and is no rival."""
    found = FIGURES["policies-5"].claims({"cases": [
        fault("a", (101.0, 100.0, 120.0, 10.0), (1.0, 1.0, 1.0, 0.6)),
        fault("b", (102.0, 100.0, 120.0, 130.0), (1.0, 1.0, 1.0, 1.0)),
        fault("c", (50.0, 100.0, 90.0, 130.0), (0.98, 1.0, 1.0, 1.0)),
        fault("d", (50.0, 100.0, 90.0, 130.0), (0.995, 0.7, 1.0, 0.9)),
    ]})  # fmt: skip
    assert [claim.holds for claim in found] == [True, False, False, True]
    assert found[0].measured == "1.010 ± 0.000 of paper; 100.00% done, rivals at most 100.00%"
    assert " of two-choice; 98.00% done" in found[2].measured
    assert found[0].text.startswith("a: mean wait")


def test_faults_are_dots_with_what_is_left_undone():
    (row,) = drawn("policies-5", cases=[
        fault("one of two dies", (1.0, 2.0, 3.0, 4.0), (1.0, 1.0, 0.995, 0.5)),
        fault("none", (5.0, 6.0, 7.0, 8.0), (1.0, 1.0, 1.0, 1.0)),
    ])  # fmt: skip
    assert row["lines"] == {
        policy: [
            [round(0.2 * number - 0.3, 6), number + 1.0],
            [round(0.2 * number + 0.7, 6), number + 5.0],
        ]
        for number, policy in enumerate(FOUR)
    }
    ((text, (x, y)),) = row["texts"]
    assert (text, round(x, 6), y) == ("50%", 0.3, 4.0)
    assert row["names"] == ["one\nof\ntwo dies", "none"]
    assert row["legend"] == list(FOUR)
    assert (row["scales"][1], row["labels"][1]) == ("log", "mean wait, services")


def fairness(ours, *, hot=2.0, cold=0.6):
    wait = {"adaptive": ours, "paper": 9.0, "isolated": 0.0}
    return {
        "hot": hot, "cold": cold,
        "cold_wait": {policy: [value] * 2 for policy, value in wait.items()},
        "hot_done": {"adaptive": [0.75] * 2, "paper": [0.8] * 2, "isolated": [0.5] * 2},
    }  # fmt: skip


def test_what_strangers_may_cost_is_bounded():
    """Two of them wait at each server, and one runs at one of eight: that much longer, and who
    comes in meanwhile too."""
    at_most = (2.0 + 1 / 8) / (1.0 - 0.6)  # 5.3125
    told = FIGURES["policies-6"].claims({"cells": [fairness(at_most), fairness(at_most + 0.01)]})
    assert [claim.holds for claim in told] == [True, False]
    assert told[0].stated == "at most 5.31"
    assert told[0].measured == (
        "5.31 (paper 9.00, isolated 0.00); of the hot site's requests 75% are done (paper 80%, "
        "isolated 50%)"
    )


def test_a_hot_neighbor_is_drawn_by_what_others_wait():
    """No wait is drawn as a thousandth: the axis is logarithmic."""
    (row,) = drawn("policies-6", cells=[fairness(3.0), fairness(4.0, hot=4.0, cold=0.3)])
    assert row["lines"] == {
        "isolated": [[-0.26, 0.001], [0.74, 0.001]],
        "paper": [[0.0, 9.0], [1.0, 9.0]],
        "adaptive": [[0.26, 3.0], [1.26, 4.0]],
    }
    assert row["names"] == ["one at 2,\nthree at 0.6", "one at 4,\nthree at 0.3"]
    assert row["legend"] == ["isolated", "paper", "adaptive"]
    assert (row["scales"][1], row["labels"][1]) == ("log", "mean wait, services")


# --- which runs they are made of ------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch):
    """`few(name, *cells)`: those cells alone, with few requests to each run."""

    def play(name, *cells):
        assert set(cells) <= set(getattr(policies, name))
        found = tuple(replace(cell, requests=REQUESTS) for cell in cells)
        monkeypatch.setattr(policies, name, found)
        return found

    return play


def compute(name, effort, seed):
    told = []
    found = FIGURES[name].compute(effort, seed, told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0
    return found, told


def waits(cell, policy, *seeds):
    return [play(cell, policy, seed).wait_mean for seed in seeds]


@pytest.mark.slow
def test_bursts_are_runs_of_each_policy_on_the_same_users(monkeypatch):
    monkeypatch.setattr(policies, "BURSTS", {"ring5": {}})
    monkeypatch.setattr(policies, "SEEDS", 2)
    monkeypatch.setattr(policies, "SEEDS_FULL", 3)
    found, told = compute("policies-1", QUICK, 5)
    assert told == [0.5, 1.0]
    runs = found["topologies"]["ring5"]
    assert (found["seeds"], set(runs)) == ([5, 6], set(FOUR))
    for policy in FOUR:
        assert all(len(values) == 2 for values in runs[policy].values())
        for shares, hops in zip(
            runs[policy]["forwarded_share"], runs[policy]["forwards"], strict=True
        ):
            assert (0.0 < shares <= hops) is (policy != "isolated")
    assert runs["isolated"]["forwards"] == [0.0, 0.0]
    assert sum(runs["adaptive"]["mean"]) < sum(runs["isolated"]["mean"])
    assert compute("policies-1", FULL, 5)[0]["seeds"] == [5, 6, 7]


@pytest.mark.slow
def test_seeds_are_played_until_the_difference_is_known(few, monkeypatch):
    """From two on; at most four, or twelve where more effort is asked for."""
    _, cell = few("GAP_CELLS", *(Cell("8x5", 0.9, "exponential", rtt, 1.0) for rtt in (0.02, 0.5)))
    monkeypatch.setattr(policies, "NOISE", -1.0)
    found, told = compute("policies-2", QUICK, 3)
    assert told == [0.5, 1.0]
    near, far = found["cells"]
    assert (near["shape"], near["rtt"], near["period"], far["rtt"]) == ("8x5", 0.02, 1.0, 0.5)
    assert set(far["wait"]) == {*FOUR, SHARED}
    for policy in (*FOUR[:3], "isolated", SHARED):
        assert far["wait"][policy] == waits(cell, policy, 3, 4, 5, 6)
    assert far["forwards"][SHARED] == 0.0 < far["forwards"]["adaptive"]
    assert len(compute("policies-2", FULL, 3)[0]["cells"][0]["wait"]["paper"]) == 12
    monkeypatch.setattr(policies, "NOISE", 1e9)
    assert len(compute("policies-2", QUICK, 3)[0]["cells"][0]["wait"]["paper"]) == 2


@pytest.mark.slow
def test_the_grid_is_all_kinds_of_load(few, monkeypatch):
    monkeypatch.setattr(policies, "NOISE", -1.0)
    _, cell = few("GRID_CELLS", *(Cell("unlike", x, "constant", 0.5, 10.0) for x in (0.5, 0.9)))
    low, high = compute("policies-3", QUICK, 3)[0]["cells"]
    assert {key: value for key, value in high.items() if key != "wait"} == {
        "shape": "unlike", "load": 0.9, "law": "constant", "rtt": 0.5, "period": 10.0,
    }  # fmt: skip
    assert low["load"] == 0.5
    assert high["wait"] == {policy: waits(cell, policy, 3, 4, 5) for policy in FOUR}
    assert len(compute("policies-3", FULL, 3)[0]["cells"][0]["wait"]["adaptive"]) == 10


@pytest.mark.slow
def test_overload_is_with_deadlines(few):
    shapes = ("4x8", "8x5", "unlike")
    own = few(
        "OVERLOAD_CELLS", *(Cell(one, 3.0, "exponential", 0.07, 0.05, 10.0) for one in shapes)
    )
    cells = compute("policies-4", QUICK, 3)[0]["cells"]
    assert [(cell["shape"], cell["load"]) for cell in cells] == [
        ("4x8", 3.0), ("8x5", 3.0), ("unlike", 3.0),
    ]  # fmt: skip
    cell = own[1]
    for policy in ("adaptive", "paper", "isolated"):
        runs = [play(cell, policy, seed) for seed in range(3, 15)]
        assert cells[1]["done"][policy] == [run.done_share for run in runs]
        assert cells[1]["forwards"][policy] == [run.forwards for run in runs]
    assert len(compute("policies-4", FULL, 3)[0]["cells"][0]["done"]["paper"]) == 24


@pytest.mark.slow
def test_a_hot_neighbor_is_the_first_of_four(few):
    (cell,) = few("HOT_CELLS", Cell("4x8", 0.6, "exponential", 0.02, 0.05, 60.0, hot=3.0))
    (found,) = compute("policies-6", QUICK, 3)[0]["cells"]
    assert (found["hot"], found["cold"]) == (3.0, 0.6)
    for policy in ("adaptive", "paper", "isolated"):
        runs = [play(cell, policy, seed) for seed in (3, 4, 5)]
        assert found["cold_wait"][policy] == [run.cold_wait_mean for run in runs]
        assert found["hot_done"][policy] == [run.hot_done_share for run in runs]
    assert len(compute("policies-6", FULL, 3)[0]["cells"][0]["cold_wait"]["paper"]) == 6


@pytest.mark.slow
def test_enough_is_asked_after_each_seed_from_the_least_on():
    asked = []

    def enough(played):
        asked.append([len(own) for own in played.values()])
        return len(asked) == 2

    cell = Cell("4x8", 0.5, "constant", 0.0, 1.0, requests=REQUESTS)
    played = play_until(cell, FOUR[:2], 8, seeds_min=2, seeds_max=9, enough=enough)
    assert asked == [[2, 2], [3, 3]]
    assert [one.wait_mean for one in played["paper"]] == waits(cell, "paper", 8, 9, 10)
