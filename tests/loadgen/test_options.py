"""The options of all three commands: how they are written, what they come to where nobody gives
them, and secrets, which are no options.
"""

from __future__ import annotations

import argparse
import os

import pytest

from spillover.model.errors import InputError
from spillover.model.trust import CA_VARIABLE
from spillover_loadgen.api_token import read_secret, token_headers
from spillover_loadgen.cli import main
from spillover_loadgen.commands import make_parser
from spillover_loadgen.option_types import at_least_zero, did_you_mean_url, named
from support.certificates import Authority

MINIMAL = {
    "run": "--target a=http://a:1 --workload bursts",
    "queue": "--target p1=http://a:1 --produce-rate 3 --consumers 2 --duration-s 9",
    "clients": "--node http://a:1 --clients 4 --duration-s 9",
}
SPELLED = {
    "run": "--workload {bursts,poisson} | --trace FILE | --rate R | --duration-s D"
    " | --type TYPE=WEIGHT | --context-token-ms MS | --generated-token-ms MS | --assign CLUSTER"
    " | --time-scale X | --seed N | --target CLUSTER=URL | --no-check | --no-keys"
    " | --deadline-ms MS | --ca-file FILE | --token-file FILE | --out FILE | --json",
    "queue": "--target PRODUCER=URL | --produce-rate R | --consumers N | --consume-ms MS"
    " | --object-bytes BYTES | --duration-s D | --max-hops N | --deadline-ms MS | --seed N"
    " | --json | --ca-file FILE | --token-file FILE",
    "clients": "--node URL | --clients N"
    " | --rule {stratified,probabilistic,baseline,consistent-hash} | --virtual-nodes K"
    " | --duration-s D | --change-wait-s S | --rate R | --service-ms MS | --seed N"
    " | --token-file FILE | --json | --ca-file FILE",
}
REQUIRED = [
    ("run", "--target"),
    *(("queue", name) for name in ("--target", "--produce-rate", "--consumers", "--duration-s")),
    *(("clients", name) for name in ("--node", "--clients", "--duration-s")),
]


def read(command, *more):
    options = vars(make_parser().parse_args([command, *MINIMAL[command].split(), *more]))
    del options["command"]
    return options


def help_of(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", MINIMAL)
def test_help_shows_how_options_are_written(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    said = help_of(capsys, command)
    assert said.startswith(f"usage: spillover-loadgen {command} ")
    lines = [line.strip() for line in said.splitlines() if line.startswith("  -")]
    assert " | ".join(line.partition("  ")[0] for line in lines[1:]) == SPELLED[command]


def test_help_says_what_each_command_is_for(capsys, monkeypatch):
    """In a line of the overview, and in a sentence of its own."""
    monkeypatch.setenv("COLUMNS", "200")
    overview = " ".join(help_of(capsys).split())
    assert "COMMAND run send a schedule" in overview
    assert "Open-loop load" in overview
    for command, line, sentence in (
        ("run", "send a schedule of requests", "Send a schedule of requests in open loop"),
        ("queue", "put objects into a queue", "Put objects into a queue in open loop"),
        ("clients", "have many connected clients", "Have many clients connect"),
    ):
        assert f"{command} {line}" in overview
        assert f"\n{sentence}" in help_of(capsys, command)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            "run",
            {
                "workload": "bursts", "trace": None, "rate": None, "duration_s": None,
                "type": None, "context_token_ms": None, "generated_token_ms": None,
                "assign": None, "time_scale": 1.0, "seed": 1,
                "target": [("a", "http://a:1")], "no_check": False, "no_keys": False,
                "deadline_ms": None, "ca_file": None, "token_file": None, "out": None,
                "json": False,
            },
        ),
        (
            "queue",
            {
                "target": [("p1", "http://a:1")], "produce_rate": 3.0, "consumers": 2,
                "consume_ms": 0.0, "object_bytes": 1024, "duration_s": 9.0, "max_hops": 3,
                "deadline_ms": 30_000.0, "seed": 1, "json": False, "ca_file": None,
                "token_file": None,
            },
        ),
        (
            "clients",
            {
                "node": ["http://a:1"], "clients": 4, "rule": "stratified", "virtual_nodes": 1,
                "duration_s": 9.0, "change_wait_s": 5.0, "rate": 0.0, "service_ms": 5.0,
                "seed": 1, "token_file": None, "json": False, "ca_file": None,
            },
        ),
    ],
)  # fmt: skip
def test_what_nobody_gives_is_as_the_documentation_says(command, expected):
    assert read(command) == expected


def test_what_is_given_more_than_once():
    """Is kept in its order, where that makes sense."""
    more = ["--target", "b=http://b:1", "--type", "t1=2", "--type", "t2=0.5"]
    options = read("run", *more)
    assert [name for name, _ in options["target"]] == ["a", "b"]
    assert options["type"] == [("t1", 2.0), ("t2", 0.5)]
    assert len(read("queue", "--target", "p2=http://b:1")["target"]) == 2
    assert len(read("clients", "--node", "http://b:1")["node"]) == 2


@pytest.mark.parametrize(
    ("command", "words", "expected"),
    [
        ("run", "--no-check --no-keys --json", {"no_check": True, "no_keys": True, "json": True}),
        ("run", "--rate 2.5 --duration-s 0.5", {"rate": 2.5, "duration_s": 0.5}),
        ("run", "--time-scale 0.5 --seed -3", {"time_scale": 0.5, "seed": -3}),
        ("run", "--deadline-ms 1.5 --out x", {"deadline_ms": 1.5, "out": "x"}),
        ("run", "--context-token-ms 0 --assign b", {"context_token_ms": 0.0, "assign": "b"}),
        ("run", "--generated-token-ms 0", {"generated_token_ms": 0.0}),
        ("queue", "--consume-ms 1.5 --max-hops 5", {"consume_ms": 1.5, "max_hops": 5}),
        ("queue", "--object-bytes 99 --seed 4", {"object_bytes": 99, "seed": 4}),
        ("queue", "--deadline-ms 0.5 --json", {"deadline_ms": 0.5, "json": True}),
        ("clients", "--change-wait-s 0 --rate 0.5", {"change_wait_s": 0.0, "rate": 0.5}),
        ("clients", "--virtual-nodes 7 --seed 4", {"virtual_nodes": 7, "seed": 4}),
        ("clients", "--service-ms 0 --json", {"service_ms": 0.0, "json": True}),
    ],
)
def test_what_is_given_is_read_as_what_it_is(command, words, expected):
    options = read(command, *words.split())
    assert {name: options[name] for name in expected} == expected
    for name, value in expected.items():
        assert type(options[name]) is type(value)


@pytest.mark.parametrize(("command", "option"), REQUIRED)
def test_what_is_needed_is_asked_for(command, option, capsys):
    words = MINIMAL[command].split()
    at = words.index(option)
    assert main([command, *words[:at], *words[at + 2 :]]) == 2
    said = capsys.readouterr().err
    assert said == f"spillover-loadgen: usage: the following arguments are required: {option}\n"


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        ("clients", "--clients 0", "--clients: expected a number of at least 1, got 0"),
        ("clients", "--virtual-nodes 0", "--virtual-nodes: expected a number of at least 1, got 0"),
        ("clients", "--duration-s 0", "usage: --duration-s: expected a number above 0, got '0'"),
        ("clients", "--change-wait-s -1", "usage: --change-wait-s: expected a number of at least"),
        ("clients", "--rate -1", "usage: --rate: expected a number of at least 0, got '-1'"),
        ("clients", "--service-ms -1", "usage: --service-ms: expected a number of at least 0"),
        ("clients", "--rule best", "usage: --rule: invalid choice: 'best' (choose from stratif"),
        ("clients", "--node h:1", "usage: --node: expected http://HOST[:PORT]"),
        ("queue", "--deadline-ms 0", "usage: --deadline-ms: expected a number above 0, got '0'"),
        ("queue", "--consume-ms -1", "usage: --consume-ms: expected a number of at least 0, got"),
        ("queue", "--target p1=http://b:1", "--target: expected each producer once, got 'p1'"),
        ("run", "--deadline-ms 0", "usage: --deadline-ms: expected a number above 0, got '0'"),
        ("run", "--generated-token-ms -1", "usage: --generated-token-ms: expected a number of at"),
        ("run", "--trace x", "usage: --trace: not allowed with argument --workload"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(command, words, message, capsys):
    assert main([command, *MINIMAL[command].split(), *words.split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"spillover-loadgen: {message}")


def test_least_values_are_taken():
    assert at_least_zero("0") == 0.0
    load = ["--consumers", "0", "--max-hops", "1", "--object-bytes", "20"]
    assert read("queue", *load)["consumers"] == 0


def test_a_name_and_a_value_are_both_needed():
    read_one = named("NAME=NUMBER", int)
    assert read_one("a=b=7") == ("a=b", 7), "the last of the signs parts them"
    for text in ("=7", "a=", "a"):
        with pytest.raises(argparse.ArgumentTypeError, match=f"expected NAME=NUMBER, got '{text}'"):
            read_one(text)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("localhost:8101", True),
        ("node-1.example:80", True),
        ("h:123456", False),
        ("h:", False),
        ("h:80/x", False),
        ("localhost", False),
    ],
)
def test_what_lacks_only_the_beginning_of_a_url_is_understood(text, is_one):
    assert did_you_mean_url(text) == (f", did you mean http://{text}?" if is_one else "")


# --- secrets, and whom to believe ---------------------------------------------------------------


def test_a_secret_is_that_of_the_file_or_else_of_the_environment(tmp_path, monkeypatch):
    file = tmp_path / "secret"
    file.write_text(" of-the-file\n")
    monkeypatch.setenv("SPILLOVER_TOKEN", "of-the-environment\n")
    assert read_secret(str(file)) == "of-the-file"
    assert read_secret(None) == "of-the-environment"
    shown = token_headers(argparse.Namespace(token_file=str(file)))
    assert shown == ((b"authorization", b"Bearer of-the-file"),)
    for nothing in ("", " \n"):
        monkeypatch.setenv("SPILLOVER_TOKEN", nothing)
        assert read_secret(None) is None
    monkeypatch.delenv("SPILLOVER_TOKEN")
    assert read_secret(None) is None
    assert token_headers(argparse.Namespace(token_file=None)) == ()


@pytest.mark.parametrize("content", ["", "two words", "gr\u00fcn", "bell\a", "one\ntwo"])
@pytest.mark.parametrize("is_file", [True, False])
def test_what_is_no_secret_is_not_shown(content, is_file, tmp_path, monkeypatch):
    """A file without one was meant to have one, the environment need not have any."""
    file = tmp_path / "secret"
    file.write_text(content, encoding="utf-8")
    monkeypatch.setenv("SPILLOVER_TOKEN", content)
    if not content and not is_file:
        assert read_secret(None) is None
        return
    with pytest.raises(InputError) as error:
        read_secret(str(file) if is_file else None)
    source = f"--token-file {file}" if is_file else "SPILLOVER_TOKEN"
    assert str(error.value) == (
        f"{source}: expected the secret of an API token, one word and no more"
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent", "--token-file {}: expected a readable file, got: No such file or directory"),
        ("", "--token-file {}: expected a readable file, got: Is a directory"),
        ("a\0b", "--token-file: expected a readable file, got: no such file"),
        ("a\nb", "--token-file: expected a readable file, got: No such file or directory"),
    ],
)
def test_a_file_of_a_secret_that_cannot_be_read_is_told_in_one_line(name, words, tmp_path):
    path = str(tmp_path / name) if name else str(tmp_path)
    with pytest.raises(InputError) as error:
        read_secret(path)
    assert str(error.value) == words.format(path)


@pytest.mark.parametrize("command", MINIMAL)
def test_the_cas_that_are_named_count_for_the_whole_process(command, tmp_path, monkeypatch):
    """As if the environment had named them; what is wrong with them is told at once."""
    monkeypatch.setenv(CA_VARIABLE, "of the environment")
    file = tmp_path / "ca.crt"
    file.write_bytes(Authority().pem)
    assert read(command)["ca_file"] is None
    assert os.environ[CA_VARIABLE] == "of the environment"
    assert read(command, "--ca-file", str(file))["ca_file"] == str(file)
    assert os.environ[CA_VARIABLE] == str(file)
    for name, message in (
        ("", "--ca-file: expected a file, got ''"),
        (str(tmp_path / "absent"), "expected a file that can be read"),
    ):
        with pytest.raises(InputError) as error:
            read(command, "--ca-file", name)
        assert message in str(error.value)
        assert os.environ[CA_VARIABLE] == str(file)
