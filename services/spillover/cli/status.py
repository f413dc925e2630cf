"""`spillover status URL`: the federation that the node at URL belongs to."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from spillover.cli.node_calls import NodeCalls, is_state
from spillover.cli.parsing import node_url

TITLES = ("cluster", "busy", "N", "P", "R", "forwards", "policy", "neighbors", "state")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("url", type=node_url, metavar="URL", help="any node, http://HOST:PORT")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    federation = asyncio.run(_ask(options.url))
    if options.json:
        json.dump(federation, sys.stdout)
        print()
    else:
        Console(stderr=True).print(_table(federation["clusters"]))
    return 0


async def _ask(url: str) -> dict[str, Any]:
    async with NodeCalls(url) as node:
        return await node.call("GET", "/federation", _is_federation)


def _is_federation(told: dict[str, Any]) -> bool:
    clusters = told.get("clusters")
    return isinstance(clusters, dict) and all(
        isinstance(state, dict) and ("unreachable" in state or is_state(state))
        for state in clusters.values()
    )


def _table(clusters: dict[str, Any]) -> Table:
    table = Table(box=None, header_style="bold")
    for title in TITLES:
        numeric = title in ("busy", "N", "P", "R", "forwards")
        table.add_column(title, justify="right" if numeric else "left")
    for cluster, state in clusters.items():
        # Text, since ids may contain what rich takes for markup.
        if "unreachable" in state:
            blank = [""] * (len(TITLES) - 2)
            table.add_row(Text(cluster), *blank, Text(_unreachable(state), style="red"))
            continue
        table.add_row(
            Text(cluster),
            f"{state['busy']}/{state['servers']}",
            str(state["queue_length"]),
            f"{state['accept_probability']:.2f}",
            f"{state['neighborhood_accept_probability']:.2f}",
            str(state["forwards"]),
            Text(state["policy"]),
            _neighbors(state),
            _condition(state),
        )
    return table


def _neighbors(state: dict[str, Any]) -> Text:
    """The unknown ones red, with a question mark; what was done to a link behind its neighbor."""
    names = []
    for neighbor in state["neighbors"]:
        known = neighbor["alive"]
        name = neighbor["id"] if known else f"{neighbor['id']}?"
        link = neighbor.get("link")
        if link is not None:
            name += f"({_link(link)})"
        names.append(Text(name, style="" if known and link is None else "red"))
    return Text(" ").join(names)


def _link(link: dict[str, Any]) -> str:
    if link["cut"]:
        return "cut"
    loss = f" {link['loss']:.0%} lost" if link["loss"] else ""
    return f"{link['delay_ms']:g} ms{loss}"


def _unreachable(state: dict[str, Any]) -> str:
    """With how long ago a neighbor last heard of it, if one ever did."""
    seen_s = state["last_seen_s"]
    return "unreachable" if seen_s is None else f"unreachable {seen_s:.0f} s"


def _condition(state: dict[str, Any]) -> Text:
    condition = "draining" if state["draining"] else "up"
    if state["drained"]:
        condition = "drained"
    elif state.get("down"):
        condition = "no servers"
    if state.get("stuck"):
        return Text(f"{condition}, {state['stuck']} stuck", style="red")
    return Text(condition)
