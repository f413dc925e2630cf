"""Topologies by name: the built-in ones, else YAML files of contract section 2, read and written.

Every fault of a file becomes one InputError that names the file and the field. What the fields
are is in `topology_schema`; strict YAML is in `yaml_text`, files of it are in `yaml_file`.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from spillover.inputs.builtin import BUILTIN_NAMES, builtin_topology
from spillover.inputs.topology_schema import (
    LATER_FIELDS,
    ClusterFields,
    LinkFields,
    TopologyFields,
    describe,
)
from spillover.inputs.yaml_file import read_mapping, shown_path
from spillover.inputs.yaml_text import dump_yaml
from spillover.model.errors import InputError
from spillover.model.nearest import nearest
from spillover.model.topology import NOT_RUN_STATUSES

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from spillover.model.topology import Topology

_LATER_NAMES = ("comte8", "comte11")

_EXPECTED_BY_TYPE = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "greater_than_equal": "a whole number of at most 16 digits",
    "less_than_equal": "a whole number of at most 16 digits",
    "string_type": "text",
    "list_type": "a list",
    "model_type": "a mapping of fields",
    "invalid_key": "a field name",
}
_FIELDS_BY_DEPTH: dict[str, type[BaseModel]] = {"clusters": ClusterFields, "links": LinkFields}


def load_topology(name_or_path: str) -> Topology:
    """Returns the built-in topology of that name, else the one in the YAML file at that path.

    A file without `name` is called after itself. Raises InputError, always one line.
    """
    if name_or_path in BUILTIN_NAMES:
        return builtin_topology(name_or_path)
    source = shown_path(name_or_path)
    if name_or_path in _LATER_NAMES:
        raise InputError(source, "", "this built-in topology is not available in this version")
    names = ", ".join(BUILTIN_NAMES)
    missing = f"expected a built-in topology ({names}) or a YAML file, found neither"
    closest = nearest(name_or_path, BUILTIN_NAMES)
    if closest is not None:
        missing += f"; did you mean {closest}?"
    document = read_mapping(name_or_path, missing=missing)
    try:
        topology = TopologyFields.model_validate(
            {"name": Path(name_or_path).stem or "topology", **document}
        ).to_topology()
        return replace(topology, is_named="name" in document)
    except ValidationError as error:
        raise _first_fault(source, error) from error
    except InputError as error:
        raise InputError(source, error.field, error.expected) from error


def dump_topology(topology: Topology) -> str:
    """YAML text that `load_topology` reads back as an equal topology."""
    fields = asdict(topology)
    del fields["is_named"]
    for cluster in fields["clusters"]:
        for name in [name for name, value in cluster.items() if value is None]:
            del cluster[name]
        cluster["not_run_statuses"] = list(cluster["not_run_statuses"])
        if cluster["not_run_statuses"] == list(NOT_RUN_STATUSES):
            del cluster["not_run_statuses"]  # only along with an http: handler
    for link in fields["links"]:
        link["between"] = list(link["between"])
    fields["clusters"], fields["links"] = list(fields["clusters"]), list(fields["links"])
    return dump_yaml(fields)


def _first_fault(source: str, error: ValidationError) -> InputError:
    """The fault that tells most, and how many more there are: a misspelled field before the one
    that is missing for it, which does not count."""
    details = error.errors(include_url=False)
    meant = {
        (*detail["loc"][:-1], _meant(detail["loc"]))
        for detail in details
        if detail["type"] == "extra_forbidden"
    }
    told = [d for d in details if not (d["type"] == "missing" and d["loc"] in meant)]
    told.sort(key=_told_after)
    more = f" (and {len(told) - 1} more)" if len(told) > 1 else ""
    return InputError(source, _field(told[0]["loc"]), _expected(told[0]) + more)


def _told_after(detail: ErrorDetails) -> int:
    """Lower first: names for which there are better ones, then all else, then what is missing."""
    if detail["type"] == "missing":
        return 2
    if detail["type"] != "extra_forbidden":
        return 1
    return 0 if detail["loc"][-1] in LATER_FIELDS or _meant(detail["loc"]) else 1


def _field(location: tuple[int | str, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return "".join(char for char in text.removeprefix(".")[:200] if char.isprintable())


def _expected(detail: ErrorDetails) -> str:
    kind, got = detail["type"], describe(detail["input"])
    match kind:
        case "expected":
            return detail["msg"]
        case "missing":
            return "expected a value, the field is missing"
        case "extra_forbidden":
            return _unknown_field(detail["loc"])
        case "too_short" | "too_long":
            return f"expected two cluster ids, got {len(detail['input'])}"
        case "string_type" if isinstance(detail["input"], bool | int | float | date):
            # YAML takes no, 1 and 2024-01-01 for other things than text.
            return f"expected text, got {got} (put it in quotes)"
    return f"expected {_EXPECTED_BY_TYPE.get(kind, detail['msg'])}, got {got}"


def _unknown_field(location: tuple[int | str, ...]) -> str:
    name = str(location[-1])
    if name in LATER_FIELDS:
        return f"the field {name} is not available in this version"
    closest = _meant(location)
    known = ", ".join(_fields_at(location))
    hint = f"did you mean {closest}?" if closest else f"expected one of {known}"
    return f"unknown field, {hint}"


def _meant(location: tuple[int | str, ...]) -> str | None:
    """The field that the unknown one at this place may stand for."""
    return nearest(str(location[-1]), _fields_at(location))


def _fields_at(location: tuple[int | str, ...]) -> list[str]:
    model = TopologyFields if len(location) == 1 else _FIELDS_BY_DEPTH[str(location[0])]
    return list(model.model_fields)
