"""The token bucket against a list of tokens, and what must hold of any bucket."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.policy.tokens import (
    BLOCKED,
    NONE,
    assigned_at_random,
    fill,
    give_back,
    load_rank,
    longest_available,
    rivals,
    seize,
    speeds,
)


class Bucket:
    """The policy's arrays, and the calls as a service makes them."""

    def __init__(self, limits, array=list):
        self.limits = array(limits)
        self.first = array([sum(limits[:i]) for i in range(len(limits))])
        numbers, heads = [0] * sum(limits), [0] * len(limits)
        self.state = [array(each) for each in (numbers, heads, heads, heads)]
        self.next = fill(self.limits, self.first, *self.state)

    @property
    def available(self):
        return self.state[2]

    @property
    def oldest(self):
        return self.state[3]

    def arrive(self, classes):
        i = longest_available(classes, 0, len(classes), self.oldest)
        return (i, BLOCKED if i == BLOCKED else seize(i, self.limits, self.first, *self.state))

    def finish(self, i):
        give_back(i, self.next, self.limits, self.first, *self.state)
        self.next += 1


class ListOfTokens:
    """The paper's words: tokens in order of release, scanned from beginning to end."""

    def __init__(self, limits):
        rounds = range(max(limits))
        order = [i for place in rounds for i in range(len(limits)) if place < limits[i]]
        self.tokens = list(enumerate(order))
        self.released = len(order)

    def arrive(self, classes):
        for number, i in self.tokens:
            if i in classes:
                self.tokens.remove((number, i))
                return i, number
        return BLOCKED, BLOCKED

    def finish(self, i):
        self.tokens.append((self.released, i))
        self.released += 1


@st.composite
def stories(draw):
    """Limits by class, the classes of each type, and events: an arrival of a type, or a finish."""
    limits = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    classes = st.lists(
        st.integers(0, len(limits) - 1), min_size=1, max_size=len(limits), unique=True
    )
    types = draw(st.lists(classes, min_size=1, max_size=4))
    event = st.tuples(st.booleans(), st.integers(0, 99))
    return limits, types, draw(st.lists(event, max_size=60))


@given(stories())
def test_the_bucket_is_a_list_of_tokens_in_order_of_release(story):
    """Every choice is the list's, none blocks while a compatible token is there, none is lost."""
    limits, types, events = story
    bucket, twin = Bucket(limits), ListOfTokens(limits)
    held, taken = [], [[] for _ in limits]
    for arrives, number in events:
        if arrives:
            classes = types[number % len(types)]
            could = [i for i in classes if bucket.available[i] > 0]
            i, release = bucket.arrive(classes)
            assert (i, release) == twin.arrive(classes)
            assert (i != BLOCKED) == bool(could)
            if i != BLOCKED:
                assert i in classes
                held.append(i)
                taken[i].append(release)
        elif held:
            i = held.pop(number % len(held))
            bucket.finish(i)
            twin.finish(i)
        for i, limit in enumerate(limits):
            assert bucket.available[i] + held.count(i) == limit
            waiting = [release for release, each in twin.tokens if each == i]
            assert bucket.oldest[i] == (waiting[0] if waiting else NONE)
    # Tokens of one class do not overtake each other.
    assert all(releases == sorted(set(releases)) for releases in taken)


def test_only_the_named_part_of_the_classes_counts():
    """Rows of several types lie one behind the other."""
    rows = [0, 1, 2, 1]
    assert longest_available(rows, 0, 2, [5, 4, 1]) == 1
    assert longest_available(rows, 2, 3, [5, 4, 1]) == 2
    assert longest_available(rows, 1, 1, [5, 4, 1]) == BLOCKED
    assert longest_available(rows, 0, 4, [NONE, NONE, NONE]) == BLOCKED


def test_a_rank_grows_with_jobs_by_the_root_of_speed_and_with_what_others_lack():
    """The formula of decision 0038, by hand."""
    fast, slow = speeds([[4.0], [1.0]])
    assert fast == pytest.approx(2.0 * slow)
    assert speeds([[4.0], [1.0, 1.0]]) == [1.0, 1.0]
    joins = [[0, 1], [1], [0, 1]]
    assert rivals(joins, 2) == [[], [1]], "who may join all makes no difference"
    rank = load_rank(3, 2.0, [9, 0, 1], 1, 3, [4, 16])
    assert rank == pytest.approx(3.01 / 2.0 + 1 / 2 + 1 / 4)


@pytest.mark.parametrize(
    ("draw", "chosen"), [(0.0, 1), (0.24, 1), (0.25, 2), (0.99, 2), (1.0 - 2.0**-53, 2)]
)
def test_at_random_takes_the_class_in_whose_share_the_draw_falls(draw, chosen):
    """Classes without a share are never taken, not even where the shares sum to less than 1."""
    shares = [9.0, 0.0, 0.25, 0.75 - 1e-12, 0.0, 9.0]
    assert assigned_at_random([7, 0, 1, 2, 3, 7], shares, 1, 5, draw) == chosen
