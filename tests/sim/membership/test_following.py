"""A thousand clients by their machines, in virtual time: as even as the rules say."""

import pytest

from spillover.core.membership.choosing import RULES
from spillover.core.membership.session_events import Connected, Lost
from spillover.sim.engine.world import World
from spillover.sim.membership.following import follow
from spillover.sim.membership.parties import Life, Looker
from spillover.sim.membership.rebalancing import rebalance, reconfigurations
from spillover.sim.membership.sessions import Sessions

NINE = [f"s{number}" for number in range(1, 10)]


@pytest.mark.slow
def test_a_thousand_clients_are_as_even_as_simulated():
    """The document's four changes, by the machines: within 1.03 of the mean, the fewest moves,
    and as the model of all at once has it."""
    lists = reconfigurations(NINE, seed=1)
    steps = follow(1000, lists)
    for number, step in enumerate(steps, start=1):
        counts = step.clients.values()
        assert sum(counts) == 1000
        assert max(counts) - min(counts) <= 1 + number
        assert max(counts) <= 1.03 * step.mean
        assert abs(step.moved - step.moved_min) <= 2
    at_once = rebalance(1000, lists, rule="stratified")
    assert [sorted(one.clients.values()) for one in steps] == [
        sorted(one.clients.values()) for one in at_once
    ]


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_moves_whom_it_should(rule):
    unchanged, _, step = follow(250, ["abcde", "abcde", "abcd", "abcdef"], rule=rule)
    assert unchanged.moved == 0
    assert sum(step.clients.values()) == 250
    if rule in {"stratified", "probabilistic"}:
        assert min(step.clients.values()) > 25
    if rule == "baseline":
        assert step.clients["f"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("lists", ["abcdefg abcdefgh abcdefghi", "abcdefgh bcdefgh cdefghx"])
def test_changes_that_overlap_are_repaired(lists):
    """By what nodes say once more when all have acted: else the fullest had up to 1.16."""
    step = follow(1000, lists.split(), gaps_s=[2.5], seed=1)[-1]
    assert sum(step.clients.values()) == 1000
    assert max(step.clients.values()) <= 1.04 * step.mean


def pass_time(world, time_s):
    until_s = world.now_s + time_s
    world.at(until_s, lambda: None)
    world.run(lambda: world.now_s >= until_s)


class Losses(Looker):
    """How long each client was without a session."""

    def __init__(self):
        self.since_s = {}
        self.took_s = []
        self.connects = 0

    def connecting(self, *_):
        self.connects += bool(self.since_s)

    def heard(self, client, event, now_s):
        if isinstance(event, Lost) and client.session is None:
            self.since_s.setdefault(client, now_s)
        elif isinstance(event, Connected) and client in self.since_s:
            self.took_s.append(now_s - self.since_s.pop(client))


@pytest.mark.parametrize(("each", "within_s"), [(25, 0.1), (100, 1.0)])
def test_clients_of_a_dead_node_are_elsewhere_as_soon_as_survivors_let_them_in(each, within_s):
    """So many for each of two survivors, 99 of 100: 50 at once and 100 a second. Beyond that at
    most half as long again, and no storm of connects."""
    world, losses, clients = World(), Losses(), 2 * each
    sessions = Sessions(
        world, "abc", "abc", clients, 1, over_s=clients / 50, starts="a" * clients, looker=losses
    )
    pass_time(world, 30.0)
    assert sessions.counts()["a"] == clients
    sessions.end(sessions.nodes["a"], Life.DOWN)
    pass_time(world, 30.0)
    assert len(losses.took_s) == clients
    assert sorted(losses.took_s)[clients * 99 // 100] <= within_s
    assert losses.connects <= 10 * clients
