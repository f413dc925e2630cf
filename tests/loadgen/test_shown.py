"""What people see of a run: the bar while it goes on and the tables at its end, cell by cell. The
results are made up, so that no two figures are alike.
"""

from __future__ import annotations

import re
import threading

import pytest
from rich.text import Text

from spillover_loadgen import clients_command, display, queue_command
from spillover_loadgen.record import Outcome
from spillover_loadgen.terminal import open_console, say, show_table, table_of

TIMES = ("mean", "p50", "p99", "max", "min", "std")


@pytest.fixture
def lines(capsys):
    """`lines(show, what)`: the lines that it prints on stderr, as words with one blank between, and
    `---` for a rule."""

    def printed(show, *what):
        show(*what)
        out, err = capsys.readouterr()
        assert out == ""
        rows = [" ".join(re.sub("[│┃|]", " ", line).split()) for line in err.splitlines()]
        return ["---" if re.match("[├┡└┏]", row) else row for row in rows]

    return printed


def figures_of(first, ok, share=None):
    """Of `first` requests; the times are the next whole numbers, and a bit."""
    outcomes = {outcome.value: 0 for outcome in Outcome}
    times = {name: None if ok == 0 else first + k + 0.25 for k, name in enumerate(TIMES, start=1)}
    return {
        "sent": first,
        "outcomes": {**outcomes, "ok": ok, "refused": first - ok},
        "system_time_ms": times,
        "forwarded_share": share,
    }


def test_a_run_has_a_row_for_each_home_each_type_and_all(lines):
    """With what was sent, came back and did not, times in ms with one digit, and what share was
    forwarded; where there is nothing to tell of there is a dash. Then why."""
    told = {
        **figures_of(70, 60, 0.125),
        "seed": 9,
        "per_cluster": {"a": figures_of(10, 7, 0.5), "bc": figures_of(20, 0)},
        "per_type": {"t1": figures_of(30, 30, 0.0)},
        "reasons": {"queue_full": 3, "[red]": 2},
    }
    said = lines(display.print_summary, told)
    assert said[0] == "system time in ms by home (seed 9)"
    assert [line for line in said[1:] if line != "---"] == [
        "home sent ok not ok mean p50 p99 max std forwarded",
        "a 10 7 3 11.2 12.2 13.2 14.2 16.2 50.0%",
        "bc 20 0 20 - - - - - -",
        "type t1 30 30 0 31.2 32.2 33.2 34.2 36.2 0.0%",
        "all 70 60 10 71.2 72.2 73.2 74.2 76.2 12.5%",
        "3 not ok: queue_full",
        "2 not ok: [red]",
    ]
    at = [number for number, line in enumerate(said) if line == "---"]
    words = [said[number - 1].split()[0] for number in at[1:]]
    assert words == ["home", "bc", "type", "all"], "a rule between each kind and the next"


def test_a_run_whose_requests_have_no_types_has_no_rows_of_these(lines):
    told = {**figures_of(5, 5, 1.0), "seed": 1, "per_cluster": {"a": figures_of(5, 5, 1.0)}}
    said = lines(display.print_summary, {**told, "reasons": {}})
    names = [line.split()[0] for line in said if line != "---"]
    assert names == ["system", "home", "a", "all"]


def test_a_load_on_a_queue_tells_of_its_objects(lines):
    result = {
        "seed": 7,
        "put_ms": {"mean": 1.25, "p50": 2.0, "p99": 3.0, "max": 4.0, "min": 0.5},
        "wait_ms": {"mean": 5.0, "p50": None, "p99": 6.0, "max": 7.25},
        "offered": 11, "produced": 12, "acknowledged": 13, "missing": 14, "duplicates": 15,
        "redelivered": 16, "out_of_order": 17, "probes_mean": 1.234, "throughput_per_s": 18.26,
        "reasons": {"put: status 429": 19, "[b]": 20},
    }  # fmt: skip
    said = [line for line in lines(queue_command.print_summary, result) if line != "---"]
    assert said == [
        "seed 7",
        "times in ms mean p50 p99 max",
        "until an object is kept 1.2 2.0 3.0 4.0",
        "until one is taken 5.0 - 6.0 7.2",
        (
            "offered: 11, produced: 12, acknowledged: 13, missing: 14, duplicates: 15, "
            "redelivered: 16, out_of_order: 17"
        ),
        "18.3 objects/s, 1.23 probes for each",
        "19 times put: status 429",
        "20 times [b]",
    ]
    said = lines(queue_command.print_summary, {**result, "probes_mean": None, "reasons": {}})
    assert said[-1] == "18.3 objects/s, - probes for each"


def test_clients_are_counted_by_where_they_are(lines):
    result = {
        "rule": "baseline", "seed": 3, "clients": {"a": 4, "bc": 5},
        "unconnected": 6, "moved": 7, "lost": 8, "put_off": 9, "lies": 10,
        "requests": {"ok": 11, "failed": 12}, "reasons": {"status [500]": 13},
    }  # fmt: skip
    said = [line for line in lines(clients_command.print_summary, result) if line != "---"]
    assert said == [
        "baseline, seed 3",
        "node clients",
        "a 4",
        "bc 5",
        "unconnected: 6, moved: 7, lost: 8, put_off: 9, lies: 10",
        "requests: ok: 11, failed: 12",
        "13 x status [500]",
    ]


# --- terminals ------------------------------------------------------------------------------------


@pytest.fixture
def as_terminal(monkeypatch):
    """As if stdout and stderr were one of so many columns."""

    def be(columns):
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(columns))

    return be


def test_where_nobody_looks_a_row_is_one_line(monkeypatch, capfd):
    """In a pipe or a file, unless its width is said; results that belong on stdout go there."""
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert open_console().width == open_console(stderr=False).width == 1000
    open_console().print("told")
    open_console(stderr=False).print("result")
    assert capfd.readouterr() == ("result\n", "told\n")
    monkeypatch.setenv("COLUMNS", "60")
    assert open_console().width == 60


def test_a_terminal_is_as_wide_as_it_is(as_terminal):
    as_terminal(77)
    assert open_console().width == 77


def test_figures_stand_to_the_right_of_names(capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    table = table_of("name", ["a long title"], title="of all")
    table.add_row("x", "5")
    open_console().print(table)
    said = capfd.readouterr().err
    assert said.split("\n")[0].strip() == "of all"
    assert "x    \u2502            5 \u2502" in said


def test_a_table_that_is_too_wide_loses_no_word(capfd, monkeypatch):
    """Nor is one drawn wider than the terminal that is not."""
    monkeypatch.setenv("COLUMNS", "20")
    titles = [f"figure{number}" for number in range(8)]
    table = table_of("name", titles)
    table.add_row("x", *map(str, range(8)))
    console = open_console()
    show_table(console, table)
    said = capfd.readouterr().err
    assert all(title in said for title in titles)
    assert console.width > 20
    monkeypatch.setenv("COLUMNS", "500")
    console = open_console()
    show_table(console, table)
    assert console.width == 500


def test_a_sentence_is_told_as_it_is(capfd, as_terminal):
    """Without colors or breaks of its own: what names hold is no markup."""
    as_terminal(20)
    console = open_console()
    sentence = "[bold]5[/bold] of 'a long sentence' at http://127.0.0.1:8101 are True"
    say(console, sentence)
    assert capfd.readouterr().err == f"{sentence}\n"
    say(console, "no", "red")
    said = capfd.readouterr().err
    assert said != "no\n"
    assert Text.from_ansi(said).plain.strip() == "no"


def test_a_bar_shows_how_far_a_run_is_and_goes_away(as_terminal, capfd):
    """It is drawn when it is told to be, by nothing of its own."""
    as_terminal(100)
    threads = threading.active_count()
    with display.progress_bar() as tell:
        begun = Text.from_ansi(capfd.readouterr().err).plain
        assert "sent 0 of 0" in begun
        assert "waiting 0" in begun
        assert threading.active_count() == threads
        tell(10, 4, 20)
        drawn = Text.from_ansi(capfd.readouterr().err).plain
        assert re.search(r"sent 10 of 20 .*waiting 6 0:0\d:\d\d", drawn)
    assert capfd.readouterr().err.endswith("\x1b[2K"), "the line is cleared"


def test_without_a_terminal_there_is_no_bar(monkeypatch, capfd):
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with display.progress_bar() as tell:
        assert tell is None
    assert capfd.readouterr() == ("", "")
