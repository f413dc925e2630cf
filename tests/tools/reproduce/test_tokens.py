"""Comte's figures: the claims hold where they must, marks lie near lines, and all of it draws."""

from __future__ import annotations

import importlib.util
import json

import pytest

from spillover.inputs.pool_file import load_pool
from spillover.tools.reproduce import tokens
from spillover.tools.reproduce.figure import Effort

pytestmark = pytest.mark.slow

BY_NAME = {figure.name: figure for figure in tokens.FIGURES}
JOBS = 40_000


@pytest.fixture(autouse=True)
def _extras(require):
    for name, extra in (("numpy", "sim"), ("numba", "sim"), ("matplotlib", "report")):
        require(importlib.util.find_spec(name), f"{name}, from the extra `{extra}`")


def compute(name, seed=1):
    """The values as a file would give them back; and what was told of the progress."""
    told = []
    values = BY_NAME[name].compute(Effort(full=False), seed, told.append)
    assert told == sorted(told)
    assert told
    assert 0 < told[-1] <= 1
    return json.loads(json.dumps(values, allow_nan=False))


@pytest.fixture(scope="module")
def values(require):
    """Those of all figures; figure 13 with few jobs."""
    require(importlib.util.find_spec("numba"), "numba, from the extra `sim`")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "JOBS", JOBS)
        return {name: compute(name) for name in BY_NAME}


def test_there_are_four():
    assert list(BY_NAME) == ["comte-9", "comte-10", "comte-12", "comte-13"]


@pytest.mark.parametrize("name", ["comte-9", "comte-10", "comte-12"])
def test_what_the_paper_says_holds(name, values):
    """Every statement on the exact figures."""
    claims = BY_NAME[name].claims(values[name])
    assert len(claims) >= 3
    assert [claim for claim in claims if not claim.holds] == []


@pytest.mark.parametrize("name", ["comte-9", "comte-10", "comte-12"])
def test_claims_can_fail(name, values):
    """With the curves the wrong way round most of them do."""
    wrong = json.loads(json.dumps(values[name]))
    for curve in wrong["curves"].values():
        curve["blocking"].reverse()
        curve["occupancy"].reverse()
    wrong["curves"] = dict(zip(wrong["curves"], reversed(wrong["curves"].values()), strict=True))
    claims = BY_NAME[name].claims(wrong)
    assert any(not claim.holds for claim in claims)


def test_the_points_are_those_of_the_theory(values):
    """One of each curve, computed by itself."""
    from spillover.sim.theory.tokens.exact import exact_tokens

    at = tokens.LOADS.index(1.25)
    for name, pool in (("comte-9", "comte8"), ("comte-12", "comte11")):
        for policy, curve in values[name]["curves"].items():
            point = exact_tokens(load_pool(pool).at_load(1.25), policy)
            assert curve["blocking"][at] == pytest.approx(point.blocking, rel=1e-11)
            assert curve["occupancy"][at] == pytest.approx(point.occupancy, rel=1e-11)


def test_figure_13_compares_simulation_with_theory(values):
    """Each mark has its interval, its exact value, and lies near it, few as the jobs are."""
    found = values["comte-13"]
    assert found["jobs"] == JOBS
    assert set(found["marks"]) == set(tokens.SIZES)
    for marks in found["marks"].values():
        assert [mark["load"] for mark in marks] == list(tokens.MARKS)
        for mark in marks:
            for name, exact in mark["exact"].items():
                near = 3 * mark["ci95"][name] + 0.002
                assert mark["simulated"][name] == pytest.approx(exact, abs=near)
    claims = BY_NAME["comte-13"].claims(found)
    assert len(claims) == 4
    assert claims[-1].holds


def test_the_same_seed_gives_the_same_marks(values, monkeypatch):
    """And another one gives others."""
    monkeypatch.setattr(tokens, "JOBS", JOBS)
    assert compute("comte-13")["marks"] == values["comte-13"]["marks"]
    assert compute("comte-13", seed=2)["marks"] != values["comte-13"]["marks"]


@pytest.mark.parametrize("name", BY_NAME)
def test_figures_draw(name, values):
    """Something is on every axis, and everything has a label."""
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    BY_NAME[name].draw(values[name], figure)
    figure.draw_without_rendering()
    for axes in figure.axes:
        assert axes.lines or axes.containers
        assert axes.get_title(loc="left") or axes.get_title()
    assert figure.axes[-1].get_xlabel() == "load"
