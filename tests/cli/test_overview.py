"""What `spillover` says of itself, and how fast."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spillover import __version__
from spillover.cli import main
from spillover.cli.commands import COMMANDS, make_parser
from spillover.cli.parsing import node_url
from spillover_loadgen.commands import make_parser as loadgen_parser
from spillover_loadgen.parsing import shown_default


def ask(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_help_names_every_command(capsys):
    """With what each does, in one line."""
    said = " ".join(ask(capsys, "--help").split())
    for name, command in COMMANDS.items():
        assert f"{name} {command.summary}" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    """And help never starts anything."""
    assert ask(capsys, command, "--help").startswith(f"usage: spillover {command}")


BELOW = ("lease", "sim", "exact", "topology", "tls", "token", "config")


@pytest.mark.parametrize("words", [[], *([command] for command in BELOW)])
def test_without_a_command_there_is_help(words, capsys):
    """On stdout, exit status 0: whoever types only that wants to know what there is."""
    assert ask(capsys, *words) == ask(capsys, *words, "--help")


class Interrupts:
    """Finds every module by Ctrl-C."""

    def find_spec(self, *_):
        raise KeyboardInterrupt


def test_an_interruption_while_it_is_imported_is_told_by_the_status(monkeypatch, capsys):
    """130 without a traceback, whatever was being imported: what commands take takes 0.1 s."""
    for name in [name for name in sys.modules if name.startswith("spillover.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Interrupts(), *sys.meta_path])
    assert main(["node", "--help"]) == 130
    assert capsys.readouterr() == ("", "")


def test_help_is_a_command_too(capsys):
    """As people know it from elsewhere."""
    assert ask(capsys, "help", "lease", "run") == ask(capsys, "lease", "run", "--help")
    assert ask(capsys, "help") == ask(capsys, "--help")


def parsers():
    """(name, parser) of each command, and of the commands below it."""
    found = [(command, children(make_parser(command))[command]) for command in COMMANDS]
    for name, command in COMMANDS.items():
        for form in command.forms:
            below = children(make_parser(name, form))[name]
            found.append((f"{name} {form}", children(below)[form]))
    found.append(("spillover-loadgen", loadgen_parser()))
    for name, parser in found:
        found += [(f"{name} {child}", one) for child, one in children(parser).items()]
    return found


def children(parser):
    return next((dict(a.choices) for a in parser._actions if a.nargs == argparse.PARSER), {})


@pytest.mark.parametrize(("name", "parser"), parsers(), ids=lambda value: str(value)[:40])
def test_help_tells_of_every_option_and_its_default(name, parser, monkeypatch):
    """Also of those that somebody adds."""
    monkeypatch.setenv("COLUMNS", "500")
    lines = parser.format_help().splitlines()
    for action in parser._actions:
        if not action.option_strings or action.default is argparse.SUPPRESS:
            continue
        assert action.help, (name, action.option_strings)
        at = next(
            number
            for number, line in enumerate(lines)
            if line.strip().startswith(action.option_strings[0])
        )
        described = " ".join(lines[at : at + 2])  # behind a long name the help has its own line
        default = shown_default(action)
        assert default is None or default in described, (name, action.option_strings)
        assert "None" not in described


def test_version(capsys):
    assert ask(capsys, "--version") == f"spillover {__version__}\n"


@pytest.mark.processes
def test_help_comes_at_once():
    """The overview loads no command: the best of three is under half a second."""
    command = [sys.executable, "-m", "spillover", "--help"]
    took_s = []
    for _ in range(3):
        began_s = time.monotonic()
        subprocess.run(command, check=True, capture_output=True)
        took_s.append(time.monotonic() - began_s)
    assert min(took_s) < 0.5


LEASES = ("sim", "leases", "--nodes", "2", "--partitions", "4", "--periods", "3", "--json")


@pytest.mark.processes
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_no_room_for_the_result(unbuffered):
    """One line and exit status 1, whether it is found out while writing or at the end."""
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "spillover", *LEASES],
            check=False,
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    told = b"spillover: expected room for what is written, got: No space left on device\n"
    assert (ended.returncode, ended.stderr) == (1, told)


@pytest.mark.processes
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_nobody_reads_the_result(unbuffered):
    """As with `| head`: exit status 1, without a word."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "spillover", *LEASES],
            check=False,
            stdout=writing,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, b"")


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://127.0.0.1:8101", "http://127.0.0.1:8101"),
        ("http://127.0.0.1:8101/", "http://127.0.0.1:8101"),
        ("http://localhost", "http://localhost"),
        ("http://[::1]:8101", "http://[::1]:8101"),
    ],
)
def test_urls_of_nodes(text, url):
    assert node_url(text) == url
