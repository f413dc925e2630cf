"""Pools by name: the built-in ones, else YAML files of contract section 3:

    servers: [{id: s1, rate: 1.0}, {id: s2, rate: 4.0}]        # rate: jobs of mean size per second
    classes: [{id: c1, servers: [s1, s2], tokens: 6}]
    types: [{id: t1, rate: 3.0, classes: [c1]}]

Ids may be whole numbers too. Every fault of a file becomes one InputError that names the file and
the field. How the parts must fit together is in `spillover.model.pool`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from spillover.inputs.builtin_pools import BUILTIN_POOLS
from spillover.inputs.schema import PRINTABLE, Forms, fault, read_values
from spillover.inputs.yaml_file import EXACT_INTEGER_LIMIT, describe, read_mapping, shown_path
from spillover.model.errors import InputError
from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType


def _check_id(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < EXACT_INTEGER_LIMIT:
        return str(value)
    if not isinstance(value, str):
        raise fault(f"expected an id, got {describe(value)}")
    return value


def _check_ids(value: object) -> object:
    if not isinstance(value, list):
        raise fault(f"expected a list of ids, got {describe(value)}")
    return value


_ID = Annotated[str, BeforeValidator(_check_id)]
_IDS = Annotated[list[_ID], BeforeValidator(_check_ids), AfterValidator(tuple)]

_FORMS: Forms = {
    (Pool, "name"): PRINTABLE,
    (PoolServer, "id"): _ID,
    (PoolClass, "id"): _ID,
    (PoolClass, "servers"): _IDS,
    (PoolType, "id"): _ID,
    (PoolType, "classes"): _IDS,
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
    try:
        named = {"name": Path(name_or_path).stem or "pool", **document}
        return read_values(Pool, named, _FORMS)
    except InputError as error:
        raise InputError(shown_path(name_or_path), error.field, error.expected) from error
