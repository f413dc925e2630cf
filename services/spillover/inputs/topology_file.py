"""Topologies by name: the built-in ones, else YAML files of contract section 2, read and written.

Every fault of a file becomes one InputError that names the file and the field. What the fields
are is in `topology_schema`; strict YAML is in `yaml_text`.
"""

from __future__ import annotations

import difflib
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel, ValidationError

from spillover.inputs.builtin import BUILTIN_NAMES, builtin_topology
from spillover.inputs.topology_schema import (
    LATER_FIELDS,
    ClusterFields,
    LinkFields,
    TopologyFields,
    describe,
)
from spillover.inputs.yaml_text import parse_yaml
from spillover.model.errors import InputError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from spillover.model.topology import Topology

_FILE_LIMIT_BYTES = 1_048_576
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
    """The built-in topology of that name, else the one in the YAML file at that path.

    A file without `name` is called after itself. Raises InputError, always one line.
    """
    if name_or_path in BUILTIN_NAMES:
        return builtin_topology(name_or_path)
    source = name_or_path if name_or_path and name_or_path.isprintable() else repr(name_or_path)
    if name_or_path in _LATER_NAMES:
        raise InputError(source, "", "this built-in topology is not available in this version")
    document = _parse(source, _read(source, name_or_path))
    try:
        return TopologyFields.model_validate(
            {"name": Path(name_or_path).stem or "topology", **document}
        ).to_topology()
    except ValidationError as error:
        raise _first_fault(source, error) from error
    except InputError as error:
        raise InputError(source, error.field, error.expected) from error


def dump_topology(topology: Topology) -> str:
    """YAML text that `load_topology` reads back as an equal topology."""
    fields = asdict(topology)
    for cluster in fields["clusters"]:
        for name in [name for name, value in cluster.items() if value is None]:
            del cluster[name]
    for link in fields["links"]:
        link["between"] = list(link["between"])
    fields["clusters"], fields["links"] = list(fields["clusters"]), list(fields["links"])
    return yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)


def _read(source: str, path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            content = file.read(_FILE_LIMIT_BYTES + 1)
    except (FileNotFoundError, ValueError):
        names = ", ".join(BUILTIN_NAMES)
        expected = f"expected a built-in topology ({names}) or a YAML file, found neither"
        raise InputError(source, "", expected) from None
    except IsADirectoryError:
        raise InputError(source, "", "expected a file, got a directory") from None
    except OSError as error:
        raise InputError(source, "", f"expected a readable file, got: {error.strerror}") from error
    if len(content) > _FILE_LIMIT_BYTES:
        raise InputError(source, "", f"expected at most {_FILE_LIMIT_BYTES} bytes, got more")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        expected = f"expected UTF-8 text, got byte {content[error.start]:#04x} at {error.start}"
        raise InputError(source, "", expected) from error


def _parse(source: str, text: str) -> dict[Any, Any]:
    try:
        document = parse_yaml(text)
    except ValueError as error:
        raise InputError(source, "", str(error)) from error
    if not isinstance(document, dict):
        expected = f"expected a mapping of fields, got {describe(document)}"
        raise InputError(source, "", expected)
    return document


def _first_fault(source: str, error: ValidationError) -> InputError:
    details = error.errors(include_url=False)
    more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
    return InputError(source, _field(details[0]["loc"]), _expected(details[0]) + more)


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
    model = TopologyFields if len(location) == 1 else _FIELDS_BY_DEPTH[str(location[0])]
    known = list(model.model_fields)
    closest = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {closest[0]}?" if closest else f"expected one of {', '.join(known)}"
    return f"unknown field, {hint}"
