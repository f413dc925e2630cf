"""What `spillover` says of itself, and how fast."""

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spillover import __version__
from spillover.cli import commands, main
from spillover.cli.command import added_commands
from spillover.cli.commands import all_commands
from spillover.cli.parsing import node_url

COMMANDS = all_commands()


def ask(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_the_labs_commands_are_entry_points(monkeypatch):
    """A copy of the package that was never installed has the product's commands alone."""
    assert {"bench", "demo", "reproduce"} <= set(COMMANDS)
    assert set(added_commands(below="lease")) == {"demo"}
    monkeypatch.setattr(importlib.metadata, "distribution", not_installed)
    assert set(all_commands()) == set(commands.COMMANDS)


def not_installed(name):
    raise importlib.metadata.PackageNotFoundError(name)


def test_help_names_every_command(capsys):
    said = " ".join(ask(capsys, "--help").split())
    for name, command in COMMANDS.items():
        assert f"{name} {command.summary}" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    """And help never starts anything."""
    assert ask(capsys, command, "--help").startswith(f"usage: spillover {command}")


@pytest.mark.parametrize("words", [[], ["config"]])
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


def test_a_command_that_was_renamed_works_and_tells_its_new_name(capsys):
    with pytest.raises(SystemExit):
        main(["tokens", "--help"])
    out, err = capsys.readouterr()
    assert out.startswith("usage: spillover pool")
    assert err == "spillover: `tokens` is called `pool` now\n"


def test_version(capsys):
    assert ask(capsys, "--version") == f"spillover {__version__}\n"


@pytest.mark.processes
def test_help_loads_no_command():
    """Nor what commands load, which takes most of a second."""
    told = "import sys; from spillover.cli import main; main(['--help'])"
    listed = f"import atexit; atexit.register(lambda: print(*sys.modules)); {told}"
    ended = subprocess.run([sys.executable, "-c", listed], check=True, capture_output=True)
    loaded = set(ended.stdout.decode().splitlines()[-1].split())
    assert "spillover.cli.commands" in loaded
    modules = {command.module for command in COMMANDS.values()}
    assert not loaded & (modules | {"asyncio", "fastapi", "numpy", "rich", "pydantic"})


LEASES = ("sim", "leases", "--nodes", "2", "--partitions", "4", "--periods", "3", "--json")


def to(stdout, unbuffered):
    """What came of a command that writes there, and what it said."""
    ended = subprocess.run(
        [sys.executable, "-m", "spillover", *LEASES], check=False,
        stdout=stdout, stderr=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )  # fmt: skip
    return ended.returncode, ended.stderr


@pytest.mark.processes
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_no_room_for_the_result(unbuffered):
    """One line and exit status 1, whether it is found out while writing or at the end."""
    told = b"spillover: expected room for what is written, got: No space left on device\n"
    with Path("/dev/full").open("wb") as full:
        assert to(full, unbuffered) == (1, told)


@pytest.mark.processes
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_nobody_reads_the_result(unbuffered):
    """As with `| head`: exit status 1, without a word."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert to(writing, unbuffered) == (1, b"")
    finally:
        os.close(writing)


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
