"""The nodes of a site share the tokens of each class, whatever happens to them (decision 0049)."""

from __future__ import annotations

import os
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.core.overflow.sibling import Layout
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
    return Layout(tuple(tokens), tuple(random.sample(sorted(lines), len(lines))))


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
        held = [one.machine.classes[kind].share for one in site.alive if one.machine]
        assert sum(held) <= tokens


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
