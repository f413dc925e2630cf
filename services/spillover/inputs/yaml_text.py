"""Strict YAML: text to plain values, every fault told in one line with its line number.

Stricter than PyYAML's safe loader: duplicate keys and merge keys are refused, and no text makes it
raise anything but ValueError. Numbers may be written 1e9, as YAML 1.2 has them; PyYAML, which reads
YAML 1.1, takes only 1.0e+9 for one. Which fields mean what is not known here.
"""

from __future__ import annotations

import re
from typing import Any

import yaml


class _RefusedError(yaml.constructor.ConstructorError):
    """YAML that PyYAML would take and that is refused here; `problem` is a whole message."""

    def __init__(self, node: yaml.Node, problem: str) -> None:
        super().__init__(None, None, problem, node.start_mark)


class _StrictLoader(yaml.SafeLoader):
    """The safe loader, which keeps the last of duplicate keys, made to refuse them."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 (PyYAML's signature)
        seen: set[str] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                # Nested merges grow exponentially; written-out fields are easier to read anyway.
                raise _RefusedError(key_node, "expected the fields written out, got a merge key <<")
            if not isinstance(key_node, yaml.ScalarNode):
                raise _RefusedError(key_node, "expected a field name, got a list or a mapping")
            if key_node.value in seen:
                raise _RefusedError(
                    key_node, f"expected each field once, got {key_node.value!r} twice"
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """The safe dumper, which puts into quotes what the loader here would take for a number."""


for _kind in (_StrictLoader, _Dumper):
    _kind.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"),
        list("-+.0123456789"),
    )


def dump_yaml(value: object) -> str:
    """Text that `parse_yaml` reads as an equal value; fields in the order given."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def parse_yaml(text: str) -> object:
    """Returns the single YAML document in `text` as dicts, lists and scalars; None if there is
    none.

    Raises ValueError with one line that begins with the line number, where there is one.
    """
    try:
        return yaml.load(text, Loader=_StrictLoader)  # noqa: S506 (a safe loader)
    except yaml.MarkedYAMLError as error:
        raise ValueError(_one_line(error)) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ValueError(
            f"line {line}: expected printable text, got character {error.character:#04x}"
        ) from error
    except RecursionError as error:
        raise ValueError("expected YAML that is nested less deeply") from error
    except (ArithmeticError, AttributeError, LookupError, ValueError) as error:
        # What PyYAML raises for scalars that are not what they claim: 2024-99-99, !!bool perhaps.
        raise ValueError(
            "expected YAML, got a date, a number or a tag that cannot be read"
        ) from error


def lines_of_entries(text: str) -> list[int]:
    """Returns on which line each entry of a list begins, of text that `parse_yaml` reads as one."""
    listed = yaml.compose(text, Loader=_StrictLoader)
    assert isinstance(listed, yaml.SequenceNode)  # noqa: S101 - as it was read
    return [entry.start_mark.line + 1 for entry in listed.value]


def _one_line(error: yaml.MarkedYAMLError) -> str:
    problem = " ".join(str(error.problem or error.context).split())
    if not isinstance(error, _RefusedError):
        problem = f"expected YAML, got: {problem}"
    mark = error.problem_mark or error.context_mark
    return f"line {mark.line + 1}: {problem}" if mark else problem
