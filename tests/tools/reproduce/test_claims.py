"""Where what documents say of figures ends to hold: each limit from both of its sides. Those of
Johnson are in `test_probing_claims`, those of policies in `test_policies_figures`.
"""

from __future__ import annotations

import pytest

from spillover.tools.reproduce import (
    leases,
    membership,
    networked_queues,
    tokens_claims,
    watched_queues,
)
from spillover.tools.reproduce.figure import Effort


def holds(found):
    return [claim.holds for claim in found]


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
    assert holds(told) == [True] * 6
    assert told[0].measured == "0.1000 of all jobs, at load 1.000"
    assert told[1].measured == "0.1500 of all jobs, at load 1.000"
    assert told[2].measured == "their own load is 1 at 0.400; they then turn away 14.3%"
    assert told[4].measured == "at load 1.5: 0.380 to 0.400"
    assert holds(judged_9(best=(0.01, 0.2, 0.3, 0.3, 0.4)))[0] is False
    assert holds(judged_9(ideal=(0.0, 0.04, 0.15, 0.1, 0.38)))[1] is False
    assert holds(judged_9(critical=0.41))[2] is False
    assert holds(judged_9(uniform=0.01))[3] is False
    for last, held in ((0.371, True), (0.369, False)):
        assert holds(judged_9(ideal=(0.0, 0.04, 0.05, 0.2, last)))[4] is held
    assert holds(judged_9(served=1e-9))[5] is False


def judged_10(curves=((0.1, 0.3), (0.1, 0.2)), **at_load_1):
    by = {"1": 0.3, "10": 0.029, "50": 0.01, "200": 0.0019} | {
        name.removeprefix("with_"): value for name, value in at_load_1.items()
    }
    data = {"curves": policies([0.5, 1.0], **{f"{k}": list(c) for k, c in enumerate(curves)})}
    return holds(tokens_claims.claims_10({**data, "at_load_1": by}))


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
    return holds(tokens_claims.claims_12({"loads": loads, "curves": curves}))


def test_two_types_of_jobs():
    """Breaks, the bound, the distance from ideal, the gain, even odds."""
    assert judged_12() == [True] * 6
    assert judged_12(bend=False)[0] is False
    assert judged_12(below=1e-9)[1] is False
    assert judged_12(farther=0.2)[2] is False
    assert judged_12(gain=0.01)[3] is False
    assert judged_12(uniform=-1e-9)[4] is False


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
    assert holds(judged_13()) == [True] * 4
    assert holds(judged_13(other=-0.0049)) == [True] * 4
    assert holds(judged_13(other=-0.0051)) == [False, True, True, True]
    assert holds(judged_13(by_class=-0.00105)) == [True] * 4
    assert holds(judged_13(by_class=-0.00107)) == [True, False, True, True]
    assert holds(judged_13(by_type=0.00105)) == [True] * 4
    assert holds(judged_13(by_type=0.00107)) == [True, True, False, True]
    for line in ((0.021, 0.05, 0.1), (0.01, 0.019, 0.1), (0.01, 0.05, 0.04)):
        assert holds(judged_13(line=line)) == [True, True, True, False]
    told = judged_13(by_type=0.002)
    assert told[0].measured == "largest difference 0.0020; intervals within 0.0010"
    assert told[2].measured.endswith("2: +0.0020 from the exact line, give or take 0.0007")


# --- networked queues -----------------------------------------------------------------------------


def spread(median):
    return {"median": median, "min": median / 2, "max": median * 2}


def speedup(mean=5.0, most=2.1, least=1.0, std=6.0):
    return {"mean": spread(mean), "max": spread(most), "min": spread(least), "std": spread(std)}


def judged_7(**medians):
    data = {"speedup": speedup(**medians), "speedup_per_cluster": {"a": speedup()}, "runs": [1, 2]}
    return holds(networked_queues.claim_system_times(data))


def test_speedups_are_as_large_as_is_said():
    assert judged_7() == [True] * 4
    for mean, held in ((3.5, True), (3.49, False), (6.5, True), (6.51, False)):
        assert judged_7(mean=mean, std=9.0) == [held, True, True, True]
    assert judged_7(std=5.0) == [True, False, True, True]
    assert judged_7(most=2.0) == [True, True, False, True]
    assert judged_7(least=1.00001) == [True, True, True, False]


def judged_8(five=(5.0, 10.0, 20.0), ten=(4.0, 11.0, 21.0), twenty=(3.0, 15.1, 20.1)):
    """Each (mean, std, longest)."""
    return holds(networked_queues.claim_larger({"topologies": {
        name: {"speedup": speedup(mean=mean, std=std, most=most)}
        for name, (mean, std, most) in (("ring5", five), ("chord10", ten), ("chord20", twenty))
    }}))  # fmt: skip


def test_larger_federations_gain_less_in_the_mean_and_more_in_the_rest():
    assert judged_8() == [True] * 3
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
        assert holds(networked_queues.claim_hops(data)) == verdict


def judged_5(
    alone=(90, 100, 200), alone_s=(3.0, 4.1, 9.0), together=(5, 17), together_s=(0.0, 1.9)
):
    return holds(watched_queues.claim_queue_lengths({
        "queue_length_max": {
            "isolated": dict(enumerate(alone)), "networked": dict(enumerate(together)),
        },
        "pressed_s": {
            "isolated": dict(enumerate(alone_s)), "networked": dict(enumerate(together_s)),
        },
    }))  # fmt: skip


def test_isolated_queues_are_long_and_networked_ones_short():
    assert judged_5() == [True] * 4
    assert judged_5(alone=(90, 99, 200)) == [False, True, True, True]
    assert judged_5(alone_s=(3.0, 4.0, 9.0)) == [True, False, True, True]
    assert judged_5(together=(5, 18)) == [True, True, False, True]
    assert judged_5(together_s=(0.0, 2.0)) == [True, True, True, False]


def test_pressed_is_who_has_more_than_two_waiting_for_each_server():
    assert watched_queues._pressed_s([10, 11, 12, 10, 0, 50]) == 0.3


def judged_6(own=0.5, neighbor=0.98, *, r=0.5):
    data = {"p": {"a": [0.5, 1.0]}, "r": {"a": [r, 1.0]}}
    means = {"own": own, "neighbor": neighbor, "farther": 1.0}
    return holds(watched_queues.claim_acceptance({**data, "p_during_burst": means}))


def test_willingness_falls_at_the_loaded_one_most():
    assert judged_6() == [True, True]
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


# --- membership -----------------------------------------------------------------------------------


def events(**fields):
    """Five events; of each field a mean for all or for each, with an error of 1."""
    made = []
    for number in range(5):
        event = {"only_those_of_the_change_moved": True}
        for name, value in fields.items():
            mean = value[number] if isinstance(value, tuple) else value
            event[name] = {"mean": mean, "error": 1.0, "max": mean, "min": mean}
        made.append(event)
    return made


def judged_baseline(most=1.19, new=1000 / 48, last=(0, 0)):
    per_new = (0.0, 0.0, 0.0, new, last[1])
    found = events(
        max_over_mean=(1.1, 1.1, most, 1.3, 1.3),
        clients_per_new=per_new,
        moved=(0, 0, 0, 0, last[0]),
    )
    return holds(membership.FIGURES[0].claims({"rules": {"baseline": found}, "runs": 9}))


def test_clients_that_move_only_when_they_have_to():
    """New servers get an eighth of the sixth that has to move, 21 each, within four errors."""
    assert judged_baseline() == [True] * 3
    assert judged_baseline(most=1.2) == [False, True, True]
    for off, held in ((3.9, True), (4.1, False), (-3.9, True), (-4.1, False)):
        assert judged_baseline(new=1000 / 48 + off) == [True, held, True]
    assert judged_baseline(last=(1, 0)) == judged_baseline(last=(0, 1)) == [True, True, False]


def judged_consistent(one=1.9, five=1.5, twenty=1.21, wrong=None):
    rules = {k: events(max_over_mean=worst) for k, worst in ((1, one), (5, five), (20, twenty))}
    if wrong is not None:
        rules[5][wrong]["only_those_of_the_change_moved"] = False
    return holds(membership.FIGURES[1].claims({"rules": rules}))


def test_points_on_a_circle():
    assert judged_consistent() == [True] * 3
    assert judged_consistent(five=1.9) == judged_consistent(five=1.21) == [False, True, True]
    assert judged_consistent(twenty=1.2) == [True, False, True]
    for step in range(5):
        assert judged_consistent(wrong=step) == [True, True, step in {0, 3}]


def judged_coins(*, new=(125.0, 1000 / 9), moved=(1000 / 9, 250.0, 375.0, 1000 / 9), most=1.19,
                 drift=1.03, spread_of=5.0, extra=1.9):  # fmt: skip
    coins = events(
        clients_per_new=(0, 0, 0, *new), moved=(0, *moved), max_over_mean=most, min_over_mean=0.8
    )
    balanced = events(max_over_mean=(1.0, 1.0, 1.0, 1.0, drift))
    counts = (9, 8, 5, 8, 9)
    ours = events(
        servers=counts, most=tuple(1000 / c + spread_of for c in counts),
        fewest=tuple(1000 / c for c in counts), moved=50.0 + extra, moved_min=50.0,
    )  # fmt: skip
    rules = dict(
        zip(
            (rule.label for rule in membership._PROBABILISTIC), (coins, balanced, ours), strict=True
        )
    )
    return holds(membership.FIGURES[2].claims({"rules": rules, "runs": 9}))


def test_coins_and_ranks():
    """Four errors either way; expected are an eighth and a ninth of 1000, and what has to move."""
    assert judged_coins() == [True] * 5
    for off, held in ((3.9, True), (-4.1, False), (4.1, False)):
        assert judged_coins(new=(125.0 + off, 1000 / 9))[0] is held
        assert judged_coins(new=(125.0, 1000 / 9 + off))[0] is held
        for number in range(4):
            moved = [1000 / 9, 250.0, 375.0, 1000 / 9]
            moved[number] += off
            assert judged_coins(moved=tuple(moved))[1] is held
    assert judged_coins(most=1.2) == [True, True, False, True, True]
    assert judged_coins(drift=1.02) == [True, True, True, False, True]
    assert judged_coins(spread_of=5.1)[4] is False
    assert judged_coins(spread_of=-5.1)[4] is False
    assert judged_coins(extra=2.0)[4] is False
    assert judged_coins(extra=-2.0)[4] is False


def test_events_are_summed_up_over_runs():
    """Of 40 runs two are below the lower and above the upper bound."""
    runs = [
        [{"moved": float(k), "left_behind": float(k), "clients_per_new": 0.0}] * 5
        for k in range(40)
    ]
    first, *_ = membership._summary(runs)
    moved = first["moved"]
    assert (moved["mean"], moved["min"], moved["max"]) == (19.5, 0.0, 39.0)
    assert (moved["p05"], moved["p95"]) == (2.0, 37.0)
    assert moved["error"] == pytest.approx((40 * 41 / 12 / 40) ** 0.5)
    assert first["only_those_of_the_change_moved"] is True
    runs[7] = [{"moved": 3.0, "left_behind": 2.0, "clients_per_new": 1.0}] * 5
    assert membership._summary(runs)[0]["only_those_of_the_change_moved"] is False
    runs[7] = [{"moved": 3.0, "left_behind": 0.0, "clients_per_new": 3.0}] * 5
    assert membership._summary(runs)[0]["only_those_of_the_change_moved"] is True


# --- leases ---------------------------------------------------------------------------------------


def measured_leases():
    """As good, and as bad, as is claimed; 100 lease times of 60 s."""

    def row(rule, case, side, moves, fewest=0):
        return {
            "rule": rule, "case": case, "side": side, "moves": [moves, moves], "moves_min": fewest,
            "last_move_periods": [1.0, 1.5], "even_at_the_end": True,
        }  # fmt: skip

    bad, rows = {("16, even", "calm"): 0}, []
    for rule in leases.RULES:
        for case in leases.CASES:
            for side in leases.SIDES:
                fewest = {"16, all on one": 12, "64, all on one": 48}.get(case, 0)
                moves = fewest if rule == "guarded" else bad.get((case, side), 21)
                if "waits" in rule and side == "calm":
                    moves = 0
                rows.append(row(rule, case, side, moves, fewest))
    return {
        "rows": rows, "periods": 100, "stall_ms": 500.0,
        "one_dies": {
            "blog": {"unowned_ms_max": 246_000.0},
            "guarded": {"unowned_ms_max": 247_000.0, "moves": 3, "moves_min": 3},
        },
        "single_partition": {f"blog, waits of the {w}": 0 for w in ("sentences", "parentheses")},
        "messages_lost": {
            "blog": {"double_owned_ms": 1.0, "partition_ms": 100.0},
            "guarded": {"double_entitled_ms": 0.0, "moves": 12, "moves_min": 12},
        },
    }  # fmt: skip


def judged_leases(change=None):
    data = measured_leases()
    if change is not None:
        change(data)
    return holds(leases.claim_moves(data))


def setting(rule, case, side, field, value):
    return lambda data: leases._row(data, rule, case, side).__setitem__(field, value)


BLOG = "blog, one challenge a period"


@pytest.mark.parametrize(
    ("change", "refuted"),
    [
        (setting("blog", "16, all on one", "calm", "even_at_the_end", False), 0),
        (setting("blog", "16, all on one", "calm", "last_move_periods", [1.6, 1.6]), 0),
        (lambda data: data["single_partition"].update({"blog, waits of the sentences": 1}), 2),
        (lambda data: data["one_dies"]["blog"].update(unowned_ms_max=246_001.0), 3),
        (setting(BLOG, "16, even", "stalled", "moves", [20, 30]), 4),
        (setting("blog", "17, as even as can be", "calm", "moves", [20, 30]), 5),
        (
            setting(
                "blog, waits of the sentences", "17, as even as can be", "calm", "moves", [0, 1]
            ),
            5,
        ),
        (
            setting(
                "blog, waits of the parentheses",
                "17, as even as can be",
                "stalled",
                "moves",
                [20, 99],
            ),
            5,
        ),
        (lambda data: data["messages_lost"]["blog"].update(double_owned_ms=0.0), 6),
        (setting("guarded", "17, as even as can be", "stalled", "moves", [0, 1]), 7),
        (setting("guarded", "16, even", "calm", "moves", [1, 0]), 7),
        (setting("guarded", "64, all on one", "stalled", "moves", [48, 49]), 8),
        (lambda data: data["messages_lost"]["guarded"].update(double_entitled_ms=0.1), 9),
        (lambda data: data["messages_lost"]["guarded"].update(moves=13), 9),
        (lambda data: data["one_dies"]["guarded"].update(moves=4), 10),
        (lambda data: data["one_dies"]["guarded"].update(unowned_ms_max=247_001.0), 10),
    ],
)
def test_each_claim_on_leases_has_its_limit(change, refuted):
    assert judged_leases() == [True] * 11
    assert judged_leases(change) == [number != refuted for number in range(11)]


def test_what_is_even_has_to_stay_by_the_documents_rule_too():
    """Two claims are of that."""
    change = setting("blog", "16, even", "calm", "moves", [0, 1])
    assert judged_leases(change) == [number not in {1, 4} for number in range(11)]


def test_who_is_stalled_is_the_first():
    assert leases._troubles("calm").stall_ms == {}
    assert leases._troubles("stalled").stall_ms == {0: 500.0}


def test_moves_are_told_by_their_middle():
    assert leases._told([3, 3]) == "3"
    assert leases._told([3, 9, 4]) == "4 (3 .. 9)"
