"""A thousand clients by their machines, in virtual time: as even as the simulator says."""

from __future__ import annotations

import pytest

from spillover.core.membership.choosing import RULES
from support.client_sessions import Crowd


def test_a_thousand_clients_are_as_even_as_simulated():
    """The document's four changes, by the machines: within 1.03 of the mean, the fewest moves."""
    nine = "abcdefghi"
    crowd = Crowd(nine, 1000)
    for number, names in enumerate((nine[1:], nine[3:], "abc" + nine[4:], nine), start=1):
        before = crowd.counts()
        crowd.change(names)
        counts = crowd.counts()
        assert sum(counts.values()) == 1000
        assert max(counts.values()) - min(counts.values()) <= 1 + number
        assert max(counts.values()) * len(names) <= 1030
        left = sum(count for name, count in before.items() if name not in names)
        came = sum(count for name, count in counts.items() if name not in before)
        assert abs(len(crowd.moves) - max(left, came)) <= 2


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_moves_whom_it_should(rule):
    crowd = Crowd("abcde", 500, rule=rule)
    crowd.change("abcde")
    crowd.change("abcd")
    crowd.change("abcdef")
    counts = crowd.counts()
    assert sum(counts.values()) == 500
    if rule in {"stratified", "probabilistic"}:
        assert min(counts.values()) > 50
    if rule == "baseline":
        assert counts["f"] == 0


def test_only_the_clients_of_a_dead_node_move():
    crowd = Crowd("abcde", 500)
    crowd.kill("c")
    assert sum(map(len, crowd.at.values())) == 500
    assert len(set(crowd.moves)) <= 100
    assert all(client.in_use.id != "c" for client in crowd.clients)
    crowd.change("abde")
    counts = crowd.counts()
    assert max(counts.values()) - min(counts.values()) <= 25
