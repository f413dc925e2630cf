"""Operators' commands ask producers of the distributed queue, and show their answers."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

from rich.table import Table
from rich.text import Text

from spillover.cli.node_answers import PRODUCER_COUNTS, is_producer, is_story
from spillover.cli.node_calls import Headers, NodeCalls, ProblemAnswered
from spillover.model.addresses import may_be_led_to
from spillover.model.errors import InputError, RunError

TITLES = (
    *("producer", "buffered", "granted", "dead", "offers", "takes", "probes", "produced"),
    *("done", "objects", "state"),
)
_NO_SUCH_PATH = ("not_found", "method_not_allowed")


def says_no_such_path(refused: ProblemAnswered) -> bool:
    """Returns whether it is no node that answers, and may be a producer."""
    return refused.reason in _NO_SUCH_PATH


async def ask_peers(own: dict[str, Any], url: str, headers: Headers = ()) -> dict[str, Any]:
    """Returns the states of the producer at `url`, which is its `own`, and of its peers; None for
    those that do not answer."""
    others = await asyncio.gather(
        *(_state(str(peer), url, headers) for peer in own["peers"].values())
    )
    return {own["producer"]: own, **dict(zip(own["peers"], others, strict=True))}


async def _state(url: str, told_at: str, headers: Headers) -> dict[str, Any] | None:
    if not may_be_led_to(url, [told_at]):
        return None
    try:
        async with NodeCalls(url, headers) as calls:
            return await calls.call("GET", "/state", is_producer)
    except (InputError, RunError):
        return None


def producers_table(producers: dict[str, Any]) -> Table:
    """Returns the table that `spillover status` shows."""
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    for title in TITLES:
        table.add_column(title, justify="right" if title in TITLES[1:-2] else "left")
    for name, state in producers.items():
        # Text, since ids may contain what rich takes for markup.
        if state is None:
            blank = [""] * (len(TITLES) - 2)
            table.add_row(Text(name), *blank, Text("does not answer", style="red"))
            continue
        table.add_row(
            Text(name),
            f"{state['buffered']}/{state['buffers']}",
            *(str(state[count]) for count in PRODUCER_COUNTS),
            "on disk" if state.get("durable") else "in memory",
            "drained" if state.get("drained") else "draining" if state.get("draining") else "well",
        )
    return table


async def explain_there(url: str, name: str, headers: Headers) -> dict[str, Any] | None:
    """Returns what the producer at `url` tells of an object or a probe; None if a node is there.
    Raises RunError if it knows nothing of it."""
    async with NodeCalls(url, headers) as calls:
        state = await calls.call("GET", "/state", lambda _: True)
        if not is_producer(state):
            return None
        try:
            return await calls.call("GET", f"/explain/{quote(name, safe='')}", is_story)
        except ProblemAnswered as refused:
            raise RunError(f"producer {state['producer']}: {refused}") from None


def explained(told: dict[str, Any]) -> Text:
    """Returns the story for people."""
    lines = [f"{told.get('kind')} {told.get('id')} at producer {told.get('producer')}"]
    lines += [
        f"  {float(one.get('at_ms') or 0.0):9.1f} ms  {one['words']}" for one in told["story"]
    ]
    return Text("\n".join([*lines, f"  now: {told['state']}"]))
