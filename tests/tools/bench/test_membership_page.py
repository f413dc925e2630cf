"""The page of `spillover bench membership`: its numbers and drawings are those of the runs."""

from __future__ import annotations

import html
import re

import pytest

from spillover.tools.bench.membership.report import report_page
from spillover.tools.bench.membership.rules import RULES, Simulated
from spillover.tools.bench.membership.steps import Look, Run, Step
from spillover.tools.bench.model import BenchPlan

pytest.importorskip("matplotlib")

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
