"""`spillover pool URL`: show a node's pool of unlike servers, or change it."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from spillover.cli.node_answers import is_pool
from spillover.cli.node_calls import add_call_options, calls_of
from spillover.cli.parsing import whole_number_in
from spillover.commandline.option_types import named
from spillover.commandline.terminal import open_console, table_of
from spillover.model.errors import InputError, RunError
from spillover.model.unlike_servers import TOKENS_MAX

STATE_STYLES = {"up": "", "out": "yellow"}
"""Styles of the states of servers; all others are bad."""

SHOWN_CLASSES_MAX = 8
"""At most so many classes of a type are shown."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_call_options(
        parser, "the node, http://HOST:PORT", "print the pool as one JSON object instead of tables"
    )
    parser.add_argument(
        "--limit", type=named("CLASS=N", whole_number_in(1, TOKENS_MAX)), action="append",
        default=[], metavar="CLASS=N",
        help="give a class so many tokens from now on; held ones are not taken away; may be "
        "repeated",
    )  # fmt: skip
    parser.add_argument(
        "--out", action="append", default=[], metavar="SERVER",
        help="give this server no new request; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--in", action="append", default=[], dest="back", metavar="SERVER",
        help="give this server requests again, gradually; may be repeated",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    _check_once("--limit", [name for name, _ in options.limit])
    _check_once("--out and --in", [*options.out, *options.back])
    tokens = asyncio.run(_ask(options))
    if options.json:
        json.dump(tokens, sys.stdout)
        print()
    else:
        open_console(stderr=False).print(Group(*_tables(tokens)))
    return 0


def _check_once(option: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(option, "", f"expected each name once, got {name!r} twice")


async def _ask(options: argparse.Namespace) -> dict[str, Any]:
    change: dict[str, Any] = {}
    if options.limit:
        change["classes"] = dict(options.limit)
    if options.out or options.back:
        told = [(server, "out") for server in options.out]
        change["servers"] = dict([*told, *((server, "in") for server in options.back)])
    async with calls_of(options) as node:
        if change:
            body = json.dumps(change).encode()
            return await node.call("PUT", "/admin/tokens", is_pool, body)
        state = await node.state()
    tokens: dict[str, Any] | None = state.get("tokens")
    if tokens is None or not is_pool(tokens):
        raise RunError(f"the servers of cluster {state['cluster']} are alike: it has no tokens")
    return tokens


def _tables(tokens: dict[str, Any]) -> list[Table | Text]:
    # Text, since ids may contain what rich takes for markup.
    servers = _table("server", ("rate", "jobs", "queued", "tokens"), "state")
    for row in tokens["servers"]:
        state = str(row.get("state"))
        numbers = [_number(row.get(name)) for name in ("rate", "jobs", "queued", "tokens")]
        servers.add_row(
            Text(row["id"]), *numbers, Text(state, style=STATE_STYLES.get(state, "red"))
        )
    counts = ("available", "held", "out", "retiring", "limit")
    classes = _table("class", counts)
    for row in tokens["classes"]:
        classes.add_row(Text(row["id"]), *(_number(row.get(name)) for name in counts))
    types = _table("type", ("blocked now", "in all", "work"), "classes")
    for row in tokens["types"]:
        work = f"{row['work_ms']:.0f} ms" if isinstance(row.get("work_ms"), int | float) else ""
        numbers = [_number(row.get(name)) for name in ("blocked", "blocked_total")]
        joins = [str(one) for one in row.get("classes", ())]
        more = ["..."] if len(joins) > SHOWN_CLASSES_MAX else []
        shown = Text(" ".join([*joins[:SHOWN_CLASSES_MAX], *more]))
        types.add_row(Text(row["id"]), *numbers, work, shown)
    return [servers, Text(), classes, Text(), types, *_not_done(tokens)]


def _not_done(tokens: dict[str, Any]) -> list[Table | Text]:
    """Returns a table of servers that did none of their last jobs of a type, if there are any."""
    table = _table("server", ("in a row", "done elsewhere"), "does not do")
    table.add_column("said last")
    for row in tokens["servers"]:
        for run in row.get("not_done") or ():
            table.add_row(
                Text(row["id"], style="red"),
                *(_number(run.get(name)) for name in ("in_a_row", "done_elsewhere")),
                Text(f"{run.get('type')} ({str(run.get('how')).replace('_', ' ')})"),
                Text(str(run.get("problem"))),
            )
    return [Text(), table] if table.row_count else []


def _table(first: str, numbers: tuple[str, ...], last: str | None = None) -> Table:
    table = table_of(first, numbers, box=None, header_style="bold", padding=(0, 1, 0, 0))
    if last is not None:
        table.add_column(last)
    return table


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else ""
