"""What Comte's paper says of figures 9, 10, 12 and 13, beside what `tokens` has measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from spillover.tools.reproduce.figure import Claim

NEAR = 0.13
"""How far from a load is near it, where the paper says near."""

BETWEEN = (1.5, 2.0)
"""Loads at which laws by type show most in type 1."""

CERTAINLY = 1.5
"""95 % half-widths that chance alone exceeds once in 300 times."""


def claims_9(data: dict[str, Any]) -> list[Claim]:
    """Returns what section IV-A says of figure 9."""
    blocking = _blocking(data)
    gain, delta = _gain(blocking), _delta(blocking)
    slow = data["slow_servers"]
    uniform = blocking["static-uniform"][data["loads"].index(0.5)]
    best = blocking["static-best"][data["loads"].index(0.5)]
    ends = [values[-1] for values in blocking.values()]
    return [
        _peak("tokens gain most over the best fixed odds near load 1", 1.0, data["loads"], gain),
        _peak("tokens are farthest from ideal near load 1", 1.0, data["loads"], delta),
        Claim(
            text="with even odds the slow servers are congested long before load 1",
            stated="above load 2/5",
            measured=f"their own load is 1 at {slow['critical_load']:.3f}; "
            f"they then turn away {slow['blocking_there']:.1%}",
            holds=abs(slow["critical_load"] - 0.4) < 1e-9,
        ),
        Claim(
            text="even odds get worse first, below load 1 already",
            stated="even when rho < 1",
            measured=f"at load 0.5 {uniform:.1%} turned away, {best:.1%} with the best odds",
            holds=uniform > best,
        ),
        Claim(
            text="far above load 1 all policies are comparable",
            stated="comparable performance",
            measured=f"at load {data['loads'][-1]:g}: {min(ends):.3f} to {max(ends):.3f}",
            holds=max(ends) - min(ends) < 0.03,
        ),
        *_laws(data),
    ]


def claims_10(data: dict[str, Any]) -> list[Claim]:
    """Returns what section IV-A says of figure 10."""
    at_1 = list(data["at_load_1"].values())
    rows = [curve["blocking"] for curve in data["curves"].values()]
    falls = all(
        more <= fewer + 1e-12
        for few, many in pairwise(rows)
        for fewer, more in zip(few, many, strict=True)
    )
    by_tokens = data["at_load_1"]
    first, tenth = by_tokens["1"], by_tokens["10"]
    return [
        Claim(
            text="the more tokens, the less is blocked, at every load",
            stated="decreases with the number of tokens",
            measured=f"for {', '.join(data['curves'])} tokens: {'yes' if falls else 'no'}",
            holds=falls,
        ),
        Claim(
            text="with ever more tokens it tends to ideal",
            stated="0 at load 1",
            measured=", ".join(f"{by_tokens[n]:.4f} ({n})" for n in ("10", "50", "200")),
            holds=at_1 == sorted(at_1, reverse=True) and at_1[-1] < 0.002,
        ),
        Claim(
            text="the first few tokens bring most, and ten a server are close to ideal",
            stated="close to the optimal with 10 tokens",
            measured=f"at load 1: {first:.3f} with 1, {tenth:.3f} with 10",
            holds=tenth < 0.1 * first,
        ),
    ]


def claims_12(data: dict[str, Any]) -> list[Claim]:
    """Returns what section IV-B says of figure 12."""
    loads, blocking = data["loads"], _blocking(data)
    uniform, best = blocking["static-uniform"], blocking["static-best"]
    at_half = loads.index(0.5)
    return [
        *_critical_loads(data),
        _peak(
            "tokens gain most over the best fixed odds near load 5/6", 5 / 6, loads, _gain(blocking)
        ),
        Claim(
            text="even odds get worse faster than everything else",
            stated="deteriorates faster",
            measured=f"at load 0.5 {uniform[at_half]:.2%} turned away, "
            f"{best[at_half]:.2%} with the best odds",
            holds=all(u >= b for u, b in zip(uniform, best, strict=True)),
        ),
        *_laws(data),
    ]


def _critical_loads(data: dict[str, Any]) -> list[Claim]:
    """Of figure 12: 5/6, where the last four servers are full, and 5/3, where all are."""
    loads, blocking = data["loads"], _blocking(data)
    breaks = _peaks(loads, _bends(data["curves"]["ideal"]["occupancy"]))
    farthest = _peaks(loads, _delta(blocking))
    above = min(
        value - 0.8 * (1 - 5 / 6 / load)
        for values in blocking.values()
        for value, load in zip(values, loads, strict=True)
    )
    return [
        Claim(
            text="the slope of what ideal can use breaks where the last four servers are full, and "
            "where all are",
            stated="at load 5/6 and 5/3",
            measured="at load " + " and ".join(f"{load:.3f}" for load in breaks),
            holds=_close(breaks, [5 / 6, 5 / 3], 1e-9),
        ),
        Claim(
            text="nobody blocks less than 4/5 (1 - 5 / (6 rho))",
            stated="at least that",
            measured=f"smallest distance above it {max(0.0, above):.1e}",
            holds=above > -1e-12,
        ),
        Claim(
            text="tokens are farthest from ideal near both critical loads",
            stated="near load 5/6 and 5/3",
            measured="peaks at load " + " and ".join(f"{load:.3f}" for load in farthest),
            holds=_close(farthest, [5 / 6, 5 / 3], NEAR),
        ),
    ]


def _bends(values: Sequence[float]) -> list[float]:
    """How much less the slope is after a value than before it, nothing below rounding."""
    found = [
        2 * here - before - after
        for before, here, after in zip(values, values[1:], values[2:], strict=False)
    ]
    return [0.0, *(bend if bend > 1e-9 else 0.0 for bend in found), 0.0]


def _peaks(loads: Sequence[float], values: Sequence[float]) -> list[float]:
    """The loads at which a value is larger than the one before and no smaller than the next."""
    return [
        load
        for load, before, here, after in zip(
            loads[1:], values, values[1:], values[2:], strict=False
        )
        if before < here >= after
    ]


def claims_13(data: dict[str, Any]) -> list[Claim]:
    """Returns what section IV-B says of figure 13, and what a precise simulation shows of it."""
    by_type, by_class = (_differences(data, sizes) for sizes in ("hyper", "hyper-by-class"))
    largest = max(abs(difference) for _, _, difference, _ in by_type)
    widest = max(wide for _, _, _, wide in by_type)
    shifts = {"by type": _shift(by_type), "by server": _shift(by_class)}
    said = {
        law: f"type 1 at loads {BETWEEN[0]:g} to {BETWEEN[1]:g}: {shift:+.4f} from the exact line, "
        f"give or take {wide:.4f}"
        for law, (shift, wide) in shifts.items()
    }
    exact = {law: abs(shift) <= CERTAINLY * wide for law, (shift, wide) in shifts.items()}
    line = data["lines"]["t1"]
    below, at, above = (line[data["loads"].index(load)] for load in (4 / 3, 5 / 3, 2.0))
    return [
        Claim(
            text="sizes that vary widely, by another law for each type, hardly change anything",
            stated="similar to the exact lines; intervals within 0.001",
            measured=f"largest difference {largest:.4f}; intervals within {widest:.4f}",
            holds=largest < 0.005,
        ),
        Claim(
            text="with a law for each server's jobs, whatever their type, nothing changes at all",
            stated="exactly insensitive",
            measured=said["by server"],
            holds=exact["by server"],
        ),
        Claim(
            text="with a law for each type it is insensitive too",
            stated="suggested, with further evaluation to conclude",
            measured=said["by type"],
            holds=exact["by type"],
        ),
        Claim(
            text="type 1 is turned away from load 5/3 on, half of where its own servers are full",
            stated="increases near 5/3; its bound is above 0 from 10/3 on",
            measured=f"{below:.3f} at load 4/3, {at:.3f} at 5/3, {above:.3f} at 2",
            holds=below < 0.02 < at < above,
        ),
    ]


def _shift(differences: Sequence[tuple[float, str, float, float]]) -> tuple[float, float]:
    """The mean difference of type 1 at the loads of BETWEEN, and its 95 % half-width."""
    some = [(d, w) for load, name, d, w in differences if name == "t1" and _between(load)]
    return math.fsum(d for d, _ in some) / len(some), math.hypot(*(w for _, w in some)) / len(some)


def _between(load: float) -> bool:
    return BETWEEN[0] <= load <= BETWEEN[1]


def _differences(data: dict[str, Any], sizes: str) -> list[tuple[float, str, float, float]]:
    """Load, type, simulated less exact blocking, half-width of its 95 % interval."""
    return [
        (mark["load"], name, mark["simulated"][name] - exact, mark["ci95"][name])
        for mark in data["marks"][sizes]
        for name, exact in mark["exact"].items()
    ]


def _blocking(data: dict[str, Any]) -> dict[str, list[float]]:
    return {policy: curve["blocking"] for policy, curve in data["curves"].items()}


def _gain(blocking: dict[str, list[float]]) -> list[float]:
    return [b - d for b, d in zip(blocking["static-best"], blocking["dynamic"], strict=True)]


def _delta(blocking: dict[str, list[float]]) -> list[float]:
    return [d - i for d, i in zip(blocking["dynamic"], blocking["ideal"], strict=True)]


def _peak(text: str, load: float, loads: Sequence[float], values: Sequence[float]) -> Claim:
    """That the largest of the values is near that load."""
    found = loads[max(range(len(values)), key=values.__getitem__)]
    return Claim(
        text=text,
        stated=f"near load {load:.3f}",
        measured=f"{max(values):.4f} of all jobs, at load {found:.3f}",
        holds=abs(found - load) < NEAR,
    )


def _laws(data: dict[str, Any]) -> list[Claim]:
    """Equation (11), for every policy and load."""
    off = max(
        abs(load * (1 - blocked) - used)
        for curve in data["curves"].values()
        for load, blocked, used in zip(
            data["loads"], curve["blocking"], curve["occupancy"], strict=True
        )
    )
    return [
        Claim(
            text="what is accepted is what is served",
            stated="rho (1 - beta) = eta",
            measured=f"off by at most {off:.1e}",
            holds=off < 1e-10,
        )
    ]


def _close(found: Sequence[float], stated: Sequence[float], within: float) -> bool:
    return len(found) == len(stated) and all(
        abs(one - other) <= within for one, other in zip(found, stated, strict=True)
    )
