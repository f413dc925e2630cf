"""The arithmetic of benchmarks: medians and ratios, who is measured when, what was wanted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from spillover.model.errors import InputError, RunError
from spillover.tools.bench.display import MISSING, Display, _table, number
from spillover.tools.bench.model import BenchPlan, BenchResult, Figure, Row, Side, Stage
from spillover.tools.bench.session import Session

SPEED, DELAY = Figure("speed, small", "requests/s"), Figure("delay, small", "ms")


def session_of(**fields):
    return Session(BenchPlan(**fields), say=lambda _: None)


def side(name, runs, calls):
    """A side whose runs give these values, and that notes when it was asked."""
    values = iter(runs)

    async def measure():
        calls.append(name)
        return next(values)

    return Side(name, measure)


def test_a_row_shows_medians_and_their_ratio():
    """One run that went wrong moves neither."""
    row = Row(
        case="c",
        unit="ms",
        values=(10.0, 900.0, 12.0),
        peer="p",
        peer_values=(6.0, 5.0, 0.1),
    )
    shown = row.as_dict()
    assert shown == {
        "case": "c",
        "value": 12.0,
        "unit": "ms",
        "runs": 3,
        "peer": "p",
        "peer_value": 5.0,
        "ratio": 2.4,
        "values": [10.0, 900.0, 12.0],
        "peer_values": [6.0, 5.0, 0.1],
    }
    json.dumps(shown, allow_nan=False)


def test_a_row_tells_its_intervals_only_if_they_are_known():
    told = {"case": "c", "unit": "ms", "values": (1.0,), "peer": "p", "peer_values": (2.0,)}
    shown = Row(**told, half_width=0.5).as_dict()
    assert (shown["half_width"], shown["peer_half_width"]) == (0.5, None)
    assert Row(**told).as_dict().keys() == shown.keys() - {"half_width", "peer_half_width"}


@pytest.mark.parametrize("peer_values", [(), (0.0,), (-1.0,)])
def test_a_row_without_a_measure_beside_it_has_no_ratio(peer_values):
    """No peer, or one whose value came out as nothing: never a division by zero."""
    row = Row(case="c", unit="ms", values=(1.0,), peer_values=peer_values)
    assert row.ratio is None


def test_sides_are_measured_in_turn():
    """Each once a run, in the order turned round every other run."""
    calls = []
    session = session_of(runs=3)
    ours = side("ours", [(1, 10), (3, 30), (2, 20)], calls)
    peer = side("peer", [(4, 1), (4, 1), (4, 1)], calls)
    asyncio.run(session.compare([SPEED, DELAY], ours, peer))
    assert calls == ["ours", "peer", "peer", "ours", "ours", "peer"]
    rows = [(row.case, row.unit, row.value, row.peer_value, row.ratio) for row in session.rows]
    assert rows == [
        ("speed, small", "requests/s", 2.0, 4.0, 0.5),
        ("delay, small", "ms", 20.0, 1.0, 20.0),
    ]


def test_a_run_of_several_turns_is_all_of_them_together():
    """All sides have had theirs before anyone's next one."""
    calls = []
    session = session_of(runs=2)
    ours = side("ours", [(1, 10), (3, 30), (5, 40), (9, 60)], calls)
    peer = side("peer", [(4, 1), (6, 1), (4, 1), (4, 1)], calls)
    asyncio.run(session.compare([SPEED, DELAY], ours, peer, turns=2))
    assert calls == ["ours", "peer", "peer", "ours"] * 2
    assert [(row.values, row.peer_values) for row in session.rows] == [
        ((2, 7), (5, 4)),
        ((20, 50), (1, 1)),
    ]


def test_what_a_run_took_is_added_up_before_it_is_divided():
    """Else a turn in which the clock took one step too few would count as much as the others."""
    session = session_of(runs=1)
    ours = side("ours", [((10, 1.0),), ((10, 3.0),)], [])
    asyncio.run(session.compare([SPEED], ours, turns=2))
    assert session.rows[0].values == (5.0,)
    idle = side("idle", [((10, 0.0),), ((10, 0.0),)], [])
    with pytest.raises(RunError, match=r"^idle: "):
        asyncio.run(session.compare([SPEED], idle, turns=2))


def test_a_row_for_each_peer():
    """With the same runs of ours in both; and one row where nobody is to compare with."""
    session = session_of(runs=1)
    calls = []
    ours, *peers = (side(name, [(value,)], calls) for name, value in (("o", 8), ("p", 4), ("q", 2)))
    asyncio.run(session.compare([SPEED], ours, *peers))
    assert [(row.peer, row.value, row.ratio) for row in session.rows] == [("p", 8, 2), ("q", 8, 4)]
    asyncio.run(session.compare([SPEED], side("o", [(3,)], calls)))
    assert (session.rows[-1].value, session.rows[-1].peer) == (3, None)


def test_only_wanted_figures_become_rows():
    """A run that gives two figures may be asked for one."""
    session = session_of(runs=1, case="delay")
    asyncio.run(session.compare([SPEED, DELAY], side("o", [(1, 2)], [])))
    assert [row.case for row in session.rows] == ["delay, small"]


def test_only_wanted_stages_run():
    """A stage starts its processes for nothing otherwise."""
    ran = []

    def stage(*cases):
        async def run(_):
            ran.append(cases)

        return Stage(cases, run)

    stages = [stage("local, small", "local, large"), stage("forwarded, large"), stage("idle")]
    asyncio.run(session_of(case="large").run(stages))
    assert ran == [("local, small", "local, large"), ("forwarded, large",)]
    with pytest.raises(
        InputError, match=r"one of: local, small; local, large; forwarded, large; idle; got 'x'$"
    ):
        asyncio.run(session_of(case="x").run(stages))


def test_notes_are_kept_once():
    """Whatever the number of runs that found the same missing."""
    session = session_of()
    session.note("no HAProxy")
    session.note("no HAProxy")
    assert session.notes == ["no HAProxy"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        *((12345.6, "12 346"), (100.5, "100"), (100.0, "100"), (99.96, "100.0"), (10.5, "10.5")),
        *((10.0, "10.0"), (9.5, "9.50"), (1.234, "1.23"), (-0.5, "-0.50"), (None, MISSING)),
    ],
)
def test_numbers_are_short(value, shown):
    assert number(value) == shown


def test_a_table_has_numbers_at_the_right_and_what_is_missing_as_a_dash():
    """Its title says how many runs they are of."""
    alone = Row(case="alone", unit="ms", values=(2.0, 4.0))
    beside = Row(
        case="beside", unit="us", values=(2.0,), half_width=0.5, peer="p", peer_values=(8.0,)
    )
    table = _table(BenchResult("node", BenchPlan(runs=3), {}, (alone, beside), ()))
    assert table.title == "bench node: medians of 3 runs"
    assert [(str(c.header), c.justify, c.no_wrap) for c in table.columns] == [
        ("case", "left", False),
        ("value", "right", True),
        ("unit", "left", False),
        ("peer", "left", False),
        ("its value", "right", True),
        ("ratio", "right", True),
    ]
    rows = list(zip(*(column.cells for column in table.columns), strict=True))
    assert rows == [
        ("alone", "3.00", "ms", MISSING, MISSING, MISSING),
        ("beside", "2.00 \N{PLUS-MINUS SIGN} 0.50", "us", "p", "8.00", "0.25"),
    ]
    two = _table(BenchResult("sim", BenchPlan(runs=2), {}, (), ()))
    assert two.title == "bench sim: medians of 2 runs"
    one = _table(BenchResult("sim", BenchPlan(runs=1), {}, (), ()))
    assert one.title == "bench sim: one run"


def test_people_are_told_the_rows_the_machine_and_all_notes(capsys):
    told = {"cpu": "Fast one", "cores": 3, "system": "Some 1.2", "python": "3.14.1"}
    machine = {**told, "load_1min": 0.25}
    row = Row(case="alone", unit="ms", values=(2.0,))
    display = Display()
    display.say("under way")
    display.show(BenchResult("node", BenchPlan(runs=1), machine, (row,), ("one note", "two")))
    shown = " ".join(capsys.readouterr().err.split())
    assert shown.startswith("under way bench node: one run")
    assert "On Fast one, 3 cores, Some 1.2, Python 3.14.1; load when it began 0.25." in shown
    assert shown.endswith("one note two")


def test_a_result_tells_its_plan_and_what_is_behind_its_rows():
    """The page by its name; details only where there are any."""
    row = Row(case="alone", unit="ms", values=(2.0,))
    plan = BenchPlan(runs=1, seed=7, report=Path("page.html"))
    told = BenchResult("node", plan, {"cores": 3}, (row,), ("a note",), ({"seed": 7},)).as_dict()
    assert (told["name"], told["machine"], told["notes"]) == ("node", {"cores": 3}, ["a note"])
    assert (told["rows"], told["details"]) == ([row.as_dict()], [{"seed": 7}])
    assert (told["plan"]["report"], told["plan"]["seed"]) == ("page.html", 7)
    without = BenchResult("node", BenchPlan(), {}, (), ()).as_dict()
    assert without["plan"]["report"] is None
    assert without.keys() == {"name", "machine", "rows", "notes", "plan"}


def test_figures_and_runs_that_are_missing_on_one_side_are_not_passed_over():
    """What is left would be compared with something else."""
    row = Row(case="c", unit="ms", values=(1.0, 2.0), peer="p", peer_values=(4.0,), paired=True)
    with pytest.raises(ValueError, match="zip"):
        _ = row.ratio
    fewer = side("ours", [(1, 10), (3,)], [])
    with pytest.raises(ValueError, match="zip"):
        asyncio.run(session_of(runs=1).compare([SPEED, DELAY], fewer, turns=2))


def test_a_plan_of_which_nothing_is_said_is_not_a_quick_one():
    """And measures all cases."""
    plan = BenchPlan()
    assert plan.of(3.0, 1.0) == 3.0
    assert Session(plan, print).wants("any case")
    assert Row(case="c", unit="ms", values=(1.0,), peer_values=(2.0, 2.0)).ratio == 0.5
