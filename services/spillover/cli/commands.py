"""The commands there are, and what comes of running one. One module a command, loaded only when it
is named, so that a node loads nothing that it does not run.

`spillover` alone, and a command that lacks the name of its own command, print help and exit 0.
"""

from __future__ import annotations

import argparse
import errno
import gc
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from types import ModuleType

from spillover import __version__
from spillover.model.errors import InputError, SpilloverError
from spillover_loadgen.output import take_all_characters
from spillover_loadgen.parsing import OneLineParser

EXIT_FAILED = 1
EXIT_USAGE = 2

EPILOG = """\
`spillover COMMAND --help` tells more of each. Exit status: 0 done, 1 the run itself failed, 2 bad
usage or bad input, 130 interrupted.
"""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its module has `configure(parser)` and `run(options) -> exit status`. A word of
    `forms` behind its name makes it another command."""

    module: str
    summary: str
    forms: Mapping[str, Command] = field(default_factory=dict)


COMMANDS = {
    "demo": Command("spillover.cli.demo", "see bursts vanish: isolated, then networked queues"),
    "up": Command("spillover.cli.up", "run a whole topology as processes on this machine"),
    "node": Command("spillover.cli.node", "run one cluster node"),
    "status": Command("spillover.cli.status", "show the federation that a node belongs to"),
    "config": Command("spillover.cli.config", "read or change what a running federation goes by"),
    "drain": Command("spillover.cli.drain", "take a node out of service, its queue with it"),
    "resume": Command("spillover.cli.resume", "put a drained node back into service"),
    "token": Command("spillover.cli.token", "make API tokens, for who may use and operate nodes"),
    "tokens": Command("spillover.cli.tokens", "show or change a pool of unlike servers"),
    "explain": Command("spillover.cli.explain", "tell why a request went where it went"),
    "tls": Command("spillover.cli.tls", "make and check certificates for nodes"),
    "topology": Command("spillover.cli.topology", "write deployments: compose, Kubernetes"),
    "lease": Command("spillover.cli.lease", "share batch partitions out over members, on Redis"),
    "queue": Command("spillover.cli.queue", "run one producer of the distributed queue"),
    "sim": Command("spillover.cli.sim", "run the same clusters in virtual time"),
    "plan": Command(
        "spillover.cli.plan",
        "say how many servers sites need, alone and networked",
        {
            "tokens": Command(
                "spillover.cli.plan_tokens", "recommend token limits for a pool of unlike servers"
            )
        },
    ),
    "exact": Command("spillover.cli.exact", "compute what theory says"),
    "reproduce": Command(
        "spillover.cli.reproduce", "compute the figures of the five source documents again"
    ),
    "bench": Command("spillover.cli.bench", "measure beside a peer what Spillover costs"),
}


def run_command(arguments: list[str]) -> int:
    """Run the command that is named; its exit status."""
    take_all_characters()
    tell = _teller(arguments)
    try:
        try:
            return _dispatch(arguments)
        finally:
            # What the buffer holds is written here and not at exit, where nobody is told.
            if sys.stdout is not None:
                sys.stdout.flush()
    except InputError as error:
        tell(_one_line(error))
        return EXIT_USAGE
    except SpilloverError as error:
        tell(_one_line(error))
        return EXIT_FAILED
    except BrokenPipeError:
        _drop_output()
        return EXIT_FAILED
    except OSError as error:
        if error.errno == errno.ENOENT and not _has_directory():
            tell("the working directory was removed: change to another one")
            return EXIT_USAGE
        if error.errno not in _NO_ROOM:
            raise
        _drop_output()
        tell(f"expected room for what is written, got: {error.strerror}")
        return EXIT_FAILED


def _teller(arguments: list[str]) -> Callable[[str], None]:
    """Returns what tells in one line why a command has failed. Where its log is to be JSON all
    that goes to standard error is JSON from here on: what is wrong with options, too."""
    pairs = pairwise(arguments)
    if "--log-format=json" not in arguments and ("--log-format", "json") not in pairs:
        return lambda line: print(f"spillover: {line}", file=sys.stderr)
    from spillover.live.process import json_streams

    json_streams.take_over_stderr()
    return json_streams.tell_error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] == ["help"]:  # as people know it from others
        arguments = [*arguments[1:], "--help"]
    parser = make_parser(*arguments[:2])
    options: argparse.Namespace = parser.parse_args(arguments)
    status: int = options.run(options)
    return status


def make_parser(named: str = "", form: str = "") -> OneLineParser:
    """Returns the parser of all commands, which knows the options of the one that is named, in the
    form that is named."""
    overview = OneLineParser(
        prog="spillover", description="Queues of many sites that act like one.", epilog=EPILOG
    )
    overview.add_argument("--version", action="version", version=f"spillover {__version__}")
    commands = overview.add_subparsers(metavar="COMMAND", required=True, dest="command")
    for name, command in COMMANDS.items():
        parser = commands.add_parser(name, help=command.summary, description=command.summary)
        if name == named:
            chosen = command.forms.get(form, command)
            if chosen is not command:
                below = parser.add_subparsers(metavar="FORM", required=True)
                parser = below.add_parser(form, help=chosen.summary, description=chosen.summary)
            module = _load(chosen.module)
            module.configure(parser)
            parser.set_defaults(run=module.run)
    return overview


def _load(name: str) -> ModuleType:
    """Returns the module, imported while nobody looks for garbage: what is loaded stays, and a node
    has started a tenth sooner."""
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.enable()


def _has_directory() -> bool:
    """Whether the working directory is there."""
    try:
        os.getcwd()  # noqa: PTH109 - it is only asked for
    except OSError:
        return False
    return True


def _drop_output() -> None:
    """Let nothing be written to stdout any more: at exit it would fail again, in many lines."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
