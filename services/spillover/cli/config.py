"""`spillover config get|set|diff`: what a federation goes by, read and changed while it runs."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from spillover.cli.node_calls import Headers, NodeCalls, Refused
from spillover.cli.parsing import node_url, whole_number_in
from spillover.core.membership.changes import differences, filled, refuse_fixed
from spillover.inputs.builtin import BUILTIN_NAMES
from spillover.inputs.topology_file import load_topology, read_told, short_text
from spillover.inputs.yaml_file import shown_path
from spillover.model.errors import InputError, RunError
from spillover.model.ids import ClusterId
from spillover.model.topology import Topology
from spillover_loadgen.api_token import add_token_file, token_headers
from spillover_loadgen.trusting import add_ca_file

CONFIG = "/admin/config"


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
    _add_file(change)
    change.add_argument(
        "--if-version", type=whole_number_in(0, 2**53), metavar="V",
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


def _add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", type=node_url, metavar="URL", help="any node, http://HOST:PORT")
    add_ca_file(parser)
    add_token_file(parser)


_OF_THE_FILE = "body.topology."
"""Before the field, where a node refuses a topology."""


def _add_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a topology file, or a built-in name")


def run(options: argparse.Namespace) -> int:
    """Run the subcommand; its exit status."""
    status: int = options.command(options)
    return status


def _get(options: argparse.Namespace) -> int:
    told = asyncio.run(_ask(options.url, token_headers(options)))
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
    topology = load_topology(options.file)
    if_version = topology.version if options.if_version is None else options.if_version
    text = _text(options.file, topology)
    try:
        told = asyncio.run(_put(options.url, token_headers(options), if_version, text))
    except Refused as refused:
        if not refused.detail.startswith(_OF_THE_FILE):
            raise
        # What only a node can know of it: another federation's, or what cannot change.
        raise InputError(options.file, "", refused.detail.removeprefix(_OF_THE_FILE)) from None
    if options.json:
        print(json.dumps(told))
    else:
        print(f"version {told['version']} is taken; other nodes follow within a second or two")
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
    print("\n".join(lines) or f"nothing differs from version {told['version']}")
    if refused is not None:
        print(f"it would be refused: {refused}")
    return 0


async def _ask(url: str, headers: Headers) -> dict[str, Any]:
    async with NodeCalls(url, headers) as node:
        return await node.call("GET", CONFIG, _is_config)


async def _ask_both(url: str, headers: Headers) -> tuple[dict[str, Any], dict[str, Any]]:
    async with NodeCalls(url, headers) as node:
        return await node.state(), await node.call("GET", CONFIG, _is_config)


async def _put(url: str, headers: Headers, if_version: int, text: str) -> dict[str, Any]:
    body = json.dumps({"if_version": if_version, "topology": text}).encode()
    async with NodeCalls(url, headers) as node:
        return await node.call("PUT", CONFIG, _is_config, body)


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
