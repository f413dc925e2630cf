"""`spillover status URL`: the federation that the node at URL belongs to."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

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
        Console().print(_table(federation["clusters"]))
    return 0


def _table(clusters: dict[str, Any]) -> Table:
    table = Table(box=None, header_style="bold")
    for title in ("cluster", "busy", "N", "P", "R", "forwards", "policy", "neighbors", "state"):
        numeric = title in ("busy", "N", "P", "R", "forwards")
        table.add_column(title, justify="right" if numeric else "left")
    for cluster, state in clusters.items():
        if "unreachable" in state:
            table.add_row(cluster, "", "", "", "", "", "", "", "[red]unreachable[/]")
            continue
        neighbors = [n["id"] if n["alive"] else f"[red]{n['id']}?[/]" for n in state["neighbors"]]
        table.add_row(
            cluster,
            f"{state['busy']}/{state['servers']}",
            str(state["queue_length"]),
            f"{state['accept_probability']:.2f}",
            f"{state['neighborhood_accept_probability']:.2f}",
            str(state["forwards"]),
            state["policy"],
            " ".join(neighbors),
            _condition(state),
        )
    return table


def _condition(state: dict[str, Any]) -> str:
    if state["drained"]:
        return "drained"
    return "draining" if state["draining"] else "up"
