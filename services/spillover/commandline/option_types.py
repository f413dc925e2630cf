"""Types of options whose errors say what was expected. `spillover-loadgen` and `spillover` read
their options with these, by the parser in `parsing`.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_HOST_AND_PORT = re.compile(r"[\w.-]+:\d{1,5}", re.ASCII)


def above_zero(text: str) -> float:
    """Returns a finite number above 0."""
    value = _number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


def at_least_zero(text: str) -> float:
    """Returns a finite number, 0 or more."""
    value = _number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text!r}")
    return value


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a finite number, got {text!r}")
    return value


def whole_number(text: str) -> int:
    """Returns an integer of either sign."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None


def named(form: str, read: Callable[[str], T]) -> Callable[[str], tuple[str, T]]:
    """Returns an argument type: a name, `=`, and what `read` takes; `form` says so in messages."""

    def read_named(text: str) -> tuple[str, T]:
        name, _, value = text.rpartition("=")
        if not name or not value:
            raise argparse.ArgumentTypeError(f"expected {form}, got {text!r}")
        return name, read(value)

    return read_named


def did_you_mean_url(text: str) -> str:
    """Returns `, did you mean http://...?` for a url that lacks its beginning, else nothing."""
    return f", did you mean http://{text}?" if _HOST_AND_PORT.fullmatch(text) else ""
