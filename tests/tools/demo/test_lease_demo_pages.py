"""What the lease demo draws and tells: where things stand in time, and what counts as wrong."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from spillover.tools.demo.leases import timeline
from spillover.tools.demo.leases.checking import StreamCheck
from spillover.tools.demo.leases.display import LeaseDisplay, View, closing_table
from spillover.tools.demo.leases.late_writes import LateWrites
from spillover.tools.demo.leases.model import LeaseDemoResult, MemberResult
from spillover.tools.demo.leases.ownership import Mark, tell_story
from spillover.tools.demo.leases.plan import JOINED, KILLED, RESUMED, LeasePlan
from spillover.tools.demo.leases.report import _facts, _headline, _tiles, report_page
from spillover.tools.demo.leases.timeline import (
    BOTTOM_PX,
    LEFT_PX,
    RIGHT_PX,
    TOP_PX,
    Drawing,
    held_drawing,
    owners_drawing,
    rate_points,
    rates_drawing,
    round_step,
    thinned,
)
from spillover.tools.demo.leases.watching import Look

PLAN = LeasePlan(
    records=100, streams=2, members=3, max_lease_ms=3_000.0, seed=7, redis=None, keep=False,
    limit_s=60.0,
)  # fmt: skip


def line(at_s, node, event, partition, epoch):
    return {"at_s": at_s, "node": node, "event": event, "partition": partition, "epoch": epoch}


LINES = [
    line(0.0, "m1", "acquired", 0, 1), line(0.0, "m2", "acquired", 1, 1),
    line(5.0, "m2", "acquired", 0, 2), line(10.0, "m2", "released", 1, 1),
    line(12.0, "m3", "acquired", 1, 2),
]  # fmt: skip
MARKS = [Mark(2.0, KILLED, "m1"), Mark(2.4, RESUMED, "m2"), Mark(19.0, JOINED, "m3")]


def check(**changes):
    good = {
        "partition": 0, "records": 50, "sum": 1225, "applied": 50, "applied_sum": 1225,
        "distinct": 50, "foreign": 0, "out_of_order": 0, "set_aside": 0, "epoch": 3,
    }  # fmt: skip
    return StreamCheck(**{**good, **changes})


def result(**changes):
    """20 s from 100.0 on: m1 is killed at 2 s, its stream runs again at 5 s."""
    at = [{**told, "at_s": told["at_s"] + 100.0} for told in LINES]
    marks = [replace(mark, at_s=mark.at_s + 100.0) for mark in MARKS]
    made = LeaseDemoResult(
        plan=PLAN,
        group="g",
        redis_version="7.2",
        began_s=100.0,
        settled_s=101.0,
        ended_s=120.0,
        applied_s=110.0,
        marks=marks,
        story=tell_story(at, marks, 120.0, 2),
        looks=[Look(100.0 + k / 4, 4 * k, 2 * k) for k in range(51)],
        checks=[check(), check(partition=1)],
        late_writes=LateWrites(tried=3, refused=3),
        members=[
            MemberResult("m1", KILLED, 1, 1, 0, 2),
            MemberResult("m2", "stayed", 2, 2, 0, 3),
            MemberResult("m3", JOINED, 1, 1, 0, 0),
        ],
        phases_s={"fill": 1.0, "disturb": 20.04},
        finished_at="2031-02-03 04:05 UTC",
    )
    return replace(made, **changes)


def x(at_s, width_px=860):
    """Where an instant is: the axis begins at the left edge and ends at the right one."""
    return pytest.approx(LEFT_PX + (width_px - LEFT_PX - RIGHT_PX) * at_s / 20.0)


def test_time_goes_from_edge_to_edge():
    drawing = Drawing(result(), 500, 100.0, "")
    assert drawing.x(100.0) == LEFT_PX == drawing.x(90.0)
    assert drawing.x(120.0) == 500 - RIGHT_PX == drawing.x(130.0)
    assert drawing.x(105.0) == x(5.0, 500)
    assert drawing.height_px == 100.0 + BOTTOM_PX


def test_seconds_are_told_at_round_numbers():
    """At most eight; 20 s are told each 5, from the top to the axis."""
    drawing = Drawing(result(), 860, 200.0, "")
    drawing.add_time(58.0)
    assert drawing.grid == [(x(s), x(s), 58.0, 200.0) for s in (0, 5, 10, 15, 20)]
    told = [(text.words, text.x, text.anchor) for text in drawing.texts if text.kind == "tick"]
    assert told == [
        *((str(s), x(s), "middle") for s in (0, 5, 10, 15, 20)),
        ("time, s", (LEFT_PX + 860 - RIGHT_PX) / 2, "middle"),
    ]
    assert all(text.y > 200.0 for text in drawing.texts if text.kind == "tick")


def test_what_was_done_is_told_above_without_overlap():
    """Two marks close to each other in two rows; one at the right edge ends there."""
    drawing = Drawing(result(), 860, 200.0, "")
    drawing.add_time(58.0)
    killed, resumed, joined = (text for text in drawing.texts if text.kind == "mark")
    assert [text.words for text in (killed, resumed, joined)] == [
        "m1 killed", "m2 resumed", "m3 joined",
    ]  # fmt: skip
    assert killed.y == joined.y > resumed.y
    assert (killed.anchor, joined.anchor) == ("start", "end")
    assert killed.x > x(2.0).expected
    assert joined.x < x(19.0).expected
    assert [at for at, _ in drawing.marks] == [x(2.0), x(2.4), x(19.0)]
    assert all(
        y < text.y for (_, y), text in zip(drawing.marks, (killed, resumed, joined), strict=True)
    )


def test_curves_have_a_scale_of_round_steps_from_the_bottom_up():
    """9 is told by 5 and 10; the highest step is below the top of the panel."""
    drawing = Drawing(result(), 860, 400.0, "")
    drawing.add_panel(100.0, 108.0, "Title", [([(100.0, 0.0), (110.0, 9.0)], "blue"), ([], "red")])
    assert [text.words for text in drawing.texts] == ["0", "5", "10", "Title"]
    assert [y for _, _, y, _ in drawing.grid] == [208.0, 158.0, 108.0]
    assert {(x1, x2) for x1, x2, _, _ in drawing.grid} == {(LEFT_PX, 860 - RIGHT_PX)}
    ((curve, stroke),) = drawing.curves
    assert (stroke, curve) == ("blue", [(x(0.0), 208.0), (x(10.0), pytest.approx(118.0))])
    assert drawing.texts[-1].y == 92.0
    drawing.add_panel(TOP_PX, 108.0, "First", [])
    assert [text.words for text in drawing.texts[4:]] == ["0", "0.5", "First"]
    assert drawing.texts[-1].y == timeline.TITLE_PX


def test_owners_are_bars_and_nobody_is_a_thin_one():
    drawing = owners_drawing(result(), 860)
    bars = {(bar.kind, round(bar.x, 3)): bar for bar in drawing.bars}
    first = bars["bar", LEFT_PX]
    assert sum(1 for bar in drawing.bars if bar.kind == "bar") == 4
    gaps = [bar for bar in drawing.bars if bar.kind == "gap"]
    assert [(gap.x, gap.x + gap.width) for gap in gaps] == [(x(2.0), x(5.0)), (x(10.0), x(12.0))]
    assert gaps[0].words == "stream 0: nobody for 3.000 s (killed), from m1 to m2"
    told = [bar.words for bar in drawing.bars if bar.kind == "bar"]
    assert "stream 0: m1, epoch 1, 0.00 to 2.00 s, then killed" in told
    assert "stream 0: m2, epoch 2, 5.00 to 20.00 s, until the end" in told
    assert "stream 1: m2, epoch 1, 0.00 to 10.00 s, handed over" in told
    # Two streams: rows are as high as they may be, and bars stand in their middle.
    row = timeline.ROW_PX_MAX
    assert drawing.bottom_px == TOP_PX + 2 * row
    for bar in drawing.bars:
        partition = int(bar.words.split()[1].rstrip(":"))
        assert bar.y + bar.height / 2 == pytest.approx(TOP_PX + row * (partition + 0.5))
        assert bar.height < row
    assert all(gap.height < first.height for gap in gaps)
    fills = {
        bar.words.split()[2].rstrip(","): bar.fill for bar in drawing.bars if bar.kind == "bar"
    }
    assert fills == {"m1": "var(--series-0)", "m2": "var(--series-1)", "m3": "var(--series-2)"}
    assert {gap.fill for gap in gaps} == {"var(--warning)"}
    assert [t.words for t in drawing.texts if t.kind == "tick" and t.anchor == "end"] == ["0", "1"]


def test_nothing_is_too_short_to_be_seen_and_many_rows_are_lower():
    looked = tell_story(
        [line(105.0, "m9", "acquired", 0, 1), line(105.0, "m9", "released", 0, 1)], [], 120.0, 1
    )
    (bar,) = owners_drawing(result(story=looked), 860).bars
    assert bar.width > 0.5
    assert bar.fill == "var(--muted)"
    many = owners_drawing(result(plan=replace(PLAN, streams=92, records=100)), 860)
    assert many.bottom_px == TOP_PX + timeline.ROWS_PX
    numbers = [text.words for text in many.texts if text.kind == "tick" and text.anchor == "end"]
    assert numbers == [str(k) for k in range(0, 92, 3)]


def test_rates_and_what_waits_have_a_panel_each():
    """16 written and 8 applied each second: 8 more wait."""
    drawing = rates_drawing(result(), 860)
    (rates, blue), (waiting, orange) = drawing.curves
    assert (blue, orange) == ("var(--networked)", "var(--isolated)")
    assert len({round(y, 6) for _, y in rates}) == 1
    assert waiting[0][1] > waiting[-1][1]
    assert max(y for _, y in rates) < min(y for _, y in waiting)
    titles = [text.words for text in drawing.texts if text.kind == "title"]
    assert titles == ["Records applied per second", "Records waiting in the streams"]
    scales = [text.words for text in drawing.texts if text.kind == "tick" and text.anchor == "end"]
    assert scales == ["0", "2", "4", "6", "8", "0", "50", "100"]


def test_streams_held_are_steps_for_each_member():
    drawing = held_drawing(result(), 860)
    assert [stroke for _, stroke in drawing.curves] == [f"var(--series-{k})" for k in range(3)]
    first = drawing.curves[0][0]
    assert [at for at, _ in first] == [x(0.0), x(0.0), x(2.0), x(2.0)]


def over(text):
    """What it covers, about: left, right, top, bottom; small letters are 7 px wide and 9 high."""
    width = 7.0 * len(text.words)
    left = text.x - {"start": 0.0, "middle": 0.5, "end": 1.0}[text.anchor] * width
    return left, left + width, text.y - 9.0, text.y


@pytest.mark.parametrize("width_px", [timeline.WIDE_PX, timeline.NARROW_PX])
@pytest.mark.parametrize("draw", [owners_drawing, rates_drawing, held_drawing])
def test_nothing_leaves_its_drawing_and_no_words_stand_over_others(draw, width_px):
    drawing = draw(result(), width_px)
    right_px = width_px - RIGHT_PX
    for x1, x2, y1, y2 in drawing.grid:
        assert LEFT_PX <= x1 <= x2 <= right_px
        assert TOP_PX <= y1 <= y2 <= drawing.bottom_px
    for bar in drawing.bars:
        assert LEFT_PX <= bar.x < bar.x + bar.width <= right_px + 1.0
        assert TOP_PX <= bar.y < bar.y + bar.height <= drawing.bottom_px
    for points, _ in drawing.curves:
        assert all(LEFT_PX <= x <= right_px for x, _ in points)
        assert all(TOP_PX <= y <= drawing.bottom_px for _, y in points)
    assert all(0.0 <= y < TOP_PX for _, y in drawing.marks)
    covered = sorted(map(over, drawing.texts))
    for number, (left, right, top, bottom) in enumerate(covered):
        assert 0.0 <= left < right <= width_px
        assert 0.0 <= top < bottom <= drawing.height_px
        for others_left, others_right, others_top, others_bottom in covered[:number]:
            assert (
                min(right, others_right) <= max(left, others_left)
                or min(bottom, others_bottom) <= max(top, others_top)
            )  # fmt: skip


@pytest.mark.parametrize("draw", [owners_drawing, rates_drawing, held_drawing])
def test_words_stand_beside_what_they_tell(draw):
    """Numbers of rows left of their middles, those of scales left of their lines; names of marks
    and titles above what is drawn, whatever is told of time below."""
    drawing = draw(result(), 860)
    kinds = {
        kind: [t for t in drawing.texts if t.kind == kind] for kind in ("tick", "mark", "title")
    }
    of_rows = [text for text in kinds["tick"] if text.anchor == "end"]
    if drawing.bars:
        row = timeline.ROW_PX_MAX
        places = [TOP_PX + row * (int(text.words) + 0.5) for text in of_rows]
    else:
        places = [y for x1, x2, y, _ in drawing.grid if x1 < x2]
    for text, y in zip(of_rows, places, strict=True):
        assert LEFT_PX - 10 < text.x < LEFT_PX
        assert y < text.y < y + 9.0, "its middle is there"
    assert all(text.y > drawing.bottom_px + 9.0 for text in kinds["tick"] if text not in of_rows)
    assert {mark.anchor for mark in kinds["mark"]} == {"start", "end"}
    assert all(mark.y < TOP_PX for mark in kinds["mark"])
    first, *more = kinds["title"]
    assert (first.x, first.y, first.anchor) == (LEFT_PX, timeline.TITLE_PX, "start")
    for title in more:
        assert max(y for _, y in drawing.curves[0][0]) < title.y - 9.0
        assert title.y < min(y for _, y in drawing.curves[1][0])


def test_rates_are_those_of_stretches_that_are_long_enough():
    looks = [
        Look(0.0, 9, 0),
        Look(0.25, 9, 9),
        Look(0.5, 9, 10),
        Look(0.75, 9, 11),
        Look(1.5, 9, 30),
    ]
    assert rate_points(looks, 0.5) == [(0.25, 20.0), (1.0, 20.0)]


def test_points_are_thinned_evenly():
    points = [(float(k), 0.0) for k in range(10)]
    assert thinned(points, 10) == points
    assert [at for at, _ in thinned(points, 9)] == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert len(thinned([(0.0, 0.0)] * 1201)) == 401


def test_steps_are_1_2_5_and_10():
    for least, step in (
        (0.0, 1.0),
        (-1.0, 1.0),
        (1.0, 1.0),
        (1.1, 2.0),
        (2.1, 5.0),
        (5.1, 10.0),
        (0.03, 0.05),
    ):
        assert round_step(least) == pytest.approx(step)


# --- what counts as wrong -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"applied": 51}, {"applied": 49}, {"applied_sum": 1226}, {"distinct": 49}, {"foreign": 1},
        {"out_of_order": 1}, {"set_aside": 1},
    ],
)  # fmt: skip
def test_a_stream_is_right_in_every_count_or_wrong(wrong):
    assert check().problem == ""
    assert not check(**wrong).is_exactly_once
    assert check(**wrong).problem.startswith("stream 0: 50 records with sum 1225, applied ")


def test_records_are_counted_over_all_streams():
    two = result(checks=[check(distinct=48, applied=49), check(partition=1, applied=52)])
    assert (two.records, two.applied, two.missing, two.duplicates) == (100, 101, 2, 3)
    assert two.records_per_s == pytest.approx(10.1)
    assert result().problems == []
    assert result(checks=[check()]).problems == ["50 records lie in the streams, 100 written"]
    late = result(late_writes=LateWrites(tried=3, refused=2, accepted=1))
    assert late.problems == ["the sink took 1 of 3 writes that came too late"]
    assert result().told_end() == [
        "100 records: 100 times applied, 0 again, 0 missing; 10/s with standstills.",
        "The sink refused 3 of 3 writes of former holders that came after others had taken over.",
        "Each record was applied exactly once, in all 2 streams.",
    ]


def test_the_page_says_what_came_of_it():
    assert _headline(result()) == "100 records, each applied exactly once"
    assert "this is a bug in Spillover" in _headline(result(checks=[check()]))
    tiles = _tiles(result())
    assert tiles[:2] == [
        ("100", "records applied: 0 missing, 0 doubled"),
        ("3 of 3", "late writes of former holders refused by the sink"),
    ]
    assert [words for _, words in tiles[2:]] == [
        f"longest standstill of a stream: member {how}" for how in ("killed", "frozen", "added")
    ]
    assert "3" in tiles[2][0]
    facts = _facts(result())
    assert facts["late renewals"] == "5"
    assert facts["records"] == "100 in 2 streams, 10/s"
    assert facts["what took how long"] == "fill 1.0 s, disturb 20.0 s"
    assert facts["lease times"] == (
        "normal 1000 ms, maximum 3000 ms, shutdown 1000 ms, grab 500 ms, delay 20 ms"
    )
    assert (facts["seed"], facts["finished"]) == ("7", "2031-02-03 04:05 UTC")


def test_the_page_tells_for_how_long_a_member_is_frozen():
    """Two maximum leases."""
    page = report_page(result())
    assert "<b>frozen</b> for 6 s and woken again" in page


# --- what is shown meanwhile ----------------------------------------------------------------------


def view(at_s, applied=40, owners=("m1", None)):
    return View(
        at_s=at_s, written=90, applied=applied, rate_per_s=12.4,
        members=[("m1", "running", 1), ("m2", "frozen", 0)], owners=list(owners),
    )  # fmt: skip


def test_lines_come_now_and_then(capsys):
    display = LeaseDisplay()
    with display.filling(50) as wrote:
        wrote(10)
    with display.run(PLAN):
        for at_s in (0.0, 4.9, 5.0, 9.9, 10.5):
            display.show(view(at_s))
        display.tell(11.25, "m1 killed")
    assert capsys.readouterr().err.splitlines() == [
        "writing 50 records ...",
        *(f"{at:5.1f} s  40 of 100 applied, 12/s, held m1:1 m2:0" for at in (0.0, 5.0, 10.5)),
        " 11.2 s  m1 killed",
    ]


def test_a_terminal_shows_who_holds_what():
    display = LeaseDisplay()
    display.console = Console(
        file=io.StringIO(), force_terminal=True, width=120, height=40, color_system=None
    )
    with display.filling(50) as wrote:
        wrote(20)
    with display.run(PLAN):
        for number in range(12):
            display.tell(float(number), f"event {number}")
        display.show(view(12.0, owners=("m1", "m2")))
        display.show(view(13.0))
    told = display.console.file.getvalue().splitlines()
    assert any("writing 50 records" in line and "20 of 50" in line for line in told)
    assert any("records applied" in line and "40 of 100" in line for line in told)
    assert any(" 13.0 s  12 records/s applied, 50 waiting" in line for line in told)
    rows = [line.split() for line in told if "running" in line or "frozen" in line]
    assert rows[-2] == ["m1", "running", "1", "█" * 16]
    assert rows[-1] == ["m2", "frozen", "0"]
    assert [line.split()[-1] for line in told if " streams " in line][-1] == "■·"
    events = [line.split()[-1] for line in told if "event " in line][-10:]
    assert events == [str(number) for number in range(2, 12)]


def test_the_closing_table_has_a_row_for_each_disturbance():
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(closing_table(result()))
    told = console.file.getvalue()
    assert "What each disturbance cost" in told
    (row,) = [line.split() for line in told.splitlines() if "m1 killed" in line]
    assert "1" in row
