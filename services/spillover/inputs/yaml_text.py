"""Strict YAML: text to plain values within limits, every fault told in one line with its line
number, and plain values to text that readers of YAML 1.1 and of YAML 1.2 take for the same.

Values are built from the events of libyaml's parser, so that what is beyond a limit is refused
where it begins, and costs no more than what stands before it. It is stricter than PyYAML's safe
loader: duplicate keys, merge keys and unusual tags are refused, and no text makes it raise anything
but ValueError. The two versions of YAML disagree about scalars such as 010, 1:30, 1e9 and no. Here
they are numbers only where all agree who take them for one; the others are text, as are dates and
yes, no, on and off. Which fields mean what is not known here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

import yaml

from spillover.inputs.value_limits import LIMITS, TextLimits, too_many

_DIRECTIVES_MAX = 8
"""The limit of lines that begin with %. Why: libyaml compares each with all others before it
reports any."""

_BREAKS_BEFORE = ("\n%", "\r%", "\x85%", "\u2028%", "\u2029%")

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader, of which only the events are used. Without libyaml PyYAML's own parser gives the
same, a tenth as fast."""


class _RefusedError(ValueError):
    """An error for YAML that PyYAML would take and that is refused here."""

    def __init__(self, event: Any, expected: str) -> None:
        super().__init__(f"line {event.start_mark.line + 1}: {expected}")


class _WrittenInt(int):
    """A whole number that is not written as Python writes it; repr() gives its text."""

    written: str

    def __repr__(self) -> str:
        return self.written


class _WrittenFloat(float):
    """Another number that is not written as Python writes it; repr() gives its text."""

    written: str

    def __repr__(self) -> str:
        return self.written


def _int_or_text(text: str) -> int | str:
    """Returns a number for Python's literals that nobody takes for another number (0x1f and 1_000,
    not 010), else the text."""
    try:
        number = int(text, 0)
    except ValueError:
        return text
    if str(number) == text:
        return number
    written = _WrittenInt(number)
    written.written = text
    return written


def _float(text: str) -> float:
    number = float(re.sub(r"_|\.(?=[in])", "", text.lower()))
    if repr(number) == text:
        return number
    written = _WrittenFloat(number)
    written.written = text
    return written


_TAG = "tag:yaml.org,2002:"

_Read = Callable[[str], object]

# All that is not text by itself. A number may be written 1e9, as YAML 1.2 has it, and 1_000, as
# YAML 1.1 has it.
_NOT_TEXT: tuple[tuple[str, str, str, _Read], ...] = (
    ("null", r"~|null|Null|NULL|", "~nN", lambda _: None),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF", lambda text: text[0] in "tT"),
    (
        *("int", r"[-+]?(0b[01_]+|0o[0-7_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*)"),
        *("-+0123456789", _int_or_text),
    ),
    (
        "float",
        (
            r"[-+]?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?"
            r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
        ),
        "-+.0123456789",
        _float,
    ),
)

_BY_TAG = {_TAG + name: (re.compile(form), read) for name, form, _, read in _NOT_TEXT}

_BY_BEGINNING = {
    first: [_BY_TAG[_TAG + name] for name, _, firsts, _ in _NOT_TEXT if first in firsts]
    for first in ("", *"~nNtTfF-+.0123456789")
}
"""Other types that a plain scalar may have, by its first character."""


def _plain(text: str) -> object:
    for form, read in _BY_BEGINNING.get(text[:1], ()):
        if form.fullmatch(text):
            return read(text)
    return text


def _scalar(event: yaml.ScalarEvent) -> object:
    text: str = event.value
    if event.tag is None or event.tag == "!":
        return _plain(text) if event.implicit[0] else text
    if event.tag == _TAG + "str":
        return text
    form, read = _BY_TAG.get(event.tag) or _refuse_tag(event)
    if form.fullmatch(text):
        return read(text)
    raise _RefusedError(event, "expected YAML, got a tag that does not fit its value")


def _refuse_tag(event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> NoReturn:
    raise _RefusedError(event, f"expected YAML without unusual tags, got {str(event.tag)[:60]!r}")


_NO_NAME: Final = object()


class _Open:
    """A list or a mapping that has begun. `name` is the field whose value comes next."""

    __slots__ = ("before", "began", "fields", "listed", "name", "names")

    def __init__(self, began: yaml.CollectionStartEvent, before: tuple[int, int]) -> None:
        self.began = began
        self.before = before
        """The numbers of nodes and characters before it."""
        self.listed: list[object] = []
        self.fields: dict[object, object] = {}
        self.names: set[str] = set()
        self.name: object = _NO_NAME


class _Document:
    """The value of a document, built from its events."""

    def __init__(self, limits: TextLimits) -> None:
        self.value: object = None
        self._limits = limits
        self._open: list[_Open] = []
        self._nodes = self._characters = self._documents = 0
        self._anchors: dict[str, tuple[object, int, int]] = {}
        """The values of anchors, with the numbers of nodes and characters of each."""
        self._takers: dict[type, Callable[[Any], None]] = {
            yaml.DocumentStartEvent: self._begin_document,
            yaml.ScalarEvent: self._take_scalar,
            yaml.AliasEvent: self._take_alias,
            yaml.SequenceStartEvent: self._begin,
            yaml.MappingStartEvent: self._begin,
            yaml.SequenceEndEvent: self._end,
            yaml.MappingEndEvent: self._end,
        }

    def read(self, events: Iterable[yaml.Event]) -> None:
        for event in events:
            take = self._takers.get(type(event))
            if take is not None:
                take(event)

    def _begin_document(self, event: yaml.Event) -> None:
        self._documents += 1
        if self._documents > 1:
            raise _RefusedError(event, "expected a single document, got another one")

    def _take_scalar(self, event: yaml.ScalarEvent) -> None:
        self._count(event, 1, len(event.value))
        value = _scalar(event)
        if event.anchor is not None:
            self._anchors[event.anchor] = value, 1, len(event.value)
        self._put(event, value)

    def _take_alias(self, event: yaml.AliasEvent) -> None:
        if event.anchor not in self._anchors:
            expected = "expected the alias of a value before it"
            raise _RefusedError(event, f"{expected}, got *{str(event.anchor)[:60]}")
        value, nodes, characters = self._anchors[event.anchor]
        self._count(event, nodes, characters)
        self._put(event, value)

    def _begin(self, event: yaml.CollectionStartEvent) -> None:
        self._count(event, 1, 0)
        if event.tag not in (None, "!", _TAG + "seq", _TAG + "map"):
            _refuse_tag(event)
        if len(self._open) == self._limits.depth:
            raise _RefusedError(event, too_many(self._limits, "depth"))
        self._open.append(_Open(event, (self._nodes - 1, self._characters)))

    def _end(self, _: yaml.CollectionEndEvent) -> None:
        done = self._open.pop()
        is_list = type(done.began) is yaml.SequenceStartEvent
        value: object = done.listed if is_list else done.fields
        if done.began.anchor is not None:
            nodes, characters = done.before
            size = self._nodes - nodes, self._characters - characters
            self._anchors[done.began.anchor] = value, *size
        self._put(done.began, value)

    def _count(self, event: yaml.Event, nodes: int, characters: int) -> None:
        self._nodes += nodes
        self._characters += characters
        if self._nodes > self._limits.nodes:
            raise _RefusedError(event, too_many(self._limits, "nodes"))
        if self._characters > self._limits.characters:
            raise _RefusedError(event, too_many(self._limits, "characters"))

    def _put(self, event: yaml.Event, value: object) -> None:
        if not self._open:
            self.value = value
            return
        into = self._open[-1]
        if type(into.began) is yaml.SequenceStartEvent:
            into.listed.append(value)
            if len(into.listed) > self._limits.entries:
                raise _RefusedError(event, too_many(self._limits, "entries"))
        elif into.name is _NO_NAME:
            self._name(into, event, value)
        else:
            into.fields[into.name] = value
            into.name = _NO_NAME

    def _name(self, into: _Open, event: yaml.Event, value: object) -> None:
        if type(event) is not yaml.ScalarEvent:
            raise _RefusedError(event, "expected a field name, got a list, a mapping or an alias")
        text: str = event.value
        if text == "<<" and event.implicit[0]:
            # Nested merges grow exponentially; written-out fields are easier to read anyway.
            raise _RefusedError(event, "expected the fields written out, got a merge key <<")
        if text in into.names:
            raise _RefusedError(event, f"expected each field once, got {text[:60]!r} twice")
        into.names.add(text)
        if len(into.names) > self._limits.fields:
            raise _RefusedError(event, too_many(self._limits, "fields"))
        into.name = value


class _Dumper(yaml.SafeDumper):
    """The safe dumper, which quotes all that some reader takes for something else than text."""


_PLAIN = re.compile(r"(--?)?[^\W\d_]|[/_$(]")
"""A beginning of text that no version of YAML takes for a number, a date or a sign of its own."""

_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
"""Words that some version of YAML takes for a value, in whatever case."""

_BREAKS = re.compile("[\x85\u2028\u2029\ufeff]")
"""Characters that are line breaks in YAML 1.1 alone."""


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
    """Returns text that `parse_yaml` and other readers take for an equal value; fields keep their
    order."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def quoted(text: str) -> str:
    """Returns a scalar that is this text to all readers, on one line."""
    written: str = yaml.safe_dump(text, default_style='"', width=math.inf, allow_unicode=True)
    return written.rstrip("\n")


def as_written(value: object) -> str | None:
    """Returns the text that a scalar of `parse_yaml` was written as, for text and numbers; else
    None."""
    if isinstance(value, str):
        return value
    return repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


_UNCLEAR = re.compile(r"([-+]?)(0[0-9]+|[0-9]+((?::[0-5]?[0-9])+)(\.[0-9]*)?)")


def readings_of(text: str) -> list[str]:
    """Returns the numbers that some readers take a text for and others not, the likelier one first:
    10 and 8 for 010, and 90 for 1:30. Other text has none."""
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


def parse_yaml(text: str, limits: TextLimits = LIMITS) -> object:
    """Returns the single YAML document in `text` as dicts, lists and scalars; None if there is
    none.

    Raises ValueError with one line that begins with the line number, where there is one.
    """
    if len(text) > limits.characters:
        raise ValueError(f"expected at most {limits.characters} characters, got {len(text)}")
    if sum(map(text.count, _BREAKS_BEFORE)) > _DIRECTIVES_MAX:
        raise ValueError(f"expected at most {_DIRECTIVES_MAX} lines that begin with %, got more")
    document = _Document(limits)
    try:
        document.read(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        raise ValueError(_one_line(error, text)) from error
    except (yaml.reader.ReaderError, UnicodeEncodeError) as error:
        raise ValueError(_of_character(text)) from error
    return document.value


def lines_of_entries(text: str) -> list[int]:
    """Returns the line on which each entry of a list begins, for text that `parse_yaml` reads as
    one."""
    lines: list[int] = []
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.NodeEvent):
            if depth == 1:
                lines.append(event.start_mark.line + 1)  # type: ignore[union-attr]
            depth += isinstance(event, yaml.CollectionStartEvent)
    return lines


def _one_line(error: yaml.MarkedYAMLError, text: str) -> str:
    problem = " ".join(str(error.problem or error.context).split())
    mark = error.problem_mark or error.context_mark
    # To libyaml the end is on a line of its own.
    where = f"line {min(mark.line, text.count(chr(10))) + 1}: " if mark else ""
    return f"{where}expected YAML, got: {problem}"


def _of_character(text: str) -> str:
    """Returns the complaint about a character that no YAML has."""
    found = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if found is None:
        return "expected printable text"
    line = text.count("\n", 0, found.start()) + 1
    return f"line {line}: expected printable text, got character {ord(found[0]):#04x}"
