"""What `spillover` says of itself, and how fast."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from spillover import __version__
from spillover.cli import COMMANDS, main
from spillover.cli.parsing import node_url


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


def test_version(capsys):
    assert ask(capsys, "--version") == f"spillover {__version__}\n"


def test_help_comes_at_once():
    """The overview loads no command: the best of three is under half a second."""
    command = [sys.executable, "-m", "spillover", "--help"]
    took_s = []
    for _ in range(3):
        began_s = time.monotonic()
        subprocess.run(command, check=True, capture_output=True)
        took_s.append(time.monotonic() - began_s)
    assert min(took_s) < 0.5


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
