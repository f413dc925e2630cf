"""The name that a user may have meant, and the question for it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

BEGINNING_MIN = 3
"""A beginning of at least so many letters stands for the whole name."""

NAME_MAX = 200
"""A name of at most so many characters may stand for another one. Why: to compare takes time."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Returns the one of those known that begins with it, else the one most like it; None if none
    is.
    """
    names = list(known)
    if len(name) > NAME_MAX:
        return None
    if len(name) >= BEGINNING_MIN:
        for one in names:
            if one.startswith(name):
                return one
    found = difflib.get_close_matches(name.lower(), names, n=1)
    return found[0] if found else None


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """Returns a question such as `, did you mean status?`, or nothing if none of those known is
    near. The name in it begins with `prefix`."""
    found = nearest(name, known)
    return "" if found is None else f", did you mean {prefix}{found}?"
