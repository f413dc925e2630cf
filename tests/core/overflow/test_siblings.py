"""The nodes of a site share its servers, whatever happens to them (decision 0049)."""

from __future__ import annotations

import os
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from spillover.core.overflow.sibling import NO_DEMAND
from spillover.core.overflow.sibling_messages import (
    NO_VIEW,
    Frozen,
    Give,
    Installed,
    Prepare,
    SiblingLoad,
    is_later,
    number_after,
)
from spillover.core.overflow.siblings import QUIET_S, Siblings
from spillover.core.overflow.views import ABSENT_S, RECONNECT_S, RETRY_S, SILENCE_S
from spillover.model.ranges import WHOLE_MAX
from spillover.policy.overflow.siblings import evened, spread, trimmed
from support.few import examples
from support.histories.growing_sites import GrowingSite
from support.histories.leaving_sites import DONE, REFUSED, LeavingSite
from support.histories.sites import EVEN_S, SETTLED_S, Site

SEEDS = st.integers(0, 2**32)

MANY = int(os.environ.get("SPILLOVER_SITE_HISTORIES", "0"))
"""Play so many histories more."""

FIRST = int(os.environ.get("SPILLOVER_SITE_HISTORIES_FROM", "0"))
"""Their first seed."""


def happens(site: Site, random: Random, *, cuts: bool) -> None:
    """One fault happens, or requests come."""
    fault = random.random()
    number, other = random.randint(1, site.nodes), random.randint(1, site.nodes)
    if fault < 0.08:
        site.kill(number)
    elif fault < 0.2:
        site.start(number)
    elif fault < 0.25:
        site.leave(number)
    elif fault < 0.3 and cuts:
        site.cut_off(number, other)
    elif fault < 0.35:
        site.heal()
    elif fault < 0.45:
        site.break_off(number, other)
    else:
        for _ in range(random.randint(1, 10)):
            site.arrive(random.choice((number, other)))


def play(seed: int, *, cuts: bool) -> Site:
    """Plays one history, which ends well."""
    random = Random(seed)
    nodes = random.randint(2, 4)
    site = Site(nodes, random.randint(nodes, 8), seed)
    for _ in range(random.randint(5, 40)):
        happens(site, random, cuts=cuts)
        site.run(random.choice((0.0, 0.001, 0.01, 0.1, 1.0, 2.0)) * random.random())
    site.heal()
    site.run(SETTLED_S)
    for number in range(1, nodes + 1):
        for _ in range(random.randint(0, 10)):
            site.arrive(number)
    site.run(ALL_DONE_S)
    site.check_settled()
    site.run(EVEN_S)
    site.check_even()
    return site


ALL_DONE_S = 3.0
"""By then all that has come has run: at most 40 requests, two or more at a time."""


@settings(max_examples=examples(60))
@given(seed=SEEDS)
def test_shares_are_conserved_while_nodes_die_leave_and_come_back(seed: int) -> None:
    play(seed, cuts=False)


@settings(max_examples=examples(60))
@given(seed=SEEDS)
def test_nodes_that_were_cut_off_share_the_servers_again(seed: int) -> None:
    site = play(seed, cuts=True)
    assert sum(node.machine.own.share for node in site.alive if node.machine) <= site.servers


@settings(max_examples=examples(60))
@given(seed=SEEDS)
def test_shares_are_conserved_while_nodes_become_more_and_fewer_by_configuration(seed: int) -> None:
    grow(seed)


def grow(seed: int) -> None:
    """Plays one history in which the number of nodes changes, which ends well."""
    random = Random(seed)
    most = random.randint(2, 4)
    site = GrowingSite(most, random.randint(1, most), random.randint(most, 8), seed)
    for _ in range(random.randint(5, 40)):
        fault = random.random()
        number, other = random.randint(1, most), random.randint(1, most)
        if fault < 0.15:
            site.resize(random.randint(1, most))
        elif fault < 0.25 and site.is_calm and site.count > 1:
            site.kill(number)
        elif fault < 0.35:
            site.start(number)
        elif fault < 0.4:
            site.break_off(number, other)
        else:
            for _ in range(random.randint(1, 10)):
                site.arrive(random.choice((number, other)))
        site.run(random.choice((0.0, 0.001, 0.01, 0.1, 1.0, 2.0)) * random.random())
    site.run(SETTLED_S)
    site.check_settled()
    assert {node.number for node in site.alive} <= set(range(1, site.count + 1))


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_nodes_that_are_all_told_to_end_do_not_wait_for_each_other(seed: int) -> None:
    leave(seed, faults=False)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_nodes_that_all_end_wait_for_none_that_dies_meanwhile(seed: int) -> None:
    leave(seed, faults=True)


def leave(seed: int, *, faults: bool) -> None:
    """Plays one history in which clients of all nodes ask for the same names until the nodes, which
    are all told to end within a second, let nobody in any more."""
    random = Random(seed)
    nodes = random.randint(2, 4)
    site = LeavingSite(nodes, random.randint(nodes, 8), seed)
    site.run(random.choice((STARTED_S, 1.0, 4.0)))
    numbers = range(1, nodes + 1)
    for number in numbers:
        site.after(random.choice((0.0, 0.01, 1.0)) * random.random(), site.tell_to_end, number)
    for _ in range(random.randint(5, 80)):
        for _ in range(random.randint(0, 3)):
            site.client(random.choice(numbers), f"n-{random.randint(0, 9)}")
        if faults and random.random() < 0.1:
            number, other = random.choice(numbers), random.choice(numbers)
            random.choice((site.kill, site.start))(number)
            site.break_off(number, other)
        site.run(random.choice((0.0, 0.001, 0.01, 0.05)) * random.random())
    if faults:
        site.run(STARTED_S)
    for number in numbers:
        site.tell_to_end(number)
    site.run(ENDED_S)
    assert not site.alive, [node.number for node in site.alive]
    if not site.has_lost:
        assert site.answers.total() == site.asked
        assert site.answers.keys() <= {DONE, REFUSED}


STARTED_S = 0.3
"""By then all nodes have been started."""

ENDED_S = SETTLED_S + 2.0
"""By then all nodes have ended that were told to, with a few requests of 50 ms under way."""


def hello(machine: Siblings, number: int, waiting: int = 0, view: tuple[int, int] = (0, 0)) -> None:
    load = SiblingLoad((machine.number,), view, waiting, 0, 0, 0.0, 0.0)
    machine.heard(number, load, 0.0)


def two_nodes(servers: int) -> tuple[Siblings, Siblings]:
    """Two nodes that have just begun to share."""
    nodes = Siblings(1, 2, servers, 0.0), Siblings(2, 2, servers, 0.0)
    hello(nodes[0], 2)
    hello(nodes[1], 1)
    pass_on(*nodes)
    return nodes


def pass_on(*nodes: Siblings, now_s: float = 0.0) -> None:
    """Every message arrives, until there are none."""
    by_number = {node.number: node for node in nodes}
    while tells := [(node.number, tell) for node in nodes for tell in node.take()]:
        for sender, tell in tells:
            if tell.to in by_number:
                by_number[tell.to].heard(sender, tell.message, now_s)


def test_a_site_whose_nodes_all_start_divides_its_servers_at_once() -> None:
    one, other = two_nodes(5)
    assert (one.own.share, other.own.share) == (3, 2)
    assert one.view == other.view
    assert one.owners == other.owners == {1, 2}


def test_a_node_that_starts_as_another_one_ends_waits_for_those_it_has_not_heard() -> None:
    """It was asked for a view by the one that has ended since, and does not know of the others."""
    node = Siblings(3, 3, 5, 0.0)
    hello(node, 1, view=(3, 1))
    node.heard(1, Prepare((4, 1)), 0.0)
    node.lost(1, 0.1, is_dead=True)
    node.woke(0.1 + ABSENT_S - 0.01)
    assert (node.own.share, node.is_settled) == (0, False)
    node.woke(0.1 + ABSENT_S)
    assert (node.own.share, node.is_settled) == (5, True)


def test_a_node_alone_waits_for_the_others_before_it_takes_all_servers() -> None:
    node = Siblings(2, 2, 5, 10.0)
    node.woke(10.0 + ABSENT_S - 0.01)
    assert (node.own.share, node.is_settled) == (0, False)
    node.woke(10.0 + ABSENT_S)
    assert (node.own.share, node.is_settled) == (5, True)


def test_who_may_be_in_a_view_that_was_asked_for_is_waited_for_when_its_maker_dies() -> None:
    """Found by a random history: the view was installed at the third node, which this one had only
    heard of."""
    node = Siblings(3, 3, 5, 0.0)
    node.begin_alone(0.0)
    node.heard(1, SiblingLoad((2, 3), (5, 1), 0, 0, 0, 0.0, 0.0), 9.0)
    node.heard(1, Prepare((5, 1)), 9.0)
    node.lost(1, 9.0, is_dead=True)
    node.woke(9.0 + ABSENT_S - 0.01)
    assert not node.is_settled
    node.woke(9.0 + ABSENT_S)
    assert node.members == {3}


def test_a_node_that_is_missed_later_is_waited_for_by_itself() -> None:
    """Found by a random history: a node had waited for one that never came, and then at once made a
    view without another one, whose stream had broken a moment before."""
    node = Siblings(1, 3, 5, 0.0)
    hello(node, 2)
    node.woke(0.1)
    missed_s = ABSENT_S - 0.01
    node.heard(2, SiblingLoad((), NO_VIEW, 0, 0, 0, 0.0, 0.0), missed_s)
    node.woke(missed_s + SILENCE_S - 0.01)
    assert not node.is_settled
    node.heard(2, SiblingLoad((), NO_VIEW, 0, 0, 0, 0.0, 0.0), missed_s + SILENCE_S - 0.01)
    node.woke(missed_s + ABSENT_S)
    assert node.members == {1}


def test_idle_servers_go_where_requests_wait_and_no_more_of_them() -> None:
    one, other = two_nodes(6)
    other.demands(NO_DEMAND._replace(waiting=2, busy=3), 1.0)
    pass_on(one, other, now_s=1.0)
    one.demands(NO_DEMAND, 1.0)
    pass_on(one, other, now_s=1.0)
    assert (one.own.share, other.own.share) == (1, 5)


def test_a_node_that_can_run_nothing_gives_its_servers_away() -> None:
    one, other = two_nodes(6)
    other.demands(NO_DEMAND._replace(can_run=False, closed=(0,)), 1.0)
    pass_on(one, other, now_s=1.0)
    assert (one.own.share, other.own.share) == (6, 0)
    one.demands(NO_DEMAND._replace(can_run=False, closed=(0,)), 1.1)
    pass_on(one, other, now_s=1.1)
    assert (one.own.share, other.own.share) == (6, 0), "none is better off"


@pytest.mark.parametrize("first", [0, 1])
def test_a_site_that_gets_more_servers_has_them_all_whoever_knows_first(first: int) -> None:
    nodes = two_nodes(4)
    for step, place in enumerate((first, 1 - first)):
        now_s = 1.0 + step
        nodes[place].use(100, now_s)
        for _ in range(2):
            for node in nodes:
                node.demands(NO_DEMAND, now_s)
            pass_on(*nodes, now_s=now_s)
    assert [node.own.share for node in nodes] == [50, 50]


def test_a_server_that_becomes_free_goes_to_what_has_waited_longer() -> None:
    one, other = two_nodes(6)
    other.demands(NO_DEMAND._replace(waiting=2, busy=3, age_s=0.5), 1.0)
    pass_on(one, other, now_s=1.0)
    assert not one.passes_over(0.45, 0.05, 1.0)
    assert one.passes_over(0.3, 0.05, 1.0)
    assert not one.passes_over(0.0, 0.05, 1.0), "one at a time, until it has told of it"
    pass_on(one, other, now_s=1.0)
    assert (one.own.share, other.own.share) == (2, 4)


def test_what_a_lost_node_was_running_is_waited_for_before_its_servers_are_used() -> None:
    one, other = two_nodes(6)
    other.demands(NO_DEMAND._replace(work_s=3.0), 1.0)
    other.lost(1, 2.0, is_dead=True)
    assert (other.members, other.own.share) == ({2}, 3)
    other.woke(4.9)
    assert other.own.share == 3
    other.woke(5.0)
    assert other.own.share == 6
    assert one.own.share == 3, "it may be cut off only, and goes on"


def test_work_that_began_after_the_stream_had_ended_is_waited_for_too() -> None:
    """Found by a random history: its stream broke, and a moment later the node died."""
    _, other = two_nodes(6)
    other.demands(NO_DEMAND._replace(work_s=3.0), 1.0)
    other.lost(1, 2.0)
    other.lost(1, 2.1, is_dead=True)
    other.woke(5.0)
    assert other.own.share == 3
    other.woke(5.1)
    assert other.own.share == 6


def test_a_node_that_has_made_many_views_alone_is_in_the_next_but_one() -> None:
    """Found by a random history: the others reached its number by one view each RETRY_S."""
    one, other = two_nodes(6)
    other.lost(1, 1.0)
    for step in range(2, 42):  # a third node never answers it
        other.heard(3, SiblingLoad((2,), NO_VIEW, 0, 0, 0, 0.0, 0.0), step * RETRY_S)
        other.woke(step * RETRY_S)
    for _ in range(2):  # what was given on the stream that broke is to be counted anew
        other.heard(1, SiblingLoad((2,), one.view, 0, 0, 0, 0.0, 0.0), 21.0)
        other.lost(1, 21.0)
    other.heard(1, SiblingLoad((2,), one.view, 0, 0, 0, 0.0, 0.0), 21.0)
    other.take()
    one.heard(2, SiblingLoad((1, 3), NO_VIEW, 0, 0, 0, 0.0, 0.0), 21.0)
    for now_s in (21.0 + ABSENT_S, 21.0 + ABSENT_S + RETRY_S):
        one.heard(2, SiblingLoad((1, 3), NO_VIEW, 0, 0, 0, 0.0, 0.0), now_s)
        pass_on(one, other, now_s=now_s)
    assert one.is_settled
    assert one.view == other.view > (30, 2)


def test_a_node_whose_stream_has_ended_keeps_its_share_if_it_comes_back_soon() -> None:
    """Only one stream of the two broke: the node at its other end has not lost anybody."""
    one, other = two_nodes(4)
    other.demands(NO_DEMAND._replace(work_s=0.02), 1.0)
    pass_on(one, other, now_s=1.0)
    other.lost(1, 1.0)
    other.demands(NO_DEMAND._replace(work_s=0.02), 1.0)
    pass_on(one, other, now_s=1.0)
    assert other.next_deadline() <= 1.0 + RECONNECT_S
    other.woke(1.1)
    assert (one.own.share, other.own.share, other.members) == (2, 2, {1, 2})
    one.demands(NO_DEMAND._replace(busy=1), 1.1)
    pass_on(one, other, now_s=1.1)
    other.demands(NO_DEMAND._replace(work_s=0.02), 1.1)
    pass_on(one, other, now_s=1.1)
    assert (one.own.share, other.own.share) == (2, 2)
    assert one.view == other.view == (2, 1)
    other.woke(1.0 + RECONNECT_S)
    assert other.own.share == 2


def test_a_node_that_does_not_come_back_is_waited_for_no_longer() -> None:
    _, other = two_nodes(4)
    other.demands(NO_DEMAND._replace(work_s=0.02), 1.0)
    other.lost(1, 1.0)
    other.woke(1.0 + RECONNECT_S - 0.01)
    assert other.own.share == 2
    other.woke(1.0 + RECONNECT_S)
    assert (other.own.share, other.members) == (4, {2})


def test_shares_that_cannot_be_cost_the_site_nothing_but_servers() -> None:
    """A sibling that tells such has a bug: the others neither hang nor have more than a site."""
    one, other = two_nodes(4)
    other.heard(1, Give(other.view, WHOLE_MAX), 1.0)
    assert other.own.share == 2 * 4
    one.demands(NO_DEMAND._replace(leaves=True), 1.0)
    (prepare,) = [tell for tell in one.take() if isinstance(tell.message, Prepare)]
    view = prepare.message.view
    one.heard(2, Frozen(view, WHOLE_MAX, is_fresh=False, busy_for_s=0.0), 1.0)
    (installed,) = [tell.message for tell in one.take() if isinstance(tell.message, Installed)]
    assert (one.own.share, installed.share) == (2, 2)
    other.heard(1, Prepare(view), 1.0)
    other.heard(1, replace(installed, share=WHOLE_MAX), 1.0)
    assert other.own.share == 2 * 4


def test_servers_given_in_another_view_are_not_taken() -> None:
    one, other = two_nodes(6)
    other.heard(1, Give((99, 1), 2), 1.0)
    assert other.own.share == 3
    other.heard(1, Prepare((99, 1)), 1.0)
    other.heard(1, Give(one.view, 2), 1.0)
    assert other.own.share == 3, "it has told its share for the next one"
    assert not other.is_settled


def test_a_node_that_leaves_gives_its_servers_away_and_has_no_new_names() -> None:
    one, other = two_nodes(6)
    leaves = NO_DEMAND._replace(leaves=True)
    other.demands(leaves, 1.0)
    pass_on(one, other, now_s=1.0)
    assert one.owners == other.owners == {1}
    assert one.members == other.members == {1, 2}
    other.demands(leaves, 1.0, gives_all=True)
    pass_on(one, other, now_s=1.0)
    assert (one.own.share, other.own.share) == (6, 0)


@pytest.mark.parametrize("gives", [Prepare((10, 1)), None])
def test_servers_given_in_a_view_that_is_not_installed_here_are_nobodys(
    gives: Prepare | None,
) -> None:
    """They are counted anew by whoever makes the next view: else the site would have more."""
    _, other = two_nodes(6)
    other.heard(1, Prepare((9, 1)), 1.0)
    other.heard(1, Give((9, 1), 2), 1.0)
    if gives is None:  # this one makes the next
        other.demands(NO_DEMAND._replace(work_s=1.0), 1.0)
        other.lost(1, 1.0, is_dead=True)
        assert (other.members, other.own.share) == ({2}, 3)
    else:
        other.heard(1, gives, 1.0)
        other.heard(1, Installed((10, 1), (1, 2), (1, 2), 1), 1.0)
        assert other.own.share == 1


def test_a_view_is_made_anew_if_it_is_lost_on_the_way_that_it_is_installed() -> None:
    """Found by a random history: the node would never have a view, nor take any name."""
    one, other = Siblings(1, 2, 6, 0.0), Siblings(2, 2, 6, 0.0)
    hello(one, 2)
    hello(other, 1)
    for tell in one.take():
        other.heard(1, tell.message, 0.0)
    for tell in other.take():
        one.heard(2, tell.message, 0.0)
    assert one.is_settled
    one.take()  # nothing of it arrives
    other.lost(1, 1.0)
    assert not other.is_settled
    hello(other, 1, view=one.view)
    other.demands(NO_DEMAND, 1.0)
    pass_on(one, other, now_s=1.0)
    assert one.is_settled
    assert other.is_settled
    assert (one.own.share, other.own.share) == (3, 3)


def test_a_silent_sibling_is_lost_unless_this_process_was_late() -> None:
    one, _ = two_nodes(6)
    one.excuse(0.5)
    one.woke(SILENCE_S + 0.4)
    assert one.known
    one.woke(SILENCE_S + 0.6)
    assert not one.known


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(0, 30))
def test_shares_are_trimmed_and_made_larger_evenly(shares: list[int], servers: int) -> None:
    kept = trimmed(shares, servers)
    assert sum(kept) == min(sum(shares), servers)
    assert all(0 <= new <= old for new, old in zip(kept, shares, strict=True))
    less = [new for new, old in zip(kept, shares, strict=True) if new < old]
    assert not less or min(less) >= max(kept) - 1, "the largest give first"
    grown = spread(kept, servers - sum(kept))
    assert sum(grown) == servers
    more = [new for new, old in zip(grown, kept, strict=True) if new > old]
    assert not more or max(more) <= min(grown) + 1, "the smallest get first"


@given(st.dictionaries(st.integers(1, 16), st.integers(0, 50), min_size=2))
def test_idle_servers_come_to_be_even_in_few_steps_and_stay_so(idle: dict[int, int]) -> None:
    """One node gives at a time, and no server goes to and fro."""
    everything, steps = sum(idle.values()), 0
    while True:
        gifts = {
            number: gift
            for number, has in idle.items()
            if (gift := evened(number, has, {o: h for o, h in idle.items() if o != number}))
        }
        assert len(gifts) <= 1
        if not gifts:
            break
        ((giver, (taker, servers)),) = gifts.items()
        assert idle[giver] - servers >= idle[taker] + servers, "it would come back"
        idle[giver] -= servers
        idle[taker] += servers
        steps += 1
    assert sum(idle.values()) == everything
    assert max(idle.values()) - min(idle.values()) <= 1
    assert steps <= 16 * 10


def test_a_node_that_comes_late_has_its_part_if_nothing_happens_at_the_site() -> None:
    one = Siblings(1, 2, 4, 0.0)
    one.woke(ABSENT_S)
    assert one.own.share == 4
    other = Siblings(2, 2, 4, 2.0)
    for node, there in ((one, other), (other, one)):
        hello(node, there.number, view=there.view)
    pass_on(one, other, now_s=2.0)
    one.demands(NO_DEMAND._replace(busy=1), 2.0)
    for now_s, shares in ((2.1, (4, 0)), (2.0 + QUIET_S, (2, 2))):
        for node in (one, other):
            node.demands(NO_DEMAND, now_s)
        pass_on(one, other, now_s=now_s)
        assert (one.own.share, other.own.share) == shares


def test_servers_stay_where_they_are_while_anything_runs_at_the_site() -> None:
    one, other = two_nodes(6)
    other.demands(NO_DEMAND._replace(waiting=2, busy=3), 1.0)
    pass_on(one, other, now_s=1.0)
    one.demands(NO_DEMAND, 1.0)
    pass_on(one, other, now_s=1.0)
    for now_s in (1.5, 3.0, 9.0):
        other.demands(NO_DEMAND._replace(busy=1), now_s)
        one.demands(NO_DEMAND, now_s)
        pass_on(one, other, now_s=now_s)
    assert (one.own.share, other.own.share) == (1, 5)


def test_nodes_that_all_leave_keep_their_servers() -> None:
    """They would go to and fro without end."""
    one, other = two_nodes(6)
    leaves = NO_DEMAND._replace(leaves=True)
    for node in (one, other):
        node.demands(leaves, 1.0)
        pass_on(one, other, now_s=1.0)
    for node in (one, other):
        node.demands(leaves, 1.1, gives_all=True)
    assert not any(isinstance(tell.message, Give) for node in (one, other) for tell in node.take())
    assert (one.own.share, other.own.share) == (3, 3)


VIEWS = st.tuples(
    st.sampled_from([0, 1, 2, 3, WHOLE_MAX // 2, WHOLE_MAX // 2 + 1, WHOLE_MAX - 1, WHOLE_MAX]),
    st.integers(0, 3),
)


@given(VIEWS, VIEWS)
def test_of_two_views_one_is_later_and_there_is_one_that_is_later_than_any(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    assert is_later(one, other) + is_later(other, one) == (one != other)
    assert is_later((number_after(one[0]), 1), one)
    assert 1 <= number_after(one[0]) <= WHOLE_MAX
    assert is_later(one, NO_VIEW) == (one != NO_VIEW)


@pytest.mark.parametrize("number", [WHOLE_MAX, WHOLE_MAX - 1, WHOLE_MAX // 2, WHOLE_MAX // 2 + 2])
def test_views_are_made_whatever_number_a_sibling_tells(number: int) -> None:
    """That one has a bug: the next view is one that all take for later."""
    one, other = two_nodes(6)
    hello(one, 2, view=(number, 2))
    pass_on(one, other, now_s=1.0)
    hello(one, 2, view=one.view)
    pass_on(one, other, now_s=1.0)
    assert one.view == other.view != (1, 1)
    assert one.is_settled
    assert other.is_settled
    assert 1 <= one.view[0] <= WHOLE_MAX
    assert (one.own.share, other.own.share) == (3, 3)


@pytest.mark.timeout(0)
@pytest.mark.skipif(not MANY, reason="set SPILLOVER_SITE_HISTORIES to how many")
@pytest.mark.parametrize("kind", ["whole", "cut", "growing", "leaving", "leaving and dying"])
def test_many_more_histories(kind: str) -> None:
    for seed in range(FIRST, FIRST + MANY // 5):
        try:
            if kind == "growing":
                grow(seed)
            elif kind.startswith("leaving"):
                leave(seed, faults=kind != "leaving")
            else:
                play(seed, cuts=kind == "cut")
        except AssertionError as error:
            error.add_note(f"seed {seed}, {kind}")
            raise
