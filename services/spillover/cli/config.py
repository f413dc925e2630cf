"""`spillover config get|set|diff|history`: what a federation goes by, read and changed while it
runs."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spillover.cli.node_calls import Headers, NodeCalls, Refused
from spillover.cli.parsing import node_url, whole_number_in
from spillover.core.membership.changes import differences, filled, refuse_fixed, unusual
from spillover.inputs.builtin import BUILTIN_NAMES
from spillover.inputs.topology_file import load_topology, read_told, short_text
from spillover.inputs.yaml_file import shown_path
from spillover.model.errors import InputError, RunError
from spillover.model.ids import ClusterId
from spillover.model.ranges import VERSION_MAX
from spillover.model.topology import Topology
from spillover_loadgen.api_token import add_token_file, token_headers
from spillover_loadgen.trusting import add_ca_file

CONFIG, HISTORY = "/admin/config", "/admin/config/history"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands and their options."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    summary = "print what the node goes by, as a file to change"
    get = commands.add_parser("get", help=summary, description=summary, allow_abbrev=False)
    _add_url(get)
    get.add_argument("--json", action="store_true", help="with who took it, as one JSON object")
    get.set_defaults(command=_get)
    summary = "have all nodes go by a file, without a restart"
    change = commands.add_parser("set", help=summary, description=summary, allow_abbrev=False)
    _add_url(change)
    either = change.add_mutually_exclusive_group(required=True)
    either.add_argument("file", metavar="FILE", nargs="?", help=_FILE_HELP)
    either.add_argument(
        "--rollback", nargs="?", type=whole_number_in(0, 2**53), const=BEFORE, metavar="V",
        help="in place of FILE: what the node went by before, or as version V (see `history`)",
    )  # fmt: skip
    change.add_argument(
        "--if-version", type=whole_number_in(0, VERSION_MAX), metavar="V",
        help="the version that it takes the place of (default: as the file says)",
    )  # fmt: skip
    change.add_argument("--json", action="store_true", help="what counts then, as one JSON object")
    change.set_defaults(command=_set)
    summary = "show what a file would change, and what of it would be refused"
    diff = commands.add_parser("diff", help=summary, description=summary, allow_abbrev=False)
    _add_url(diff)
    _add_file(diff)
    diff.add_argument("--json", action="store_true", help="the lines as one JSON object")
    diff.set_defaults(command=_diff)
    summary = "list what the node has gone by, and what each changed: the last ten"
    history = commands.add_parser("history", help=summary, description=summary, allow_abbrev=False)
    _add_url(history)
    history.add_argument("--json", action="store_true", help="with the texts, as one JSON object")
    history.set_defaults(command=_history)


def _add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", type=node_url, metavar="URL", help="any node, http://HOST:PORT")
    add_ca_file(parser)
    add_token_file(parser)


_OF_THE_FILE = "body.topology."
"""Before the field, where a node refuses a topology."""


BEFORE = -1
"""The version of what counted before."""


_FILE_HELP = "a topology file, or a built-in name"


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=_FILE_HELP)


def run(options: argparse.Namespace) -> int:
    """Run the subcommand; its exit status."""
    status: int = options.command(options)
    return status


def _get(options: argparse.Namespace) -> int:
    told = asyncio.run(_ask(options.url, token_headers(options), CONFIG, _is_config))
    if options.json:
        print(json.dumps(told))
        return 0
    print(told["topology"], end="")
    lost = told.get("superseded")
    if isinstance(lost, dict):
        line = f"version {lost.get('version')} that was set here was superseded; it is in --json"
        print(f"spillover: {line}", file=sys.stderr)
    return 0


def _set(options: argparse.Namespace) -> int:
    return asyncio.run(_set_at(options))


async def _set_at(options: argparse.Namespace) -> int:
    async with NodeCalls(options.url, token_headers(options)) as node:
        if options.file is None:
            source, if_version, text = await _earlier(node, options.rollback)
        else:
            source, topology = options.file, load_topology(options.file)
            if_version, text = topology.version, _text(options.file, topology)
        if options.if_version is not None:
            if_version = options.if_version
        body = json.dumps({"if_version": if_version, "topology": text}).encode()
        try:
            told = await node.call("PUT", CONFIG, _is_config, body)
        except Refused as refused:
            raise _told_better(refused, source, if_version) from None
    _warn(told.get("unusual"))
    if options.json:
        print(json.dumps(told))
    else:
        of = "" if options.file else f", as {source} was"
        print(f"version {told['version']} is taken{of}; other nodes follow within a second or two")
    return 0


def _warn(lines: object) -> None:
    """Say what is seldom meant, of a change that is made nevertheless."""
    for line in lines if isinstance(lines, list) else []:
        print(f"spillover: unusual: {line}", file=sys.stderr)


def _told_better(refused: Refused, source: str, if_version: int) -> Exception:
    """With what the node does not know."""
    if refused.detail.startswith(_OF_THE_FILE):
        # What only a node can know of it: another federation's, or what cannot change.
        return InputError(source, "", refused.detail.removeprefix(_OF_THE_FILE))
    if refused.reason != "version_conflict":
        return refused
    why = f"{source} takes the place of version {if_version}"
    instead = "change what `config get` prints now, or say with --if-version which one it replaces"
    return RunError(f"{refused}, {why}: {instead}")


async def _earlier(node: NodeCalls, wanted: int) -> tuple[str, int, str]:
    """What an earlier configuration is called, the version that counts now, and the text of the
    earlier one. Raises RunError where the node knows none."""
    now, *before = (await node.call("GET", HISTORY, _is_history))["configurations"]
    found = next((one for one in before if wanted in (BEFORE, one["version"])), None)
    if found is None:
        which = "earlier one" if wanted == BEFORE else f"version {wanted} before it"
        known = f"it goes by version {now['version']} and has known no {which} since it started"
        raise RunError(f"{node.url}: {known}: ask another node, or set a file")
    return f"version {found['version']}", now["version"], found["topology"]


def _history(options: argparse.Namespace) -> int:
    told = asyncio.run(_ask(options.url, token_headers(options), HISTORY, _is_history))
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
    state, told = asyncio.run(_ask_both(options.url, token_headers(options)))
    before = read_told(told["topology"], options.url, after.name)
    after = filled(before, after)
    lines = differences(before, after)
    refused = None
    try:
        refuse_fixed(before, after, ClusterId(state["cluster"]))
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


async def _ask(
    url: str, headers: Headers, path: str, is_answer: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    async with NodeCalls(url, headers) as node:
        return await node.call("GET", path, is_answer)


async def _ask_both(url: str, headers: Headers) -> tuple[dict[str, Any], dict[str, Any]]:
    async with NodeCalls(url, headers) as node:
        return await node.state(), await node.call("GET", CONFIG, _is_config)


def _text(file: str, topology: Topology) -> str:
    """As it is in the file: what it does not say stays unsaid."""
    if file in BUILTIN_NAMES:
        return short_text(topology)
    try:
        return Path(file).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise RunError(f"{shown_path(file)}: {error.strerror}") from error


def _is_config(told: dict[str, Any]) -> bool:
    return isinstance(told.get("version"), int) and isinstance(told.get("topology"), str)


def _is_history(told: dict[str, Any]) -> bool:
    listed = told.get("configurations")
    return (
        isinstance(listed, list)
        and bool(listed)
        and all(isinstance(one, dict) and _is_config(one) for one in listed)
    )
