"""What Johnson's document says of its figures in words, judged by what `probing` has measured."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import correlation
from typing import Any, TypeAlias

from spillover.tools.reproduce.figure import Claim

Point: TypeAlias = dict[str, Any]
Curves: TypeAlias = dict[str, list[Point]]

BUSY = ("load 150 %", "load 200 %")
CALM = ("load 50 %", "load 100 %")
PRODUCTION = 100.0
"""Message times that an object takes to make, and to use."""


def claims_2(data: dict[str, Any]) -> list[Claim]:
    """Returns the claims on probes against h_max."""
    curves = data["curves"]
    calm = max(_simulated(point, "probes_mean") for name in CALM for point in curves[name])
    straight = min(
        correlation(
            [point["x"] for point in curves[name]],
            [_simulated(point, "probes_mean") for point in curves[name]],
        )
        for name in BUSY
    )
    five = _simulated(_at(curves["load 200 %"], 5), "probes_mean")
    return [
        _agreement(curves, "probes_mean", "the equations and the simulation agree"),
        Claim(
            "Up to load 100 %, a consumer asks fewer than two producers",
            "only a few probes, less than 2",
            f"at most {calm:.2f}",
            holds=calm < 2.0,
        ),
        Claim(
            "Above load 100 %, probes grow with what is allowed",
            "in proportion to h_max",
            f"on a straight line: correlation {straight:.4f}",
            holds=straight > 0.995,
        ),
        Claim(
            "At load 200 % and h_max = 5, still fewer messages than with a central manager's four",
            "h_avg below 4",
            f"{five:.2f}",
            holds=five < 4.0,
        ),
    ]


def claims_3(data: dict[str, Any]) -> list[Claim]:
    """Returns the claims on waits against h_max."""
    curves = data["curves"]
    last = {name: _at(points, 10) for name, points in curves.items()}
    waits = {name: _simulated(point, "wait_mean") for name, point in last.items()}
    limits = {"load 150 %": 50.0, "load 200 %": 100.0}
    steps = {
        name: _simulated(_at(points, 3), "wait_mean") - waits[name]
        for name, points in curves.items()
    }
    worst = max(steps[name] / (PRODUCTION + waits[name]) for name in curves)
    slow, full = waits["load 50 %"], waits["load 100 %"]
    return [
        _agreement(curves, "wait_mean", "the equations and the simulation agree"),
        Claim(
            "At load 50 %, waits quickly come down to the two messages that any object takes",
            "2 message times",
            f"{slow:.2f}",
            holds=abs(slow - 2) < 0.1,
        ),
        Claim(
            "So they do at load 100 %",
            "2 message times",
            f"{full:.2f} (equations {last['load 100 %']['model']['wait_mean']:.2f}): every second "
            "probe finds nothing, however many are allowed",
            holds=abs(full - 2) < 0.1,
        ),
        Claim(
            "Above load 100 %, they come down to what producers are too slow by",
            "M / (N lambda) - 1 / mu: 50 and 100 message times",
            " and ".join(f"{waits[name]:.1f}" for name in limits),
            holds=all(abs(waits[name] / limit - 1) < 0.02 for name, limit in limits.items()),
        ),
        Claim(
            "From h_max = 3 on, waits are close to their limit (against the time from one object "
            "to the next)",
            "in all cases close to the asymptotic value",
            f"at most {worst:.1%} of that time longer than with ten probes",
            holds=worst < 0.05,
        ),
        _five_for_three(curves),
        *_many_producers(data["many_producers"]),
    ]


def _five_for_three(curves: Curves) -> Claim:
    """What two more probes are worth."""
    gain = {
        kind: _at(curves["load 100 %"], 5)[kind]["consumer_utilization"]
        / _at(curves["load 100 %"], 3)[kind]["consumer_utilization"]
        - 1
        for kind in ("model", "simulated")
    }
    return Claim(
        "Near load 100 %, h_max = 5 brings more objects than h_max = 3",
        "about 2.8 % (conclusions: about 3 %)",
        f"{gain['simulated']:.1%} simulated, {gain['model']:.1%} by the equations",
        holds=0.02 < gain["simulated"] < 0.04 and abs(gain["model"] - 0.028) < 0.003,
    )


def _many_producers(curves: Curves) -> Iterator[Claim]:
    """Ours: where the difference at load 100 % comes from."""
    for name, points in curves.items():
        excess = {
            point["x"]: _simulated(point, "wait_mean") / point["model"]["wait_mean"] - 1
            for point in points
        }
        few, *_, many = excess.values()
        told = ", ".join(f"{value:+.1%} with {count}" for count, value in excess.items())
        yield Claim(
            f"At load 100 %, {name}: waits above the equations go as producers get more (ours)",
            "not said; the equations assume infinitely many",
            told,
            holds=abs(many) < few / 2,
        )


def claims_4(data: dict[str, Any]) -> list[Claim]:
    """Returns the claims on blocking against h_max."""
    shares = {
        name: _share_of_gain([point["model"]["producer_utilization"] for point in points], 2)
        for name, points in data["curves"].items()
    }
    return [
        Claim(
            "Most of what more probes bring, three bring: less blocking than with one",
            "most of the benefit at h_max = 3",
            "of the gain up to ten probes: " + _by_load(shares),
            holds=min(shares.values()) > 0.5,
        )
    ]


def claims_5(data: dict[str, Any]) -> list[Claim]:
    """Returns the claims on utilization against buffers."""
    curves = data["curves"]
    used = {
        name: [point["model"]["producer_utilization"] for point in points]
        for name, points in curves.items()
    }
    five = next(k for k, point in enumerate(curves["load 50 %"]) if point["x"] == 5)
    shares = {name: _share_of_gain(values, five) for name, values in used.items()}
    more = max(values[-1] / values[five] - 1 for values in used.values())
    return [
        _agreement(curves, "producer_utilization", "the equations and the simulation agree"),
        Claim(
            "Most of what buffers bring, five of them bring",
            "most of the benefit with 5 buffers",
            "of the gain from 1 to 20: " + _by_load(shares),
            holds=min(shares.values()) > 0.5,
        ),
        Claim(
            "More than five bring a little more",
            "a small additional throughput improvement",
            f"20 instead of 5: at most {more:.1%} more objects",
            holds=0.0 < more < 0.05,
        ),
    ]


def claims_6(data: dict[str, Any]) -> list[Claim]:
    """Returns the claims on uniform production times."""
    ratios = [
        _simulated(point, "wait_mean") / point["model"]["wait_mean"]
        for points in data["curves"].values()
        for point in points
    ]
    falls = all(
        _simulated(points[0], "wait_mean") > _simulated(_at(points, 3), "wait_mean")
        for points in data["curves"].values()
    )
    return [
        Claim(
            "With steadier production, waits are shorter than the equations say, or as long",
            "somewhat pessimistic",
            f"simulated over equations: {min(ratios):.2f} to {max(ratios):.2f}",
            holds=max(ratios) < 1.1 and min(ratios) < 0.95,
        ),
        Claim(
            "The curves have the same shape",
            "qualitatively accurate",
            "they fall from one probe to three at every load" if falls else "they do not all fall",
            holds=falls,
        ),
    ]


def claims_7(data: dict[str, Any]) -> list[Claim]:
    """Returns the claims on unlike producers, probed alike."""
    moderate, high = data["curves"].values()
    first, third, last = (_simulated(_at(moderate, hops), "wait_mean") for hops in (1, 3, 10))
    share = (first - third) / (first - last)
    far = _simulated(_at(high, 10), "wait_mean")
    return [
        Claim(
            "Moderately unlike producers (67/50): three probes bring most of what ten bring",
            "most of the benefit at h_max = 3",
            f"{share:.0%} of it; waits {first:.1f}, {third:.1f} and {last:.1f} with 1, 3 and 10",
            holds=share > 0.5,
        ),
        Claim(
            "Very unlike producers (50/10): even ten probes are not enough",
            "even a maximum of 10 does not achieve good performance",
            f"{far:.1f} with ten probes, where moderately unlike producers have {last:.1f}",
            holds=far > 3 * last,
        ),
        Claim(
            "Because ten probes may miss the fast tenth of the producers altogether",
            "35 %",
            f"0.9 to the 10th is {0.9**10:.1%}",
            holds=round(0.9**10, 2) == 0.35,
        ),
        *_equations_7(moderate, high),
    ]


def _equations_7(moderate: list[Point], high: list[Point]) -> list[Claim]:
    """What is said of the equations for unlike producers."""
    pessimism = [
        (point["model"]["wait_mean"] / _simulated(point, "wait_mean") - 1, point["x"])
        for point in high
    ]
    lowest, highest = min(pessimism), max(pessimism)
    ones = {
        kind: [points[0][kind]["wait_mean"] for points in (moderate, high)]
        for kind in ("model", "simulated")
    }
    return [
        Claim(
            "For very unlike producers the equations promise too little",
            "close, somewhat pessimistic",
            f"equations over simulation from {lowest[0]:+.1%} (h_max = {lowest[1]}) to "
            f"{highest[0]:+.1%} (h_max = {highest[1]})",
            holds=highest[0] < 0.1 and sum(value for value, _ in pessimism) > 0,
        ),
        Claim(
            "At h_max = 1 the equations have no solution that iteration finds",
            "did not converge",
            "solved with bracketed roots: "
            + " and ".join(f"{wait:.1f}" for wait in ones["model"])
            + ", simulated "
            + " and ".join(f"{wait:.1f}" for wait in ones["simulated"]),
            holds=all(
                abs(one / other - 1) < 0.05 for one, other in zip(*ones.values(), strict=True)
            ),
        ),
    ]


def claims_8(data: dict[str, Any]) -> list[Claim]:
    """Returns the claims on unlike producers, probed by what they make."""
    claims = []
    for name, points in data["curves"].items():
        made = data["made_by_fast"][name]
        best = {kind: _shortest(points, kind) for kind in ("model", "simulated")}
        claims.append(
            Claim(
                f"{name}: waits are shortest where probes go where objects are made",
                f"in proportion: {made:.0%} of the probes to fast producers",
                f"shortest at {best['simulated']:.0%} simulated, {best['model']:.0%} by the "
                "equations",
                holds=all(abs(place - made) < 0.11 for place in best.values()),
            )
        )
    return claims


def _shortest(points: list[Point], kind: str) -> float:
    """Where the wait is shortest."""
    waits = {float(point["x"]): float(point[kind]["wait_mean"]) for point in points}
    return min(waits, key=waits.__getitem__)


def claims_9(data: dict[str, Any]) -> list[Claim]:
    """Returns the claims on restricted access."""
    curves = data["curves"]
    lost, longer = {}, {}
    for name, points in curves.items():
        hops = int(name.removeprefix("h_max "))
        some = next(point for point in points if point["x"] > hops)
        everything = points[-1]
        used = [_simulated(point, "consumer_utilization") for point in (some, everything)]
        waits = [_simulated(point, "wait_mean") for point in (some, everything)]
        lost[name] = 1 - used[0] / used[1]
        longer[name] = (some["x"], *waits)
    few = [point for points in curves.values() for point in points if point["x"] <= 10]
    printed, mended = (
        max(abs(point[kind]["wait_mean"] / _simulated(point, "wait_mean") - 1) for point in few)
        for kind in ("printed", "model")
    )
    return [
        Claim(
            "With more producers to choose from than probes allowed, hardly fewer objects",
            "little effect on performance, a small degradation",
            "fewer objects than with all 100: "
            + ", ".join(f"{value:.1%} ({name})" for name, value in lost.items()),
            holds=max(lost.values()) < 0.05,
        ),
        Claim(
            "And hardly longer waits",
            "little effect on the wait",
            ", ".join(
                f"{short:.1f} instead of {all_:.1f} with {count} ({name})"
                for name, (count, short, all_) in longer.items()
            ),
            holds=all(short < 1.15 * all_ for _, short, all_ in longer.values()),
        ),
        Claim(
            "With up to ten producers to choose from, the equations as printed foresee the waits",
            "not said: the figure may be theirs",
            f"off by up to {printed:.0%}",
            holds=printed < 0.2,
        ),
        Claim(
            "They do once it is taken into account that empty producers are probed again (ours)",
            "not said",
            f"off by up to {mended:.0%}",
            holds=mended < 0.2,
        ),
    ]


def _agreement(curves: Curves, field: str, text: str) -> Claim:
    """Largest differences between equations and simulation, at load 100 % and off it.

    Where the simulation's own interval is wide, only what is beyond it counts as different.
    """
    worst = {"off": 0.0, "at": 0.0}
    for name, points in curves.items():
        place = "at" if name == "load 100 %" else "off"
        for point in points:
            simulated, half = _simulated(point, field), point["ci95"][field]
            apart = max(abs(point["model"][field] - simulated) - half, 0.0) / simulated
            worst[place] = max(worst[place], apart)
    return Claim(
        f"At all loads, {text}",
        "close agreement",
        f"within {worst['off']:.1%}, at load 100 % within {worst['at']:.1%} (beyond the 95 % "
        "intervals)",
        holds=worst["off"] < 0.02 and worst["at"] < 0.12,
    )


def _share_of_gain(values: list[float], place: int) -> float:
    """Which part of what the last value is above the first one has come by `place`."""
    return (values[place] - values[0]) / (values[-1] - values[0])


def _by_load(shares: dict[str, float]) -> str:
    return ", ".join(f"{share:.0%} at {name}" for name, share in shares.items())


def _simulated(point: Point, field: str) -> float:
    value: float = point["simulated"][field]
    return value


def _at(points: list[Point], x: float) -> Point:
    return next(point for point in points if point["x"] == x)
