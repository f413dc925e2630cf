"""What producers say to each other, as bytes: what is left out, and what is no such message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spillover.core.queue.events import Offer, Probe
from spillover.live.queue import wire

PROBE = {
    "id": "a take",
    "first": "p2",
    "consumer": "c",
    "hop": 1,
    "max_hops": 2,
    "access": {"p2": 1.0},
    "left_ms": 9000.0,
}


def test_what_is_said_is_heard() -> None:
    probe = Probe("a take", "p2", "c", 2, 3, {"p1": 0.25, "p2": 0.75}, True, ("p2", "p1"), 0.125)
    assert wire.decode_probe(wire.encode_probe(probe)) == probe
    offer = Offer("a take", "p2", "a grant", 3)
    assert wire.decode_offer(wire.encode_offer(offer)) == offer
    assert [wire.decode_taken(wire.encode_taken(taken)) for taken in (True, False)] == [True, False]


def test_a_probe_that_says_no_more_may_go_anywhere_and_has_been_nowhere() -> None:
    probe = Probe("a take", "p2", "c", 1, 2, {"p2": 1.0}, False, (), 9.0)
    assert wire.decode_probe(json.dumps(PROBE).encode()) == probe
    assert json.loads(wire.encode_probe(probe)) == PROBE


@pytest.mark.parametrize("grant", ["a\r\nSet-Cookie: b", "a\n", "\0", "é", "", "x" * 201])
def test_a_grant_ends_no_line_of_a_head(grant: str) -> None:
    told = {"probe_id": "a take", "producer": "p2", "grant": grant, "probes": 1}
    with pytest.raises(wire.MalformedMessage, match="grant"):
        wire.decode_offer(json.dumps(told).encode())


MANY = {f"p{number}": 0.0 for number in range(1000)}


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ("id", ["x", "x" * 200], ["", "x" * 201, None]),
        ("first", ["x", "x" * 63], ["", "x" * 64]),
        ("consumer", ["x", "x" * 200], ["", "x" * 201]),
        ("hop", [1, 2000], [0, 2001, 1.5]),
        ("max_hops", [1, 2000], [0, 2001]),
        ("access", [{}, {"p": 0.0}, {"p": 1.0}, MANY], [{"p": -0.1}, {"p": 1.1}, MANY | {"p": 0}]),
        ("left_ms", [0, 0.25, 86_400_000], [-0.1, 86_400_001]),
        ("visited", [[], ["p"] * 2000], [["p"] * 2001, [""], ["a\r\nb"], ["a b"]]),
        ("id", ["a take", "é"], ["a\r\nb", "a\n", "\0", "a\u2028b"]),
        ("first", ["a.b_c-D"], ["a\n", "a b", "é"]),
    ],
)
def test_a_probe_is_bounded_in_all_that_it_says(
    field: str, good: list[Any], bad: list[Any]
) -> None:
    for value in good:
        wire.decode_probe(json.dumps(PROBE | {field: value}).encode())
    for value in bad:
        with pytest.raises(wire.MalformedMessage, match=field):
            wire.decode_probe(json.dumps(PROBE | {field: value}).encode())
