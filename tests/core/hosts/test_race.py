"""When each address is tried, and who wins, with time passed in."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.core.hosts.race import DELAY_S, DELAY_S_MIN, Race, delay_within

DELAY_MS = 250
OUTCOMES = st.tuples(st.sampled_from(["connects", "fails", "says nothing"]), st.integers(0, 2000))


def raced(outcomes, until_ms):
    """When each address was tried, and which one won: a loop in virtual time."""
    addresses = [(2, str(number), 0, 0) for number in range(len(outcomes))]
    race, now, tried, ends = Race(addresses, DELAY_MS), 0, {}, {}
    while True:
        while (address := race.next(now)) is not None:
            tried[address] = now
            how, after_ms = outcomes[int(address[1])]
            ends[address] = math.inf if how == "says nothing" else now + after_ms
        due = min([race.due_s, *ends.values()])
        if race.is_lost or due > until_ms:
            return [tried.get(address) for address in addresses], None, race
        now = due
        for address in [address for address, end in ends.items() if end == now]:
            del ends[address]
            if outcomes[int(address[1])][0] == "connects":
                return [tried.get(one) for one in addresses], address, race
            race.fail(address, OSError(111, "refused"))


@given(st.lists(OUTCOMES, min_size=1, max_size=6))
def test_addresses_are_tried_one_after_another_and_the_first_to_connect_wins(outcomes):
    tried, won, race = raced(outcomes, 10_000)
    gone = [at for at in tried if at is not None]
    assert gone == sorted(gone)
    assert gone[0] == 0
    assert tried == gone + [None] * (len(tried) - len(gone))
    failed = {
        at + after for at, (how, after) in zip(gone, outcomes, strict=False) if how == "fails"
    }
    for before, at in pairwise(gone):
        assert at == before + DELAY_MS or (at < before + DELAY_MS and at in failed)
    connects = [
        (at + after, number)
        for number, (at, (how, after)) in enumerate(zip(gone, outcomes, strict=False))
        if how == "connects"
    ]
    if won is not None:
        assert int(won[1]) in [number for at, number in connects if at == min(connects)[0]]
    else:
        assert not connects
        assert len(gone) == len(outcomes)
        assert race.is_lost is all(how == "fails" for how, _ in outcomes)


def test_who_has_had_its_time_lags_and_who_was_tried_last_does_not():
    one, other = (2, "1", 0, 0), (2, "2", 0, 0)
    race = Race([one, other], DELAY_S)
    assert (race.next(0.0), race.next(0.2), race.due_s) == (one, None, DELAY_S)
    assert race.next(0.25) == other
    assert race.lagging(0.3) == [one]
    assert race.due_s == math.inf


@pytest.mark.parametrize(
    ("limit_s", "addresses", "delay_s"),
    [(1.0, 2, DELAY_S), (1.0, 4, 0.2), (0.1, 32, DELAY_S_MIN), (60.0, 32, DELAY_S)],
)
def test_all_get_their_turn_within_the_limit(limit_s, addresses, delay_s):
    assert delay_within(limit_s, addresses) == delay_s
