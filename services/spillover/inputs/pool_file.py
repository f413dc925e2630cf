"""Pools by name: the built-in ones, else YAML files:

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
from spillover.inputs.schema import ID, IDS, PRINTABLE, Forms, read_values
from spillover.inputs.yaml_file import read_mapping, shown_path
from spillover.model.errors import InputError
from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType

_FORMS: Forms = {
    (Pool, "name"): PRINTABLE,
    (PoolServer, "id"): ID,
    (PoolClass, "id"): ID,
    (PoolClass, "servers"): IDS,
    (PoolType, "id"): ID,
    (PoolType, "classes"): IDS,
}


def load_pool(name_or_path: str) -> Pool:
    """Returns the built-in pool of that name, else the one in the YAML file at that path.

    A file without `name` is called after itself. Raises InputError, always one line.
    """
    if name_or_path in BUILTIN_POOLS:
        return BUILTIN_POOLS[name_or_path]()
    names = ", ".join(BUILTIN_POOLS)
    missing = f"expected a built-in pool ({names}) or a YAML file, found neither"
    document = read_mapping(name_or_path, missing=missing)
    return pool_of(document, shown_path(name_or_path), Path(name_or_path).stem or "pool")


def pool_of(document: Mapping[Any, Any], source: str, name: str) -> Pool:
    """Returns the pool of the fields of a file, called so if they have no name. Raises InputError,
    naming `source`."""
    try:
        return read_values(Pool, {"name": name, **document}, _FORMS)
    except InputError as error:
        raise InputError(source, error.field, error.expected) from error
