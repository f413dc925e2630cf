"""What the demo of streams makes of what its users saw."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from spillover.cli import demo, main
from spillover.tools.demo.display import Display
from spillover.tools.demo.streams import run
from spillover.tools.demo.streams.display import strips
from spillover.tools.demo.streams.model import End, Stream, StreamsResult

SITES = ("paris", "tokyo", "oslo")


def result_of(*streams, balanced=True):
    return StreamsResult(
        sites=SITES, dead="tokyo", died_s=1.0, streams=streams, ledgers_balanced=balanced
    )


def stream(home, ran, end, *, begun_s=0.1):
    return Stream(home, begun_s, ran, begun_s + 0.1, 9, end, begun_s + 2.0)


GOOD = (
    stream("paris", "paris", End.WHOLE),
    stream("paris", "tokyo", End.ERROR),
    stream("tokyo", "oslo", End.ERROR),
    stream("oslo", "paris", End.WHOLE, begun_s=1.2),
)


def test_the_site_dies_while_all_streams_run():
    """They come in 0.04 s from each other, and each finds a free server somewhere."""
    streams = sum(run.BEFORE.values())
    assert streams * run.APART_S < run.DIES_S < run.STREAM_S
    assert streams <= len(run.SITES) * run.SERVERS
    assert run.DEAD not in run.AFTER


def test_who_has_to_do_with_the_dead_site():
    result = result_of(*GOOD)
    assert result.problems() == []
    none = dict.fromkeys((end.value for end in End), 0)
    assert result.counts() == {
        "dead_site": {**none, "error": 2},
        "others": {**none, "whole": 1},
        "after": {**none, "whole": 1},
    }


def test_what_had_come_whole_before_it_died_is_another_one():
    over = stream("tokyo", "tokyo", End.WHOLE, begun_s=-1.5)
    assert result_of(*GOOD, over).problems() == []


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (stream("paris", "tokyo", End.SHORT), "ended short: expected error"),
        (stream("paris", "tokyo", End.WHOLE), "ended whole: expected error"),
        (stream("paris", "oslo", End.ERROR), "ended error: expected whole"),
        (stream("oslo", "", End.REFUSED, begun_s=1.2), "run at no site, ended refused"),
    ],
)
def test_what_must_not_be_is_told(wrong, told):
    (line,) = result_of(*GOOD, wrong).problems()
    assert told in line


def test_a_ledger_that_does_not_balance_is_told():
    assert result_of(*GOOD, balanced=False).problems() == ["a ledger did not balance"]


def test_each_stream_is_a_strip():
    console = Console(file=io.StringIO(), width=100)
    console.print(strips(result_of(*GOOD)))
    lines = console.file.getvalue().splitlines()
    assert "↓ tokyo dies" in lines[0]
    rows = [line.split() for line in lines if "━" in line and ("✓" in line or "✗" in line)]
    assert [row[:2] for row in rows] == [
        *(["tokyo", "oslo"], ["oslo", "paris"], ["paris", "paris"], ["paris", "tokyo"]),
    ]


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("balanced", [False, True])
def test_a_problem_is_a_failure_and_told(balanced, as_json, capsys):
    result = result_of(*GOOD, balanced=balanced)
    assert demo._end_of_streams(result, Display(), as_json=as_json) == (0 if balanced else 1)
    out, err = capsys.readouterr()
    assert err.endswith("a ledger did not balance\n") is not balanced
    assert ("tokyo dies" in err) is not as_json
    assert (json.loads(out)["ledgers_balanced"] is balanced) if as_json else (out == "")


def test_what_is_for_bursts_is_refused(capsys):
    assert main(["demo", "streams", "--quick"]) == 2
    told = capsys.readouterr()
    assert told == ("", "spillover: --quick: expected none with streams: it is for bursts\n")
