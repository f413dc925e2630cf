"""Parameters of which `make check` takes a few, `make test` more, and `make soak` all."""

from __future__ import annotations

import os
from collections.abc import Iterable

import hypothesis
import pytest


def few_at_first(values: Iterable, few: int) -> list:
    """Returns the values as pytest's parameters: all but the first few are slow, left out by `make
    check`."""
    return [
        value if place < few else pytest.param(value, marks=pytest.mark.slow)
        for place, value in enumerate(values)
    ]


def examples(usual: int) -> int:
    """Returns how many examples Hypothesis is to try where `make soak` tries so many: by as much
    fewer in `make test` and `make check` as where a test says nothing of it (tests/conftest.py)."""
    profiles = hypothesis.settings
    now, by_default = profiles().max_examples, profiles.get_profile("whole").max_examples
    return max(1, usual * now // by_default)


def all_in_soak(values: Iterable, few: int) -> list:
    """Returns the first few values, and all of them where there is time, in `make soak`."""
    values = [*values]
    return values if "SPILLOVER_SOAK_S" in os.environ else values[:few]


def in_soak(many: int, few: int) -> int:
    """Returns how many of something to take: many where there is time, in `make soak`."""
    return many if "SPILLOVER_SOAK_S" in os.environ else few
