"""The page of `spillover bench membership`: its numbers and drawings are those of the runs."""

from __future__ import annotations

import html
import re

import pytest

from spillover.tools.bench.membership.figures import LEGEND, NARROW_PX, WIDE_PX, draw, over_time
from spillover.tools.bench.membership.report import report_page
from spillover.tools.bench.membership.rules import RULES, Simulated
from spillover.tools.bench.membership.steps import Look, Run, Step
from spillover.tools.bench.model import BenchPlan
from spillover.tools.report.drawing import color

Figure = pytest.importorskip("matplotlib.figure").Figure

LISTS = (("a", "b", "c"), ("a",), ("a", "b"), ("a", "b", "c"))
COUNTS = ({"a": 20, "b": 19, "c": 21}, {"a": 60}, {"a": 33, "b": 27}, {"a": 18, "b": 20, "c": 22})
MOVED, PUT_OFF = (0, 17, 57, 84, 107), (0, 1, 3, 6, 10)


def run_of(rule, seed=1, fullest=60):
    """Four steps of ten seconds each, from an even start."""
    looks = [Look(0.0, {"a": 20, "b": 20, "c": 20}, 0, 0, 0)]
    looks += [
        Look(10.0 * n, counts, 0, MOVED[n], PUT_OFF[n]) for n, counts in enumerate(COUNTS, start=1)
    ]
    steps = [
        Step(servers, looks[n], looks[n + 1], 10.0 * n, n + 0.5) for n, servers in enumerate(LISTS)
    ]
    shares = tuple((1.0 + n / 4, 1.5 + n / 4, 1.1 + n / 4) for n in range(4))
    simulated = Simulated(moved=((1, 9, 3),) * 4, fullest=shares, emptiest=shares)
    over_time = [(0.0, 20, 20.0, 20), (10.0, 19, 20.0, 21), (20.0, 60, 60.0, fullest)]
    requests = {"ok": 500, "failed": 2, "unknown": 1, "retried": 9}
    return Run(rule, seed, simulated, over_time, steps, requests)


def rows_of(page):
    """The cells of each row of each table, as text."""
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    cells = (re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows)
    return [[html.unescape(re.sub(r"<[^>]*>", "", cell)).strip() for cell in row] for row in cells]


@pytest.mark.slow
def test_each_number_is_in_its_place():
    """Those of the four steps, what is simulated beside them, and what they come to."""
    rows = rows_of(report_page([run_of(RULES[0])], BenchPlan(runs=1, seed=1), 60, 3, 30.0))
    assert rows[1] == ["probabilistic", "1.10", "0.90", "107", "90", "3 of 503", "10", "3.5"]
    assert rows[3:7] == [
        ["1. 1 out", "19", "20.0", "21", "1.05 (1.10)", "17 (3)", "0", "1", "0.5"],
        ["2. 2 out", "60", "60.0", "60", "1.00 (1.35)", "40 (3)", "40", "2", "1.5"],
        ["3. 1 out, 3 in", "27", "30.0", "33", "1.10 (1.60)", "27 (3)", "30", "3", "2.5"],
        ["4. 1 in", "18", "20.0", "22", "1.10 (1.85)", "23 (3)", "20", "4", "3.5"],
    ]


@pytest.mark.slow
def test_runs_are_told_apart_and_drawn_on_one_scale():
    """With room for the fullest server of all of them; the seed stands where there are several."""
    runs = [run_of(RULES[1], seed) for seed in (3, 4)]
    runs[1].over_time.append((40.0, 0, 20.0, 200))
    page = report_page(runs, BenchPlan(runs=2, seed=3), 60, 3, 30.0)
    assert [row[0] for row in rows_of(page)[1:3]] == ["stratified, seed 3", "stratified, seed 4"]
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawings) == 2 * len(runs)
    for drawing in drawings:
        numbers = [float(one) for one in re.findall(r">(\d+)</text>", drawing)]
        assert 200.0 in numbers
        assert max(numbers) <= 220.0
    assert "quick run" not in page
    assert "Each client waits up to\n30 s" in page


def test_the_drawing_has_the_counts_and_where_changes_began():
    """Between the fewest and the most it is filled; each change has its number at the top."""
    figure = Figure()
    draw(run_of(RULES[0]), 66.0, figure)
    (axes,) = figure.axes
    *counts, first, _, _, fourth = axes.get_lines()
    assert [[int(y) for y in line.get_ydata()] for line in counts] == [
        [20, 21, 60], [20, 20, 60], [20, 19, 60],
    ]  # fmt: skip
    for line, (name, _) in zip(counts, LEGEND, strict=True):
        assert list(line.get_xdata()) == [0.0, 10.0, 20.0]
        assert (line.get_color(), line.get_drawstyle()) == (color(name), "steps-post")
    assert [what for _, what in LEGEND] == ["fullest server", "mean", "emptiest server"]
    (filled,) = axes.collections
    (corners,) = (path.vertices.tolist() for path in filled.get_paths())
    assert {(10.0, 19.0), (10.0, 21.0), (20.0, 60.0)} <= {tuple(corner) for corner in corners}
    assert (10.0, 60.0) not in {tuple(corner) for corner in corners}, "what holds until the next"
    assert filled.get_alpha() == 0.5
    assert (list(first.get_xdata()), list(fourth.get_xdata())) == ([0.0, 0.0], [30.0, 30.0])
    assert {first.get_color(), fourth.get_color()} == {color("muted")}
    assert first.get_linestyle() == ":"
    assert first.get_linewidth() < counts[0].get_linewidth()
    marks = [(text.get_text(), text.xy, text.get_va()) for text in axes.texts]
    assert marks == [(str(n), (10.0 * (n - 1), 66.0), "top") for n in (1, 2, 3, 4)]
    assert all(beside > 0 > below for beside, below in (text.xyann for text in axes.texts))
    assert (axes.get_ylim(), axes.get_xlim()) == ((0.0, 66.0), (0.0, 20.0))
    assert axes.get_title() == "Clients of a server"
    assert axes.get_xlabel() == "time, s"


def test_a_drawing_is_as_wide_as_it_is_to_be_and_says_what_it_is():
    wide, narrow = (over_time(run_of(RULES[1]), 66.0, width) for width in (WIDE_PX, NARROW_PX))
    assert "--drawn-width: 860px" in wide
    assert "--drawn-width: 380px" in narrow
    label = "stratified: the fewest, the mean and the most clients of a server over time"
    for drawing, width in ((wide, 860), (narrow, 380)):
        assert f'aria-label="{label}"' in drawing
        assert re.search(f'viewBox="0 0 {width} 250"', drawing)
