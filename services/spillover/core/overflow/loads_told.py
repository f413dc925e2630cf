"""The basis of a choice by load, as users read it: the known loads, their ages, and the waits that
follow from them. All is computed anew from the record, by the functions that the choice was made
with (`policy.overflow.adaptive`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from spillover.core.overflow.shadow import ShadowChoice
from spillover.model.ids import ClusterId
from spillover.policy.overflow import adaptive
from spillover.policy.overflow.base import KEEP, NeighborLoads, OwnLoad
from spillover.policy.overflow.stranded import STUCK_SERVICES


def of_choice(
    own: OwnLoad, near: NeighborLoads, eligible: Sequence[bool], draw: float
) -> dict[str, Any]:
    """Returns the values that are the same for all neighbors. `trust` is None where it does not
    matter: for a request that was handed on before, or may go to nobody."""
    ages_s = [0.0] * len(eligible)
    age = adaptive.write_ages(own, near, eligible, ages_s)
    trust = adaptive.trust(age) if own.hops == 0 and any(eligible) else None
    here_ms = adaptive.wait_here_s(own) * 1e3
    if not any(eligible):
        known = "There was no neighbor that it could go to."
    elif trust is None:
        known = "It was handed on before: adaptive goes by the loads, and counts the whole way."
    else:
        mean_ms = sum(ages_s) / sum(eligible) * 1e3
        before = f"The loads of neighbors were told {_ms(mean_ms)} before"
        how = "as here" if draw < trust else "here by the paper's draw"
        known = f"{before}: adaptive goes by them in {trust:.0%} of such choices, {how}."
    waits = f"A request that joins this queue waits about {_ms(here_ms)}."
    if own.still_s > STUCK_SERVICES * own.service_s:
        waits = (
            f"A request that joins this queue would wait about {_ms(here_ms)}, but no service has "
            f"begun for {_ms(own.still_s * 1e3)}: it goes to a neighbor with an idle server "
            "first, else to one with a shorter queue."
        )
    return {
        "home_load": own.load,
        "departure_ms": own.departure_s * 1e3,
        "wait_ms": here_ms,
        "trust": trust,
        "by_draw": trust is not None and draw >= trust,
        "words": f"{waits} {known}",
    }


def of_neighbor(own: OwnLoad, near: NeighborLoads, y: int) -> dict[str, Any]:
    """Returns what was known of one neighbor's load; each value is None if it never told its
    load."""
    if near.told_s[y] == -math.inf:
        return dict.fromkeys((
            *("ahead", "load", "load_age_ms", "unreported"),
            *("departure_ms", "wait_ms", "in_all_ms"),
        ))  # fmt: skip
    return {
        "ahead": near.ahead[y],
        "load": near.load[y],
        "load_age_ms": adaptive.age_s(own, near, y) * 1e3,
        "unreported": own.unreported[y],
        "departure_ms": adaptive.departure_s(own, near, y) * 1e3,
        "wait_ms": adaptive.wait_there_s(own, near, y) * 1e3,
        "in_all_ms": adaptive.estimate_s(own, near, y) * 1e3,
    }


def of_shadow(shadow: ShadowChoice, made: int, ids: Sequence[ClusterId]) -> dict[str, Any]:
    """Returns the choice of the policy that was asked along."""
    neighbor = None if shadow.choice == KEEP else ids[shadow.choice]
    gain_ms = None if shadow.gain_s is None else shadow.gain_s * 1e3
    is_same = shadow.choice == made
    return {
        "policy": shadow.policy,
        "neighbor": neighbor,
        "same": is_same,
        "gain_ms": gain_ms,
        "words": f"{shadow.policy}, asked along, would have "
        + ("done the same." if is_same else _otherwise(neighbor, gain_ms)),
    }


def _otherwise(neighbor: ClusterId | None, gain_ms: float | None) -> str:
    does = "kept it" if neighbor is None else f"handed it to {neighbor}"
    if gain_ms is None:
        return f"{does}."
    return f"{does}: about {_ms(abs(gain_ms))} {'sooner' if gain_ms >= 0.0 else 'later'}."


def _ms(value: float) -> str:
    return f"{value:.0f} ms" if value >= 10.0 else f"{value:.1f} ms"
