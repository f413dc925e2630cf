"""Which server of a new list a client goes to, by the rule that it was given: what the choosers of
`policy.membership` need to know, put together."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from spillover.core.membership.list_change import Change
from spillover.core.membership.session_events import Announcement
from spillover.policy import membership as policy

STRATIFIED: Final = "stratified"
RULES: Final = (STRATIFIED, "probabilistic", "baseline", "consistent-hash")


class Chooser:
    """The rule of one client, called `name`, with the stream of its draws. `virtual_nodes` is how
    often `consistent-hash` puts each server on its circle."""

    def __init__(self, rule: str, random: Random, name: str, virtual_nodes: int) -> None:
        if rule not in RULES:
            raise ValueError(f"expected one of {', '.join(RULES)}, got {rule!r}")
        self._rule = rule
        self._random = random
        self._name = name
        self._virtual_nodes = virtual_nodes

    def place(self, change: Change, own: str, told: Announcement | None) -> int:
        """Returns the place in the new list for a client of the server `own`. `told` is given if
        the rank in it counts, which is a thing of the rule `stratified` alone."""
        if self._rule == "consistent-hash":
            return self._on_circle(change.after)
        if own in change.before:
            place = change.before.index(own)
        elif own in change.after:
            return change.after.index(own)  # on a new server already
        else:
            place = policy.ELSEWHERE
        counts = (place, change.kept, change.gone, change.added)
        if self._rule == STRATIFIED and told is not None and 0 <= told.rank < told.clients:
            of_all = (told.rank, told.clients, told.surplus)
            return policy.choose_stratified(*counts, *of_all, policy.phase_of(told.version))
        rule = policy.choose_baseline if self._rule == "baseline" else policy.choose_probabilistic
        return rule(*counts, self._random.random())

    def _on_circle(self, servers: Sequence[str]) -> int:
        circle = sorted(
            (policy.hash_point(f"server/{server}/{copy}"), place)
            for place, server in enumerate(servers)
            for copy in range(self._virtual_nodes)
        )
        point = policy.hash_point(f"client/{self._name}")
        return circle[policy.successor([at for at, _ in circle], point)][1]
