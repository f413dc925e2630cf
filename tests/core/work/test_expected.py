"""Times that are learned from what requests say of their size."""

from __future__ import annotations

from random import Random

import pytest

from spillover.core.work.expected import TYPES_MAX, ExpectedTimes, ExpectedWork
from spillover.policy.work import LARGEST


def prompts(random: Random, count: int) -> list[tuple[tuple[float, float], float]]:
    """Returns requests to an engine: tokens of the prompt and of the answer, and the time, off by a
    fifth."""
    found = []
    for _ in range(count):
        told = random.lognormvariate(6.0, 1.5), random.lognormvariate(4.0, 1.0)
        time_s = (0.05 + 2e-4 * told[0] + 0.02 * told[1]) * random.lognormvariate(0.0, 0.2)
        found.append((told, time_s))
    return found


def test_what_is_expected_of_all_together_is_what_they_take() -> None:
    """A queue asks for sums: they are right, and each one is far better known than by the mean."""
    times, random = ExpectedTimes(2), Random(1)
    for told, time_s in prompts(random, 1_000):
        times.took(told, time_s)
    rest = prompts(random, 1_000)
    expected = [times.expected_s(told) for told, _ in rest]
    assert sum(expected) == pytest.approx(sum(time_s for _, time_s in rest), rel=0.1)
    known = times.told()
    assert known.error < 0.25
    assert known.counted_error > 0.6


def test_a_change_of_the_service_is_followed() -> None:
    """A service that is four times as fast from now on is known after some hundred requests."""
    times, random = ExpectedTimes(2), Random(1)
    for told, time_s in prompts(random, 1_000):
        times.took(told, time_s)
    for told, time_s in prompts(random, 1_000):
        times.took(told, time_s / 4.0)
    assert times.expected_s((400.0, 50.0)) == pytest.approx((0.05 + 0.08 + 1.0) / 4.0, rel=0.15)


def test_what_tells_nothing_is_not_gone_by() -> None:
    """Requests of a size that their time does not depend on count as the mean."""
    times, random = ExpectedTimes(1), Random(1)
    for _ in range(1_000):
        times.took((random.lognormvariate(0.0, 1.5),), random.expovariate(1.0))
    known = times.told()
    assert known.error > 0.9 * known.counted_error
    expected_s = times.expected_s((3.0,))
    assert expected_s is None or expected_s == pytest.approx(1.0, rel=0.5)


@pytest.mark.parametrize("lies", [{0}, set(range(5)), set(range(0, 2_000, 50))])
def test_requests_that_say_they_are_huge_move_nothing(lies: set[int]) -> None:
    """The first one, the first five, or one in fifty says so. Of one that tells the truth is
    expected what is true, and of one that lies no more than a hundred times the mean."""
    times, random = ExpectedTimes(1), Random(1)
    for number in range(2_000):
        size = random.lognormvariate(0.0, 1.0)
        times.took((1e12 if number in lies else size,), size)
    for size in (0.5, 1.0, 5.0):
        assert times.expected_s((size,)) == pytest.approx(size, rel=0.1, abs=0.05)
    assert times.expected_s((1e12,)) <= LARGEST * times.mean_s
    assert times.mean_s == pytest.approx(1.65, rel=0.3)


@pytest.mark.parametrize(
    ("share", "size", "power"), [(0.05, 50.0, 1.0), (0.05, 1_000.0, 1.0), (0.02, 100.0, 0.5)]
)
def test_a_few_that_are_far_larger_are_learned_from(
    share: float, size: float, power: float
) -> None:
    """Whatever else their time depends on, and also where it grows as the root of the size."""
    times, random = ExpectedTimes(1), Random(1)
    for _ in range(2_500):
        told = size if random.random() < share else 1.0
        times.took((told,), told**power * random.expovariate(1.0))
    assert times.expected_s((size,)) == pytest.approx(size**power, rel=0.8)


def test_a_few_that_are_far_larger_and_take_no_longer_are_counted() -> None:
    times, random = ExpectedTimes(1), Random(1)
    for _ in range(2_500):
        times.took((100.0 if random.random() < 0.02 else 1.0,), random.expovariate(1.0))
    assert times.expected_s((100.0,)) is None


def test_requests_that_are_large_from_now_on_are_followed() -> None:
    """Such as those of clients who count in another unit: nobody lies for good."""
    times, random = ExpectedTimes(1), Random(1)
    for number in range(4_000):
        size = random.lognormvariate(0.0, 1.0)
        times.took((size if number < 1_000 else 1_000.0 * size,), size)
    assert times.expected_s((5_000.0,)) == pytest.approx(5.0, rel=0.1)


def test_how_far_off_times_are_is_known_soon() -> None:
    """That decides whether a request can be done in time."""
    told = []
    for seed in range(10):
        times, random = ExpectedTimes(2), Random(seed)
        for features, time_s in prompts(random, 50):
            times.took(features, time_s)
        told.append(times.told().counted_error)
    assert sum(told) / len(told) == pytest.approx(0.8, rel=0.25)


def test_memory_is_bounded_whatever_types_there_are() -> None:
    work = ExpectedWork()
    for number in range(10_000):
        work.took(f"type-{number}", (1.0,), 1.0)
    assert len(work.told()) <= TYPES_MAX + 1


def learn(work: ExpectedWork, kind: str) -> None:
    random = Random(1)
    for _ in range(100):
        size = random.lognormvariate(0.0, 1.0)
        work.took(kind, (size,), size)


def test_types_that_somebody_has_made_up_push_none_out_and_have_no_place_for_good() -> None:
    work = ExpectedWork()
    learn(work, "honest")
    for number in range(3_000):
        work.took(f"type-{number}", (1.0,), 1.0)
        if number % 500 == 0:
            work.took("honest", (1.0,), 1.0)
    assert work.expected_s("honest", (3.0,)) == pytest.approx(3.0, rel=0.1)
    for _ in range(20):
        learn(work, "late")
    assert work.expected_s("late", (3.0,)) == pytest.approx(3.0, rel=0.1)
    assert work.told()["late"].requests > 500


def test_metrics_have_no_more_types_however_many_come_and_go() -> None:
    work, labels = ExpectedWork(), set()
    for number in range(100):
        learn(work, f"type-{number}")
        labels |= work.labeled().keys()
    assert 0 < len(labels) <= TYPES_MAX


def test_those_that_say_nothing_are_counted() -> None:
    work = ExpectedWork()
    assert work.expected_s("default", None) is None
    assert work.expected_s("default", ()) is None  # counted, as the route says
    assert work.unread == 1


def test_sizes_of_another_measure_are_learned_apart() -> None:
    work, random = ExpectedWork(), Random(1)
    for _ in range(1_000):
        tokens, size = random.uniform(50.0, 1_000.0), random.uniform(2_000.0, 60_000.0)
        work.took("default", (tokens,), 0.01 * tokens, 0)
        work.took("default", (size,), 2e-6 * size, 1)
    assert work.expected_s("default", (500.0,), 0) == pytest.approx(5.0, rel=0.1)
    assert work.expected_s("default", (5_000.0,), 1) == pytest.approx(0.01, rel=0.1)


@pytest.mark.parametrize("share", [0.02, 0.05])
def test_those_who_always_say_that_they_are_huge_wait_as_others_do(share: float) -> None:
    """And nobody waits for them as if they were. One that has told the truth lately is believed."""
    times, random, told_s, real_s = ExpectedTimes(1), Random(1), 0.0, 0.0
    for number in range(4_000):
        lies = random.random() < share
        tokens = random.uniform(50.0, 500.0)
        time_s = 0.01 + 0.001 * tokens
        says = 128_000.0 if lies else tokens
        if number > 500:
            told_s += times.expected_s((says,)) or times.mean_s
            real_s += time_s
        times.took((says,), time_s)
    assert told_s == pytest.approx(real_s, rel=0.1)
    for _ in range(30):
        times.took((10_000.0,), 10.01)
    assert times.expected_s((10_000.0,)) == pytest.approx(10.01, rel=0.2)
