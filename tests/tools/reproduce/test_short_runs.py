"""Each document's figures are computed in a short run, their statements come out, and they draw."""

from __future__ import annotations

import json

import pytest

from spillover.tools.reproduce import leases, membership, networked_queues, probing, tokens
from spillover.tools.reproduce.figure import Effort

pytestmark = pytest.mark.slow

SHORT = {
    networked_queues: {"SEEDS": 2},
    tokens: {"JOBS": 10_000},
    membership: {"RUNS": 60},
    probing: {"OBJECTS": 1000, "MANY_OBJECTS": 1, "MANY_PRODUCERS": (100, 200, 300)},
}
"""The constants that make a run of each document's figures short."""
FIGURES = {figure.name: figure for module in (*SHORT, leases) for figure in module.FIGURES}
EXACT = {"comte-9", "comte-10", "comte-12", "lai-polak-5", "lai-polak-6", "lai-polak-7"} | {
    "lai-polak-9", "leases-1", "membership-2", "membership-3", "membership-4",
}  # fmt: skip
"""Figures whose statements all hold in a short run; the others need many more requests for it."""


@pytest.fixture(scope="module")
def measured():
    """`measured(name)` has the values of a figure as they are read back from its file."""
    known = {}

    def compute(name):
        if name not in known:
            shares = []
            if name == "leases-1":
                values = leases.measure(range(3, 5), 40, shares.append)
            else:
                values = FIGURES[name].compute(Effort(full=False), 3, shares.append)
            assert shares == sorted(shares)
            assert 0 < shares[-1] <= 1
            known[name] = json.loads(json.dumps(values, allow_nan=False))
        return known[name]

    with pytest.MonkeyPatch.context() as patch:
        for module, constants in SHORT.items():
            for name, value in constants.items():
                patch.setattr(module, name, value)
        yield compute


@pytest.mark.parametrize("name", FIGURES)
def test_statements_come_out_and_the_figure_draws(measured, name):
    """Each statement says what the document states and what was measured."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    values = measured(name)
    claims = FIGURES[name].claims(values)
    assert claims
    assert all(claim.text and claim.stated and claim.measured for claim in claims)
    if name in EXACT:
        assert [claim.text for claim in claims if not claim.holds] == []
    canvas = Figure(layout="constrained")
    FigureCanvasAgg(canvas)
    FIGURES[name].draw(values, canvas)
    canvas.canvas.draw()
    assert canvas.axes


def test_statements_that_are_not_so_do_not_hold(measured):
    """Statements are judged by the values: others refute them."""
    other = json.loads(json.dumps(measured("lai-polak-7")))
    for statistic in other["speedup"].values():
        statistic["median"] = 0.9
    assert not any(claim.holds for claim in FIGURES["lai-polak-7"].claims(other))
