"""The parser that both commands share, on commands made up for it: what it refuses and how it says
so, and defaults in its help.
"""

import argparse
from pathlib import Path

import pytest

from spillover.commandline.parsing import OneLineParser, shown_default
from spillover.model.errors import InputError


def plain():
    """One that has options and a value, and no commands."""
    parser = OneLineParser(prog="tool")
    parser.add_argument("--deadline-ms", type=float, default=1.5, help="how long")
    parser.add_argument("--rule", choices=("first", "second"), default="first")
    parser.add_argument("-n", "--number", type=int, required=True, help="how many")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("values", nargs="*")
    return parser


def with_commands(*, required=True):
    parser = OneLineParser(prog="tool")
    parser.add_argument("--level", type=int, default=0)
    parser.add_argument("--name")
    commands = parser.add_subparsers(metavar="COMMAND", required=required)
    for name in ("status", "start"):
        below = commands.add_parser(name)
        below.set_defaults(command=name)
        below.add_argument("--url")
        below.add_argument("rest", nargs="*")
    return parser


def refused(parser, *words):
    with pytest.raises(InputError) as error:
        parser.parse_args(words)
    source, _, message = str(error.value).partition(": ")
    assert (source, "\n" in message) == ("usage", False)
    return message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--deadline 5", "unknown option --deadline, did you mean --deadline-ms?"),
        ("--deadlin-ms=5", "unknown option --deadlin-ms, did you mean --deadline-ms?"),
        ("--xyzzy", "unknown option --xyzzy; tool --help names those known"),
        ("-x", "unknown option -x; tool --help names those known"),
        ("-xyz=1", "unknown option -xyz; tool --help names those known"),
        ("--numbr 1 --rule third", "unknown option --numbr, did you mean --number?"),
        ("a b --xyzzy c", "unknown option --xyzzy; tool --help names those known"),
        ("", "the following arguments are required: -n/--number"),
        ("-n x", "-n/--number: invalid int value: 'x'"),
        ("-n", "-n/--number: expected one argument"),
        ("-n 1 --verbose=1", "--verbose: ignored explicit argument '1'"),
        (
            "-n 1 --rule frist",
            "--rule: invalid choice: 'frist', did you mean first? (choose from first, second)",
        ),
        ("-n 1 --rule zzz", "--rule: invalid choice: 'zzz' (choose from first, second)"),
    ],
)
def test_a_usage_error_is_one_line_with_what_may_have_been_meant(words, message):
    """What there is not comes first: what else is wrong often follows from it."""
    assert refused(plain(), *words.split()) == message


@pytest.mark.parametrize("value", ["-5", "-.5"])
def test_numbers_are_no_options(value):
    given = plain().parse_args(["-n", "1", "--deadline-ms", value])
    assert given.deadline_ms == float(value)


@pytest.mark.parametrize("value", ["-inf", "-nan"])
def test_what_argparse_takes_for_no_number_is_no_unknown_option_either(value):
    message = refused(plain(), "-n", "1", "--deadline-ms", value)
    assert message == "--deadline-ms: expected one argument"


@pytest.mark.parametrize("value", ["-", "-x y", "--not an option"])
def test_neither_are_words_with_blanks_nor_the_name_of_standard_input(value):
    assert plain().parse_args(["-n", "1", value]).values == [value]


def test_behind_two_signs_all_are_values():
    assert plain().parse_args(["-n", "1", "--", "--xyzzy", "-x"]).values == ["--xyzzy", "-x"]
    assert plain().parse_args(["-n1", "--rule=second"]).rule == "second"


def test_options_are_never_abbreviated():
    assert refused(plain(), "-n", "1", "--verb").startswith("unknown option --verb")
    below = with_commands()
    assert refused(below, "start", "--ur", "x") == "unknown option --ur, did you mean --url?"


def test_what_nobody_asked_for_is_told_whole():
    parser = OneLineParser(prog="tool")
    parser.add_argument("one")
    assert refused(parser, "a", "b", "c") == "unrecognized arguments: b c"
    assert refused(parser, "a", "-") == "unrecognized arguments: -"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("statsu", "unknown command 'statsu', did you mean status?"),
        ("xyzzy", "unknown command 'xyzzy', expected one of status, start"),
        ("xyzzy --url x", "unknown command 'xyzzy', expected one of status, start"),
        ("--levle 1 statsu", "unknown option --levle, did you mean --level?"),
        ("--url x status", "unknown option --url; tool --help names those known"),
        ("start --level 1", "unknown option --level; tool start --help names those known"),
        ("--level 1", "the following arguments are required: COMMAND"),
    ],
)
def test_an_unknown_command_is_told_with_what_there_is(words, message):
    assert refused(with_commands(), *words.split()) == message


def test_what_stands_behind_a_command_is_the_commands():
    """Also an option that is known only there."""
    given = with_commands().parse_args(["--level", "1", "start", "--url", "x", "y"])
    assert (given.level, given.command, given.url, given.rest) == (1, "start", "x", ["y"])


def test_where_a_command_may_be_left_out_other_words_are_values():
    parser = with_commands(required=False)
    assert parser.parse_args(["--name", "x", "--level", "1"]).level == 1
    assert parser.parse_args(["--name", "x", "start", "--url", "y"]).url == "y"
    message = "unknown option --levle, did you mean --level?"
    assert refused(parser, "--name", "x", "--levle", "1") == message


@pytest.mark.parametrize("required", [True, False])
def test_alone_it_prints_its_help(required, capsys, monkeypatch):
    """And is content; without commands there is nothing to be missing."""
    for words in ([], ["--help"]):
        with pytest.raises(SystemExit) as ended:
            with_commands(required=required).parse_args(words)
        out, err = capsys.readouterr()
        assert (ended.value.code, err) == (0, "")
        assert out.startswith("usage: tool [-h] [--level LEVEL]")
    monkeypatch.setattr("sys.argv", ["tool"])
    with pytest.raises(SystemExit) as ended:
        with_commands(required=required).parse_args()
    assert ended.value.code == 0
    parser = OneLineParser(prog="tool")
    parser.add_argument("--number", type=int, default=3)
    assert parser.parse_args([]).number == 3


def test_the_words_of_the_command_line_are_taken_where_none_are_given(monkeypatch):
    monkeypatch.setattr("sys.argv", ["tool", "-n", "4", "value"])
    given = plain().parse_args()
    assert (given.number, given.values) == (4, ["value"])


def test_help_ends_with_the_default_unless_it_names_it(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    parser = OneLineParser(prog="tool")
    parser.add_argument("--a", default=0.1, help="words")
    parser.add_argument("--b", default=7, help="words (default: as many as there are)")
    parser.add_argument("--c", default="50%", help="words")
    parser.add_argument("--e", help="words")
    parser.add_argument("--f", default=7)
    parser.add_argument("--g", default=7, help=argparse.SUPPRESS)
    lines = [line.split(maxsplit=2) for line in parser.format_help().splitlines()]
    assert {words[0]: words[2] for words in lines if len(words) == 3 and words[0][:2] == "--"} == {
        "--a": "words (default 0.1)",
        "--b": "words (default: as many as there are)",
        "--c": "words (default 50%)",
        "--e": "words",
    }


@pytest.mark.parametrize(
    ("default", "shown"),
    [
        (None, None),
        (argparse.SUPPRESS, None),
        ("", None),
        ([], None),
        ([1], None),
        ({}, None),
        (True, None),
        (False, None),
        (0, "0"),
        (30_000.0, "30000"),
        (0.1 + 0.2, "0.3"),
        ("words", "words"),
        (Path("a/b"), "a/b"),
        (("host", 80), "host:80"),
    ],
)
def test_a_default_is_shown_as_it_would_be_typed(default, shown):
    parser = argparse.ArgumentParser()
    assert shown_default(parser.add_argument("--one", default=default)) == shown
    required = parser.add_argument("--two", default=default, required=True)
    assert shown_default(required) is None


def test_whoever_wants_other_help_gets_it():
    """Settings that are given count, as those of argparse do."""
    parser = OneLineParser(prog="tool", formatter_class=argparse.HelpFormatter, description="why")
    parser.add_argument("--a", default=0.1, help="words")
    assert "default" not in parser.format_help()
    assert "why" in parser.format_help()
