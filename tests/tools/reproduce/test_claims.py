"""Where what documents say of figures ends to hold: each limit from both of its sides. Those of
Johnson are in `test_probing_claims`, those of policies in `test_policies_figures`, those on members
and leases in `test_group_claims`.
"""

from __future__ import annotations

import pytest

from spillover.tools.reproduce import (
    networked_queues,
    tokens_claims,
    watched_queues,
)
from spillover.tools.reproduce.figure import Effort
from support.verdicts import Verdicts

# --- tokens ---------------------------------------------------------------------------------------

LOADS = [0.5, 0.75, 1.0, 1.25, 1.5]


def policies(loads=LOADS, **blocking):
    """What is served is what is not turned away."""
    return {
        name.replace("_", "-"): {
            "blocking": values,
            "occupancy": [load * (1 - b) for load, b in zip(loads, values, strict=True)],
        }
        for name, values in blocking.items()
    }


def judged_9(*, uniform=0.02, best=(0.01, 0.1, 0.3, 0.3, 0.4), dynamic=(0.0, 0.05, 0.2, 0.25, 0.39),
             ideal=(0.0, 0.04, 0.05, 0.2, 0.38), critical=0.4, served=0.0):  # fmt: skip
    curves = policies(
        dynamic=list(dynamic), static_best=list(best), ideal=list(ideal),
        static_uniform=[uniform, 0.2, 0.3, 0.35, 0.4],
    )  # fmt: skip
    curves["ideal"]["occupancy"][1] += served
    return tokens_claims.claims_9({
        "loads": LOADS, "curves": curves,
        "slow_servers": {"critical_load": critical, "blocking_there": 1 / 7},
    })  # fmt: skip


def test_one_type_of_jobs():
    """The largest gain and the largest loss near load 1, slow servers, even odds, far above."""
    told = judged_9()
    assert Verdicts(told) == [True] * 6
    assert told[0].measured == "0.1000 of all jobs, at load 1.000"
    assert told[1].measured == "0.1500 of all jobs, at load 1.000"
    assert told[2].measured == "their own load is 1 at 0.400; they then turn away 14.3%"
    assert told[4].measured == "at load 1.5: 0.380 to 0.400"
    assert Verdicts(judged_9(best=(0.01, 0.2, 0.3, 0.3, 0.4)))[0] is False
    assert Verdicts(judged_9(ideal=(0.0, 0.04, 0.15, 0.1, 0.38)))[1] is False
    assert Verdicts(judged_9(critical=0.41))[2] is False
    assert Verdicts(judged_9(uniform=0.01))[3] is False
    for last, held in ((0.371, True), (0.369, False)):
        assert Verdicts(judged_9(ideal=(0.0, 0.04, 0.05, 0.2, last)))[4] is held
    assert Verdicts(judged_9(served=1e-9))[5] is False


def judged_10(curves=((0.1, 0.3), (0.1, 0.2)), **at_load_1):
    by = {"1": 0.3, "10": 0.029, "50": 0.01, "200": 0.0019} | {
        name.removeprefix("with_"): value for name, value in at_load_1.items()
    }
    data = {"curves": policies([0.5, 1.0], **{f"{k}": list(c) for k, c in enumerate(curves)})}
    return Verdicts(tokens_claims.claims_10({**data, "at_load_1": by}))


def test_more_tokens():
    assert judged_10() == [True] * 3
    assert judged_10(((0.1, 0.3), (0.11, 0.2))) == [False, True, True]
    assert judged_10(with_200=0.0021) == [True, False, True]
    assert judged_10(with_50=0.001) == [True, False, True]
    assert judged_10(with_10=0.031) == [True, True, False]


def judged_12(*, bend=True, farther=0.0, uniform=0.0, below=0.0, gain=0.1):
    """Ideal turns away what the last four servers cannot do, and from 5/3 on what all cannot."""
    loads = [k / 6 for k in range(3, 16)]
    ideal = [max(0.0, 0.8 * (1 - 5 / 6 / x)) + max(0.0, 0.2 * (1 - 5 / 3 / x)) for x in loads]
    if not bend:
        ideal = [max(0.0, 0.8 * (1 - 5 / 6 / x)) for x in loads]
    at, then = loads.index(5 / 6), loads.index(10 / 6)
    dynamic = [b + 0.02 - 0.001 * k for k, b in enumerate(ideal)]
    dynamic[at] += 0.05
    dynamic[then] += 0.05
    dynamic[at + 2] += farther
    best = [b + 0.01 for b in dynamic]
    best[at] += gain
    best[then] += 0.05
    even = [b + uniform for b in best]
    ideal_curve = [b - below for b in ideal]
    curves = policies(
        loads, dynamic=dynamic, static_best=best, static_uniform=even, ideal=ideal_curve
    )
    return Verdicts(tokens_claims.claims_12({"loads": loads, "curves": curves}))


def test_two_types_of_jobs():
    """Breaks, the bound, the distance from ideal, the gain, even odds."""
    assert judged_12() == [True] * 6
    assert judged_12(bend=False)[0] is False
    assert judged_12(below=1e-9)[1] is False
    assert judged_12(farther=0.2)[2] is False
    assert judged_12(gain=0.01)[3] is False
    assert judged_12(uniform=-1e-9)[4] is False


def test_breaks_are_where_the_slope_gets_less():
    """By as much: 1, 1, 1/2, 0, 1/2. What gets steeper does not break, nor do the ends."""
    assert tokens_claims._bends([2.0, 3.0, 4.0, 4.5, 4.5, 5.0]) == [0.0, 0.0, 0.5, 0.5, 0.0, 0.0]
    assert tokens_claims._bends([0.0, 1e-10, 0.0]) == [0.0, 0.0, 0.0], "rounding"
    assert tokens_claims._peaks([1.0, 2.0, 3.0, 4.0, 5.0], [9.0, 0.0, 0.5, 0.5, 0.75]) == [3.0]


def judged_13(*, by_type=0.0, by_class=0.0, line=(0.01, 0.05, 0.1), other=0.0):
    """Marks of type 1 at four loads, two of them between 1.5 and 2; intervals of 0.001."""

    def marks(off):
        return [
            {
                "load": load,
                "simulated": {"t1": 0.3 + (off if 1.5 <= load <= 2.0 else -off), "t2": 0.1 + other},
                "ci95": {"t1": 0.001, "t2": 0.0008},
                "exact": {"t1": 0.3, "t2": 0.1},
            }
            for load in (1.0, 1.5, 2.0, 2.5)
        ]

    return tokens_claims.claims_13({
        "loads": [4 / 3, 5 / 3, 2.0], "lines": {"t1": list(line)},
        "marks": {"hyper": marks(by_type), "hyper-by-class": marks(by_class)},
    })  # fmt: skip


def test_sizes_of_jobs():
    """Chance alone exceeds 1.5 half-widths of the mean of two marks hardly ever: 0.00106."""
    assert Verdicts(judged_13()) == [True] * 4
    assert Verdicts(judged_13(other=-0.0049)) == [True] * 4
    assert Verdicts(judged_13(other=-0.0051)) == [False, True, True, True]
    assert Verdicts(judged_13(by_class=-0.00105)) == [True] * 4
    assert Verdicts(judged_13(by_class=-0.00107)) == [True, False, True, True]
    assert Verdicts(judged_13(by_type=0.00105)) == [True] * 4
    assert Verdicts(judged_13(by_type=0.00107)) == [True, True, False, True]
    for line in ((0.021, 0.05, 0.1), (0.01, 0.019, 0.1), (0.01, 0.05, 0.04)):
        assert Verdicts(judged_13(line=line)) == [True, True, True, False]
    told = judged_13(by_type=0.002)
    assert told[0].measured == "largest difference 0.0020; intervals within 0.0010"
    assert told[2].measured.endswith("2: +0.0020 from the exact line, give or take 0.0007")


# --- networked queues -----------------------------------------------------------------------------


def spread(median):
    return {"median": median, "min": median / 2, "max": median * 2}


def speedup(mean=5.0, most=2.1, least=1.0, std=6.0):
    return {"mean": spread(mean), "max": spread(most), "min": spread(least), "std": spread(std)}


def judged_7(**medians):
    data = {"speedup": speedup(**medians), "runs": [1, 2]}
    data["speedup_per_cluster"] = {"a": speedup(), "b": speedup(mean=7.0)}
    return Verdicts(networked_queues.claim_system_times(data))


def test_speedups_are_as_large_as_is_said():
    assert judged_7() == [True] * 4
    assert judged_7().measured == [
        "5.0 (2.5 .. 10.0) over 2 seeds; populations' medians 5.0 .. 7.0",
        "6.0 (3.0 .. 12.0)", "2.1 (1.1 .. 4.2)", "1.0 (0.5 .. 2.0)",
    ]  # fmt: skip
    for mean, held in ((3.5, True), (3.49, False), (6.5, True), (6.51, False)):
        assert judged_7(mean=mean, std=9.0) == [held, True, True, True]
    assert judged_7(std=5.0) == [True, False, True, True]
    assert judged_7(most=2.0) == [True, True, False, True]
    assert judged_7(least=1.00001) == [True, True, True, False]


def judged_8(five=(5.0, 10.0, 20.0), ten=(4.0, 11.0, 21.0), twenty=(3.0, 15.1, 20.1)):
    """Each (mean, std, longest)."""
    return Verdicts(networked_queues.claim_larger({"topologies": {
        name: {"speedup": speedup(mean=mean, std=std, most=most)}
        for name, (mean, std, most) in (("ring5", five), ("chord10", ten), ("chord20", twenty))
    }}))  # fmt: skip


def test_larger_federations_gain_less_in_the_mean_and_more_in_the_rest():
    assert judged_8() == [True] * 3
    assert judged_8().measured == [
        "5: 5.0 (2.5 .. 10.0); 10: 4.0 (2.0 .. 8.0); 20: 3.0 (1.5 .. 6.0)",
        "5: 10.0 (5.0 .. 20.0); 10: 11.0 (5.5 .. 22.0); 20: 15.1 (7.5 .. 30.2)",
        "5: 20.0 (10.0 .. 40.0); 10: 21.0 (10.5 .. 42.0); 20: 20.1 (10.1 .. 40.2)",
    ]
    assert judged_8(ten=(5.0, 1.0, 1.0)) == [False, True, True]
    assert judged_8(twenty=(4.0, 15.1, 20.1)) == [False, True, True]
    assert judged_8(twenty=(3.0, 15.0, 20.1)) == [True, False, True]
    assert judged_8(twenty=(3.0, 15.1, 20.0)) == [True, True, False]


def test_few_requests_are_forwarded_often():
    for most, stayed, verdict in (
        ([7, 8, 9], [0.51, 0.9], [True, True]),
        ([7, 9, 9], [0.51, 0.9], [False, True]),
        ([7, 8, 9], [0.5, 0.9], [True, False]),
    ):
        data = {"hops_max": most, "not_forwarded_share": stayed}
        assert Verdicts(networked_queues.claim_hops(data)) == verdict
    assert Verdicts(networked_queues.claim_hops(data)).measured == [
        "at most 8 times (median of 3 seeds, 7 .. 9)", "50.0% .. 90.0% stay",
    ]  # fmt: skip


def judged_5(
    alone=(90, 100, 200), alone_s=(3.0, 4.1, 9.0), together=(5, 17), together_s=(0.0, 1.9)
):
    return Verdicts(watched_queues.claim_queue_lengths({
        "queue_length_max": {
            "isolated": dict(enumerate(alone)), "networked": dict(enumerate(together)),
        },
        "pressed_s": {
            "isolated": dict(enumerate(alone_s)), "networked": dict(enumerate(together_s)),
        },
    }))  # fmt: skip


def test_isolated_queues_are_long_and_networked_ones_short():
    assert judged_5() == [True] * 4
    assert judged_5().measured == [
        "to 90 .. 200 requests", "above 10 requests for 3.0 .. 9.0 s",
        "at most 5 .. 17 requests", "above 10 requests for 0.0 .. 1.9 s",
    ]  # fmt: skip
    assert judged_5(alone=(90, 99, 200)) == [False, True, True, True]
    assert judged_5(alone_s=(3.0, 4.0, 9.0)) == [True, False, True, True]
    assert judged_5(together=(5, 18)) == [True, True, False, True]
    assert judged_5(together_s=(0.0, 2.0)) == [True, True, True, False]


def test_pressed_is_who_has_more_than_two_waiting_for_each_server():
    assert watched_queues._pressed_s([10, 11, 12, 10, 0, 50]) == 0.3


def judged_6(own=0.5, neighbor=0.98, *, r=0.5):
    data = {"p": {"a": [0.5, 1.0]}, "r": {"a": [r, 1.0]}}
    means = {"own": own, "neighbor": neighbor, "farther": 1.0}
    return Verdicts(watched_queues.claim_acceptance({**data, "p_during_burst": means}))


def test_willingness_falls_at_the_loaded_one_most():
    assert judged_6() == [True, True]
    assert judged_6().measured[0] == (
        "mean P 0.50 at the loaded one, 0.98 at neighbors, 1.00 farther away"
    )
    assert judged_6(r=0.49).measured[1] == "not always"
    assert judged_6(own=0.98) == [False, True]
    assert judged_6(neighbor=0.99) == [False, True]
    assert judged_6(r=0.49) == [True, False]


def test_full_effort_is_a_hundred_seeds():
    assert networked_queues._seeds(Effort(full=True), 3) == range(3, 103)
    assert networked_queues._seeds(Effort(full=False), 3) == range(3, 23)


def test_speedups_are_isolated_over_networked_and_spread_over_seeds():
    def times(by):
        return {"mean": 10.0 * by, "max": 20.0 * by, "min": 5.0, "std": 2.0 * by}

    runs = [
        {
            "all": {"isolated": times(by), "networked": times(1.0)},
            "per_cluster": {"isolated": {"a": times(2 * by)}, "networked": {"a": times(1.0)}},
        }
        for by in (3.0, 2.0, 7.0)
    ]
    found = networked_queues._with_speedups({"topology": "x", "runs": runs})
    mean = found["speedup"]["mean"]
    assert (mean["median"], mean["min"], mean["max"], mean["mean"]) == (3.0, 2.0, 7.0, 4.0)
    assert mean["std"] == pytest.approx((14 / 3) ** 0.5, rel=0.3)
    assert found["speedup"]["min"]["median"] == 1.0
    assert found["speedup_per_cluster"]["a"]["std"]["max"] == 14.0
