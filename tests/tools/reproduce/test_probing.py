"""Johnson's figures: short runs of every point, claims that depend on what is measured, drawing."""

from __future__ import annotations

import copy
import json
from itertools import pairwise

import pytest

from spillover.tools.reproduce import probing
from spillover.tools.reproduce.figure import Effort

pytestmark = pytest.mark.slow

FIGURES = {figure.name: figure for figure in probing.FIGURES}
FIELDS = {
    "probes_mean",
    "wait_mean",
    "empty_probability",
    "producer_utilization",
    "consumer_utilization",
    "throughput",
}


@pytest.fixture(scope="module")
def measured():
    """All figures at a fiftieth of the default precision, as JSON that was read back."""
    patched = pytest.MonkeyPatch()
    patched.setattr(probing, "OBJECTS", 3000)
    patched.setattr(probing, "MANY_OBJECTS", 1)
    patched.setattr(probing, "MANY_PRODUCERS", (100, 200, 300))
    data = {}
    for name, figure in FIGURES.items():
        shares = []
        data[name] = figure.compute(Effort(full=False), 5, shares.append)
        assert shares[-1] == 1.0
        assert all(before < after for before, after in pairwise(shares))
    patched.undo()
    return json.loads(json.dumps(data, allow_nan=False))


@pytest.fixture
def predicted(measured):
    """As if the simulation had given exactly what the equations say, with narrow intervals."""
    data = copy.deepcopy(measured)
    for values in data.values():
        for curves in (values["curves"], values.get("many_producers", {})):
            for point in (point for points in curves.values() for point in points):
                if "simulated" in point:
                    point["simulated"] = dict(point["model"])
                    point["ci95"] = dict.fromkeys(point["model"], 0.001)
    return data


def refuted(name, data):
    return [claim.text for claim in FIGURES[name].claims(data[name]) if not claim.holds]


def test_there_are_figures_2_to_9():
    """In order, each explained."""
    assert list(FIGURES) == [f"johnson-{number}" for number in range(2, 10)]
    assert all(len(figure.explanation) > 100 for figure in FIGURES.values())


def test_every_point_has_all_figures_by_model_and_simulation(measured):
    """Figure 4 has the model alone, as in the document."""
    for name, values in measured.items():
        for points in values["curves"].values():
            assert len(points) >= 9
            for point in points:
                sides = {"model"} if name == "johnson-4" else {"model", "simulated", "ci95"}
                sides |= {"printed"} if name == "johnson-9" else set()
                assert point.keys() == {"x", *sides}
                assert all(set(point[side]) == FIELDS for side in sides)


def test_short_runs_are_near_the_equations_already(measured):
    """Figure 2 at 3 000 objects a point: within a fifth off load 100 %; the loads in order."""
    curves = measured["johnson-2"]["curves"]
    for name, points in curves.items():
        for point in points:
            within = 0.4 if name == "load 100 %" else 0.2
            model = point["model"]["probes_mean"]
            assert point["simulated"]["probes_mean"] == pytest.approx(model, rel=within)
    last = [points[-1]["simulated"]["probes_mean"] for points in curves.values()]
    assert last == sorted(last)


def test_full_effort_is_the_documents_run_length():
    """1 000 000 objects a point."""
    assert probing._objects(Effort(full=True)) == 1_000_000


def test_what_the_equations_bear_out(predicted):
    """Of what the document says of queues, the equations contradict one thing, at load 100 %; the
    rest stands, but for what is said, by the document and by us, on how they are wrong."""
    told = {name: refuted(name, predicted) for name in FIGURES}
    assert told.pop("johnson-3")[0] == "So they do at load 100 %"
    assert [text[:29] for text in told.pop("johnson-6")] == ["With steadier production, wai"]
    assert [text[:32] for text in told.pop("johnson-7")] == ["For very unlike producers the eq"]
    unmended, *rest = told.pop("johnson-9")
    assert unmended.startswith("And hardly longer waits")
    assert [text[-27:] for text in rest] == ["as printed foresee the waits"[-27:]]
    assert not any(told.values())


def change(point, field, factor):
    point["simulated"][field] *= factor


@pytest.mark.parametrize(
    ("name", "curve", "place", "field", "factor"),
    [
        ("johnson-2", "load 50 %", 9, "probes_mean", 2.0),
        ("johnson-2", "load 200 %", 4, "probes_mean", 1.2),
        ("johnson-2", "load 150 %", 9, "probes_mean", 0.5),
        ("johnson-3", "load 200 %", 9, "wait_mean", 1.1),
        ("johnson-3", "load 50 %", 9, "wait_mean", 1.1),
        ("johnson-3", "load 150 %", 2, "wait_mean", 1.5),
        ("johnson-3", "load 100 %", 4, "consumer_utilization", 0.98),
        ("johnson-5", "load 50 %", 3, "producer_utilization", 0.9),
        ("johnson-6", "load 200 %", 2, "wait_mean", 9.0),
        ("johnson-7", "67 % of objects from 50 % of producers", 2, "wait_mean", 6.0),
        ("johnson-7", "50 % of objects from 10 % of producers", 9, "wait_mean", 0.2),
        ("johnson-8", "50 % of objects from 10 % of producers", 0, "wait_mean", 0.01),
        ("johnson-9", "h_max 3", 3, "consumer_utilization", 0.9),
        ("johnson-9", "h_max 5", 5, "wait_mean", 2.0),
    ],
)
def test_other_measurements_would_refute_a_claim(predicted, name, curve, place, field, factor):
    """Each simulated claim is judged by the numbers."""
    before = refuted(name, predicted)
    change(predicted[name]["curves"][curve][place], field, factor)
    assert len(refuted(name, predicted)) > len(before)


def test_buffers_and_probes_that_bring_nothing_would_refute_figures_4_and_5(predicted):
    """They are judged by the equations."""
    for name, place in (("johnson-4", 2), ("johnson-5", 4)):
        points = predicted[name]["curves"]["load 100 %"]
        points[place]["model"] = dict(points[0]["model"])
        assert refuted(name, predicted)


@pytest.mark.parametrize(("name", "panels"), [*zip(FIGURES, (1, 2, 2, 2, 1, 1, 1, 1), strict=True)])
def test_it_draws(measured, name, panels):
    """Onto an empty figure: a title to each panel, a line and points to each curve."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    canvas = Figure(layout="constrained")
    FigureCanvasAgg(canvas)
    FIGURES[name].draw(measured[name], canvas)
    canvas.canvas.draw()
    assert len(canvas.axes) == panels
    assert all(axes.get_title() and axes.get_xlabel() for axes in canvas.axes)
    assert len(canvas.axes[0].lines) >= len(measured[name]["curves"])
