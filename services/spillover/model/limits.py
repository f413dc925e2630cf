"""The limits of numbers: declared beside the fields that they are for, checked in one place.

    servers: Annotated[int, at_least(1)]

What must hold between fields is checked by the classes that have them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, get_type_hints

from spillover.model.errors import InputError
from spillover.model.ranges import WHOLE_MAX

LEAST_ABOVE = 1e-9
"""A value is above its bound by at least so much."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The condition of a number; `expected` follows "a number" in messages."""

    expected: str
    holds: Callable[[float], bool]


def at_least(least: float) -> Limit:
    """Returns the limit of what may not be less."""
    return Limit(f"of at least {_plain(least)}", lambda value: value >= least)


def above(bound: float) -> Limit:
    """Returns the limit of what must be more, by a little at least: it is divided by."""
    return Limit(f"above {_plain(bound)}", lambda value: value >= bound + LEAST_ABOVE)


def within(least: float, most: float) -> Limit:
    """Returns the limit of what may be neither less nor more."""
    return Limit(f"from {_plain(least)} to {_plain(most)}", lambda value: least <= value <= most)


POSITIVE = Limit("above 0", lambda value: value > 0.0)
"""Any number above 0, however small; theory takes such, and no node."""

FINITE = Limit("that is finite", math.isfinite)


def check_limits(values: Any, source: str, place: str = "", *, most: float = WHOLE_MAX) -> None:
    """Check every number of a dataclass that has a limit; numbers are finite, and none is above
    `most`. A field that is not set, or has something else where it could have a number, has none.

    Raises InputError with the source and the field's name after `place`.
    """
    for name, limit in _limits_of(values.__class__):
        value = getattr(values, name)
        if not isinstance(value, int | float):
            continue
        if not (math.isfinite(value) and limit.holds(value)):
            wanted = limit.expected
        elif abs(value) > most:
            wanted = f"of at most {most}"
        else:
            continue
        expected = f"expected a number {wanted}, got {_plain(value)}"
        raise InputError(source, f"{place}{name}", expected)


@cache
def _limits_of(owner: type[Any]) -> tuple[tuple[str, Limit], ...]:
    hints = get_type_hints(owner, include_extras=True)
    return tuple(
        (field.name, extra)
        for field in fields(owner)
        for extra in getattr(hints[field.name], "__metadata__", ())
        if isinstance(extra, Limit)
    )


def _plain(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.15g}"
