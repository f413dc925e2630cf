"""The product's commands, and the exit status of each. A command is one module, loaded only when it
is named, so that a node loads nothing that it does not run. The lab's commands are added to them by
entry points (`command`).

`spillover` alone, and a command that lacks the name of its own command, print help and exit 0.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise

from spillover import __version__
from spillover.cli.command import CliCommand, added_commands
from spillover.commandline.output import take_all_characters
from spillover.commandline.parsing import OneLineParser
from spillover.model.errors import InputError, SpilloverError

EXIT_FAILED = 1
EXIT_USAGE = 2

EPILOG = """\
`spillover COMMAND --help` tells more of each. Exit status: 0 done, 1 the run itself failed, 2 bad
usage or bad input, 130 interrupted.
"""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


GROUPS = {
    "run": {
        "up": CliCommand("spillover.cli.up", "run a whole topology as processes on this machine"),
        "node": CliCommand("spillover.cli.node", "run the node of one cluster"),
        "lease": CliCommand(
            "spillover.cli.lease",
            "share batch partitions out over members of a group, by leases in Redis",
        ),
        "queue": CliCommand(
            "spillover.cli.queue",
            "run one producer of the distributed queue, or feed a handler from it",
        ),
    },
    "operate": {
        "status": CliCommand("spillover.cli.status", "show the federation that a node belongs to"),
        "explain": CliCommand("spillover.cli.explain", "tell why a request went where it went"),
        "config": CliCommand(
            "spillover.cli.config", "read or change the configuration of a federation"
        ),
        "drain": CliCommand("spillover.cli.drain", "take a node out of service, its queue with it"),
        "resume": CliCommand("spillover.cli.resume", "put a drained node back into service"),
        "pool": CliCommand("spillover.cli.pool", "show or change a pool of unlike servers"),
    },
    "deploy": {
        "topology": CliCommand(
            "spillover.cli.topology", "write a deployment for compose or Kubernetes"
        ),
        "tls": CliCommand("spillover.cli.tls", "make, renew and check certificates"),
        "token": CliCommand("spillover.cli.token", "make API tokens for clients and operators"),
    },
    "plan and simulate": {
        "plan": CliCommand(
            "spillover.cli.plan",
            "say how many servers sites need, alone and networked",
            {
                "tokens": CliCommand(
                    "spillover.cli.plan_tokens",
                    "recommend token limits for a pool of unlike servers",
                )
            },
        ),
        "sim": CliCommand("spillover.cli.sim", "simulate the mechanisms in virtual time"),
    },
}
"""The product's commands, by their purpose."""

COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}

RENAMED = {"tokens": "pool"}
"""Old names of commands, and their new ones. An old name works, with a hint on stderr."""


def all_commands() -> Mapping[str, CliCommand]:
    """Returns the product's commands, then the lab's."""
    return {**COMMANDS, **added_commands()}


def run_command(arguments: list[str]) -> int:
    """Run the command that is named, and return its exit status."""
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
    """Returns the function that prints in one line why a command has failed. Where its log is to be
    JSON all of standard error is JSON from here on: errors in options, too."""
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
    if (renamed := RENAMED.get("".join(arguments[:1]))) is not None:
        print(f"spillover: `{arguments[0]}` is called `{renamed}` now", file=sys.stderr)
        arguments = [renamed, *arguments[1:]]
    parser = make_parser(*arguments[:2])
    options: argparse.Namespace = parser.parse_args(arguments)
    status: int = options.run(options)
    return status


def make_parser(named: str = "", form: str = "") -> OneLineParser:
    """Returns the parser of all commands, with the options of the one that is named, in the form
    that is named. The lab's commands are looked up where none of the product's is named."""
    known = COMMANDS if named in COMMANDS else all_commands()
    overview = OneLineParser(
        prog="spillover",
        usage="spillover [-h] [--version] COMMAND ...",
        description="Let the queues of many sites act like one.",
        epilog=_listed(known) + EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    overview.add_argument("--version", action="version", version=f"spillover {__version__}")
    commands = overview.add_subparsers(
        prog="spillover", metavar="COMMAND", required=True, dest="command", help=argparse.SUPPRESS
    )
    for name, command in known.items():
        parser = commands.add_parser(name, help=command.summary, description=command.summary)
        if name == named:
            chosen = command.forms.get(form, command)
            if chosen is not command:
                below = parser.add_subparsers(metavar="FORM", required=True)
                parser = below.add_parser(form, help=chosen.summary, description=chosen.summary)
            module = chosen.load()
            module.configure(parser)
            parser.set_defaults(run=module.run)
    return overview


def _listed(known: Mapping[str, CliCommand]) -> str:
    """Returns all commands with their summaries, in their groups."""
    lab = {name: command for name, command in known.items() if name not in COMMANDS}
    lines = []
    for title, group in {**GROUPS, "lab": lab}.items():
        if group:
            lines += [
                f"{title}:",
                *(f"  {name:<10}{one.summary}" for name, one in group.items()),
                "",
            ]
    return "\n".join([*lines, ""])


def _has_directory() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - it is only asked for
    except OSError:
        return False
    return True


def _drop_output() -> None:
    """Drop all further output to stdout: at exit it would fail again, in many lines."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
