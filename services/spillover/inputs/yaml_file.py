"""YAML files by path: a mapping of fields and its source, with every fault in one line. `yaml_text`
reads strict YAML; callers know the fields and their meaning.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spillover.inputs.value_limits import LIMITS, TextLimits
from spillover.inputs.yaml_text import parse_yaml, readings_of
from spillover.model.errors import InputError
from spillover.model.nearest import nearest
from spillover.model.ranges import WHOLE_MAX

EXACT_INTEGER_LIMIT = WHOLE_MAX
"""Whole numbers up to here survive every JSON reader and every float."""

_SUFFIXES = (".yaml", ".yml")


def shown_path(path: str) -> str:
    """Returns the path as messages name it: on one line, whatever it is made of."""
    return path if path and path.isprintable() else repr(path)


def describe(value: object) -> str:
    """Returns a value as a message shows it: short, on one line, containers by their kind only."""
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case dict():
            return "a mapping"
        case list() | tuple() | set():
            return "a list"
        case int() if abs(value) > EXACT_INTEGER_LIMIT:
            return "a very large number"
    shown = repr(value) if isinstance(value, str | int | float) else str(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def describe_as_number(value: object) -> str:
    """Returns the same for a value that should be a number. For text that some readers of YAML take
    for one it adds how to write that."""
    got = describe(value)
    match readings_of(value) if isinstance(value, str) else []:
        case [one]:
            return f"{got} (write {one} if that is meant)"
        case [one, other]:
            return f"{got} (write {one} or {other}, whichever is meant)"
    return got


def read_mapping(
    path: str, *, missing: str, wanted: str = "a mapping of fields", limits: TextLimits = LIMITS
) -> dict[Any, Any]:
    """Returns the mapping of fields in the YAML file at `path`. `missing` is the whole message when
    there is no such file, and `wanted` names the expected content. Raises InputError.
    """
    text = read_text(path, missing=missing, limit_bytes=limits.characters)
    return mapping_of(text, shown_path(path), wanted, limits)


def mapping_of(
    text: str, source: str, wanted: str = "a mapping of fields", limits: TextLimits = LIMITS
) -> dict[Any, Any]:
    """Returns the mapping of fields that the text is. Raises InputError, naming `source`."""
    try:
        document = parse_yaml(text, limits)
    except ValueError as error:
        raise InputError(source, "", str(error)) from error
    if not isinstance(document, dict):
        expected = f"expected {wanted}, got {describe(document)}"
        raise InputError(source, "", expected)
    return document


def _beside(path: str) -> str:
    """Returns the file of a name like that in the same directory, if there is one."""
    wanted = Path(path)
    try:
        beside = {one.stem: one for one in wanted.parent.iterdir() if one.suffix in _SUFFIXES}
    except (OSError, ValueError):
        return ""
    found = nearest(wanted.stem, sorted(beside))
    return "" if found is None else f"; did you mean {shown_path(str(beside[found]))}?"


def read_text(path: str, *, missing: str, limit_bytes: int) -> str:
    """Returns the text of the file, as `read_mapping` reads it. Raises InputError."""
    source = shown_path(path)
    try:
        with Path(path).open("rb") as file:
            content = file.read(limit_bytes + 1)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        raise InputError(source, "", f"{missing}{_beside(path)}") from None
    except IsADirectoryError:
        raise InputError(source, "", "expected a file, got a directory") from None
    except OSError as error:
        raise InputError(source, "", f"expected a readable file, got: {error.strerror}") from error
    if len(content) > limit_bytes:
        raise InputError(source, "", f"expected at most {limit_bytes} bytes, got more")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        expected = f"expected UTF-8 text, got byte {content[error.start]:#04x} at {error.start}"
        raise InputError(source, "", expected) from error
