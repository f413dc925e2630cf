"""`spillover status URL`: show the federation of the node at URL, the producers that the one at URL
knows, or the lease group of the member at URL."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from rich.table import Table
from rich.text import Text

from spillover.cli.members import members_table
from spillover.cli.node_answers import is_federation, is_member, is_producer
from spillover.cli.node_calls import Headers, NodeCalls, ProblemAnswered, add_call_options
from spillover.cli.producers import ask_peers, producers_table, says_no_such_path
from spillover.commandline.api_token import token_headers
from spillover.commandline.terminal import open_console, show_table
from spillover.policy.overflow.choosers import BY_LOAD

TITLES = ("cluster", "busy", "N", "P", "R", "forwards", "policy", "neighbors", "state")
COUNTERS = ("failed", "rejected", "refused")
"""Counters have a column each, if any node has them."""

HEALTH_STYLES = {"well": "", "recovering": "yellow", "resting": "yellow", "degraded": "red"}
MISSING = "\N{EN DASH}"
SERVERS_NAMED_MAX = 5
"""At most so many servers that take no work are named for a pool."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_call_options(
        parser,
        "any node, producer or lease member, http://HOST:PORT",
        "print one JSON object instead of a table",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command; its exit status."""
    federation = asyncio.run(_ask(options.url, token_headers(options)))
    if options.json:
        json.dump(federation, sys.stdout)
        print()
    else:
        show_table(open_console(stderr=False), _shown(federation))
    return 0


def _shown(told: dict[str, Any]) -> Table:
    if "producers" in told:
        return producers_table(told["producers"])
    return members_table(told["lease"]) if "lease" in told else _table(told["clusters"])


async def _ask(url: str, headers: Headers) -> dict[str, Any]:
    async with NodeCalls(url, headers) as node:
        try:
            return await node.call("GET", "/federation", is_federation)
        except ProblemAnswered as refused:
            if not says_no_such_path(refused):
                raise
        state = await node.call("GET", "/state", lambda told: is_producer(told) or is_member(told))
    if is_member(state):
        return {"lease": state}
    return {"producers": await ask_peers(state, url, headers)}


def _table(clusters: dict[str, Any]) -> Table:
    states = [state for state in clusters.values() if "unreachable" not in state]
    counters = [name for name in COUNTERS if any(_is_count(state.get(name)) for state in states)]
    with_health = any(_health(state) for state in states)
    by_load = any(_goes_by_load(state) for state in states)
    with_tokens = any(_pool(state) for state in states)
    with_config = len({_version(state) for state in states}) > 1
    in_pool = ["tokens", "blocked"] * with_tokens
    front = (*TITLES[:5], *in_pool, *["load"] * by_load, TITLES[5], *["pulls"] * by_load)
    table = Table(box=None, header_style="bold", padding=(0, 1, 0, 0))
    more = (*["health"] * with_health, *["config"] * with_config)
    for title in (*front, *counters, *more, *TITLES[6:]):
        numeric = title in front[1:] or title in counters
        table.add_column(title, justify="right" if numeric else "left")
    for cluster, state in clusters.items():
        # Text, since ids may contain what rich takes for markup.
        if "unreachable" in state:
            blank = [""] * (len(table.columns) - 2)
            table.add_row(Text(cluster), *blank, Text(_unreachable(state), style="red"))
            continue
        health = _health(state) or MISSING
        table.add_row(
            Text(cluster),
            f"{state['busy']}/{state['servers']}",
            str(state["queue_length"]),
            _share(state.get("accept_probability")),
            _share(state.get("neighborhood_accept_probability")),
            *_tokens(state)[: len(in_pool)],
            *[_share(state.get("home_load"))] * by_load,
            _count(state.get("forwards")),
            *[_count(state.get("pulls"))] * by_load,
            *(_count(state.get(name)) for name in counters),
            *[Text(health, style=HEALTH_STYLES.get(health, ""))] * with_health,
            *[Text(_version(state), style="yellow")] * with_config,
            Text(_policy(state)),
            _neighbors(state),
            _condition(state),
        )
    return table


def _health(state: dict[str, Any]) -> str | None:
    """Returns the health in a word, or None for a node that reports none."""
    told = state.get("health")
    if isinstance(told, str):
        return told
    degraded = state.get("degraded")
    if not isinstance(degraded, bool):
        return None
    return "degraded" if degraded else "well"


def _config(state: dict[str, Any]) -> dict[str, Any]:
    told = state.get("configuration")
    return told if isinstance(told, dict) else {}


def _version(state: dict[str, Any]) -> str:
    """Returns the configuration that the node goes by. It is shown where nodes differ."""
    config = _config(state)
    by = config.get("by")
    version = _count(config.get("version"))
    return f"{version} of {by}" if isinstance(by, str) else version


def _goes_by_load(state: dict[str, Any]) -> bool:
    """Returns whether load and pulls mean anything: else there are no columns for them."""
    return str(state.get("policy")) in BY_LOAD or _shadow(state) in BY_LOAD


def _shadow(state: dict[str, Any]) -> str | None:
    """Returns the policy that is asked along, if any."""
    shadow = state.get("shadow")
    policy = shadow.get("policy") if isinstance(shadow, dict) else None
    return policy if isinstance(policy, str) else None


def _policy(state: dict[str, Any]) -> str:
    policy, shadow = str(state.get("policy", MISSING)), _shadow(state)
    return policy if shadow is None else f"{policy}, shadow {shadow}"


def _pool(state: dict[str, Any]) -> dict[str, Any]:
    """Returns the unlike servers of a node; nothing where servers are alike."""
    told = state.get("tokens")
    return told if isinstance(told, dict) else {}


def _tokens(state: dict[str, Any]) -> list[str]:
    """Returns the tokens held of all there are, and how many requests found none."""
    pool = _pool(state)
    if not pool:
        return [MISSING, MISSING]
    held, limit = (_sum(pool.get("classes"), name) for name in ("held", "limit"))
    return [f"{held}/{limit}", str(_sum(pool.get("types"), "blocked_total"))]


def _sum(rows: object, name: str) -> int:
    found = [row.get(name) for row in rows] if isinstance(rows, list) else []
    return sum(value for value in found if isinstance(value, int))


def _listed(words: list[str]) -> str:
    more = ["..."] if len(words) > SERVERS_NAMED_MAX else []
    return ", ".join([*words[:SERVERS_NAMED_MAX], *more])


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _count(value: object) -> str:
    return str(value) if _is_count(value) else MISSING


def _share(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else MISSING


def _neighbors(state: dict[str, Any]) -> Text:
    """Returns the neighbors, unknown ones in red with a question mark. Behind each stands what
    was done to its link, and that it is degraded, as far as the node knows."""
    names = []
    for neighbor in state["neighbors"]:
        known = neighbor.get("alive") is not False
        link = neighbor.get("link")
        notes = [] if link is None else [_link(link)]
        if known and neighbor.get("degraded") is True:
            notes.append("degraded")
        name = neighbor["id"] if known else f"{neighbor['id']}?"
        if notes:
            name += f"({', '.join(notes)})"
        names.append(Text(name, style="" if known and not notes else "red"))
    return Text(" ").join(names)


def _link(link: dict[str, Any]) -> str:
    if link["cut"]:
        return "cut"
    loss = f" {link['loss']:.0%} lost" if link["loss"] else ""
    return f"{link['delay_ms']:g} ms{loss}"


def _unreachable(state: dict[str, Any]) -> str:
    """Returns the word, and how long ago a neighbor had a report of it, if one ever did."""
    seen_s = state.get("last_seen_s")
    return "unreachable" if seen_s is None else f"unreachable {seen_s:.0f} s"


def _nodes(state: dict[str, Any]) -> str:
    """Returns how many nodes of a cluster of several act as one; the state is of one of them."""
    site = state.get("site")
    if not (isinstance(site, dict) and isinstance(site.get("members"), list)):
        return ""
    return f", {len(site['members'])} of {_count(site.get('nodes'))} nodes"


def _condition(state: dict[str, Any]) -> Text:
    condition = "draining" if state.get("draining") else "up"
    if state.get("lame_duck"):
        condition = "draining, lame duck"
    if _config(state).get("removed"):
        condition = "removed, drained" if state.get("drained") else "removed, draining"
    elif state.get("drained"):
        condition = "drained"
    elif state.get("down"):
        condition = "no servers"
    not_up = [
        f"{server['id']} {server['state']}"
        for server in _pool(state).get("servers", ())
        if server.get("state") != "up"
    ]
    if not_up:
        condition = f"{condition}: {_listed(not_up)}"
    condition += _nodes(state)
    lost = _config(state).get("superseded")
    if _is_count(lost):
        condition = f"{condition}, its version {lost} was superseded"
    if state.get("stuck"):
        return Text(f"{condition}, {state['stuck']} stuck", style="red")
    return Text(condition)
