"""Strict YAML: text to plain values, every fault told in one line with its line number, and plain
values to text that readers of YAML 1.1 and of YAML 1.2 take for the same.

It is stricter than PyYAML's safe loader: duplicate keys and merge keys are refused, and no text
makes it raise anything but ValueError. The two versions of YAML disagree about scalars such as 010,
1:30, 1e9 and no. Here they are numbers only where all agree who take them for one; the others are
text, as are dates and yes, no, on and off. Which fields mean what is not known here.
"""

from __future__ import annotations

import math
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


class _WrittenInt(int):
    """A whole number that is not written as Python writes it; repr() is how it is written."""

    written: str

    def __repr__(self) -> str:
        return self.written


class _WrittenFloat(float):
    """The same of other numbers."""

    written: str

    def __repr__(self) -> str:
        return self.written


def _as_text(loader: _StrictLoader, node: yaml.ScalarNode) -> str:
    text: str = loader.construct_scalar(node)
    return text


def _int_or_text(loader: _StrictLoader, node: yaml.ScalarNode) -> int | str:
    """Python's literals are those that nobody takes for another number: 0x1f and 1_000, not 010."""
    text = _as_text(loader, node)
    try:
        number = int(text, 0)
    except ValueError:
        return text
    if str(number) == text:
        return number
    written = _WrittenInt(number)
    written.written = text
    return written


def _float(loader: _StrictLoader, node: yaml.ScalarNode) -> float:
    text = _as_text(loader, node)
    number = float(re.sub(r"_|\.(?=[in])", "", text.lower()))
    if repr(number) == text:
        return number
    written = _WrittenFloat(number)
    written.written = text
    return written


_TAG = "tag:yaml.org,2002:"

# All that is not text by itself. A number may be written 1e9, as YAML 1.2 has it, and 1_000, as
# YAML 1.1 has it.
_StrictLoader.yaml_implicit_resolvers = {}
for _kind, _form, _first in (
    ("null", r"(~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"(true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("merge", r"<<$", ["<"]),
    ("int", r"[-+]?(0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)$", list("-+0123456789")),
    (
        "float",
        (
            r"([-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?"
            r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"
        ),
        list("-+.0123456789"),
    ),
):
    _StrictLoader.add_implicit_resolver(_TAG + _kind, re.compile(_form), _first)
_StrictLoader.add_constructor(_TAG + "int", _int_or_text)
_StrictLoader.add_constructor(_TAG + "float", _float)
_StrictLoader.add_constructor(_TAG + "merge", _as_text)


class _Dumper(yaml.SafeDumper):
    """The safe dumper, which puts into quotes whatever some reader takes for something else than
    text."""


_PLAIN = re.compile(r"(--?)?[^\W\d_]|[/_$(]")
"""How text begins that no version of YAML takes for a number, a date or a sign of its own..."""

_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
"""... unless it is one of these, in whatever case."""

_BREAKS = re.compile("[\x85\u2028\u2029\ufeff]")
"""They are line breaks in YAML 1.1 alone."""


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    is_plain = _PLAIN.match(text) and text.lower() not in _WORDS
    style = None if is_plain else "'"
    if _BREAKS.search(text):
        style = '"'
    elif "\n" in text:
        style = "|"
    return dumper.represent_scalar(_TAG + "str", text, style)


_Dumper.add_representer(str, _text)


def dump_yaml(value: object) -> str:
    """Text that `parse_yaml` and other readers take for an equal value; fields in the order
    given."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def quoted(text: str) -> str:
    """Returns a scalar that is this text to all readers, on one line."""
    written: str = yaml.safe_dump(text, default_style='"', width=math.inf, allow_unicode=True)
    return written.rstrip("\n")


def as_written(value: object) -> str | None:
    """Returns the text that a scalar of `parse_yaml` was written as, of text and numbers; else
    None."""
    if isinstance(value, str):
        return value
    return repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


_UNCLEAR = re.compile(r"([-+]?)(0[0-9]+|[0-9]+((?::[0-5]?[0-9])+)(\.[0-9]*)?)")


def readings_of(text: str) -> list[str]:
    """Returns what readers take text for that only some of them take for a number, the likelier one
    first: 10 and 8 for 010, and 90 for 1:30. Nothing of other text."""
    if len(text) > 40 or not (found := _UNCLEAR.fullmatch(text.replace("_", ""))):
        return []
    sign, digits, in_sixties, _ = found.groups()
    if in_sixties:
        seconds = 0.0
        for part in digits.split(":"):
            seconds = 60 * seconds + float(part)
        return [f"{sign}{seconds:.15g}"]
    readings = [int(digits)] if set(digits) & {"8", "9"} else [int(digits), int(digits, 8)]
    return [f"{sign}{number}" for number in dict.fromkeys(readings)]


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
        # What PyYAML raises for scalars that are not what they claim: !!bool perhaps.
        raise ValueError("expected YAML, got a tag that does not fit its value") from error


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
