"""`spillover config get|set|diff|history`: read and change the configuration of a federation that
runs."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spillover.cli.node_answers import is_configuration, is_history
from spillover.cli.node_calls import (
    NodeCalls,
    ProblemAnswered,
    add_call_options,
    call_once,
    calls_of,
)
from spillover.cli.parsing import whole_number_in
from spillover.commandline.output import tell
from spillover.commandline.parsing import add_command, run_subcommand
from spillover.core.membership.changes import differences, filled, refuse_fixed, unusual
from spillover.inputs.builtin import BUILTIN_NAMES
from spillover.inputs.topology_file import load_topology, read_told, short_text
from spillover.inputs.yaml_file import shown_path
from spillover.model.errors import InputError, RunError
from spillover.model.ids import ClusterId
from spillover.model.ranges import VERSION_MAX
from spillover.model.topology import Topology

CONFIG, HISTORY = "/admin/config", "/admin/config/history"


BEFORE = -1
"""The version of the configuration before the one that counts."""

_OF_THE_FILE = "body.topology."
"""A node that refuses a topology puts this before the field."""

_FILE_HELP = "the topology: a YAML file, or a built-in name"

run = run_subcommand


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands and their options."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add(
        commands, "get", "print the configuration of a node, as a file to change", _get,
        "print one JSON object, which also says who took it",
    )  # fmt: skip
    change = _add(
        commands, "set", "give all nodes a configuration, without a restart", _set,
        "print the configuration that counts then as one JSON object",
    )  # fmt: skip
    either = change.add_mutually_exclusive_group(required=True)
    either.add_argument("file", metavar="FILE", nargs="?", help=_FILE_HELP)
    either.add_argument(
        "--rollback", nargs="?", type=whole_number_in(0, 2**53), const=BEFORE, metavar="V",
        help="in place of FILE: go back to version V (see `history`; default: the one before)",
    )  # fmt: skip
    change.add_argument(
        "--if-version", type=whole_number_in(0, VERSION_MAX), metavar="V",
        help="replace version V, and fail if another one counts (default: the version in the file)",
    )  # fmt: skip
    diff = _add(
        commands, "diff", "show what a file would change, and which changes nodes would refuse",
        _diff, "print the changes as one JSON object",
    )  # fmt: skip
    diff.add_argument("file", metavar="FILE", help=_FILE_HELP)
    _add(
        commands, "history", "list the last ten configurations of a node, and what each changed",
        _history, "print them with their texts as one JSON object",
    )  # fmt: skip


def _add(
    commands: Any, name: str, summary: str, run: Callable[..., int], json_help: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = add_command(commands, name, summary, run)
    add_call_options(parser, "any node of the federation, http://HOST:PORT", json_help)
    return parser


def _get(options: argparse.Namespace) -> int:
    told = call_once(options, "GET", CONFIG, is_configuration)
    if options.json:
        print(json.dumps(told))
        return 0
    print(told["topology"], end="")
    lost = told.get("superseded")
    if isinstance(lost, dict):
        tell(f"version {lost.get('version')} that was set here was superseded; it is in --json")
    return 0


def _set(options: argparse.Namespace) -> int:
    return asyncio.run(_set_at(options))


async def _set_at(options: argparse.Namespace) -> int:
    async with calls_of(options) as node:
        if options.file is None:
            source, if_version, text = await _earlier(node, options.rollback)
        else:
            source, topology = options.file, load_topology(options.file)
            if_version, text = topology.version, _text(options.file, topology)
        if options.if_version is not None:
            if_version = options.if_version
        body = json.dumps({"if_version": if_version, "topology": text}).encode()
        try:
            told = await node.call("PUT", CONFIG, is_configuration, body)
        except ProblemAnswered as refused:
            raise _told_better(refused, source, if_version) from None
    _warn(told.get("unusual"))
    if options.json:
        print(json.dumps(told))
    else:
        of = "" if options.file else f", as {source} was"
        print(f"version {told['version']} is taken{of}; other nodes follow within a second or two")
    return 0


def _warn(lines: object) -> None:
    """Print what is seldom meant in a change that is made nevertheless."""
    for line in lines if isinstance(lines, list) else []:
        tell(f"unusual: {line}")


def _told_better(refused: ProblemAnswered, source: str, if_version: int) -> Exception:
    """Returns the error, along with what the node does not know."""
    if refused.detail.startswith(_OF_THE_FILE):
        # What only a node can know of it: another federation's, or what cannot change.
        return InputError(source, "", refused.detail.removeprefix(_OF_THE_FILE))
    if refused.reason != "version_conflict":
        return refused
    why = f"{source} takes the place of version {if_version}"
    instead = "change what `config get` prints now, or say with --if-version which one it replaces"
    return RunError(f"{refused}, {why}: {instead}")


async def _earlier(node: NodeCalls, wanted: int) -> tuple[str, int, str]:
    """Returns how an earlier configuration is called, the version that counts now, and the earlier
    one's text. Raises RunError where the node knows none."""
    now, *before = (await node.call("GET", HISTORY, is_history))["configurations"]
    found = next((one for one in before if wanted in (BEFORE, one["version"])), None)
    if found is None:
        which = "earlier one" if wanted == BEFORE else f"version {wanted} before it"
        known = f"it goes by version {now['version']} and has known no {which} since it started"
        raise RunError(f"{node.url}: {known}: ask another node, or set a file")
    return f"version {found['version']}", now["version"], found["topology"]


def _history(options: argparse.Namespace) -> int:
    told = call_once(options, "GET", HISTORY, is_history)
    if options.json:
        print(json.dumps(told))
        return 0
    listed = told["configurations"]
    topologies = [read_told(one["topology"], options.url, "of the node") for one in listed]
    for index, one in enumerate(listed):
        by = f" of {one['by']}" if one.get("by") else ""
        print(f"version {one['version']}{by}, since {one.get('at')}{'' if index else ' (now)'}")
        if index + 1 < len(listed):
            for line in differences(topologies[index + 1], topologies[index]):
                print(f"  {line}")
    return 0


def _diff(options: argparse.Namespace) -> int:
    after = load_topology(options.file)
    state, told = asyncio.run(_ask_both(options))
    before = read_told(told["topology"], options.url, after.name)
    after = filled(before, after)
    lines = differences(before, after)
    refused = None
    try:
        node = (state.get("site") or {}).get("node", 1)
        refuse_fixed(before, after, ClusterId(state["cluster"]), node)
    except InputError as error:
        refused = f"{error.field}: {error.expected}"
    if options.json:
        told = {"version": told["version"], "changes": lines, "refused": refused}
        print(json.dumps(told))
        return 0
    _warn(unusual(before, after))
    print("\n".join(lines) or f"nothing differs from version {told['version']}")
    if refused is not None:
        print(f"it would be refused: {refused}")
    return 0


async def _ask_both(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    async with calls_of(options) as node:
        return await node.state(), await node.call("GET", CONFIG, is_configuration)


def _text(file: str, topology: Topology) -> str:
    """Returns the text of the file: what it leaves out stays left out."""
    if file in BUILTIN_NAMES:
        return short_text(topology)
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise RunError(f"{shown_path(file)}: {error.strerror}") from error
