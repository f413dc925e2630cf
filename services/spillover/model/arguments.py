"""What users give to the client library, checked before anything is done with it. Python says
nothing of wrong types until much later, in words that are of no help; what users leave out is often
None, of a variable of the environment or of a column.

Each check returns what it was given, and raises InputError, which names the argument.
"""

from __future__ import annotations

import math
from typing import TypeGuard

from spillover.model.errors import InputError


def checked_count(name: str, count: object, most: float = math.inf, source: str = "") -> int:
    """A whole number of at least 1."""
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= most:
        bounds = "of at least 1" if math.isinf(most) else f"from 1 to {most:.0f}"
        raise wrong(name, f"a whole number {bounds}", count, source)
    return count


def checked_number(name: str, number: object, least: float = 0.0, source: str = "") -> float:
    """A finite number of at least so much."""
    if not is_number(number) or not least <= number < math.inf:
        raise wrong(name, f"a number of at least {least:g}", number, source)
    return number


def checked_seconds(name: str, seconds: object, most_s: float = math.inf) -> float:
    """A time to wait."""
    if not is_number(seconds) or not 0.0 < seconds <= most_s:
        most = f" to {most_s:.0f}" if most_s < math.inf else ""
        raise wrong(name, f"seconds above 0{most}", seconds)
    return seconds


def checked_flag(name: str, flag: object) -> bool:
    """True or False: what is true of "no" is not what it says."""
    if not isinstance(flag, bool):
        raise wrong(name, "True or False", flag)
    return flag


def checked_function(name: str, function: object) -> None:
    """Something that can be called, or None."""
    if function is not None and not callable(function):
        raise wrong(name, "a function", function)


def wrong(name: str, expected: str, got: object, source: str = "") -> InputError:
    """Returns what says that this argument is none. `source` is what it belongs to."""
    told = f"expected {expected}, got {got!r:.80}"
    return InputError(source, name, told) if source else InputError(name, "", told)


def is_number(value: object) -> TypeGuard[float]:
    """Returns whether it is one; NaN is, but within no bounds."""
    return isinstance(value, int | float) and not isinstance(value, bool)
