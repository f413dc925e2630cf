"""The registry of overflow policies, by the names that users write. A rival is one line here."""

from __future__ import annotations

from spillover.policy.overflow import adaptive, isolated, paper, two_choice
from spillover.policy.overflow.base import Chooser

ISOLATED = "isolated"
"""The policy that hands nothing on."""

CHOOSERS: dict[str, Chooser] = {
    ISOLATED: isolated.choose,
    "paper": paper.choose,
    "two-choice": two_choice.choose,
    "adaptive": adaptive.choose,
}

BY_LOAD = frozenset({"adaptive"})
"""Policies that go by the load itself. Their clusters report it with every message, ask each other
for work, and bound how many of the neighbors' requests wait."""

POLICY_NAMES = tuple(CHOOSERS)
