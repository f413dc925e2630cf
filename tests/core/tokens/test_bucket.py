"""The bucket against tokens in a list; what comes late or twice; the order of release."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spillover.core.tokens.bucket import Bucket
from spillover.policy.tokens import BLOCKED


def test_at_first_the_classes_take_turns():
    bucket = Bucket([("A", 3), ("B", 1), ("C", 2)], 0.0)
    taken = [bucket.seize(bucket.choose((0, 1, 2)), ref).id for ref in range(6)]
    assert taken == ["A-1", "B-1", "C-1", "A-2", "C-2", "A-3"]
    assert bucket.choose((0, 1, 2)) == BLOCKED


def ended(bucket, ref, served):
    """A job comes and ends."""
    bucket.give_back(bucket.seize(0, ref), ref, served, 1.0)
    bucket.check()
    return bucket.available_now(0)


def test_a_slow_start_ends_once_as_many_have_been_served_as_it_waits_for():
    """From then on a job that fails has its token back at once."""
    bucket = Bucket([("A", 2)], 0.0)
    for _ in range(2):  # the second slow start is as slow as the first
        bucket.close(0)
        bucket.open(0, 1.0)
        assert bucket.available_now(0) == 1
        assert ended(bucket, 1, True) == 2
        assert ended(bucket, 2, False) == 2


def test_a_job_that_fails_in_a_slow_start_makes_it_slower():
    bucket = Bucket([("A", 4)], 0.0)
    bucket.close(0)
    bucket.open(0, 1.0)
    served = [True, False, True, False, True, True]
    assert [ended(bucket, ref, one) for ref, one in enumerate(served)] == [2, 1, 2, 1, 4, 4]


def test_a_token_that_goes_and_comes_in_a_slow_start_makes_it_neither_slower_nor_faster():
    """As between nodes that share the tokens of a class."""
    bucket = Bucket([("A", 4)], 0.0)
    bucket.everywhere = lambda _: 4
    bucket.close(0)
    bucket.open(0, 1.0)
    for limit in (0, 1, 0, 4, 1, 0, 4):
        bucket.set_limit(0, limit, 1.0)
        bucket.check()
        assert bucket.available_now(0) == min(limit, 1)
    assert [ended(bucket, ref, True) for ref in range(3)] == [2, 3, 4]


STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=80)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), STEPS)
def test_a_job_takes_the_longest_available_token_that_fits(limits, steps):
    """By whichever classes it asks for. Released last, taken last; within a class too."""
    ids = "ABCD"[: len(limits)]
    bucket = Bucket(list(zip(ids, limits, strict=True)), 0.0)
    order = sorted(
        (token for kind in range(len(limits)) for token in bucket.tokens(kind)),
        key=lambda token: token.number,
    )
    held = []
    for ref, (what, which) in enumerate(steps):
        if what < 6:
            classes = tuple(kind for kind in range(len(limits)) if (which >> kind) & 1)
            expected = next((token for token in order if token.kind in classes), None)
            chosen = bucket.choose(classes)
            assert (chosen == BLOCKED) is (expected is None)
            if expected is not None:
                assert bucket.seize(chosen, ref) is expected
                order.remove(expected)
                held.append((expected, ref))
        elif held:
            token, holder = held.pop(which % len(held))
            assert bucket.give_back(token, holder, True, float(ref))
            order.append(token)
            assert token.released_s == ref
        bucket.check()
