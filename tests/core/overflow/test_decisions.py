"""Decision records: complete enough to be made again, bounded, and readable."""

import json

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.decisions import describe


def test_explanations_have_what_the_contract_names(story):
    """N, m, P, R, what was known of each neighbor and how old, weights, draw, outcome."""
    node = story(service_s=0.5, delay_s=0.125)
    node.hear(0, now_s=1.0, near=0.5)
    node.fill(1, 2)
    node.draws.coming.append(0.75)
    node.arrive(3, 1.25)
    (record,) = node.machine.decider.log.of("r3")
    assert describe(record) == {
        "outcome": "forwarded",
        "neighbor": "b",
        "policy": "paper",
        "queue_length": 1,
        "servers": 1,
        "busy": 1,
        "health": "well",
        "hops": 0,
        "may_keep": True,
        "reason": None,
        "accept_probability": 0.5,
        "neighborhood_accept_probability": 0.75,
        "service_ms": 500.0,
        "draw": 0.75,
        "neighbors": [
            {
                "id": "b",
                "accept_probability": 0.5,
                "neighborhood_accept_probability": 0.5,
                "queue_length": 0,
                "age_ms": 250.0,
                "delay_ms": 125.0,
                "alive": True,
                "degraded": False,
                "eligible": True,
                "weight": 0.0,
            },
            {
                "id": "c",
                "accept_probability": 0.0,
                "neighborhood_accept_probability": 0.0,
                "queue_length": 0,
                "age_ms": None,
                "delay_ms": 125.0,
                "alive": False,
                "degraded": False,
                "eligible": False,
                "weight": 0.0,
            },
        ],
    }


def test_a_start_is_explained_by_a_free_server(story):
    """P = 1, nobody was asked; what was known is told all the same, and it is all plain JSON."""
    node = story()
    node.hear(0)
    node.fill(1)
    (record,) = node.machine.decider.log.of("r1")
    told = describe(record)
    assert (told["outcome"], told["neighbor"], told["busy"]) == ("started", None, 0)
    assert told["accept_probability"] == told["neighborhood_accept_probability"] == 1.0
    assert [(n["eligible"], n["weight"]) for n in told["neighbors"]] == [(None, None)] * 2
    assert json.loads(json.dumps(told, allow_nan=False)) == told


REASONS = {
    "queue_full": ({"queue_limit": 1}, None, {}),
    "too_late": ({"service_s": 5.0}, None, {"deadline_s": 1.0}),
    "no_servers": ({}, ev.ServersDown(), {}),
    "draining": ({}, ev.Drain(), {}),
}


@pytest.mark.parametrize("path", [(), ("b",)], ids=["client", "neighbor"])
@pytest.mark.parametrize("reason", REASONS)
def test_a_refusal_says_why(story, reason, path):
    """On record as in the answer, whoever sent the request."""
    settings, event, given = REASONS[reason]
    node = story(**settings)
    node.fill(1, 2)
    if event is not None:
        node.tell(event)
    (refuse,) = node.arrive(3, path=path, **given)
    assert refuse.reason == reason
    (record,) = node.machine.decider.log.of("r3")
    told = describe(record)
    assert (told["outcome"], told["reason"], told["may_keep"]) == ("refused", reason, False)
    assert (told["queue_length"], told["busy"]) == (1, 1)


def test_what_is_handed_on_says_why_it_was_not_kept(story):
    """For want of room, which a decision by weights alone does not tell."""
    node = story(queue_limit=1)
    node.hear(0)
    node.fill(1, 2)
    node.arrive(3)
    (record,) = node.machine.decider.log.of("r3")
    assert (record.outcome, record.objection) == ("forwarded", "queue_full")


def test_what_waits_for_servers_that_hang_is_not_called_refused(story):
    """It may not be kept by the policy, since no server works, and is for want of a neighbor."""
    node = story()
    node.arrive(1, deadline_s=1.0)
    node.wake(1.0)
    assert node.arrive(2) == [ev.Accepted(2)]
    (record,) = node.machine.decider.log.of("r2")
    assert (record.outcome, record.may_keep, record.objection) == ("kept", False, None)


def test_all_decisions_about_a_request_are_kept_in_order(story):
    """Forwarded, refused there, forwarded again, refused again, kept."""
    node = story()
    node.hear(0, 1)
    node.fill(1, 2)
    for event in (None, ev.ForwardRefused(3), ev.ForwardRefused(3)):
        if event is None:
            node.arrive(3, away=True)
        else:
            node.draws.coming.append(0.99)
            node.tell(event)
    records = node.machine.decider.log.of("r3")
    assert [record.outcome for record in records] == ["forwarded", "forwarded", "kept"]
    assert [record.eligible for record in records] == [(True, True), (True, False), (False, False)]
