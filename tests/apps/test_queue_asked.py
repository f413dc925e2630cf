"""What a producer makes of what a take says, and of how long its caller waits."""

from __future__ import annotations

import math
from random import Random
from types import SimpleNamespace

import pytest

from spillover.apps.http.problems import Problem
from spillover.apps.queue.asked import (
    TakeBody,
    check_take,
    deadline_s,
    size_bytes_at_most,
)

NAMES = ("p1", "p2", "p3", "p4")


def take(**fields) -> TakeBody:
    return TakeBody(consumer="c", probe_id="p", **fields)


@pytest.mark.parametrize("seed", range(10))
def test_who_avoids_what_it_has_seen_visits_no_more_than_it_can_reach(seed: int) -> None:
    """The one that is asked, and those of a probability."""
    random = Random(seed)
    weights = [random.choice([0.0, 1.0, 2.0]) for _ in NAMES[1:]] + [1.0]
    shares = [weight / sum(weights) for weight in weights]
    random.shuffle(shares)
    access = dict(zip(NAMES, shares, strict=True))
    for own in NAMES:
        reachable = [name for name in NAMES if name == own or access[name] > 0.0]
        for hops in range(1, 6):
            asked = take(max_hops=hops, access=access, avoid_visited=True)
            if hops <= len(reachable):
                assert check_take(asked, NAMES, own) == access
                continue
            with pytest.raises(Problem) as refused:
                check_take(asked, NAMES, own)
            assert f"expected at most {len(reachable)}, " in refused.value.detail
        assert check_take(take(max_hops=5, access=access), NAMES, own) == access


@pytest.mark.parametrize(
    ("told", "waits_s"),
    [
        (None, 30.0),
        (b"1500", 1.5),
        (b"0.5", 0.0005),
        (b"3600000", 3600.0),
        (b"3600001", 3600.0),
        (b"9" * 30, 3600.0),
    ],
)
def test_how_long_a_caller_waits_is_bounded(told: bytes | None, waits_s: float) -> None:
    headers = [] if told is None else [(b"spillover-deadline-ms", told)]
    assert math.isclose(deadline_s(SimpleNamespace(headers=headers)), waits_s)


def test_a_body_that_does_not_tell_its_size_is_as_large_as_any() -> None:
    """Memory is reserved by that."""
    plain = SimpleNamespace(headers=[], length_bytes=7)
    in_chunks = SimpleNamespace(headers=[(b"transfer-encoding", b"chunked")], length_bytes=0)
    assert (size_bytes_at_most(plain, 100), size_bytes_at_most(in_chunks, 100)) == (7, 100)
