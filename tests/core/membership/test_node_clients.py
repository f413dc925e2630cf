"""The clients of one node: when it says its ranks again, and whose goodbye ends what."""

import itertools
import math
from types import SimpleNamespace

import pytest

from spillover.core.membership.letting_in import LettingIn
from spillover.core.membership.node_clients import REPEAT_AFTER_S, NodeClients, NodeCount
from spillover.model.ranges import WHOLE_MAX
from support.client_sessions import servers


def node(clients=0):
    found = NodeClients("a", LettingIn(100.0, 50, 1000))
    found.go_by((0, "", 0), servers("abc"), {}, -math.inf)
    for number in range(clients):
        found.put_in(f"c{number}", SimpleNamespace(attempt=1))
    return found


def test_a_goodbye_ends_the_session_that_it_means():
    clients = node()
    first, second = SimpleNamespace(attempt=1), SimpleNamespace(attempt=4)
    clients.put_in("me", first)
    assert clients.put_in("me", second) is first
    assert clients.leave("me", 1, moved=True) is None
    assert clients.leave("me", 4, moved=True) is second
    assert (len(clients), clients.moves) == (0, 1)
    clients.put_in("me", first)
    assert clients.leave("me", None, moved=False) is first  # from before clients said which one
    assert clients.moves == 1, "one that ends has not moved"


def test_a_full_node_takes_the_clients_that_it_has():
    """One that comes again has not noticed the end of its session: it takes its own place."""
    clients = NodeClients("a", LettingIn(100.0, 50, 2))
    for name in ("me", "you"):
        assert clients.let_in(name, 0.0, 7.0) is None
        clients.put_in(name, SimpleNamespace(attempt=1))
    assert clients.let_in("another", 0.0, 7.0) == 7.0
    assert clients.let_in("me", 0.0, 7.0) is None
    assert clients.refused == 1


def test_nodes_of_a_cluster_have_as_many_clients_as_it_may_in_all():
    clients = NodeClients("a", LettingIn(100.0, 50, 3))
    clients.hear(2, NodeCount(2, 5), 0.0)
    assert clients.let_in("me", 0.0, 7.0) is None
    clients.put_in("me", SimpleNamespace(attempt=1))
    assert (clients.here, clients.of_cluster) == (NodeCount(1, 1), 3)
    assert clients.let_in("another", 0.0, 7.0) == 7.0
    clients.lose(2)
    assert clients.let_in("another", 0.0, 7.0) is None


def test_nodes_of_a_cluster_let_in_as_many_a_second_as_it_may_in_the_long_run():
    """Each takes what the others have let in out of its own allowance."""
    nodes = {number: NodeClients("a", LettingIn(10.0, 5, 1000)) for number in (1, 2, 3)}
    names, let_in = map(str, itertools.count()), 0
    for step in range(400):  # of 50 ms, after which each hears of the others
        now_s = step * 0.05
        for clients in nodes.values():
            for number, other in nodes.items():
                if other is not clients:
                    clients.hear(number, other.here, now_s)
        for clients in nodes.values():
            while clients.let_in(next(names), now_s, 7.0) is None:
                let_in += 1
    assert 20 * 10.0 * 0.95 <= let_in <= 3 * 5 + 20 * 10.0 + 3


def test_a_node_that_tells_of_too_many_shuts_nobody_out_for_long():
    """It has a bug: nobody lets in more than at once and in a second, until it is heard again.
    Neighbors are told a number that they can believe."""
    clients = NodeClients("a", LettingIn(10.0, 5, 1000))
    clients.hear(2, NodeCount(1, 0), 0.0)
    clients.hear(2, NodeCount(1, WHOLE_MAX), 0.0)
    assert clients.let_in("me", 0.0, 7.0) < 3.0
    clients.hear(2, NodeCount(WHOLE_MAX, WHOLE_MAX), 0.0)
    clients.put_in("you", SimpleNamespace(attempt=1))
    assert clients.of_cluster == 1001


@pytest.mark.parametrize(("shares", "told"), [(2, (501, 300)), (None, (1, 0))])
def test_ranks_go_through_the_clients_of_all_nodes_behind_one_address(shares, told):
    """Those that have addresses of their own are servers of their own to clients."""
    clients = NodeClients("a", LettingIn(100.0, 50, 1000), shares)
    clients.hear(1, NodeCount(300, 300), 0.0)
    clients.hear(4, NodeCount(200, 200), 0.0)
    clients.put_in("me", SimpleNamespace(attempt=1))
    announced = clients.told(0, 0.0)
    assert (announced.clients, announced.rank) == told
    clients.go_by((1, "a", 0), servers("ab"), {}, 10.0)
    surplus = clients.go_by((2, "a", 0), servers("ab"), {"b": 101}, 20.0)
    assert surplus == pytest.approx(200 / 501 if shares else 0.0), "of 501, 301 are to stay"


def test_a_change_before_ranks_were_said_again_puts_that_off():
    clients = node(100)
    numbers = {"b": 70, "c": 70}
    for version, now_s in enumerate((10.0, 14.0, 20.0), 1):
        clients.go_by((version, "a", 0), servers("abc"), numbers, now_s)
    assert clients.repeat_s == 20.0 + REPEAT_AFTER_S
    assert clients.repeat(numbers, 14.0 + REPEAT_AFTER_S) is None
    assert clients.repeat(numbers, 20.0 + REPEAT_AFTER_S) is not None
    assert math.isinf(clients.repeat_s)


def test_changes_that_overlap_have_ranks_said_once_more():
    clients = node(100)
    numbers = {"b": 70, "c": 70}
    clients.go_by((1, "a", 0), servers("abc"), numbers, 10.0)
    assert math.isinf(clients.repeat_s)
    clients.go_by((2, "a", 0), servers("abc"), numbers, 14.0)
    assert clients.repeat_s == 14.0 + REPEAT_AFTER_S
    assert clients.repeat(numbers, 15.0) is None
    # All of the surplus, of which clients have half go: this node knows of all.
    assert clients.repeat(numbers, clients.repeat_s) == pytest.approx(2 * 0.2)
    assert math.isinf(clients.repeat_s)


def test_of_a_part_of_the_federation_half_goes():
    clients = node(100)
    clients.go_by((1, "a", 0), servers("abc"), {}, 10.0)
    clients.go_by((2, "a", 0), servers("abc"), {}, 11.0)
    assert clients.repeat({"b": 60}, clients.repeat_s) == pytest.approx(0.2)


def test_what_is_even_is_left_alone():
    clients = node(100)
    clients.go_by((1, "a", 0), servers("abc"), {}, 10.0)
    clients.go_by((2, "a", 0), servers("abc"), {}, 11.0)
    assert clients.repeat({"b": 99, "c": 99}, clients.repeat_s) is None
