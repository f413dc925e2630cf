"""A policy that is asked along and has no say: how often it would have chosen otherwise, and what
that would have gained by the estimate of `policy.overflow.adaptive`.

It gets the arguments of the policy in force, including the draw, so that it draws nothing of its
own. No decision reads what it says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spillover.policy.overflow.adaptive import estimate_s
from spillover.policy.overflow.base import KEEP, NeighborLoads, OwnLoad
from spillover.policy.overflow.choosers import CHOOSERS


@dataclass(slots=True)
class ShadowChoice:
    """The choice of the shadow, by position as in `Decision`."""

    policy: str
    choice: int
    gain_s: float | None
    """The estimated seconds by which a server would have had the request sooner; below 0, later.
    None where only one of the two would have kept what may not be kept."""


class Shadow:
    """One such policy, and the sums over all that it was asked."""

    def __init__(self, policy: str) -> None:
        self.policy = policy
        self._choose = CHOOSERS[policy]
        self.same = 0
        """The number of choices like those that were made."""
        self.other = 0
        self.saved_s = 0.0
        """The sum of the gains above 0."""
        self.lost_s = 0.0
        """The sum of the gains below 0, without their sign."""

    def as_dict(self) -> dict[str, Any]:
        """Returns the sums as users read them."""
        return {
            "policy": self.policy,
            "same": self.same,
            "other": self.other,
            "saved_ms": round(self.saved_s * 1e3, 3),
            "lost_ms": round(self.lost_s * 1e3, 3),
        }

    def add(self, other: Shadow) -> None:
        """Add the sums of the same policy at another cluster."""
        self.same += other.same
        self.other += other.other
        self.saved_s += other.saved_s
        self.lost_s += other.lost_s

    def ask(
        self, own: OwnLoad, near: NeighborLoads, eligible: Sequence[bool], draw: float, made: int
    ) -> ShadowChoice:
        """Returns what the shadow would have chosen in place of `made`."""
        choice = self._choose(own, near, eligible, [0.0] * len(eligible), draw)
        if choice == made:
            self.same += 1
            return ShadowChoice(self.policy, choice, 0.0)
        self.other += 1
        if not own.may_keep and KEEP in {choice, made}:
            return ShadowChoice(self.policy, choice, None)
        gain_s = estimate_s(own, near, made) - estimate_s(own, near, choice)
        self.saved_s += max(0.0, gain_s)
        self.lost_s += max(0.0, -gain_s)
        return ShadowChoice(self.policy, choice, gain_s)
