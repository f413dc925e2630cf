"""Two nodes of a site whose servers are unlike: machines that hear each other (decision 0049)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.pools import site_servers, unlike_servers
from spillover.model.request import Refusal
from support.typed_sites import Site, linked, only, unlike


class Pair:
    """Two nodes of cluster a; what they tell each other is heard at once."""

    def __init__(self, topology, count=2):
        self.nodes = []
        for number in range(1, count + 1):
            clusters = tuple(replace(each, nodes=count) for each in topology.clusters)
            node = Site(replace(topology, clusters=clusters))
            node.machine.settings = replace(node.machine.settings, node=number)
            site_servers(node.machine.servers).siblings.number = number
            self.nodes.append(node)
        self.tell(0, ev.TimerFired(), 0.0)
        self.tell(1, ev.TimerFired(), 0.0)

    def tell(self, place, event, now_s):
        """Returns the commands of both that are for others than siblings."""
        said, due = [], [(place, event)]
        while due:
            at, what = due.pop(0)
            for command in self.nodes[at].tell(what, now_s):
                if isinstance(command, ev.TellSibling):
                    heard = ev.SiblingHeard(at + 1, command.message)
                    due.append((command.sibling - 1, heard))
                else:
                    said.append((at, command))
        return said

    def arrive(self, place, ref, type_, now_s):
        node = self.nodes[place]
        request = ev.Request(f"r{ref}", keyed=True, work=None, type=type_)
        assert node.machine.servers is not None
        return self.tell(place, ev.Arrived(ref, request, 60.0, ev.HOME), now_s)

    def shares(self):
        return [unlike_servers(one.machine.servers).siblings.own.by_class for one in self.nodes]


@pytest.fixture
def pair():
    return lambda **told: Pair(linked(unlike("a", {"any": "x y", "of_y": "y"}, **told)))


def started(said):
    return [(place, one.ref, one.server) for place, one in said if isinstance(one, ev.Start)]


def test_nodes_divide_each_class_and_tell_neighbors_of_the_site(pair):
    two = pair(tokens=2)
    assert two.shares() == [(1, 1), (1, 1)]
    said = two.arrive(0, 1, "any", 1.0)
    assert [place for place, _, _ in started(said)] == [0]
    for node in two.nodes:
        pool = node.machine.servers
        assert (pool.site_total, pool.site_waiting) == (2, 0)
        assert {each["limit"] for each in pool.told()["classes"]} == {2}
        assert [each["share"] for each in pool.told()["classes"]] == [1, 1]
        assert [each["limit"] for each in pool.told_here()["classes"]] == [1, 1]


def test_a_request_that_finds_no_token_here_starts_with_one_of_the_sibling(pair):
    two = pair(tokens=2)
    for ref in (1, 2):
        two.arrive(0, ref, "any", 1.0)
    said = two.arrive(0, 3, "of_y", 1.01)
    said += two.tell(0, ev.TimerFired(), 1.02)
    assert started(said) == [(0, 3, 1)]
    assert two.shares() == [(1, 2), (1, 0)]


def test_what_waits_at_both_is_served_in_the_order_in_which_it_came(pair):
    two = pair(tokens=2)
    for ref in (1, 2):
        two.arrive(0, ref, "of_y", 1.0)
    two.tell(0, ev.TimerFired(), 1.01)
    assert two.shares()[0][1] == 2
    two.arrive(1, 10, "of_y", 1.02)
    two.tell(1, ev.TimerFired(), 1.03)
    two.arrive(0, 3, "of_y", 1.5)
    said = two.tell(0, ev.ServiceEnded(1, ev.Outcome.DONE, 0.1), 1.6)
    assert started(said) == [(1, 10, 1)]
    said = two.tell(0, ev.ServiceEnded(2, ev.Outcome.DONE, 0.1), 1.7)
    assert started(said) == [(0, 3, 1)]


def test_a_request_is_not_refused_while_a_sibling_has_a_token_for_it(pair):
    two = pair(tokens=1, on_block="refuse")
    assert two.shares() == [(1, 0), (0, 1)]
    two.tell(1, ev.TimerFired(), 0.3)
    said = two.arrive(0, 1, "of_y", 1.0)
    assert started(said + two.tell(0, ev.TimerFired(), 1.01)) == [(0, 1, 1)]
    said = two.arrive(1, 2, "of_y", 1.1)
    refused = only(ev.Refuse, [one for _, one in said])
    assert refused.reason is Refusal.BLOCKED


def test_a_server_that_an_operator_takes_out_takes_nothing_at_any_node(pair):
    two = pair(tokens=2)
    two.tell(1, ev.TokensSet({"x": 1}, {"y": False}), 2.0)
    for node in two.nodes:
        states = [each.state for each in unlike_servers(node.machine.servers).servers]
        assert states == ["up", "out"]
        told = unlike_servers(node.machine.servers).told()["classes"]
        assert [each["held"] for each in told] == [0, 0]
    assert sum(of_x for of_x, _ in two.shares()) == 1
    assert not started(two.arrive(0, 1, "of_y", 2.1))


@pytest.mark.parametrize("tokens", [2, 8])
def test_tokens_that_a_sibling_gives_in_a_slow_start_come_back_one_after_another(pair, tokens):
    """Also at a node that had none of the class as its server came back."""
    two = pair(tokens=tokens)
    for ref in range(tokens):
        two.arrive(0, ref, "of_y", 1.0 + ref / 100)
    two.tell(0, ev.TimerFired(), 1.1)
    for ref in range(tokens):
        two.tell(0, ev.ServiceEnded(ref, ev.Outcome.DONE, 0.1), 1.2)
    assert two.shares()[1][1] == 0
    for place in (1, 0):
        two.tell(place, ev.ServersDown(1), 1.3)
    for place in (0, 1):
        two.tell(place, ev.ServersUp(1), 1.4)
    two.tell(0, ev.TimerFired(), 1.6)
    assert two.nodes[1].machine.servers.siblings.own.classes[1].idle == tokens, "none runs a job"
    running = []
    for ref in range(100, 100 + 2 * tokens):
        said = two.arrive(1, ref, "of_y", ref / 50) + two.tell(0, ev.TimerFired(), ref / 50)
        running += [one for _, one, _ in started(said)]
    assert (len(running), two.shares()[1][1]) == (1, tokens)
    for served in range(1, tokens + 1):
        said = two.tell(1, ev.ServiceEnded(running.pop(), ev.Outcome.DONE, 0.1), 4.0 + served)
        running += [one for _, one, _ in started(said)]
        assert len(running) == min(tokens, served + 1)


def test_a_node_that_was_alone_has_all_tokens_until_others_are_heard():
    alone = Site(linked(unlike("a", {"any": "x y"}, tokens=2)))
    for ref in range(1, 6):
        alone.arrive(ref, "any")
    alone.tell(ev.TokensSet({"x": 3}, {}), 1.0)
    pool = unlike_servers(alone.machine.servers)
    assert (pool.jobs, pool.waiting) == (5, 0)
    alone.tell(ev.SettingsChanged(nodes=2), 1.1)
    site = site_servers(alone.machine.servers)
    assert site is pool
    assert site.siblings.own.by_class == (3, 2)
    assert site.siblings.own.limits.tokens == (3, 2), "whoever comes is to know"
    alone.end(1, 1.2)
    assert (pool.jobs, pool.waiting) == (4, 0)


def test_where_jobs_run_one_after_another_a_limit_above_one_ends_as_other_nodes_come():
    """Else two nodes ran a job each on one server."""
    alone = Site(linked(unlike("a", {"any": "x"}, discipline="fcfs")))
    alone.tell(ev.TokensSet({"x": 2}, {}), 0.0)
    for ref in (1, 2):
        alone.arrive(ref, "any")
    alone.tell(ev.SettingsChanged(nodes=2), 0.1)
    shares = site_servers(alone.machine.servers).siblings.own
    assert (shares.by_class, shares.servers) == ((1,), 1)
    alone.tell(ev.TokensSet({"x": 2}, {}), 0.2)
    assert (shares.by_class, shares.servers) == ((1,), 1)
    assert only(ev.Start, alone.end(1, 0.3)).ref == 2
    alone.end(2, 0.4)
