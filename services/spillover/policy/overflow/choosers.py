"""The registry of overflow policies, by the names that users write. A rival is one line here."""

from __future__ import annotations

from spillover.policy.overflow import isolated, paper, two_choice
from spillover.policy.overflow.base import Chooser

CHOOSERS: dict[str, Chooser] = {
    "isolated": isolated.choose,
    "paper": paper.choose,
    "two-choice": two_choice.choose,
}

POLICY_NAMES = tuple(CHOOSERS)
