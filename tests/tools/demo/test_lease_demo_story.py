"""What the lease demo makes of lines and of Redis: owners, standstills, the check, the report."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.cli import lease_demo
from spillover.live.leases.streams import example
from spillover.live.leases.streams.keys import StreamKeys
from spillover.live.leases.streams.reader import StreamReader
from spillover.live.leases.streams.writer import StreamWriter
from spillover.model.errors import InputError
from spillover.tools.demo.leases.checking import StreamCheck, check_streams, remove_keys
from spillover.tools.demo.leases.display import LeaseDisplay
from spillover.tools.demo.leases.filling import Portion, _fill
from spillover.tools.demo.leases.late_writes import LateWrites
from spillover.tools.demo.leases.model import LeaseDemoResult, MemberResult
from spillover.tools.demo.leases.ownership import Mark, Standstill, tell_story, with_applied_gaps
from spillover.tools.demo.leases.plan import FROZEN, JOINED, KILLED, RESUMED, LeasePlan
from spillover.tools.demo.leases.report import report_page
from spillover.tools.demo.leases.timeline import held_points, round_step
from spillover.tools.demo.leases.watching import Look

STREAMS = 4


def plan(**changes):
    given_plan = {
        "records": 100, "streams": STREAMS, "members": 3, "max_lease_ms": 3_000.0, "seed": 1,
        "redis": None, "keep": False, "limit_s": 60.0,
    }  # fmt: skip
    return LeasePlan(**{**given_plan, **changes})


def line(at_s, node, event, partition, epoch):
    return {"at_s": at_s, "node": node, "event": event, "partition": partition, "epoch": epoch}


LINES = [
    line(1.0, "m1", "acquired", 0, 1),
    line(1.0, "m2", "acquired", 1, 1),
    line(1.1, "m1", "acquired", 2, 1),
    line(1.2, "m1", "releasing", 2, 1),
    line(1.3, "m1", "released", 2, 1),
    line(1.3, "m3", "acquired", 2, 2),
    line(1.4, "m3", "acquired", 3, 1),
    {"at_s": 1.5, "node": "m1", "event": "renewed_late"},
    line(8.0, "m2", "acquired", 0, 2),  # after the kill of m1 at 5
    line(14.0, "m2", "acquired", 2, 3),  # after the freeze of m3 at 10
    line(14.5, "m2", "acquired", 3, 2),
    line(16.01, "m3", "fenced", 2, 2),  # it wakes up
    line(16.01, "m3", "fenced", 3, 1),
    line(18.0, "m2", "released", 3, 2),
    line(18.25, "m3", "acquired", 3, 3),
    line(21.0, "m2", "released", 0, 2),
    line(21.5, "m4", "acquired", 0, 3),
    line(30.0, "m4", "released", 0, 3),  # after the end
]
MARKS = [
    Mark(5.0, KILLED, "m1"),
    Mark(10.0, FROZEN, "m3"),
    Mark(16.0, RESUMED, "m3"),
    Mark(20.0, JOINED, "m4"),
]


@given(order=st.permutations(range(len(LINES))))
def test_standstills_by_cause_whatever_order_lines_come_in(order):
    """From the kill or the freeze, else from the end of the old handler, to the new one's start."""
    story = tell_story([LINES[index] for index in order], MARKS, 25.0, STREAMS)
    found = {(one.cause, one.partition): round(one.length_s, 3) for one in story.standstills}
    assert found == {
        ("start", 2): 0.0,
        (KILLED, 0): 3.0,
        (FROZEN, 2): 4.0,
        (FROZEN, 3): 4.5,
        (RESUMED, 3): 0.25,
        (JOINED, 0): 0.5,
    }
    assert story.moves == {
        "start": 1, KILLED: 1, FROZEN: 2, RESUMED: 1, JOINED: 1, "evened": 0,
    }  # fmt: skip
    assert story.open == []
    # 1, 1, 2 without the first: 1; 2, 2 without the second: 2; 4, 0: 2; 3, 1, 0: 1.
    assert story.fewest_moves == 1 + 2 + 2 + 1
    ends = [(span.partition, span.node, span.end) for span in story.spans]
    assert (0, "m1", KILLED) in ends
    assert (2, "m3", FROZEN) in ends
    assert (0, "m4", "end") in ends
    assert all(span.from_s <= span.to_s <= 25.0 for span in story.spans)


def test_a_stream_that_nobody_serves_at_the_end_is_named():
    """Also one that never was served."""
    lines = [line(1.0, "m1", "acquired", 0, 1), line(2.0, "m1", "lost", 0, 1)]
    assert tell_story(lines, [], 3.0, 2).open == [0, 1]


def test_a_holder_that_does_not_notice_ends_when_the_next_begins():
    """No two bars of one stream lie over each other."""
    lines = [line(1.0, "a", "acquired", 0, 1), line(4.0, "b", "acquired", 0, 2)]
    story = tell_story([*lines, line(5.0, "a", "fenced", 0, 1)], [], 6.0, 1)
    assert [(span.node, span.to_s, span.end) for span in story.spans] == [
        ("a", 4.0, "taken"),
        ("b", 6.0, "end"),
    ]


def test_gaps_between_applied_records_are_those_around_the_standstill():
    """Growth that was seen only after the beginning shortens none; gaps elsewhere do not count."""
    seen = {0: [(0.1, 1), (4.5, 5), (4.9, 6), (5.3, 9), (8.4, 12), (8.5, 20), (16.0, 21)]}
    one = Standstill(0, KILLED, 5.0, 8.2, "a", "b")
    (found,) = with_applied_gaps([one], seen)
    assert found.applied_gap_s == pytest.approx(8.4 - 5.3)
    (found,) = with_applied_gaps([one], {0: [(1.0, 5)]})
    assert found.applied_gap_s is None


def test_held_counts_are_steps():
    """Up with each start, down with each end."""
    story = tell_story(LINES, MARKS, 25.0, STREAMS)
    assert held_points(story.spans, "m1", 25.0) == [
        (1.0, 0.0), (1.0, 1.0), (1.1, 1.0), (1.1, 2.0), (1.3, 2.0), (1.3, 1.0), (5.0, 1.0),
        (5.0, 0.0),
    ]  # fmt: skip
    assert held_points(story.spans, "m4", 25.0) == [(21.5, 0.0), (21.5, 1.0), (25.0, 1.0)]
    assert held_points(story.spans, "m5", 25.0) == []
    assert [story.held_max(f"m{number}") for number in range(1, 6)] == [2, 4, 2, 1, 0]


@given(least=st.floats(1e-6, 1e9))
def test_axis_steps_are_round_and_large_enough(least):
    step = round_step(least)
    assert least * 0.999 <= step <= least * 10.001
    assert f"{step:.0e}"[0] in "125"


def test_the_schedule_repeats_by_its_seed_and_hits_two_members():
    """In order; no instant nor victim is shared by all seeds."""
    assert plan(seed=7).schedule == plan(seed=7).schedule
    for seed in range(20):
        steps = plan(seed=seed).schedule
        assert [step.kind for step in steps] == [KILLED, FROZEN, RESUMED, JOINED]
        assert steps == sorted(steps, key=lambda step: step.at_s)
        assert steps[0].node != steps[1].node == steps[2].node
        assert steps[3].node == "m4"
    assert len({plan(seed=seed).schedule[0] for seed in range(20)}) > 10


@pytest.mark.parametrize("lease_ms", [1_000.0, 3_000.0])
def test_disturbances_are_apart_by_leases(lease_ms):
    """Each after what follows from the one before is over; a frozen one sleeps for two."""
    lease_s = lease_ms / 1000.0
    for seed in range(50):
        one = plan(seed=seed, max_lease_ms=lease_ms)
        kill, freeze, resume, join = (step.at_s / lease_s for step in one.schedule)
        assert 0.4 <= kill <= 0.9
        assert 2.2 <= freeze - kill <= 2.6
        assert resume - freeze == pytest.approx(2.0)
        assert 1.5 <= join - resume <= 1.9
        assert one.scheduled_s / lease_s - join == pytest.approx(3.8)
        assert one.fed == 50


def test_sizes_have_bounds():
    """What is told has the bounds in it, and why where it is too little."""
    for good in ({"members": 3}, {"members": 64}, {"streams": 1}, {"streams": 512, "records": 512}):
        assert plan(**good).times.max_lease_ms == 3_000.0
    for bad, told in (
        ({"members": 2}, "--members: expected 3 to 64, got 2: one is killed, one frozen, and"),
        ({"members": 65}, "--members: expected 3 to 64, got 65"),
        ({"streams": 513, "records": 513}, "--streams: expected 1 to 512, got 513"),
        ({"records": 50_000_001}, "--records: expected 4 to 50000000, got 50000001"),
        ({"max_lease_ms": 999.0}, "--max-lease-ms: expected at least 1000, got 999"),
        ({"keep": True}, "--keep: expected together with --redis"),
    ):
        with pytest.raises(InputError) as error:
            plan(**bad)
        assert str(error.value).startswith(told)
        assert ("killed" in str(error.value)) is (bad == {"members": 2})
    assert plan(records=50_000_000).records == 50_000_000
    assert plan(max_lease_ms=1_000.0).times.max_shutdown_ms == 500.0
    assert plan(redis="redis://h", keep=True).keep


def test_few_records_leave_one_for_each_stream_before_the_start():
    assert plan(records=4).fed == 0
    assert plan(records=100).fed == 50
    with pytest.raises(InputError, match="expected 4 to"):
        plan(records=3)


# --- the check, on a real Redis ---------------------------------------------------------------


class Silent:
    """Takes what is told."""

    def send(self, told):
        pass


@pytest.fixture
def filled(redis_servers, redis_server):
    """(client for bytes, group): 103 records in four streams, written in two parts by two writers
    each, all applied."""
    redis = pytest.importorskip("redis")
    group = redis_servers.new_name()
    for first, end in ((0, 61), (61, 103)):
        for writer in range(2):
            with StreamWriter(redis_server.url, group, STREAMS) as stream_writer:
                portion = Portion(redis_server.url, group, STREAMS, first, end, writer, 2)
                _fill(portion, stream_writer, Silent())
    for stream in range(STREAMS):
        with StreamReader(redis_server.url, group, stream, 7) as reader:
            reader.consume(example.Counting(stream), to_end=True)
    client = redis.Redis.from_url(redis_server.url)
    yield client, group
    client.close()


def test_the_check_passes_where_each_was_applied_once(filled):
    client, group = filled
    checks = check_streams(client, group, STREAMS)
    assert [one.problem for one in checks] == [""] * STREAMS
    assert [one.records for one in checks] == [26, 26, 26, 25]
    assert [one.epoch for one in checks] == [7] * STREAMS
    assert [one.sum for one in checks] == [325, 325, 325, 300]


def test_the_check_finds_what_is_missing_doubled_or_foreign(filled):
    """Even where count and sum make up for each other."""
    client, group = filled
    keys = StreamKeys.of(group)
    client.setbit(keys.sink(example.applied_name(0)), 5, 0)  # 5 left out ...
    client.hincrby(keys.sink(example.counts_name(1)), "applied", 2)  # two once more ...
    client.hincrby(keys.sink(example.counts_name(1)), "sum", 9)
    client.setbit(keys.sink(example.applied_name(2)), 26, 1)  # one that does not exist
    client.hincrby(keys.sink(example.counts_name(3)), "sum", 1)
    checks = check_streams(client, group, STREAMS)
    assert [(one.missing, one.duplicates, one.foreign) for one in checks] == [
        (1, 1, 0), (0, 2, 0), (0, 0, 1), (0, 0, 0),
    ]  # fmt: skip
    assert not any(one.is_exactly_once for one in checks)
    assert "1 never, 1 again" in checks[0].problem


def test_nothing_of_the_group_is_left_after_removal(filled):
    """But for the writers' numbers, which expire."""
    client, group = filled
    remove_keys(client, group, STREAMS)
    left = list(client.scan_iter(match=f"{{spillover:{group}}}*"))
    assert all(b":writer:" in key for key in left)
    assert all(0 < client.ttl(key) <= 86_400 for key in left)


# --- the report -------------------------------------------------------------------------------


def small_result():
    story = tell_story(LINES, MARKS, 25.0, STREAMS)
    gaps = with_applied_gaps(story.standstills, {})
    fates = {"m1": KILLED, "m2": "stayed", "m3": FROZEN, "m4": JOINED}
    return LeaseDemoResult(
        plan=plan(),
        group="demo-1",
        redis_version="7.0",
        began_s=0.5,
        settled_s=2.0,
        ended_s=25.0,
        applied_s=24.5,
        marks=MARKS,
        story=replace(story, standstills=gaps),
        looks=[Look(0.5 + i / 2, min(100, 50 + i), min(100, 2 * i)) for i in range(50)],
        checks=[StreamCheck(p, 25, 300, 25, 300, 25, 0, 0, 0, 3) for p in range(STREAMS)],
        late_writes=LateWrites(tried=3, refused=3),
        members=[MemberResult(node, fate, 2, 2, 0, 0) for node, fate in fates.items()],
        phases_s={"fill": 1.0, "disturb": 20.0},
        finished_at="2031-02-03 04:05 UTC",
    )


def test_the_report_stands_alone_and_shows_every_owner(read):
    """Every span, standstill and mark; no address, no script, no color that has not two values."""
    result = small_result()
    page = report_page(result)
    assert read(page).tags.count("svg") == 6
    for span in result.story.spans:
        assert page.count(f"stream {span.partition}: {span.node}, epoch {span.epoch},") == 2
    assert page.count('<rect class="gap"') == 2 * len(result.story.standstills)
    for words in ("m1 killed", "m3 frozen", "m3 resumed", "m4 joined"):
        assert page.count(f">{words}</text>") == 6
    assert "100 records, each applied exactly once" in page
    assert "3 of 3" in page
    assert not re.findall(r"https?://", re.sub(r'xmlns="[^"]*"', "", page))
    assert not re.findall(r"<(script|link|img|iframe)\b|@import|url\(", page)
    used = set(re.findall(r"var\((--[\w-]+)\)", page)) - {"--chip", "--heat", "--drawn-width"}
    light, dark = page.split("prefers-color-scheme: dark")
    assert [name for name in used if f"{name}:" not in light or f"{name}:" not in dark] == []


def test_the_report_and_the_object_tell_what_went_wrong():
    """A record too few, a late write that the sink took."""
    result = small_result()
    wrong = replace(result.checks[0], distinct=24, applied=24)
    spoiled = replace(
        result,
        checks=[wrong, *result.checks[1:]],
        late_writes=LateWrites(tried=3, refused=2, accepted=1),
    )
    page = report_page(spoiled)
    assert "this is a bug in Spillover" in page
    assert page.count('class="warning"') == 2
    told = spoiled.as_json("x.html")
    assert (told["missing"], told["exactly_once"], told["fenced_writes"]) == (1, False, 2)
    assert "NOT EXACTLY ONCE" in " ".join(spoiled.told_end())
    assert result.as_json("x.html")["standstill_ms"][FROZEN] == {
        "max": 4500.0, "median": 4250.0, "count": 2, "applied_gap_max": None,
    }  # fmt: skip


def test_at_one_and_the_same_instant_ends_come_before_beginnings():
    """Lines of two members come in any order: who released was not robbed."""
    told = [line(1.0, "m1", "acquired", 0, 1), line(5.0, "m2", "acquired", 0, 2)]
    story = tell_story([*told, line(5.0, "m1", "released", 0, 1)], [], 9.0, 1)
    assert [(span.node, span.end) for span in story.spans] == [("m1", "released"), ("m2", "end")]
    assert [one.length_s for one in story.standstills] == [0.0]
    assert [story.held_max(node) for node in ("m1", "m2")] == [1, 1]
    back = [line(2.0, "m1", "released", 0, 1), line(2.0, "m1", "acquired", 1, 1)]
    story = tell_story([*reversed(back), line(1.0, "m1", "acquired", 0, 1)], [], 9.0, 2)
    assert story.held_max("m1") == 1


def test_late_news_of_an_earlier_epoch_end_nothing_of_the_next():
    """A pipe is slow, and the same member serves the stream again."""
    told = [line(1.0, "m1", "acquired", 0, 1), line(3.0, "m1", "acquired", 0, 2)]
    story = tell_story([*told, line(4.0, "m1", "fenced", 0, 1)], [], 9.0, 1)
    assert [(span.epoch, span.to_s, span.end) for span in story.spans] == [
        (1, 3.0, "taken"),
        (2, 9.0, "end"),
    ]
    assert story.open == []


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("lost", [0, 1])
def test_a_record_that_is_missing_is_a_failure(lost, as_json, tmp_path, capsys):
    """What came of it is told, and the report is there, in any case."""
    page = tmp_path / "x.html"
    result = replace(small_result(), plan=plan(records=100 + lost))
    options = Namespace(json=as_json, out=page)
    assert lease_demo._end(result, options, LeaseDisplay()) == lost
    out, err = capsys.readouterr()
    assert "<html" in page.read_text()
    assert err.endswith(f"Open the timeline in a browser: {page.as_uri()}\n")
    assert all(line in err for line in result.told_end())
    assert ("killed" in err) is not as_json
    assert (json.loads(out)["records"] == 100) if as_json else (out == "")


def test_where_no_report_can_be_it_is_told_before_anything_is_begun(tmp_path):
    (tmp_path / "file").touch()
    for out in (tmp_path, tmp_path / "none" / "x.html", tmp_path / "file" / "x.html"):
        with pytest.raises(InputError, match="expected a file that can be written, got "):
            lease_demo._check_out(out)
    lease_demo._check_out(tmp_path / "x.html")
    lease_demo._check_out(tmp_path / "file")
