"""The name that somebody may have meant, and how to ask. Which names there are is known to whoever
asks.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

BEGINNING_MIN = 3
"""Letters from which on a beginning stands for the whole name."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns the one of those known that begins with it, else the one most like it; None if none
    is.
    """
    names = list(known)
    if len(name) >= BEGINNING_MIN:
        for one in names:
            if one.startswith(name):
                return one
    found = difflib.get_close_matches(name.lower(), names, n=1)
    return found[0] if found else None


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Such as `, did you mean status?`; nothing if none of those known is near. What is shown
    begins with `prefix`."""
    found = nearest(name, known)
    return "" if found is None else f", did you mean {prefix}{found}?"
