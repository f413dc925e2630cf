"""The overflow policies by the names that users write. A rival is one function and one line."""

from __future__ import annotations

from spillover.policy.overflow.acceptance import (
    Chooser,
    choose_isolated,
    choose_paper,
    choose_two_choice,
)

CHOOSERS: dict[str, Chooser] = {
    "isolated": choose_isolated,
    "paper": choose_paper,
    "two-choice": choose_two_choice,
}
