"""The nodes of a site share the tokens of each class, whatever happens to them (decision 0049)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.core.overflow.sibling import Demand, Layout
from spillover.core.overflow.sibling_messages import (
    NO_VIEW,
    Give,
    Installed,
    LineLoad,
    SiblingLoad,
)
from spillover.core.overflow.siblings import Siblings
from support.few import examples
from support.histories.sites import EVEN_S, SETTLED_S
from support.histories.token_sites import TokenSite

SEEDS = st.integers(0, 2**31)
MANY = int(os.environ.get("SPILLOVER_SITE_HISTORIES", "0"))
ALL_DONE_S = 4.0


def layout_from(random: Random, nodes: int) -> Layout:
    """One to three classes, the first with a token for each node at least, and lines for each of
    them and for some sets of several."""
    classes = random.randint(1, 3)
    tokens = [random.randint(nodes, 6), *(random.randint(1, 4) for _ in range(classes - 1))]
    lines = {(kind,) for kind in range(classes)}
    for _ in range(random.randint(0, 2)):
        lines.add(tuple(kind for kind in range(classes) if random.random() < 0.6) or (0,))
    names = tuple(map(str, range(len(tokens))))
    return Layout(names, tuple(tokens), tuple(random.sample(sorted(lines), len(lines))))


def happens(site: TokenSite, random: Random, *, cuts: bool) -> None:
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
        lines = len(site.layout.lines)
        for _ in range(random.randint(1, 10)):
            site.arrive_in(random.choice((number, other)), random.randrange(lines))


def play(seed: int, *, cuts: bool) -> TokenSite:
    """Plays one history, which ends well."""
    random = Random(seed)
    nodes = random.randint(2, 4)
    site = TokenSite(nodes, layout_from(random, nodes), seed)
    for _ in range(random.randint(5, 40)):
        happens(site, random, cuts=cuts)
        site.run(random.choice((0.0, 0.001, 0.01, 0.1, 1.0, 2.0)) * random.random())
    site.heal()
    site.run(SETTLED_S)
    for number in range(1, nodes + 1):
        for _ in range(random.randint(0, 10)):
            site.arrive_in(number, random.randrange(len(site.layout.lines)))
    site.run(ALL_DONE_S)
    site.check_settled()
    site.run(EVEN_S)
    site.check_even()
    return site


@settings(max_examples=examples(60))
@given(seed=SEEDS)
def test_tokens_are_conserved_while_nodes_die_leave_and_come_back(seed: int) -> None:
    play(seed, cuts=False)


@settings(max_examples=examples(60))
@given(seed=SEEDS)
def test_nodes_that_were_cut_off_share_the_tokens_again(seed: int) -> None:
    site = play(seed, cuts=True)
    for kind, tokens in enumerate(site.layout.tokens):
        held = [one.machine.own.classes[kind].share for one in site.alive if one.machine]
        assert sum(held) <= tokens


def two_nodes(tokens: tuple[int, ...], *lines: tuple[int, ...]) -> tuple[Siblings, Siblings]:
    """Two nodes that have just begun to share, at both of which nothing waits or runs."""
    layout = Layout(tuple(map(str, range(len(tokens)))), tokens, lines)
    one, other = Siblings(1, 2, 0, 0.0, layout), Siblings(2, 2, 0, 0.0, layout)
    idle = tuple(0 for _ in tokens)
    for node, there in ((one, 2), (other, 1)):
        nothing = tuple(LineLoad(0, 0, 0.0) for _ in lines)
        hello = SiblingLoad((node.number,), NO_VIEW, 0, 0, 0, 0.0, 0.0, False, nothing, idle)
        node.heard(there, hello, 0.0)
    pass_on(one, other, now_s=0.0)
    return one, other


def pass_on(*nodes: Siblings, now_s: float) -> None:
    """Every message arrives, until there are none."""
    by_number = {node.number: node for node in nodes}
    while tells := [(node.number, tell) for node in nodes for tell in node.take()]:
        for sender, tell in tells:
            by_number[tell.to].heard(sender, tell.message, now_s)


def demands(
    node: Siblings,
    now_s: float,
    waiting: Mapping[int, float] | None = None,
    busy: tuple[int, ...] = (),
    closed: tuple[int, ...] = (),
) -> None:
    """Tell a node of its pool. In each line of these one request has waited for so long."""
    ages_s = waiting or {}
    lines = tuple(
        LineLoad(line in ages_s, 0, ages_s.get(line, 0.0)) for line in range(len(node.own.lines))
    )
    busy_of = busy or tuple(0 for _ in node.own.classes)
    queue = len(ages_s), 0, sum(busy_of), max(ages_s.values(), default=0.0)
    node.demands(Demand(*queue, 0.0, True, False, 0.05, lines, busy_of, closed), now_s)


def test_classes_with_one_token_begin_at_different_nodes() -> None:
    one, other = two_nodes((1, 1, 1, 3), (0, 1, 2, 3))
    assert (one.own.by_class, other.own.by_class) == ((1, 0, 1, 1), (0, 1, 0, 2))


def test_a_request_that_may_join_two_classes_is_given_one_token() -> None:
    one, other = two_nodes((2, 2), (0, 1))
    demands(other, 1.0, {0: 0.01}, busy=(1, 1))
    pass_on(one, other, now_s=1.0)
    demands(one, 1.0)
    pass_on(one, other, now_s=1.0)
    assert (one.own.by_class, other.own.by_class) == ((0, 1), (2, 1))


def test_a_token_goes_where_a_request_for_its_class_waits() -> None:
    one, other = two_nodes((2, 2), (0,), (1,))
    demands(other, 1.0, {1: 0.01}, busy=(1, 1))
    pass_on(one, other, now_s=1.0)
    demands(one, 1.0)
    pass_on(one, other, now_s=1.0)
    assert (one.own.by_class, other.own.by_class) == ((1, 0), (1, 2))


def test_a_token_that_becomes_free_goes_to_the_older_request_for_its_class() -> None:
    one, other = two_nodes((2, 2), (0,), (1,))
    demands(other, 1.0, {1: 0.5}, busy=(1, 1))
    pass_on(one, other, now_s=1.0)
    demands(one, 1.0, {0: 0.1, 1: 0.4}, busy=(1, 1))
    assert not one.passes_over(0.1, 0.01, 1.0, 0), "nobody waits for that class there"
    assert not one.passes_over(0.49, 0.01, 1.0, 1), "by less than two departures"
    assert one.passes_over(0.4, 0.01, 1.0, 1)
    pass_on(one, other, now_s=1.0)
    assert (one.own.by_class, other.own.by_class) == ((1, 0), (1, 2))


def test_a_node_whose_servers_of_a_class_are_down_gives_its_tokens_away() -> None:
    """It does so though nothing waits: what comes to its sibling may not be let wait."""
    one, other = two_nodes((2, 2), (0,))
    demands(other, 1.0, {0: 0.5}, closed=(0,))
    pass_on(one, other, now_s=1.0)
    demands(one, 1.0)
    pass_on(one, other, now_s=1.0)
    assert (one.own.by_class, other.own.by_class) == ((2, 1), (0, 1))
    assert (one.own.classes[0].idle, one.own.classes[1].idle) == (0, 1)
    demands(one, 1.1, closed=(0,))
    pass_on(one, other, now_s=1.1)
    assert one.own.by_class == (2, 1), "they are of use to nobody"


def test_a_node_with_an_idle_token_is_given_none_of_its_class() -> None:
    """What waits there does so for another class: servers of that one have refused it."""
    one, other = two_nodes((2, 2), (0, 1))
    demands(other, 1.0, {0: 0.5}, busy=(0, 1))
    pass_on(one, other, now_s=1.0)
    demands(one, 1.0, busy=(0, 1))
    assert not one.passes_over(0.1, 0.01, 1.0, 0)
    pass_on(one, other, now_s=1.0)
    assert (one.own.by_class, other.own.by_class) == ((1, 1), (1, 1))


def test_tokens_in_use_beyond_the_share_are_no_others_once_there_are_more() -> None:
    one, other = two_nodes((8, 1), (0,))
    demands(one, 1.0, busy=(4, 0))
    for tokens in (2, 8):
        one.limit((tokens, 1), (), 1.0)
        demands(one, 1.0, busy=(4, 0))
        pass_on(one, other, now_s=1.0)
        demands(other, 1.0)
        pass_on(one, other, now_s=1.0)
    assert (one.own.classes[0].share, other.own.classes[0].share) == (4, 1), "the rest is spare"


def test_nodes_with_other_classes_differ_in_form() -> None:
    one_class = ((0,),), ((0, 1),)
    layouts = [None, Layout(("a",), (4,), one_class[0]), Layout(("b",), (4,), one_class[0])]
    layouts += [Layout(names, (4, 4), one_class[1]) for names in (("a", "b"), ("b", "a"))]
    assert len({Siblings(1, 2, 4, 0.0, each).own.form for each in layouts}) == len(layouts)


def test_what_operators_say_at_one_node_holds_at_both_and_for_one_that_comes_later() -> None:
    one, other = two_nodes((4, 2), (0, 1))
    other.limit((1, 5), (3,), 2.0)
    for node in (other, one):
        demands(node, 2.0)
        pass_on(one, other, now_s=2.0)
    assert [one.own.by_class[kind] + other.own.by_class[kind] for kind in (0, 1)] == [1, 5]
    assert one.own.limits == other.own.limits
    assert one.own.limits is not None
    assert one.own.limits.out == (3,)
    one.limit((2, 5), (), 2.1)
    demands(one, 2.1)
    pass_on(one, other, now_s=2.1)
    assert [one.own.by_class[kind] + other.own.by_class[kind] for kind in (0, 1)] == [2, 5]
    assert (other.own.limits, other.own.servers) == (one.own.limits, 7)


def test_a_sibling_with_other_classes_is_not_believed() -> None:
    one, _ = two_nodes((2, 2), (0, 1))
    for message in (
        SiblingLoad((1,), one.view, 0, 0, 0, 0.0, 0.0),
        SiblingLoad((1,), one.view, 0, 0, 0, 0.0, 0.0, False, (LineLoad(0, 0, 0.0),), (0,)),
        Give(one.view, 1, 2),
        Installed(one.view, (1, 2), (1,), 2, (2,)),
    ):
        with pytest.raises(ValueError, match="other classes"):
            one.heard(2, message, 1.0)
    assert one.own.by_class == (1, 1)


@pytest.mark.timeout(0)
@pytest.mark.skipif(not MANY, reason="set SPILLOVER_SITE_HISTORIES to how many")
@pytest.mark.parametrize("cuts", [False, True])
def test_many_more_histories(*, cuts: bool) -> None:
    for seed in range(MANY // 2):
        try:
            play(seed, cuts=cuts)
        except AssertionError as error:
            error.add_note(f"seed {seed}, cuts {cuts}")
            raise
