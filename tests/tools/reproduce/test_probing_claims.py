"""Where what Johnson says of his figures ends to hold: each limit from both of its sides."""

from __future__ import annotations

import pytest

from spillover.tools.reproduce import probing_claims as claims

LOADS = ("load 50 %", "load 100 %", "load 150 %", "load 200 %")


def curve(simulated, field, *, model=None, ci95=0.0, at=range(1, 11)):
    """A point at each x; what the equations give is the same, unless it is said."""
    model = simulated if model is None else model
    return [
        {
            "x": x,
            "simulated": {field: float(simulated(x))},
            "model": {field: float(model(x))},
            "ci95": {field: ci95},
        }
        for x in at
    ]


def holds(found):
    return [claim.holds for claim in found]


def probes(calm=1.5, slope=0.5):
    return {
        "load 50 %": curve(lambda _: 1.0, "probes_mean"),
        "load 100 %": curve(lambda _: calm, "probes_mean"),
        "load 150 %": curve(lambda x: x / 2, "probes_mean"),
        "load 200 %": curve(lambda x: slope * x, "probes_mean"),
    }


def test_probes_are_few_and_then_proportional():
    told = claims.claims_2({"curves": probes(calm=1.99, slope=0.79)})
    assert holds(told) == [True] * 4
    assert [claim.measured for claim in told[1:]] == [
        "at most 1.99", "on a straight line: correlation 1.0000", "3.95",
    ]  # fmt: skip
    assert holds(claims.claims_2({"curves": probes(calm=2.0)})) == [True, False, True, True]
    assert holds(claims.claims_2({"curves": probes(slope=0.8)})) == [True, True, True, False]
    bent = probes()
    bent["load 150 %"] = curve(lambda x: min(x, 6) / 2, "probes_mean")
    assert holds(claims.claims_2({"curves": bent})) == [True, True, False, True]


@pytest.mark.parametrize(
    ("name", "off", "agrees"),
    [
        ("load 50 %", 0.0199, True), ("load 50 %", 0.0201, False), ("load 50 %", -0.0201, False),
        ("load 100 %", 0.1199, True), ("load 100 %", 0.1201, False),
    ],
)  # fmt: skip
def test_equations_agree_within_2_percent_and_at_load_100_within_12(name, off, agrees):
    """What the interval spans is no difference."""
    curves = {one: curve(lambda _: 1.0, "w") for one in LOADS}
    curves[name][4]["model"]["w"] += off
    assert claims._agreement(curves, "w", "they agree").holds is agrees
    curves[name][4]["ci95"]["w"] = 0.02
    assert claims._agreement(curves, "w", "they agree").holds
    curves[name][4]["model"]["w"] = 1.15
    assert not claims._agreement(curves, "w", "they agree").holds


def waits(**ends):
    """Waits that come down to a limit; at h_max = 3 they are 5 above it."""
    limits = {"load 50 %": 2.0, "load 100 %": 2.0, "load 150 %": 50.0, "load 200 %": 100.0}
    limits |= {f"load {name.removeprefix('at_')} %": end for name, end in ends.items()}
    return {
        name: curve(lambda x, end=end: end + max(0, 5 - 0.1 * (x - 3)) * (x < 10), "wait_mean")
        for name, end in limits.items()
    }


def judged_3(curves, *, gain=0.028, model_gain=0.028, many=None):
    for points in curves.values():
        for point in points:
            for kind, more in (("simulated", gain), ("model", model_gain)):
                point[kind]["consumer_utilization"] = 0.8 * (1.0 + more * (point["x"] == 5))
    many = many or {100: 1.2, 300: 1.1, 1000: 1.05}
    producers = curve(many.get, "wait_mean", model=lambda _: 1.0, at=many)
    found = claims.claims_3({"curves": curves, "many_producers": {"h_max 5": producers}})
    assert len(found) == 7
    return holds(found)


def test_waits_come_down_to_their_limits():
    """The equations agree; slow, full, busy, from three probes on, two more probes, many."""
    assert judged_3(waits()) == [True] * 7
    assert judged_3(waits(at_50=2.09)) == [True] * 7
    assert judged_3(waits(at_50=2.11)) == [True, False, *[True] * 5]
    assert judged_3(waits(at_100=1.89)) == [True, True, False, *[True] * 4]
    assert judged_3(waits(at_150=50.9)) == [True] * 7
    assert judged_3(waits(at_150=51.1)) == [True] * 3 + [False] + [True] * 3
    assert judged_3(waits(at_200=97.9)) == [True] * 3 + [False] + [True] * 3


def test_from_three_probes_on_waits_are_close_to_their_limit():
    """Within 5 % of the time from one object to the next: 102 at load 50 %."""
    for above, close in ((5.09, True), (5.11, False)):
        curves = waits()
        for kind in ("simulated", "model"):
            curves["load 50 %"][2][kind]["wait_mean"] = 2.0 + above
        assert judged_3(curves) == [*[True] * 4, close, True, True]


@pytest.mark.parametrize(
    ("gain", "model_gain", "held"),
    [
        (0.0201, 0.028, True), (0.0199, 0.028, False),
        (0.0399, 0.028, True), (0.0401, 0.028, False),
        (0.028, 0.0251, True), (0.028, 0.0249, False),
        (0.028, 0.0309, True), (0.028, 0.0311, False),
    ],
)  # fmt: skip
def test_two_more_probes_bring_about_3_percent(gain, model_gain, held):
    assert judged_3(waits(), gain=gain, model_gain=model_gain)[5] is held


def test_with_many_producers_waits_are_those_of_the_equations():
    """Nearer by half, whether above or below."""
    for last, held in ((1.099, True), (1.101, False), (0.901, True), (0.899, False)):
        assert judged_3(waits(), many={100: 1.2, 300: 1.5, 1000: last})[6] is held


def used(*values, at):
    points = curve(dict(zip(at, values, strict=True)).get, "producer_utilization", at=at)
    return dict.fromkeys(LOADS, points)


def test_three_probes_bring_most_of_what_ten_bring():
    at = (1, 2, 3, 10)
    (held,) = claims.claims_4({"curves": used(0.5, 0.6, 0.701, 0.9, at=at)})
    assert held.holds
    assert held.measured.startswith("of the gain up to ten probes: 50% at load 50 %, 50% at")
    (failed,) = claims.claims_4({"curves": used(0.5, 0.6, 0.699, 0.9, at=at)})
    assert not failed.holds


def test_five_buffers_bring_most_and_more_of_them_a_little():
    at = (1, 3, 5, 20)
    for values, verdict in (
        ((0.5, 0.6, 0.8, 0.83), [True, True, True]),
        ((0.5, 0.6, 0.8, 0.839), [True, True, True]),
        ((0.5, 0.6, 0.8, 0.841), [True, True, False]),
        ((0.5, 0.6, 0.8, 0.8), [True, True, False]),
        ((0.78, 0.79, 0.799, 0.82), [True, False, True]),
    ):
        assert holds(claims.claims_5({"curves": used(*values, at=at)})) == verdict


def steadier(low=0.9, high=1.0, *, rises=False):
    ratio = {1: high, 2: low, 3: high * (2.0 if rises else 1.0)}
    model = {1: 12.0, 2: 11.0, 3: 10.0}
    points = curve(lambda x: ratio[x] * model[x], "wait_mean", model=model.get, at=(1, 2, 3))
    return {"curves": {"load 50 %": points}}


def test_steadier_production_waits_no_longer_than_the_equations_say():
    for values, verdict in (
        ((0.949, 1.099), [True, True]),
        ((0.951, 1.0), [False, True]),
        ((0.9, 1.101), [False, True]),
    ):  # fmt: skip
        assert holds(claims.claims_6(steadier(*values))) == verdict
    assert holds(claims.claims_6(steadier(0.8, 0.9, rises=True)))[1] is False
    assert claims.claims_6(steadier())[0].measured == "simulated over equations: 0.90 to 1.00"


def unlike(third=9.9, far=15.1, equations=1.05, first=1.0):
    """Moderately unlike ones have 15, ..., 5 with 1, ..., 10 probes."""
    moderate = {1: 15.0, 3: third, 10: 5.0}
    high = {1: 60.0, 3: 30.0, 10: far}
    model = {1: 60.0 * first, 3: 30.0 * equations, 10: far}
    return {"curves": {
        "some": curve(moderate.get, "wait_mean", at=moderate),
        "very": curve(high.get, "wait_mean", model=model.get, at=high),
    }}  # fmt: skip


def test_unlike_producers_are_found_by_three_probes_or_not_at_all():
    assert holds(claims.claims_7(unlike())) == [True] * 5
    assert holds(claims.claims_7(unlike(third=10.1)))[0] is False
    assert holds(claims.claims_7(unlike(far=14.9)))[1] is False
    told = claims.claims_7(unlike())
    assert told[0].measured == "51% of it; waits 15.0, 9.9 and 5.0 with 1, 3 and 10"
    assert told[1].measured == "15.1 with ten probes, where moderately unlike producers have 5.0"
    assert told[2].measured == "0.9 to the 10th is 34.9%"


def test_equations_of_unlike_producers_promise_too_little_but_not_much():
    assert holds(claims.claims_7(unlike(equations=1.099)))[3] is True
    assert holds(claims.claims_7(unlike(equations=1.101)))[3] is False
    assert holds(claims.claims_7(unlike(equations=0.999)))[3] is False
    assert holds(claims.claims_7(unlike(first=1.04)))[4] is True
    assert holds(claims.claims_7(unlike(first=1.06)))[4] is False
    assert "from +0.0% (h_max = 1) to +5.0% (h_max = 3)" in claims.claims_7(unlike())[3].measured


def test_waits_are_shortest_where_probes_go_where_objects_are_made():
    for at, held in ((0.6, True), (0.4, True), (0.65, False), (0.35, False)):
        for kind in ("simulated", "model"):
            found = {"simulated": 0.5, "model": 0.5, kind: at}
            points = curve(
                lambda x, best=found["simulated"]: abs(x - best),
                "wait_mean",
                model=lambda x, best=found["model"]: abs(x - best),
                at=(0.35, 0.4, 0.5, 0.6, 0.65),
            )
            (claim,) = claims.claims_8({"curves": {"a": points}, "made_by_fast": {"a": 0.5}})
            assert claim.holds is held


def restricted(*, share=1.0, longer=1.0, printed=1.0, mended=1.0):
    """With h_max 3: these hold for 4 of 100 producers, what is printed up to ten."""
    points = curve(
        lambda x: 10.0 * (longer if x == 4 else 1.0), "wait_mean", at=(3, 4, 10, 11, 100)
    )
    for point in points:
        point["simulated"]["consumer_utilization"] = 0.8 * (share if point["x"] == 4 else 1.0)
        wait = point["simulated"]["wait_mean"]
        point["printed"] = {"wait_mean": wait * (printed if point["x"] == 10 else 1.0)}
        point["model"]["wait_mean"] = wait * (mended if point["x"] == 10 else 1.0)
        if point["x"] == 11:
            point["printed"]["wait_mean"] = point["model"]["wait_mean"] = 99.0 * wait
    return holds(claims.claims_9({"curves": {"h_max 3": points}}))


def test_a_few_more_producers_than_probes_nearly_do():
    assert restricted(share=0.951, longer=1.149, printed=0.801, mended=1.199) == [True] * 4
    assert restricted(share=0.949) == [False, True, True, True]
    assert restricted(longer=1.151) == [True, False, True, True]
    assert restricted(printed=0.799) == [True, True, False, True]
    assert restricted(mended=1.201) == [True, True, True, False]
