"""`spillover drain URL`: take a node out of service, and wait until it has nothing left."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from spillover.cli.node_answers import is_node_or_producer, is_producer
from spillover.cli.node_calls import add_call_options, calls_of
from spillover.commandline.option_types import above_zero
from spillover.model.errors import RunError

LOOK_EVERY_S = 0.1
LOOKS_PER_LINE = 10
"""Progress is shown once a second, if there is any."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_call_options(
        parser,
        "the node or producer, http://HOST:PORT",
        "print its final state as one JSON object",
    )
    parser.add_argument(
        "--no-wait", action="store_true", help="return at once, without waiting for the end"
    )
    parser.add_argument(
        "--timeout-s", type=above_zero, default=60.0, metavar="S",
        help="wait for the end at most so many seconds; the node goes on draining",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    state = asyncio.run(_drain(options))
    if options.json:
        print(json.dumps(state), flush=True)
    # The sentence is the result, for those who did not ask for the other one.
    told_to = sys.stderr if options.json else sys.stdout
    if state["drained"]:
        print(f"{_name(state)} is drained", file=told_to)
        return 0
    line = f"{_name(state)} is draining: {_left(state)}"
    if options.no_wait:
        print(line, file=told_to)
        return 0
    if not state["draining"]:
        raise RunError(f"{_name(state)} accepts again: somebody resumed it")
    raise RunError(f"{line}, after {options.timeout_s:g} s")


async def _drain(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the state at the end of the wait."""
    async with calls_of(options) as node:
        state = await node.call("POST", "/admin/drain", is_node_or_producer)
        if options.no_wait:
            return state
        looks = 0
        told = ""
        try:
            async with asyncio.timeout(options.timeout_s):
                while state["draining"] and not state["drained"]:
                    if looks % LOOKS_PER_LINE == 0 and _left(state) != told:
                        told = _left(state)
                        print(f"{_name(state)}: {told}", file=sys.stderr)
                    looks += 1
                    await asyncio.sleep(LOOK_EVERY_S)
                    state = await node.call("GET", "/state", is_node_or_producer)
        except TimeoutError:
            pass
        return state


def _name(state: dict[str, Any]) -> str:
    if is_producer(state):
        return f"producer {state['producer']}"
    return f"cluster {state['cluster']}"


def _left(state: dict[str, Any]) -> str:
    """Returns the words for what keeps it from being drained."""
    if is_producer(state):
        return f"{state['buffered']} objects buffered, {state['granted']} granted"
    home, foreign = state["ledger"]["home"], state["ledger"]["foreign"]
    away = home["away"] + foreign["handed_on"]
    running = home["running"] + foreign["running"]
    if state.get("lame_duck"):
        return "it still serves its clients, until balancers know"
    left = f"{state['queue_length']} waiting, {running} running, {away} with neighbors"
    return f"{left}, {state['stuck']} servers stuck" if state.get("stuck") else left
