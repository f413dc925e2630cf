"""The lease experiment: its claims hold in a short run, depend on what is measured, and draw."""

from __future__ import annotations

import importlib.util
import json
from copy import deepcopy
from itertools import pairwise

import pytest

from spillover.tools.reproduce import leases

pytestmark = pytest.mark.slow

FIGURE = leases.FIGURES[0]


@pytest.fixture(scope="module")
def measured():
    shares = []
    values = leases.measure(range(3, 5), 40, shares.append)
    assert shares == sorted(shares)
    assert 0 < shares[0] <= shares[-1] <= 1
    return json.loads(json.dumps(values, allow_nan=False))


def test_what_the_document_says_and_what_we_say_holds(measured):
    """Its good and its bad, and the repair."""
    claims = FIGURE.claims(measured)
    assert len(claims) == 11
    assert [claim.text for claim in claims if not claim.holds] == []
    assert all(claim.stated and claim.measured for claim in claims)


@pytest.mark.parametrize(
    ("rule", "case", "side", "moves"),
    [
        ("blog", "16, even", "calm", 1),
        ("blog, one challenge a period", "16, even", "stalled", 0),
        ("blog", "17, as even as can be", "calm", 0),
        ("guarded", "17, as even as can be", "stalled", 1),
        ("guarded", "64, all on one", "calm", 49),
    ],
)
def test_other_measurements_would_refute_a_claim(measured, rule, case, side, moves):
    """Each claim is judged by the numbers."""
    other = deepcopy(measured)
    leases._row(other, rule, case, side)["moves"] = [moves, moves]
    assert not all(claim.holds for claim in FIGURE.claims(other))


def test_two_at_once_would_refute_the_repair(measured):
    """So would a partition that waits too long for a successor of the dead."""
    for name, field, value in (
        ("messages_lost", "double_entitled_ms", 1.0),
        ("one_dies", "unowned_ms_max", 300_000.0),
    ):
        other = deepcopy(measured)
        other[name]["guarded"][field] = value
        assert sum(not claim.holds for claim in FIGURE.claims(other)) == 1


def test_curves_and_timelines_are_those_of_the_runs(measured):
    """Curves end with the mean of the moves; guarded rows change as often as partitions move."""
    row = leases._row(measured, "blog", "16, even", "stalled")
    curve = measured["curves"]["16, even"]["blog, stalled"]
    assert curve[-1] == sum(row["moves"]) / 2
    assert curve == sorted(curve)
    changes = {
        rule: sum(sum(one != other for one, other in pairwise(row)) for row in rows)
        for rule, rows in measured["timelines"].items()
    }
    assert all(len(rows) == 16 for rows in measured["timelines"].values())
    assert 8 <= changes["guarded"] <= 12
    assert changes["blog"] > 50


def test_it_draws(measured, require):
    """Onto any figure, every axis with its title."""
    require(importlib.util.find_spec("matplotlib"), "matplotlib, from the extra `report`")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    canvas = Figure(layout="constrained")
    FigureCanvasAgg(canvas)
    FIGURE.draw(measured, canvas)
    canvas.canvas.draw()
    assert len(canvas.axes) == 6
    assert all(axes.get_title(loc="left") for axes in canvas.axes)
