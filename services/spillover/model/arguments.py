"""Arguments of users of the client library, checked before anything is done with them.

Python reports wrong types much later, in words that are of no help; an argument that users leave
out is often None, of a variable of the environment or of a column. Each check returns its
argument, or raises InputError, which names it.
"""

from __future__ import annotations

import math
from typing import TypeGuard

from spillover.model.errors import InputError


def checked_count(name: str, count: object, most: float = math.inf, source: str = "") -> int:
    """Returns a whole number of at least 1."""
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= most:
        bounds = "of at least 1" if math.isinf(most) else f"from 1 to {most:.0f}"
        raise wrong(name, f"a whole number {bounds}", count, source)
    return count


def checked_number(name: str, number: object, source: str) -> float:
    """Returns a finite number of at least 0."""
    if not is_number(number) or not 0.0 <= number < math.inf:
        raise wrong(name, "a number of at least 0", number, source)
    return number


def checked_seconds(name: str, seconds: object, most_s: float = math.inf) -> float:
    """Returns a time to wait."""
    if not is_number(seconds) or not 0.0 < seconds <= most_s:
        most = f" to {most_s:.0f}" if most_s < math.inf else ""
        raise wrong(name, f"seconds above 0{most}", seconds)
    return seconds


def checked_flag(name: str, flag: object) -> bool:
    """Returns True or False and refuses other values: a text such as "no" would count as true."""
    if not isinstance(flag, bool):
        raise wrong(name, "True or False", flag)
    return flag


def checked_function(name: str, function: object) -> None:
    """Returns a function, or None."""
    if function is not None and not callable(function):
        raise wrong(name, "a function", function)


def wrong(name: str, expected: str, got: object, source: str = "") -> InputError:
    """Returns what says that this argument is none. `source` is what it belongs to."""
    told = f"expected {expected}, got {got!r:.80}"
    return InputError(source, name, told) if source else InputError(name, "", told)


def is_number(value: object) -> TypeGuard[float]:
    """Returns whether it is one; NaN is, but within no bounds."""
    return isinstance(value, int | float) and not isinstance(value, bool)
