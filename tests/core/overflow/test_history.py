"""The story of a request as users read it: decisions and what came of them, within bounds."""

import json

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.history import Ending, History, Note
from spillover.model.request import Answer, Outcome


def told(node, ref):
    story = node.machine.decider.log.tell(f"r{ref}")
    assert json.loads(json.dumps(story, allow_nan=False)) == story
    return story


def test_a_request_that_found_a_free_server(story):
    """Two lines: decided, ended. Times count from the first of them, in milliseconds."""
    node = story(delivery_s=0.006)
    node.arrive(1, 10.0)
    node.end(1, 10.25, service_s=0.25)
    decided, ended = told(node, 1)
    assert (decided["at_ms"], decided["event"], decided["outcome"]) == (0.0, "decided", "started")
    assert ended == {
        "at_ms": 250.0,
        "event": "ended",
        "outcome": "done",
        "path": ["a"],
        "queued_ms": 0.0,
        "network_ms": 6.0,
        "service_ms": 250.0,
        "problem": None,
    }


def test_a_request_that_had_a_hard_time(story):
    """Refused by c, lost at b, kept, and failed in the end: every step with the neighbor's name."""
    node = story()
    node.hear(0, 1)
    node.fill(1, 2)
    node.arrive(3, 1.0, away=True)
    node.draws.coming.append(0.99)
    node.tell(ev.ForwardRefused(3), 1.25)
    node.tell(ev.ForwardLost(3), 1.5)
    node.end(1, 2.0)
    node.end(2, 3.0)
    node.tell(ev.ServiceEnded(3, Outcome.FAILED, 0.5, problem="division by zero"), 3.5)
    lines = told(node, 3)
    assert [(line["at_ms"], line["event"], line.get("neighbor")) for line in lines] == [
        (0.0, "decided", "c"),
        (250.0, "refused_by", "c"),
        (250.0, "decided", "b"),
        (500.0, "lost_at", "b"),
        (500.0, "decided", None),
        (2500.0, "ended", None),
    ]
    assert [line["outcome"] for line in lines if line["event"] == "decided"][-1] == "kept"
    assert (lines[-1]["outcome"], lines[-1]["problem"]) == ("failed", "division by zero")
    assert (lines[-1]["queued_ms"], lines[-1]["network_ms"]) == (1500.0, 500.0)


def test_a_request_that_was_cancelled_elsewhere(story):
    """Asked at the neighbor once; its answer ends the story."""
    node = story()
    node.hear(0, 1)
    node.fill(1, 2)
    node.arrive(3, away=True)
    for now_s in (1.0, 1.5):
        node.tell(ev.CancelAsked(3), now_s)
    node.tell(ev.ForwardAnswered(3, Answer(Outcome.CANCELLED, ("a", "c")), 0.25, 0.25), 2.0)
    lines = told(node, 3)
    assert [line["event"] for line in lines] == ["decided", "cancel_asked", "ended"]
    assert lines[1] == {"at_ms": 1000.0, "event": "cancel_asked", "neighbor": "c"}
    assert (lines[2]["outcome"], lines[2]["path"]) == ("cancelled", ["a", "c"])


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.REJECTED])
def test_what_an_upstream_said_no_to(story, outcome):
    """Its status is told; whoever has no upstream tells none."""
    node = story()
    node.fill(1, 2)
    node.tell(ev.ServiceEnded(1, outcome, 0.5, problem="no", upstream_status=418), 1.0)
    node.end(2, 2.0)
    ended = told(node, 1)[-1]
    assert (ended["outcome"], ended["upstream_status"]) == (outcome.value, 418)
    assert "upstream_status" not in told(node, 2)[-1]


@pytest.mark.parametrize("limit", [0, 1, 7])
def test_only_the_last_records_are_held(limit):
    """Of whatever kind; of older requests nothing is left, of half-forgotten ones the rest."""
    story = History(limit)
    for number in range(100):
        story.add(Note(float(number), f"r{number // 2}", "lost_at", 1, "broken"))
        took_s = 0.0, 0.0, 0.0
        ended = Ending(number, f"r{number // 2}", Outcome.DONE, ("a",), *took_s, None, None)
        story.add_end(ended)
        assert len(story) <= limit
    assert len(story) == limit
    assert [line["event"] for line in story.tell("r49")] == (
        {0: [], 1: ["ended"], 7: ["lost_at", "ended"] * 2}[limit]
    )
    assert story.tell("r47") == []


def test_results_are_not_held(story):
    """A story is a few hundred bytes, whatever the answer weighs."""
    node = story()
    node.fill(1)
    node.end(1, result=b"x" * 10**6)
    assert all("result" not in line for line in told(node, 1))
    assert not any(hasattr(record, "result") for record in node.machine.decider.log._ring)
