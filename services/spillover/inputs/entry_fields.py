"""The fields of an entry of a YAML file, read one at a time: names, values that must be there,
numbers.

InputError is raised with the field's path and no source: whoever knows the file puts its name in
front. Which fields there are is known to callers; topologies are read by a schema instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spillover.inputs.topology_schema import describe
from spillover.model.errors import InputError
from spillover.model.nearest import nearest

EXACT_INTEGER_LIMIT = 2**53
"""Whole numbers up to here survive every float."""


def check_names(
    entry: Mapping[Any, Any], known: Sequence[str], path: str = "", problem: str = "unknown field"
) -> None:
    """Refuse a field that is none of `known`, with the closest of them if one is close."""
    for name in entry:
        if name not in known:
            closest = nearest(str(name), known)
            hint = f"did you mean {closest}?" if closest else f"expected {', '.join(known)}"
            shown = "".join(char for char in str(name)[:60] if char.isprintable())
            raise wrong(joined(path, shown), f"{problem}, {hint}")


def value_of(entry: Mapping[Any, Any], name: str, path: str = "") -> object:
    """Whatever the field holds; it must be there."""
    if name not in entry:
        raise wrong(joined(path, name), "expected a value, the field is missing")
    return entry[name]


def number_of(entry: Mapping[Any, Any], name: str, path: str = "") -> float:
    """Returns the field's number; finite or not."""
    value = value_of(entry, name, path)
    too_large = isinstance(value, int) and abs(value) > EXACT_INTEGER_LIMIT
    if isinstance(value, bool) or not isinstance(value, int | float) or too_large:
        raise wrong(joined(path, name), f"expected a number, got {describe(value)}")
    return float(value)


def joined(path: str, name: str) -> str:
    """Returns the path of the field `name` of the entry at `path`."""
    return f"{path}.{name}" if path else name


def wrong(field: str, expected: str) -> InputError:
    """To be raised for the field at this path."""
    return InputError("", field, expected)
