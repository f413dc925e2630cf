"""`spillover explain URL ID`: tell why a request went where it went, from cluster to cluster."""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any
from urllib.parse import quote

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from spillover.cli.node_answers import is_explanation, is_node
from spillover.cli.node_calls import Headers, NodeCalls, ProblemAnswered, add_call_options
from spillover.cli.producers import explain_there, explained
from spillover.commandline.api_token import token_headers
from spillover.commandline.terminal import open_console, table_of
from spillover.model.addresses import may_be_led_to
from spillover.model.errors import InputError, RunError

CLUSTERS_MAX = 100
"""At most so many clusters are asked, however many hops the federation allows."""

MISSING = "\N{EN DASH}"
UNKNOWN = "unknown_request"
UNREACHABLE = "unreachable"
PULLED = "pulled_by"
WENT_FIRST = "went_first"
LEFT_IN_TIME = "left_in_time"
WENT_AS_PROBE = "went_as_probe"

_REASONS = {
    "started": "started at once, a server was free",
    "kept": "kept, it joined the queue",
    "forwarded": "handed on to",
    "refused": "refused",
}
_EVENTS = {
    PULLED: "handed on to a neighbor that had an idle server and asked for work:",
    WENT_FIRST: "handed on in place of a newer request, to",
    LEFT_IN_TIME: "handed on since it would have been late here, to",
    WENT_AS_PROBE: "handed on, to see whether work still fails there, to",
}
"""Words for other events, where their names do not say enough."""

_KEPT_ALL_THE_SAME = "kept for want of a neighbor that takes it"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_call_options(
        parser,
        "a node that had the request: its home for the whole story; or a producer",
        "print one JSON object instead of sentences",
    )
    parser.add_argument("id", metavar="ID", help="the name of the request, object or probe")


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    headers = token_headers(options)
    told = asyncio.run(explain_there(options.url, options.id, headers))
    if told is not None:
        shown = json.dumps(told) if options.json else explained(told).plain
        print(shown, flush=True)
        return 0
    clusters = asyncio.run(_follow(options.url, options.id, headers))
    if options.json:
        print(json.dumps({"id": options.id, "clusters": clusters}), flush=True)
    else:
        console = open_console(stderr=False)
        for cluster, told in clusters.items():
            console.print(_block(cluster, told))
    return 0


# --- asking --------------------------------------------------------------------------------------


async def _follow(url: str, request_id: str, headers: Headers) -> dict[str, Any]:
    """Returns the answer of each cluster, in the order in which the request may have come by. One
    that cannot be asked, or has forgotten, has a `problem` instead of decisions. Raises RunError
    if the first one does not know the request."""
    first, found, onward = await _ask(url, request_id, headers)
    if "problem" in found:
        raise RunError(f"cluster {first} knows of no request {request_id!r}")
    clusters = {first: found}
    while onward and len(clusters) < CLUSTERS_MAX:
        cluster = next(iter(onward))
        next_url = onward.pop(cluster)
        try:
            _, clusters[cluster], further = await _ask(_led(next_url, url), request_id, headers)
        except (InputError, RunError):
            clusters[cluster] = _without(request_id, cluster, UNREACHABLE)
            continue
        onward |= {c: u for c, u in further.items() if c not in clusters}
    return clusters


def _led(to: str | None, url: str) -> str:
    """Returns where to ask next. Raises RunError, as if nobody answered, where one may not."""
    if to is None or not may_be_led_to(to, [url]):
        raise RunError(UNREACHABLE)
    return to


async def _ask(
    url: str, request_id: str, headers: Headers
) -> tuple[str, dict[str, Any], dict[str, str | None]]:
    """Returns (the cluster there, its answer, the urls of the neighbors that got the request)."""
    async with NodeCalls(url, headers) as node:
        state = await node.call("GET", "/state", is_node)
        cluster: str = state["cluster"]
        try:
            told = await node.call("GET", f"/explain/{quote(request_id)}", is_explanation)
        except ProblemAnswered as refused:
            if refused.reason != UNKNOWN:
                raise
            return cluster, _without(request_id, cluster, UNKNOWN), {}
    urls = {neighbor["id"]: neighbor.get("url") for neighbor in state["neighbors"]}
    handed = [one.get("neighbor") for one in told["decisions"] if one["outcome"] == "forwarded"]
    besides = [one for one in told.get("story", []) if one.get("event") in _EVENTS]
    handed += [one.get("neighbor") for one in besides]
    return cluster, told, {name: urls.get(name) for name in handed if isinstance(name, str)}


def _without(request_id: str, cluster: str, problem: str) -> dict[str, Any]:
    return {"id": request_id, "cluster": cluster, "decisions": [], "problem": problem}


# --- showing -------------------------------------------------------------------------------------


def _block(cluster: str, told: dict[str, Any]) -> Group:
    # Text throughout, since names may contain what rich takes for markup.
    parts: list[Text | Table | Padding] = [Text(f"cluster {cluster}", style="bold")]
    if told.get("problem") == UNREACHABLE:
        parts.append(Text("  does not answer", style="red"))
    elif "problem" in told:
        parts.append(Text("  knows nothing of it (any more)", style="red"))
    decisions = iter(told["decisions"])
    for record in told.get("story", []):
        if record.get("event") != "decided":
            parts.append(Text(f"  {_event(record)}"))
        elif (decision := next(decisions, None)) is not None:
            parts += _decision(decision)
    for decision in decisions:  # of a node that tells no story
        parts += _decision(decision)
    return Group(*parts)


def _decision(decision: dict[str, Any]) -> list[Text | Table | Padding]:
    parts: list[Text | Table | Padding] = [Text(f"  {_reason(decision)}")]
    if granted := _granted(decision):
        parts.append(Text(f"    {granted}"))
    if decision["outcome"] != "started":
        parts.append(Text(f"    {_grounds(decision)}"))
        parts += [Padding(Text(words), (0, 0, 0, 4), expand=False) for words in _words(decision)]
        if decision["neighbors"]:
            parts.append(_neighbors(decision))
    return parts


def _words(decision: dict[str, Any]) -> list[str]:
    """Returns sentences that the node itself has written, about loads and about its shadow."""
    told = [decision.get(name) for name in ("by_load", "shadow")]
    words = [one.get("words") for one in told if isinstance(one, dict)]
    return [one for one in words if isinstance(one, str)]


def _reason(decision: dict[str, Any]) -> str:
    words = _REASONS.get(decision["outcome"], decision["outcome"])
    if decision["outcome"] == "kept" and not decision.get("may_keep", True):
        words = _KEPT_ALL_THE_SAME
    if decision["outcome"] == "refused" and decision.get("reason"):
        words = f"{words}: {decision['reason']}"
    if older_went_to := decision.get("older_went_to"):
        words = f"{words}: one that waits longer went to {older_went_to} in its place"
    neighbor = decision.get("neighbor")
    return f"{words} {neighbor}" if neighbor else words


def _granted(record: dict[str, Any]) -> str:
    """Returns which token it was given, why that one, and what else was there; nothing where
    servers are alike."""
    told = record.get("granted")
    if not isinstance(told, dict):
        return ""
    token, kind, server, releases = (
        str(told.get(name)) for name in ("token", "class", "server", "available_releases")
    )
    waited = f"{_milliseconds(told.get('available_ms'))}, {releases} releases"
    words = f"token {token} of class {kind}, on server {server}"
    if left_out := told.get("left_out"):
        words += f", not again on {', '.join(map(str, left_out))}"
    others = told.get("others") or []
    if not others:
        return f"{words}: no other was there (available for {waited})"
    by = "rank" if "rank" in told else "available_releases"
    named = ", ".join(f"{one.get('class')} {one.get(by)}" for one in others)
    more = ", ..." if told.get("others_count", 0) > len(others) else ""
    if by == "rank":
        return f"{words}: the least loaded, of rank {told[by]}; others by rank: {named}{more}"
    return f"{words}: the longest available, for {waited}; others by releases: {named}{more}"


def _grounds(decision: dict[str, Any]) -> str:
    """Returns N, m, P, R and the draw, as the documents call them. Where nothing may be kept
    (servers down or stuck, queue full, draining) m had no part in it, and is not how many servers
    there are."""
    may_keep = decision.get("may_keep", True)
    numbers = [
        f"N {_count(decision.get('queue_length'))}",
        f"m {_count(decision.get('servers'))}" if may_keep else "may not keep",
        f"P {_number(decision.get('accept_probability'))}",
        f"R {_number(decision.get('neighborhood_accept_probability'))}",
        f"draw {_number(decision.get('draw')) or 'none'}",
        f"hops {_count(decision.get('hops'))}",
    ]
    return f"policy {decision.get('policy', MISSING)}: {', '.join(numbers)}"


def _neighbors(decision: dict[str, Any]) -> Table:
    by_load = any("in_all_ms" in row for row in decision["neighbors"])
    figures = ("age", "N", "P", "R", "delay", "weight", *(_BY_LOAD if by_load else ()))
    table = table_of(
        "    neighbor", figures, box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0)
    )
    for row in decision["neighbors"]:
        known = row.get("alive")
        table.add_row(
            Text(
                f"    {row.get('id', MISSING)}{'' if known else '?'}", style="" if known else "red"
            ),
            _milliseconds(row.get("age_ms")),
            _count(row.get("queue_length")) if known else "",
            _number(row.get("accept_probability")) if known else "",
            _number(row.get("neighborhood_accept_probability")) if known else "",
            _milliseconds(row.get("delay_ms")),
            _number(row.get("weight")) if row.get("eligible") else "",
            *(_load(row) if by_load else ()),
        )
    return table


_BY_LOAD = ("load told", "ahead", "sent since", "home load", "wait there", "in all")


def _load(row: dict[str, Any]) -> tuple[str, ...]:
    """Returns the load that was known, the wait that it was taken to mean, and both with the
    way."""
    if row.get("load_age_ms") is None:
        return ("never", *[""] * (len(_BY_LOAD) - 1))
    return (
        f"{_milliseconds(row['load_age_ms'])} ago",
        _count(row.get("ahead")),
        _count(row.get("unreported")),
        _number(row.get("load")),
        _milliseconds(row.get("wait_ms")),
        _milliseconds(row.get("in_all_ms")),
    )


def _event(record: dict[str, Any]) -> str:
    """Returns what happened besides decisions: refused by, lost at, ended."""
    event = str(record.get("event"))
    words = [_EVENTS.get(event) or event.replace("_", " ")]
    words += [str(record[name]) for name in ("neighbor", "outcome") if record.get(name)]
    if record.get("server"):
        words.append(f"on server {record['server']}")
    if record.get("problem"):
        words.append(f"({record['problem']})")
    if granted := _granted(record):
        words.append(f"with {granted};")
    at_ms = _milliseconds(record.get("at_ms"))
    return f"{' '.join(words)} after {at_ms}" if at_ms else " ".join(words)


def _count(value: Any) -> str:
    return str(value) if isinstance(value, int | float) else MISSING


def _number(value: Any) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else ""


def _milliseconds(value: Any) -> str:
    return f"{value:.0f} ms" if isinstance(value, int | float) else ""
