"""The drawn workloads: the same for the same seed, and of the paper's law."""

import statistics
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from spillover.model.errors import InputError
from spillover.workloads import generated
from spillover.workloads.generated import (
    PAPER_BURSTS,
    BurstLaw,
    bursts,
    poisson,
    stretch,
    typed,
)


def at(schedule, cluster):
    return [arrival for arrival in schedule if arrival.cluster == cluster]


def test_the_first_arrivals_of_seed_1_are_these_everywhere_and_always():
    """Whoever changes these changes every schedule that people have compared their runs on."""
    drawn = bursts(["a", "b"], duration_s=45, seed=1)[:4]
    assert [(x.time_s, x.cluster) for x in drawn] == [
        (0.333752105, "a"),
        (0.344171227, "a"),
        (0.412304259, "a"),
        (0.430177565, "b"),
    ]
    drawn = poisson(["a", "b"], rate_per_s=10, duration_s=5, seed=1)[:4]
    assert [(x.time_s, x.cluster) for x in drawn] == [
        (0.064995599, "a"),
        (0.075227625, "a"),
        (0.084509703, "a"),
        (0.128606395, "b"),
    ]


@pytest.mark.slow
def test_a_burst_raises_the_load_from_50_to_250_requests_per_second():
    """Over 100 clusters with their bursts at the same time; the edges are left out."""
    law = replace(PAPER_BURSTS, burst_every_s=0, first_burst_s=10, burst_length_s=10)
    schedule = bursts([f"c{k}" for k in range(100)], duration_s=20, seed=1, law=law)
    before = sum(5 <= x.time_s < 10 for x in schedule) / (100 * 5)
    during = sum(14 <= x.time_s < 19 for x in schedule) / (100 * 5)
    assert before == pytest.approx(50, rel=0.05)
    assert during == pytest.approx(250, rel=0.05)


@pytest.mark.slow
def test_poisson_has_its_rate_at_each_cluster():
    schedule = poisson(["a", "b"], rate_per_s=40, duration_s=500, seed=1)
    for cluster in "ab":
        times = [x.time_s for x in at(schedule, cluster)]
        assert len(times) == pytest.approx(20_000, rel=0.02)
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert statistics.stdev(gaps) == pytest.approx(statistics.mean(gaps), rel=0.02)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: poisson([], rate_per_s=1, duration_s=-1, seed=1), "of at least 0, got -1"),
        (
            lambda: poisson([], rate_per_s=1, duration_s=float("nan"), seed=1),
            "of at least 0, got nan",
        ),
        (lambda: poisson([], rate_per_s=-0.5, duration_s=1, seed=1), "of at least 0, got -0.5"),
        (lambda: bursts([], duration_s=-0.5, seed=1), "of at least 0, got -0.5"),
        (lambda: BurstLaw(stay_s_mean=0), "above 0, got 0"),
        (lambda: BurstLaw(request_rate_max=0), "above 0, got 0"),
        (lambda: BurstLaw(burst_every_s=-0.1), "of at least 0, got -0.1"),
        (lambda: BurstLaw(start_s=float("inf")), "of at least 0, got inf"),
        (lambda: stretch([], -1), "above 0, got -1"),
        (lambda: stretch([], float("inf")), "above 0, got inf"),
    ],
)
def test_what_is_no_amount_is_refused_even_of_nothing(draw, message):
    with pytest.raises(InputError) as caught:
        draw()
    assert str(caught.value).endswith(f"expected a number {message}")


def test_as_much_as_memory_holds_is_drawn_and_no_more(monkeypatch):
    """As expected of the cluster's busiest hour: 50 users a second, 5 requests each."""
    monkeypatch.setattr(generated, "REQUESTS_MAX", 1_000)
    assert bursts(["a", "b"], duration_s=2.0, seed=1)
    assert poisson(["a", "b"], rate_per_s=10, duration_s=50, seed=1)
    for draw in (
        lambda: bursts(["a", "b"], duration_s=2.2, seed=1),
        lambda: poisson(["a", "b"], rate_per_s=11, duration_s=50, seed=1),
    ):
        with pytest.raises(InputError) as caught:
            draw()
        assert caught.value.expected == (
            "expected a schedule of at most 1000 requests, got one of about 1.1e+03"
        )


def test_types_are_drawn_by_their_weights_and_change_nothing_else():
    """By cluster, so that one more leaves the types at the others as they were."""
    plain = poisson(["a", "b"], rate_per_s=500, duration_s=10, seed=3)
    drawn = typed(plain, {"t1": 1.0, "t2": 4.0}, seed=3)
    assert [replace(one, type="default") for one in drawn] == plain
    counts = Counter(one.type for one in drawn)
    assert counts["t2"] / len(drawn) == pytest.approx(0.8, abs=0.02)
    assert set(counts) == {"t1", "t2"}
    alone = typed(at(plain, "a"), {"t1": 1.0, "t2": 4.0}, seed=3)
    assert at(drawn, "a") == alone
    assert typed(plain, {"t1": 1.0, "t2": 4.0}, seed=4) != drawn
