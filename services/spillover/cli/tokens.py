"""`spillover tokens URL`: a node's pool of unlike servers, and what operators change of it."""

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

from spillover.cli.node_calls import NodeCalls
from spillover.cli.parsing import node_url, whole_number_in
from spillover.model.errors import InputError, RunError
from spillover.model.unlike_servers import TOKENS_MAX
from spillover_loadgen.api_token import add_token_file, token_headers
from spillover_loadgen.option_types import named
from spillover_loadgen.terminal import open_console, table_of
from spillover_loadgen.trusting import add_ca_file

STATE_STYLES = {"up": "", "out": "yellow"}
"""All others are bad."""

SHOWN_CLASSES_MAX = 8
"""Of a type, in a table."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("url", type=node_url, metavar="URL", help="the node, http://HOST:PORT")
    add_ca_file(parser)
    parser.add_argument(
        "--limit", type=named("CLASS=N", whole_number_in(1, TOKENS_MAX)), action="append",
        default=[], metavar="CLASS=N",
        help="how many tokens a class has from now on; held ones are not taken",
    )  # fmt: skip
    parser.add_argument(
        "--out", action="append", default=[], metavar="SERVER", help="give it no new request"
    )
    parser.add_argument(
        "--in", action="append", default=[], dest="back", metavar="SERVER",
        help="give it requests again, one more after the other",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the pool as one JSON object")
    add_token_file(parser)


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
    async with NodeCalls(options.url, token_headers(options)) as node:
        if change:
            body = json.dumps(change).encode()
            return await node.call("PUT", "/admin/tokens", _is_pool, body)
        state = await node.state()
    tokens: dict[str, Any] | None = state.get("tokens")
    if tokens is None or not _is_pool(tokens):
        raise RunError(f"the servers of cluster {state['cluster']} are alike: it has no tokens")
    return tokens


def _is_pool(told: dict[str, Any]) -> bool:
    return all(
        isinstance(rows := told.get(name), list)
        and all(isinstance(row, dict) and isinstance(row.get("id"), str) for row in rows)
        for name in ("servers", "classes", "types")
    )


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
    """Which servers have done none of their last jobs of a type; nothing where there are none."""
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
