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

from spillover.cli.parsing import node_url
from spillover.testbed.federation_view import walk_federation


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("url", type=node_url, metavar="URL", help="any node, http://HOST:PORT")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    federation = asyncio.run(walk_federation(options.url))
    if options.json:
        json.dump(federation, sys.stdout)
        print()
    else:
        Console(stderr=True).print(_table(federation["clusters"]))
    return 0


def _table(clusters: dict[str, Any]) -> Table:
    table = Table(box=None, header_style="bold")
    for title in ("cluster", "busy", "N", "P", "R", "forwards", "policy", "neighbors", "state"):
        numeric = title in ("busy", "N", "P", "R", "forwards")
        table.add_column(title, justify="right" if numeric else "left")
    for cluster, state in clusters.items():
        # Text, since ids may contain what rich takes for markup.
        if "unreachable" in state:
            blank = [""] * 7
            table.add_row(Text(cluster), *blank, Text(_unreachable(state), style="red"))
            continue
        table.add_row(
            Text(cluster),
            f"{state['busy']}/{state['servers']}",
            str(state["queue_length"]),
            f"{state['accept_probability']:.2f}",
            f"{state['neighborhood_accept_probability']:.2f}",
            str(state["forwards"]),
            state["policy"],
            _neighbors(state),
            _condition(state),
        )
    return table


def _neighbors(state: dict[str, Any]) -> Text:
    """The unknown ones red, with a question mark."""
    names = [
        Text(n["id"]) if n["alive"] else Text(f"{n['id']}?", style="red")
        for n in state["neighbors"]
    ]
    return Text(" ").join(names)


def _unreachable(state: dict[str, Any]) -> str:
    """With how long ago a neighbor last heard of it, if one ever did."""
    seen_s = state["last_seen_s"]
    return "unreachable" if seen_s is None else f"unreachable {seen_s:.0f} s"


def _condition(state: dict[str, Any]) -> str:
    if state["drained"]:
        return "drained"
    return "draining" if state["draining"] else "up"
