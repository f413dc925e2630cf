"""Pools by name: the built-in ones, else YAML files of contract section 3:

    servers: [{id: s1, rate: 1.0}, {id: s2, rate: 4.0}]        # rate: jobs of mean size per second
    classes: [{id: c1, servers: [s1, s2], tokens: 6}]
    types: [{id: t1, rate: 3.0, classes: [c1]}]

Ids may be whole numbers too. Every fault of a file becomes one InputError that names the file and
the field. How the parts must fit together is in `spillover.model.pool`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spillover.inputs.builtin_pools import BUILTIN_POOLS
from spillover.inputs.entry_fields import (
    EXACT_INTEGER_LIMIT,
    check_names,
    joined,
    number_of,
    value_of,
    wrong,
)
from spillover.inputs.topology_schema import describe
from spillover.inputs.yaml_file import read_mapping, shown_path
from spillover.model.errors import InputError
from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType

_TOP = ("name", "servers", "classes", "types")


def load_pool(name_or_path: str) -> Pool:
    """Returns the built-in pool of that name, else the one in the YAML file at that path.

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
    check_names(document, _TOP)
    return Pool(
        name=_name(document),
        servers=tuple(
            PoolServer(id=_id(field, entry), rate=number_of(entry, "rate", field))
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
                rate=number_of(entry, "rate", field),
                classes=_ids(field, entry, "classes"),
            )
            for field, entry in _entries(document, "types", ("id", "rate", "classes"))
        ),
    )


def _entries(
    document: Mapping[Any, Any], name: str, known: tuple[str, ...]
) -> list[tuple[str, Mapping[Any, Any]]]:
    """The entries of a list, each with its field's name for messages."""
    entries = value_of(document, name)
    if not isinstance(entries, list):
        raise wrong(name, f"expected a list, got {describe(entries)}")
    found: list[tuple[str, Mapping[Any, Any]]] = []
    for index, entry in enumerate(entries):
        field = f"{name}[{index}]"
        if not isinstance(entry, dict):
            raise wrong(field, f"expected a mapping of fields, got {describe(entry)}")
        check_names(entry, known, field)
        found.append((field, entry))
    return found


def _name(document: Mapping[Any, Any]) -> str:
    name = document["name"]
    if not isinstance(name, str) or not name or not name.isprintable():
        raise wrong("name", f"expected printable text, got {describe(name)}")
    return name


def _id(field: str, entry: Mapping[Any, Any]) -> str:
    return _as_id(joined(field, "id"), value_of(entry, "id", field))


def _ids(field: str, entry: Mapping[Any, Any], name: str) -> tuple[str, ...]:
    field, values = joined(field, name), value_of(entry, name, field)
    if not isinstance(values, list):
        raise wrong(field, f"expected a list of ids, got {describe(values)}")
    return tuple(_as_id(field, value) for value in values)


def _as_id(field: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53:
        return str(value)
    if not isinstance(value, str):
        raise wrong(field, f"expected an id, got {describe(value)}")
    return value


def _whole(field: str, entry: Mapping[Any, Any], name: str) -> int:
    value = value_of(entry, name, field)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > EXACT_INTEGER_LIMIT:
        raise wrong(joined(field, name), f"expected a whole number, got {describe(value)}")
    return value
