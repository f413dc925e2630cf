"""Where what is said of clients whose servers change, and of leases, ends to hold: each limit from
both of its sides.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from spillover.tools.reproduce import leases, membership
from support.verdicts import Verdicts

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


def less_sure(made, number, name):
    """Of one event the error is 2."""
    made[number][name]["error"] = 2.0


def judged_baseline(most=1.19, new=1000 / 48, last=(0, 0), unsure=None):
    per_new = (0.0, 0.0, 0.0, new, last[1])
    found = events(
        max_over_mean=(1.1, 1.1, most, 1.3, 1.3),
        clients_per_new=per_new,
        moved=(0, 0, 0, 0, last[0]),
    )
    if unsure is not None:
        less_sure(found, unsure, "clients_per_new")
    return Verdicts(membership.FIGURES[0].claims({"rules": {"baseline": found}, "runs": 9}))


def test_clients_that_move_only_when_they_have_to():
    """New servers get an eighth of the sixth that has to move, 21 each, within four errors."""
    assert judged_baseline() == [True] * 3
    assert judged_baseline(last=(1, 2)).measured == [
        "the fullest server has 1.10 and 1.19 times the mean, at the start 1.10",
        "20.8 at a new server, where 125 would be even", "1 moved, 2 on it, in all 9 runs",
    ]  # fmt: skip
    assert judged_baseline(most=1.2) == [False, True, True]
    for off, held in ((3.9, True), (4.1, False), (-3.9, True), (-4.1, False)):
        assert judged_baseline(new=1000 / 48 + off) == [True, held, True]
    for number in range(5):
        assert judged_baseline(new=1000 / 48 + 7.9, unsure=number)[1] is (number == 3)
    assert judged_baseline(last=(1, 0)) == judged_baseline(last=(0, 1)) == [True, True, False]


def judged_consistent(one=1.9, five=1.5, twenty=1.21, wrong=None):
    rules = {k: events(max_over_mean=worst) for k, worst in ((1, one), (5, five), (20, twenty))}
    if wrong is not None:
        rules[5][wrong]["only_those_of_the_change_moved"] = False
    return Verdicts(membership.FIGURES[1].claims({"rules": rules}))


def test_points_on_a_circle():
    assert judged_consistent() == [True] * 3
    assert judged_consistent().measured[0].endswith("for k = 1, 5, 20: 1.90, 1.50, 1.21")
    assert "k = 20 the fullest server has 1.21 times" in judged_consistent().measured[1]
    assert judged_consistent().measured[2].startswith("true of")
    assert judged_consistent(wrong=1).measured[2].startswith("not true of")
    assert judged_consistent(five=1.9) == judged_consistent(five=1.21) == [False, True, True]
    assert judged_consistent(twenty=1.2) == [True, False, True]
    for step in range(5):
        assert judged_consistent(wrong=step) == [True, True, step in {0, 3}]


def judged_coins(*, new=(125.0, 1000 / 9), moved=(1000 / 9, 250.0, 375.0, 1000 / 9), most=1.19,
                 drift=1.03, spread_of=5.0, extra=1.9, unsure=None):  # fmt: skip
    coins = events(
        clients_per_new=(0, 0, 0, *new), moved=(0, *moved), max_over_mean=most,
        min_over_mean=(0.9, 0.85, 0.8, 0.9, 0.9),
    )  # fmt: skip
    if unsure is not None:
        less_sure(coins, *unsure)
    balanced = events(max_over_mean=(1.0, 1.1, 1.2, 1.3, drift))
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
    return Verdicts(membership.FIGURES[2].claims({"rules": rules, "runs": 9}))


def test_coins_and_ranks():
    """Four errors either way; expected are an eighth and a ninth of 1000, and what has to move."""
    assert judged_coins() == [True] * 5
    told = judged_coins(drift=1.05).measured
    assert told[:2] == ["125.0 and 111.1", "in the four steps 111.1, 250.0, 375.0, 111.1"]
    assert told[2].startswith("between 0.80 and 1.19 times the mean")
    assert told[3] == "fullest over mean: 1.00 at the start, 1.05 after step 4"
    assert told[4].startswith(
        "never more than 5.0 clients from even in 9 runs; on average within 1.9"
    )
    for off, held in ((3.9, True), (-4.1, False), (4.1, False)):
        assert judged_coins(new=(125.0 + off, 1000 / 9))[0] is held
        assert judged_coins(new=(125.0, 1000 / 9 + off))[0] is held
        for number in range(4):
            moved = [1000 / 9, 250.0, 375.0, 1000 / 9]
            moved[number] += off
            assert judged_coins(moved=tuple(moved))[1] is held
    for unsure in range(5):
        for number in (3, 4):
            new = (125.0 + 7.9, 1000 / 9) if number == 3 else (125.0, 1000 / 9 + 7.9)
            told = judged_coins(new=new, unsure=(unsure, "clients_per_new"))
            assert told[0] is (number == unsure)
        for number in (1, 2, 3, 4):
            moved = [1000 / 9, 250.0, 375.0, 1000 / 9]
            moved[number - 1] += 7.9
            told = judged_coins(moved=tuple(moved), unsure=(unsure, "moved"))
            assert told[1] is (number == unsure)
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
    return Verdicts(leases.claim_moves(data))


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


def test_what_was_measured_of_leases_is_told():
    told = judged_leases().measured
    assert told[0] == "even after 1.2 normal lease times, with 21 moves where 12 would do"
    assert told[1] == "0 moves in 100 lease times"
    assert told[3].startswith("after 246 s at the latest")
    assert told[4].startswith("21 useless moves of 16 evenly spread partitions in 100 lease times")
    assert "up to 500 ms late, 0 if none is; 21 if each challenges" in told[4]
    assert "0 with the two other readings, which have no ties, but 21 as soon" in told[5]
    assert told[6].startswith("two at once for 1% of the time")
    assert told[8] == (
        "16, all on one: 12 of 12; 64, all on one: 48 of 48; even after 2 lease times at most"
    )
    assert told[9:] == ["0 s; 12 moves of 12", "after 247 s at the latest, 3 moves of 3"]


def test_what_is_even_has_to_stay_by_the_documents_rule_too():
    """Two claims are of that."""
    change = setting("blog", "16, even", "calm", "moves", [0, 1])
    assert judged_leases(change) == [number not in {1, 4} for number in range(11)]


def test_who_is_stalled_is_the_first():
    assert leases._troubles("calm").stall_ms == {}
    assert leases._troubles("stalled").stall_ms == {0: 500.0}


def test_runs_are_summed_up_by_the_worst_of_them():
    """And even is who has one more than another at most, in each of them."""
    one, other = (
        SimpleNamespace(
            moves_ms=moves_ms, moves=len(moves_ms), moves_min=2, counts=counts,
            unowned_ms_max=unowned_ms, double_owned_ms=1.0,
        )
        for moves_ms, counts, unowned_ms in (
            ([60_000.0, 90_000.0], (4, 4, 3), 500.0), ([], (3, 4, 4), 700.0),
        )
    )  # fmt: skip
    found = leases._summary([one, other])
    assert (found["moves"], found["moves_min"], found["counts"]) == ([2, 0], 2, [4, 4, 3])
    assert (found["last_move_periods"], found["unowned_ms_max"]) == ([1.5, 0.0], 700.0)
    assert found["even_at_the_end"] is True
    assert found["double_owned_ms"] == [1.0, 1.0]
    other.counts = (2, 4, 4)
    assert leases._summary([one, other])["even_at_the_end"] is False


def test_moves_are_told_by_their_middle():
    assert leases._told([3, 3]) == "3"
    assert leases._told([3, 9, 4]) == "4 (3 .. 9)"
