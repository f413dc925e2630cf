"""How even clients are, and how many move, by the machines that they run: the steps of
`rebalancing`, with the time that everything takes. There all decide at once, millions of them;
here each waits, asks to be let in, and may meet the next change before it has acted on this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from spillover.core.membership.choosing import STRATIFIED, Chooser
from spillover.core.membership.client_session import CHANGE_WAIT_S
from spillover.core.membership.list_change import change_between
from spillover.sim.engine.world import World
from spillover.sim.membership.rebalancing import Step, least_moves
from spillover.sim.membership.sessions import Sessions, client_name

CONNECT_OVER_S = 12.0
"""Clients connect over this time, so that no node puts any of a thousand off, and the start is as
it is meant."""
BEYOND_S = 20.0
"""A run goes on for this long after the wait of the last change: then all are where they will
be."""


def follow(
    clients: int,
    lists: Sequence[Sequence[str]],
    *,
    rule: str = STRATIFIED,
    start: str = "balanced",
    virtual_nodes: int = 1,
    change_wait_s: float = CHANGE_WAIT_S,
    gaps_s: Sequence[float] = (),
    seed: int = 1,
) -> list[Step]:
    """Let clients follow the `lists`, of which the first is the one they start with: "balanced", or
    "random", each at any server (and as `consistent-hash` has it under that rule).

    The next change comes when the one before is over, or `gaps_s` after it, by change. Returns the
    state before each next one, and the last one's when it is over. What a change has moved by then
    counts for it, and the least is from the counts at its beginning."""
    world = World()
    names = list(dict.fromkeys(name for servers in lists for name in servers))
    sessions = Sessions(
        world, names, lists[0], clients, seed,
        rule=rule, virtual_nodes=virtual_nodes, change_wait_s=change_wait_s,
        starts=_starts(rule, virtual_nodes, start, lists[0], clients, seed),
        over_s=CONNECT_OVER_S,
    )  # fmt: skip
    _pass(world, CONNECT_OVER_S + BEYOND_S)
    steps = []
    for number, servers in enumerate(lists[1:]):
        before, moved = sessions.counts(), _moves(sessions)
        sessions.configure(servers)
        gap_s = gaps_s[number] if number < len(gaps_s) else change_wait_s + BEYOND_S
        _pass(world, gap_s)
        counts = sessions.counts()
        least = least_moves(before, servers)
        steps.append(Step(tuple(servers), _moves(sessions) - moved, least, counts))
    return steps


def _starts(
    rule: str, virtual_nodes: int, start: str, servers: Sequence[str], clients: int, seed: int
) -> list[str]:
    """Returns where each client begins; none where it draws."""
    if rule == "consistent-hash":
        change = change_between((), servers)
        names = [client_name(seed, number) for number in range(clients)]
        choosers = [Chooser(rule, Random(0), name, virtual_nodes) for name in names]
        return [change.after[one.place(change, "", None)] for one in choosers]
    if start == "balanced":
        return [servers[number % len(servers)] for number in range(clients)]
    return []


def _pass(world: World, time_s: float) -> None:
    until_s = world.now_s + time_s
    world.at(until_s, lambda: None)
    world.run(lambda: world.now_s >= until_s)


def _moves(sessions: Sessions) -> int:
    return sum(client.moves for client in sessions.clients)
