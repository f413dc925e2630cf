"""Parameters of which `make check` takes a few, and `make test` all."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def few_at_first(values: Iterable, few: int) -> list:
    """Returns the values as pytest's parameters: all but the first few are slow."""
    return [
        value if place < few else pytest.param(value, marks=pytest.mark.slow)
        for place, value in enumerate(values)
    ]
