"""The table of a lease group in `spillover status`, as one of its members describes the group."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

TITLES = ("member", "holds", "partitions", "alive for", "renewal", "state")

PARTITIONS_NAMED_MAX = 8


def members_table(told: dict[str, Any]) -> Table:
    """Returns a line for each member, the one that was asked first, and one for what nobody holds.
    A silent one holds what it holds until its leases end. What a member says of itself is of now,
    the rest as it last read it in Redis."""
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    for title in TITLES:
        table.add_column(title, justify="right" if title in TITLES[1:4:2] else "left")
    held = {told["node"]: sorted(int(partition) for partition in told["held"])}
    alive_ms: dict[str, Any] = {}
    for row in told["members"]:
        held.setdefault(row.get("node"), [])
        alive_ms[row.get("node")] = row.get("alive_for_ms")
    for row in told["allocation"]:
        if row.get("node") != told["node"] and row.get("lease_ms_left") != 0:
            held.setdefault(row.get("node"), []).append(row.get("partition"))
    for node, partitions in held.items():
        own = node == told["node"]
        table.add_row(
            Text(str(node)),  # Text, since ids may contain what rich takes for markup
            f"{len(partitions)}/{told['partitions']}",
            _named(partitions),
            _seconds(alive_ms.get(node)),
            _renewal(told["renewal"]) if own else "",
            _state(told) if own else "member" if node in alive_ms else "silent",
        )
    taken = {partition for partitions in held.values() for partition in partitions}
    free = [one for one in range(told["partitions"]) if one not in taken]
    if free and told.get("as_of_s") is not None:
        count = f"{len(free)}/{told['partitions']}"
        table.add_row(Text("nobody", style="red"), count, _named(free), "", "", "")
    return table


def _named(partitions: list[int]) -> str:
    more = ["..."] if len(partitions) > PARTITIONS_NAMED_MAX else []
    return ", ".join([*map(str, partitions[:PARTITIONS_NAMED_MAX]), *more])


def _seconds(told_ms: object) -> str:
    return f"{told_ms / 1e3:.1f} s" if isinstance(told_ms, int | float) else ""


def _renewal(told: dict[str, Any]) -> str:
    lag_ms = told.get("lag_ms_max")
    late = f", {lag_ms:.0f} ms late at most" if isinstance(lag_ms, int | float) else ""
    return f"by {told.get('kind') or 'nothing'}{late}"


def _state(told: dict[str, Any]) -> Text:
    words = "draining" if told.get("draining") else str(told["state"])
    if told["redis"].get("up") is not False:
        return Text(words)
    age_s = told.get("as_of_s")
    since = "" if not isinstance(age_s, int | float) else f", others as {age_s:.0f} s ago"
    return Text(f"{words}, Redis is away{since}: {told['redis'].get('problem')}", style="red")
