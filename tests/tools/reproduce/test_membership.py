"""Figures 2 to 4 of Shraer & Reed: the experiment, and what the document says of it."""

from __future__ import annotations

import json

import pytest

from spillover.sim.membership.rebalancing import Step, reconfigurations
from spillover.tools.reproduce.figure import Effort
from spillover.tools.reproduce.membership import (
    CLIENTS,
    EVENTS,
    FIGURES,
    SERVERS,
    _looked_at,
)

BY_NAME = {figure.name: figure for figure in FIGURES}


@pytest.fixture(scope="module")
def computed():
    told = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spillover.tools.reproduce.membership.RUNS", 60)
        values = {
            name: json.loads(json.dumps(figure.compute(Effort(full=False), 1, told.append)))
            for name, figure in BY_NAME.items()
        }
    assert told.count(1.0) == len(BY_NAME)
    assert all(0 < done <= 1 for done in told)
    return values


@pytest.mark.parametrize("seed", range(5))
def test_the_events_are_the_documents(seed):
    """9; one goes; two go; one goes and the three come back; that one comes back."""
    nine, eight, six, again, all_again = (
        set(servers) for servers in reconfigurations(SERVERS, seed)
    )
    assert [len(s) for s in (nine, eight, six, again, all_again)] == [9, 8, 6, 8, 9]
    assert six < eight < nine == all_again
    assert len(six - again) == 1
    assert again - six == nine - six
    assert reconfigurations(SERVERS, seed) != reconfigurations(SERVERS, seed + 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BY_NAME))
def test_every_claim_holds(computed, name):
    """What the document says in words comes out, and what we add as well."""
    claims = BY_NAME[name].claims(computed[name])
    assert len(claims) >= 3
    assert [claim.text for claim in claims if not claim.holds] == []
    for claim in claims:
        assert claim.text
        assert claim.stated
        assert claim.measured


@pytest.mark.slow
def test_claims_can_fail(computed):
    """Rules in each other's place are found out."""
    coins = next(iter(computed["membership-4"]["rules"].values()))
    circle = next(iter(computed["membership-3"]["rules"].values()))
    baseline = next(iter(computed["membership-2"]["rules"].values()))

    def held(name, *stand_ins):
        values = computed[name]
        rules = dict(zip(values["rules"], stand_ins, strict=True))
        return [claim.holds for claim in BY_NAME[name].claims({**values, "rules": rules})]

    assert held("membership-2", coins) == [True, False, False]
    assert held("membership-2", circle)[0] is False
    # Coins, too, move nobody in vain.
    assert held("membership-3", coins, coins, coins) == [False, False, True]
    assert held("membership-4", baseline, coins, coins) == [False, False, False, False, False]


@pytest.mark.slow
def test_summaries_hold_every_event(computed):
    """Means lie within the range; clients are all there; servers are as many as the events say."""
    for values in computed.values():
        assert (values["clients"], len(values["events"])) == (CLIENTS, len(EVENTS))
        for events in values["rules"].values():
            assert [event["servers"]["mean"] for event in events] == [9, 9 - 1, 6, 8, 9]
            for event in events:
                for field in ("max_over_mean", "min_over_mean", "moved", "moved_min"):
                    found = event[field]
                    assert found["min"] <= found["p05"] <= found["p95"] <= found["max"]
                    assert found["min"] - 1e-9 <= found["mean"] <= found["max"] + 1e-9
                assert event["min_over_mean"]["max"] <= 1 <= event["max_over_mean"]["min"]
            assert events[0]["moved"]["max"] == 0


def test_looking_at_a_change_by_hand():
    """Of a and b, b goes and c comes; 4 of b's 6 clients go to a."""
    before = Step(("a", "b"), 0, 0, {"a": 4, "b": 6})
    after = Step(("a", "c"), 6, 6, {"a": 8, "c": 2})
    seen = _looked_at(before, after)
    assert (seen["most"], seen["fewest"], seen["servers"]) == (8, 2, 2)
    assert (seen["left_behind"], seen["clients_per_new"]) == (6, 2)
    assert (seen["max_over_mean"], seen["min_over_mean"]) == (1.6, 0.4)


def test_a_seed_is_a_result(monkeypatch):
    """The same twice, another with another seed."""
    monkeypatch.setattr("spillover.tools.reproduce.membership.RUNS", 2)

    def values(seed):
        figure = BY_NAME["membership-4"]
        return figure.compute(Effort(full=False), seed, lambda _: None)

    assert values(1) == values(1)
    assert values(1) != values(2)
    assert values(1)["runs"] == 2
