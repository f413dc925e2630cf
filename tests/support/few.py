"""Parameters of which `make check` takes a few, `make test` more, and `make soak` all."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest


def few_at_first(values: Iterable, few: int) -> list:
    """Returns the values as pytest's parameters: all but the first few are slow, left out by `make
    check`."""
    return [
        value if place < few else pytest.param(value, marks=pytest.mark.slow)
        for place, value in enumerate(values)
    ]


def all_in_soak(values: Iterable, few: int) -> list:
    """Returns the first few values, and all of them where there is time, in `make soak`."""
    values = [*values]
    return values if "SPILLOVER_SOAK_S" in os.environ else values[:few]
