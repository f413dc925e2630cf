"""Pools by name: the built-in ones, else YAML files of contract section 3:

    servers: [{id: s1, rate: 1.0}, {id: s2, rate: 4.0}]        # rate: jobs of mean size per second
    classes: [{id: c1, servers: [s1, s2], tokens: 6}]
    types: [{id: t1, rate: 3.0, classes: [c1]}]

Ids may be whole numbers too. Every fault of a file becomes one InputError that names the file and
the field. How the parts must fit together is in `spillover.model.pool`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spillover.inputs.builtin_pools import BUILTIN_POOLS
from spillover.inputs.topology_schema import describe
from spillover.inputs.yaml_file import read_mapping, shown_path
from spillover.model.errors import InputError
from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType

_TOP = ("name", "servers", "classes", "types")
_EXACT_INTEGER_LIMIT = 2**53


def load_pool(name_or_path: str) -> Pool:
    """The built-in pool of that name, else the one in the YAML file at that path.

    A file without `name` is called after itself. Raises InputError, always one line.
    """
    if name_or_path in BUILTIN_POOLS:
        return BUILTIN_POOLS[name_or_path]()
    names = ", ".join(BUILTIN_POOLS)
    missing = f"expected a built-in pool ({names}) or a YAML file, found neither"
    document = read_mapping(name_or_path, missing=missing)
    try:
        return _pool({"name": Path(name_or_path).stem or "pool", **document})
    except InputError as error:
        raise InputError(shown_path(name_or_path), error.field, error.expected) from error


def _pool(document: Mapping[Any, Any]) -> Pool:
    _check_names("", document, _TOP)
    return Pool(
        name=_name(document),
        servers=tuple(
            PoolServer(id=_id(field, entry), rate=_number(field, entry, "rate"))
            for field, entry in _entries(document, "servers", ("id", "rate"))
        ),
        classes=tuple(
            PoolClass(
                id=_id(field, entry),
                servers=_ids(field, entry, "servers"),
                tokens=_whole(field, entry, "tokens"),
            )
            for field, entry in _entries(document, "classes", ("id", "servers", "tokens"))
        ),
        types=tuple(
            PoolType(
                id=_id(field, entry),
                rate=_number(field, entry, "rate"),
                classes=_ids(field, entry, "classes"),
            )
            for field, entry in _entries(document, "types", ("id", "rate", "classes"))
        ),
    )


def _entries(
    document: Mapping[Any, Any], name: str, known: tuple[str, ...]
) -> list[tuple[str, Mapping[Any, Any]]]:
    """The entries of a list, each with its field's name for messages."""
    entries = _value("", document, name)
    if not isinstance(entries, list):
        raise _wrong(name, f"expected a list, got {describe(entries)}")
    found: list[tuple[str, Mapping[Any, Any]]] = []
    for index, entry in enumerate(entries):
        field = f"{name}[{index}]"
        if not isinstance(entry, dict):
            raise _wrong(field, f"expected a mapping of fields, got {describe(entry)}")
        _check_names(field, entry, known)
        found.append((field, entry))
    return found


def _check_names(field: str, entry: Mapping[Any, Any], known: tuple[str, ...]) -> None:
    for name in entry:
        if name not in known:
            closest = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {closest[0]}?" if closest else f"expected {', '.join(known)}"
            shown = "".join(char for char in str(name)[:60] if char.isprintable())
            raise _wrong(_join(field, shown), f"unknown field, {hint}")


def _name(document: Mapping[Any, Any]) -> str:
    name = document["name"]
    if not isinstance(name, str) or not name or not name.isprintable():
        raise _wrong("name", f"expected printable text, got {describe(name)}")
    return name


def _id(field: str, entry: Mapping[Any, Any]) -> str:
    return _as_id(_join(field, "id"), _value(field, entry, "id"))


def _ids(field: str, entry: Mapping[Any, Any], name: str) -> tuple[str, ...]:
    field, values = _join(field, name), _value(field, entry, name)
    if not isinstance(values, list):
        raise _wrong(field, f"expected a list of ids, got {describe(values)}")
    return tuple(_as_id(field, value) for value in values)


def _as_id(field: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53:
        return str(value)
    if not isinstance(value, str):
        raise _wrong(field, f"expected an id, got {describe(value)}")
    return value


def _whole(field: str, entry: Mapping[Any, Any], name: str) -> int:
    value = _value(field, entry, name)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _EXACT_INTEGER_LIMIT:
        raise _wrong(_join(field, name), f"expected a whole number, got {describe(value)}")
    return value


def _number(field: str, entry: Mapping[Any, Any], name: str) -> float:
    value = _value(field, entry, name)
    too_large = isinstance(value, int) and abs(value) > _EXACT_INTEGER_LIMIT
    if isinstance(value, bool) or not isinstance(value, int | float) or too_large:
        raise _wrong(_join(field, name), f"expected a number, got {describe(value)}")
    return float(value)


def _value(field: str, entry: Mapping[Any, Any], name: str) -> object:
    if name not in entry:
        raise _wrong(_join(field, name), "expected a value, the field is missing")
    return entry[name]


def _join(field: str, name: str) -> str:
    return f"{field}.{name}" if field else name


def _wrong(field: str, expected: str) -> InputError:
    return InputError("pool", field, expected)
