"""Clients that follow a list of servers: counts, moves and the fewest possible moves."""

from __future__ import annotations

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.core.membership.list_change import change_between
from spillover.model.errors import InputError
from spillover.policy.membership import move_quotient
from spillover.sim.engine.world import stream
from spillover.sim.membership.rebalancing import RULES, STARTS, least_moves, rebalance

SERVERS = [f"s{number}" for number in range(12)]
NINE = SERVERS[:9]
# ZooKeeper's chain: drop the last, drop two, drop the first and add three, add the first again.
CHAIN = [NINE, NINE[:8], NINE[:6], NINE[1:], NINE]


def random_lists(seed, steps):
    """A list, and what becomes of it: up to three servers go and up to three come at each step."""
    random = stream(seed, "lists")
    servers = random.sample(SERVERS, 5)
    lists = [servers]
    for _ in range(steps):
        stay = random.sample(servers, max(1, len(servers) - random.randrange(4)))
        others = [server for server in SERVERS if server not in servers]
        servers = stay + random.sample(others, min(len(others), random.randrange(4)))
        random.shuffle(servers)
        lists.append(servers)
    return lists


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("rule", RULES)
def test_books_balance(rule, start):
    """Everybody is on exactly one server of the list, whatever the rule; a seed gives the same."""
    lists = random_lists(rule, 8)
    steps = rebalance(700, lists, rule=rule, start=start, virtual_nodes=3, seed=5)
    assert [step.servers for step in steps] == [tuple(servers) for servers in lists[1:]]
    for step in steps:
        assert tuple(step.clients) == step.servers
        assert sum(step.clients.values()) == 700
        found = step.as_dict()
        assert found["max_over_mean"] * 700 == pytest.approx(
            max(step.clients.values()) * len(step.servers)
        )
    assert steps == rebalance(700, lists, rule=rule, start=start, virtual_nodes=3, seed=5)
    other = rebalance(700, lists, rule=rule, start=start, virtual_nodes=3, seed=6)
    # From equal counts, ours may come out the same whoever is where.
    assert steps != other or (rule == "stratified" and start != "random")


@pytest.mark.slow
def test_the_chain_of_zookeepers_suite():
    """100 000 clients: every server within 5 % of even at each step, moves as expected."""
    steps = rebalance(100_000, CHAIN, seed=1)
    for step in steps:
        assert max(step.clients.values()) < 1.05 * step.mean
        assert min(step.clients.values()) > 0.95 * step.mean
    expected = (100_000 / 9, 25_000, 37_500, 100_000 / 9)
    assert [step.moved for step in steps] == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("rule", ["probabilistic", "stratified"])
def test_nobody_moves_without_need(rule):
    """Unchanged list: nobody. Shrinking: those of the servers that went. Growing: to new ones."""
    start, same, fewer, more = rebalance(
        900, [NINE, NINE, NINE, NINE[:7], SERVERS], rule=rule, start="balanced"
    )
    assert (start.moved, same.moved) == (0, 0)
    assert start.clients == same.clients
    assert fewer.moved == sum(same.clients[server] for server in NINE[7:])
    assert all(fewer.clients[server] >= same.clients[server] for server in NINE[:7])
    assert more.moved == sum(more.clients[server] for server in SERVERS[7:])


def test_expected_moves_over_many_runs():
    """Means over 200 runs of the chain lie within 4 standard errors of the closed form."""
    runs = [rebalance(300, CHAIN, seed=seed) for seed in range(200)]
    for number, expected in enumerate((300 / 9, 75, 112.5, 300 / 9)):
        moved = [run[number].moved for run in runs]
        error = statistics.stdev(moved) / len(moved) ** 0.5
        assert (
            abs(statistics.fmean(moved) - expected) < 4 * error + 0.34
        )  # 300 / 9 is no whole number


@pytest.mark.slow
def test_uniform_after_any_sequence_of_changes():
    """Twenty random changes, 40 sequences: chi-square is that of clients placed at random, neither
    above (uneven) nor below (they would not be independent)."""
    total, freedom = 0.0, 0
    for seed in range(40):
        lists = random_lists(seed, 20)
        last = rebalance(2000, lists, start="random", seed=seed)[-1]
        total += sum((count - last.mean) ** 2 / last.mean for count in last.clients.values())
        freedom += len(last.servers) - 1
    assert abs(total - freedom) < 3.3 * (2 * freedom) ** 0.5


@pytest.mark.slow
def test_twenty_random_changes_of_100_000_clients():
    """Each server within 5 % of even at each step, moves within 3 standard deviations of what the
    rules expect from the counts before (rules 1 and 3: each on a survivor is a coin)."""
    lists = random_lists("many", 20)
    counts = dict.fromkeys(lists[0], 100_000 // len(lists[0]))
    for before, step in zip(lists, rebalance(100_000, lists, seed=4), strict=False):
        assert max(step.clients.values()) < 1.05 * step.mean
        assert min(step.clients.values()) > 0.95 * step.mean
        change = change_between(before, step.servers)
        on_survivors = sum(counts[server] for server in change.before[: change.kept])
        moves, of = move_quotient(change.kept, change.gone, change.added)
        share = moves / of
        expected = 100_000 - on_survivors + share * on_survivors
        deviation = (on_survivors * share * (1 - share)) ** 0.5
        assert abs(step.moved - expected) <= 3 * deviation
        counts = step.clients


@pytest.mark.slow
def test_stratified_stays_even_where_coins_do_not():
    """Twenty random changes, 10 seeds: largest minus smallest at most one more with each change,
    moves the fewest within rounding; coins are an order of magnitude farther off."""
    worst = {"stratified": 0, "probabilistic": 0}
    for rule, seed in itertools.product(worst, range(10)):
        steps = rebalance(2000, random_lists(seed, 20), rule=rule, seed=seed)
        for number, step in enumerate(steps, start=1):
            spread = max(step.clients.values()) - min(step.clients.values())
            worst[rule] = max(worst[rule], spread)
            if rule == "stratified":
                assert spread <= 1 + number
                assert abs(step.moved - step.moved_min) <= 8
    assert worst["stratified"] <= 6
    assert worst["probabilistic"] > 8 * worst["stratified"]


def test_the_documents_changes_leave_rounding_alone():
    """1 000 clients on 6 to 9 servers: at most 1.03 of the mean, where coins are at about 1.13."""
    for seed in range(20):
        for step in rebalance(1000, CHAIN, rule="stratified", seed=seed):
            assert step.as_dict()["max_over_mean"] <= 1.03
            assert abs(step.moved - step.moved_min) <= 2


def test_an_uneven_start_is_repaired_a_little_at_each_change():
    """Half of the clients on one of nine servers; one server goes and comes, again and again. The
    fullest over the mean falls like this, where the rules alone move nobody to repair it."""
    lists = [NINE, *[NINE[:8], NINE] * 5]
    curves = {}
    for rule in ("stratified", "probabilistic"):
        steps = rebalance(1000, lists, rule=rule, start="uneven", seed=1)
        curves[rule] = [round(step.as_dict()["max_over_mean"], 2) for step in steps]
    assert curves["stratified"] == pytest.approx(
        [2.71, 1.85, 1.38, 1.19, 1.09, 1.04, 1.02, 1.02, 1.02, 1.02], abs=0.03
    )
    assert curves["probabilistic"][-1] > 2


@pytest.mark.slow
def test_clients_that_skip_a_change():
    """Half of them still wait at the next one: nobody is lost, all end on the list, and it is as
    even as it was again."""
    for seed in range(4):
        lists = random_lists(seed, 6)
        steps = rebalance(1000, [*lists, *[lists[-1]] * 20], rule="stratified", skip=0.5, seed=seed)
        assert sum(steps[-1].clients.values()) == 1000
        assert steps[-1].as_dict()["max_over_mean"] < 1.04
        skipped = rebalance(20_000, [*lists[:2], *[lists[2]] * 15], skip=0.5, seed=seed)[-1]
        assert max(skipped.clients.values()) < 1.06 * skipped.mean
        assert min(skipped.clients.values()) > 0.94 * skipped.mean


@given(st.integers(1, 400), st.integers(1, 9), st.integers(1, 9), st.integers(0, 1000))
def test_one_stratified_change_is_off_by_few(clients, before, after, seed):
    """Counts that differ by one differ by two or three after one change."""
    lists = [SERVERS[:before], SERVERS[12 - after :]]
    (step,) = rebalance(clients, lists, rule="stratified", seed=seed)
    assert all(abs(count - step.mean) <= 3 for count in step.clients.values())


def fewest_by_trying(counts, servers):
    """The least over all even states of how many clients arrive somewhere."""
    total = sum(counts.values())
    floor, larger = divmod(total, len(servers))
    return min(
        sum(
            max(0, floor + (server in more) - counts.get(server, 0))
            for server in servers
        )
        for more in itertools.combinations(servers, larger)
    )  # fmt: skip


@given(
    st.dictionaries(st.sampled_from(SERVERS[:6]), st.integers(0, 9), min_size=1),
    st.lists(st.sampled_from(SERVERS[:6]), min_size=1, unique=True),
)
def test_fewest_moves_against_trying_all(counts, servers):
    """Orphans and excess, the larger shares to the fullest: no even state is closer."""
    assert least_moves(counts, servers) == fewest_by_trying(counts, servers)


def test_consistent_hashing_moves_only_who_must():
    """Also back again: the circle has no memory."""
    steps = rebalance(
        1000, [NINE, NINE, NINE[1:], NINE], rule="consistent-hash", virtual_nodes=20, seed=3
    )
    start, fewer, again = steps
    assert fewer.moved == start.clients["s0"]
    assert again.moved == fewer.moved
    assert again.clients == start.clients


@pytest.mark.slow
def test_more_virtual_nodes_are_more_even():
    """Mean of largest over mean, 40 seeds: falls with k, and stays above the coins' at k = 20."""
    means = [
        statistics.fmean(
            rebalance(1000, [NINE, NINE], rule="consistent-hash", virtual_nodes=k, seed=seed)[0]
            .as_dict()["max_over_mean"]
            for seed in range(40)
        )
        for k in (1, 5, 20)
    ]  # fmt: skip
    assert means[0] > 1.3 * means[1] > 1.3 * 1.1 * means[2] > 1.3 * 1.1 * 1.2


def test_baseline_starves_new_servers():
    """Kept clients stay; only those cut off spread, evenly; a server that is added gets nobody."""
    steps = rebalance(60_000, [NINE[:6], NINE[1:], NINE], rule="baseline", seed=2)
    assert steps[0].moved == 10_000
    assert [steps[0].clients[server] for server in NINE[6:]] == pytest.approx([1250] * 3, rel=0.1)
    assert (steps[1].moved, steps[1].clients["s0"]) == (0, 0)


def test_lists_are_sets_in_any_order():
    """The order of a list decides nothing."""
    change = change_between(["b", "a", "c"], ["d", "c", "b"])
    assert (change.before, change.after) == (("b", "c", "a"), ("b", "c", "d"))
    assert (change.kept, change.gone, change.added) == (2, 1, 1)
    one, other = (
        rebalance(90, lists, rule="stratified")[-1].clients
        for lists in ([["a", "b"], ["b", "c", "a"]], [["b", "a"], ["a", "b", "c"]])
    )
    assert one == other


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"lists": [[], ["a"]]}, "servers: expected at least one server"),
        ({"lists": [["a"], []]}, "change 1: expected at least one server"),
        ({"lists": [["a", "b", "a"], ["a"]]}, "servers: expected each server once, got 'a' 2 "),
        ({"lists": [["a"], ["b", "b"]]}, "change 1: expected each server once, got 'b' 2 times"),
        ({"clients": 0}, "clients: expected a whole number of at least 1, got 0"),
        ({"virtual_nodes": 0}, "virtual_nodes: expected"),
        ({"rule": "best"}, "rule: expected one of probabilistic, stratified,"),
        ({"start": "empty"}, "start: expected one of balanced, random, uneven, got 'empty'"),
        ({"skip": 1.0}, "skip: expected a share from 0 to below 1, got 1.0"),
        ({"skip": 0.1, "rule": "consistent-hash"}, "skip: expected without consistent-hash"),
    ],
)
def test_bad_input(arguments, complaint):
    with pytest.raises(InputError, match=complaint):
        rebalance(**{"clients": 3, "lists": [["a"], ["b"]], **arguments})
