"""How the choosers' arguments are put together, for each rule that a client may have been given."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from spillover.core.membership.choosing import RULES, Chooser
from spillover.core.membership.list_change import change_between
from spillover.policy.membership import choose_probabilistic
from support.client_sessions import told

CHANGE = change_between("abc", "bcde")


def places(rule: str, own: str, announcement=None, change=CHANGE) -> list[str]:
    """Where a hundred clients of this server go."""
    choosers = [Chooser(rule, Random(n), f"client {n}", 10) for n in range(100)]
    return [change.after[one.place(change, own, announcement)] for one in choosers]


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "consistent-hash"])
def test_who_is_on_a_new_server_already_stays(rule: str) -> None:
    """It followed another path there: that server is on its new list, and not on its old one."""
    for own in "de":
        assert set(places(rule, own)) == {own}


def test_the_baseline_stays_where_it_can_and_goes_anywhere_else() -> None:
    grown = change_between("ab", "abcdefgh")
    assert set(places("baseline", "b", change=grown)) == {"b"}
    assert set(places("baseline", "a")) == set("bcde")
    assert set(places("probabilistic", "b", change=grown)) > {"b"}


@pytest.mark.parametrize("rank", [0, 4])
def test_the_first_and_the_last_rank_count(rank: int) -> None:
    """So that nothing is drawn: all who have that rank go to one place."""
    announcement = told("b", "bcde", 2)._replace(rank=rank, clients=5)
    assert len(set(places("stratified", "b", announcement))) == 1


@pytest.mark.parametrize(("rank", "clients"), [(-1, 5), (5, 5), (0, 0)])
def test_a_rank_that_is_none_is_as_good_as_none(rank: int, clients: int) -> None:
    """A node may say anything: such a client draws."""
    announcement = told("b", "bcde", 2)._replace(rank=rank, clients=clients)
    place = CHANGE.before.index("b")
    counts = (place, CHANGE.kept, CHANGE.gone, CHANGE.added)
    drawn = [CHANGE.after[choose_probabilistic(*counts, Random(n).random())] for n in range(100)]
    assert places("stratified", "b", announcement) == drawn
    assert len(Counter(drawn)) > 1


def test_a_rule_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of stratified, probabilistic, baseline"):
        Chooser("random", Random(1), "me", 1)
