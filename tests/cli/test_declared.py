"""What each command takes: what holds where nothing is said, what is said, and what is refused.
No command is run here.
"""

from __future__ import annotations

import pytest

from spillover.cli import main
from support.declared import COMMANDS, URL, read, words_of


def is_refused(capsys, words):
    """What is told, in one line, before anything is done."""
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_said_counts_and_else_what_help_tells(command):
    takes = COMMANDS[command]
    for more, expected in (("", takes.holds), (takes.words, takes.holds | takes.becomes)):
        told = read(words_of(command, more))
        assert {name: told[name] for name in expected} == expected


@pytest.mark.parametrize("command", [name for name, takes in COMMANDS.items() if takes.needs])
def test_what_a_command_cannot_do_without_is_asked_for(command, capsys):
    words = COMMANDS[command].needs.split()
    starts = [at for at, word in enumerate(words) if word.startswith("--")] or [len(words) - 1]
    for start, end in zip(starts, [*starts[1:], len(words)], strict=True):
        left = [*command.split(), *words[:start], *words[end:]]
        assert "required" in is_refused(capsys, left)


RANGES = [
    ("up", "--port", 1, 65_535),
    ("up", "--queue", 1, 100),
    ("config set", "--if-version", 0, 2**53 - 1),
    ("tls init", "--days", 1, 3650),
    ("tls check", "--days-left", 0, 3650),
    ("topology kubernetes", "--queue", 0, 100),
    ("plan tokens", "--at-most", 1, 1000),
    ("sim rebalance", "--clients", 1, 10_000_000),
    ("sim rebalance", "--virtual-nodes", 1, 10_000),
    ("reproduce", "--jobs", 1, 64),
    ("bench", "--runs", 1, 1000),
    ("bench", "--duration-s", 1, 3600),
    ("bench", "--replicas", 1, 100),
]


@pytest.mark.parametrize(("command", "option", "least", "most"), RANGES)
def test_counts_are_taken_from_the_least_to_the_most(command, option, least, most, capsys):
    name = option[2:].replace("-", "_")
    for value in (least, most):
        assert read([*words_of(command), option, str(value)])[name] == value
    for value in (least - 1, most + 1):
        told = is_refused(capsys, [*words_of(command), f"{option}={value}"])
        assert f"{option}: expected a whole number from {least} to {most}, got '{value}'" in told


ABOVE_ZERO = [
    ("demo", "--time-scale"), ("drain", "--timeout-s"), ("topology compose", "--cpus"),
    ("lease run", "--max-progress-ms"), ("lease run", "--normal-lease-ms"),
    ("lease demo", "--max-lease-ms"), ("lease demo", "--limit-s"),
    ("queue work", "--deadline-ms"), ("sim tokens", "--load"), ("exact tokens", "--load"),
    *(("exact probing", f"--{name}") for name in (
        "production-rate", "consumption-rate", "fast-factor",
    )),
    ("plan", "--p99-ms"),
    *(("plan tokens", f"--{name}") for name in (
        "for-s", "load", "blocking", "slowdown", "time-ms",
    )),
]  # fmt: skip
AT_LEAST_ZERO = [
    ("up", "--drain-timeout-s"), ("up", "--results-timeout-s"), ("node", "--drain-timeout-s"),
    ("node", "--results-timeout-s"), ("queue work", "--drain-timeout-s"),
    ("sim tokens", "--interruptions"), ("sim leases", "--handler-stop-ms"),
    *(("exact probing", f"--{name}") for name in ("message-time", "fast-share", "fast-access")),
]  # fmt: skip
WHOLE = [
    ("demo", "--seed"), ("up", "--seed"), ("node", "--seed"), ("topology compose", "--memory-mb"),
    ("topology compose", "--first-port"), ("lease run", "--partitions"), ("lease run", "--seed"),
    *(("lease demo", f"--{name}") for name in ("records", "streams", "members", "seed")),
    ("queue work", "--at-once"), ("queue work", "--max-hops"), ("sim tokens", "--jobs"),
    ("sim tokens", "--seed"), ("exact tokens", "--seed"), ("sim rebalance", "--seed"),
    *(("sim leases", f"--{name}") for name in ("nodes", "partitions", "periods", "seed")),
    *(("exact probing", f"--{name}") for name in (
        "producers", "consumers", "buffers", "max-hops", "producers-per-consumer", "seed",
    )),
    ("sim probing", "--objects"), ("sim probing", "--seed"), ("reproduce", "--seed"),
    ("bench", "--seed"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "fits", "number", "complaint"),
    [
        (ABOVE_ZERO, "0.5", "0", "expected a number above 0"),
        (AT_LEAST_ZERO, "0", "-1", "expected a number of at least 0"),
        (WHOLE, "3", "1.5", "expected a whole number"),
    ],
)
def test_numbers_are_of_the_kind_that_makes_sense(options, fits, number, complaint, capsys):
    for command, option in options:
        assert read([*words_of(command), option, fits])[option[2:].replace("-", "_")] == float(fits)
        told = is_refused(capsys, [*words_of(command), f"{option}={number}"])
        assert f"{option}: {complaint}" in told


CHOICES = [
    ("demo", "--policy", "two-choice paper adaptive"),
    ("up", "--policy", "isolated two-choice paper adaptive"),
    ("up", "--shadow", "isolated two-choice paper adaptive"),
    ("node", "--log-format", "text json"),
    ("node", "--config-from", "peers operators"),
    ("lease run", "--rule", "guarded blog"),
    ("lease run", "--balance", "count load"),
    ("queue work", "--workers", "thread process"),
    ("queue work", "--access", "uniform learned"),
    ("token new", "--role", "submit read operate"),
    ("sim overflow", "--policy", "isolated two-choice paper adaptive shared"),
    ("sim overflow", "--shadow", "isolated two-choice paper adaptive"),
    ("sim overflow", "--engine", "full fast"),
    ("sim tokens", "--policy", "dynamic static-best static-uniform"),
    ("sim tokens", "--discipline", "ps fcfs"),
    ("sim tokens", "--sizes", "exp hyper hyper-by-class det"),
    ("exact tokens", "--policy", "dynamic static-best static-uniform ideal"),
    ("sim probing", "--engine", "full fast"),
    ("sim rebalance", "--rule", "probabilistic stratified baseline consistent-hash"),
    ("sim rebalance", "--start", "balanced random uneven"),
    ("sim leases", "--rule", "guarded blog"),
    ("sim leases", "--balance", "count load"),
    ("plan", "--policy", "two-choice paper adaptive"),
]


@pytest.mark.parametrize(("command", "option", "names"), CHOICES)
def test_a_name_is_one_of_those_there_are(command, option, names, capsys):
    """Where one network is meant, it cannot be `isolated`."""
    field = option[2:].replace("-", "_")
    for name in names.split():
        told = read([*words_of(command), option, name])[field]
        assert (told[-1] if option == "--role" else told) == name
    others = {"isolated", "shared", "ideal", "other"} - set(names.split())
    for name in sorted(others):
        assert f"{option}: invalid choice: '{name}'" in is_refused(
            capsys, [*words_of(command), option, name]
        )


@pytest.mark.parametrize(
    "command", [name for name, takes in COMMANDS.items() if takes.needs.startswith(URL)]
)
def test_a_service_is_named_by_its_url(command, capsys):
    """With or without the blank path that browsers add."""
    words = words_of(command)
    at = words.index(URL)
    assert read([*words[:at], f"{URL}/", *words[at + 1 :]])["url"] == URL
    for wrong in ("ftp://h", "h:1", f"{URL}/path"):
        told = is_refused(capsys, [*words[:at], wrong, *words[at + 1 :]])
        assert "expected http(s)://HOST[:PORT], got " in told


def test_a_site_that_is_let_in_is_an_origin(capsys):
    for command in ("up", "node"):
        told = is_refused(capsys, [*words_of(command), "--allow-origin", "h/path"])
        assert "--allow-origin: expected http(s)://HOST[:PORT] or *, got 'h/path'" in told


@pytest.mark.parametrize(
    "command", [name for name, takes in COMMANDS.items() if "token_file" in takes.holds]
)
def test_whom_to_believe_is_read_before_anybody_is_asked(command, capsys):
    told = is_refused(capsys, [*words_of(command), "--ca-file", "none.crt"])
    assert "none.crt: expected a file that can be read" in told


def test_what_excludes_each_other_is_not_taken_together(capsys):
    for command, *pair in (
        ("tls renew", "--ca", "--drop-old-ca"),
        ("plan tokens", "--blocking=0.1", "--slowdown=2"),
        ("plan tokens", "--slowdown=2", "--time-ms=3"),
        ("plan tokens", f"--from={URL}"),
    ):
        assert "not allowed with" in is_refused(capsys, [*words_of(command), *pair])
    assert read(["plan", "tokens", "--from", URL])["url"] == URL
    assert read(["tls", "renew", "--drop-old-ca"])["drop_old_ca"] is True


def test_a_word_that_is_no_show_or_benchmark_is_refused(capsys):
    for words in (["demo", "other"], ["bench", "other"]):
        assert "invalid choice: 'other'" in is_refused(capsys, words)
