"""What a field accepts, found out by asking: a value that is wrong is given to the very code that
reads the user's, and what that expected is the answer. So no limit is written down twice.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from spillover.model.errors import InputError

NOT_A_KIND: object = {"?": 0}
"""A mapping that no field takes: what is expected instead says of which kind the field is,
unless it takes others."""

WRONG: tuple[object, ...] = (-1, "", "?", [], [-1], ["?"], 1e12)
"""Values that some fields take and others do not."""

_OF_THE_PROBE = re.compile(r", got .*| \([^()]*\)", re.DOTALL)
"""What a message says of the value that was tried, or of the file around it."""

_ABOUT_THE_KIND = (
    *("text", "a list", "a mapping of fields", "an id"),
    *("a number", "a whole number", "a finite number", "a whole number or a list"),
    "a whole number, a list or auto",
)


class FileProbe:
    """Asks a reader of what is in files. `documents` are such that it takes; a field may be refused
    in one of them and taken in another, where it depends on others."""

    def __init__(
        self, read: Callable[[Mapping[str, Any]], object], documents: Sequence[Mapping[str, Any]]
    ) -> None:
        self._read = read
        self._documents = documents

    def accepts(self, path: tuple[str | int, ...]) -> tuple[str, ...]:
        """Returns what the field at this path accepts, in the reader's words."""
        kind = self._refusal(self._documents[0], path, NOT_A_KIND)
        if kind is None:
            kind = self._refusal(self._documents[0], path, "?")
        tried = itertools.product(WRONG, self._documents)
        return in_short([self._refusal(document, path, value) for value, document in tried], kind)

    def _refusal(
        self, document: Mapping[str, Any], path: tuple[str | int, ...], value: object
    ) -> str | None:
        changed: Any = copy.deepcopy(document)
        place = changed
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value
        return refusal(lambda: self._read(changed), _shown(path))


def _shown(path: tuple[str | int, ...]) -> str:
    """As messages have it: `clusters[0].servers`."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def refusal(read: Callable[[], object], field: str) -> str | None:
    """Returns what was expected of this field; None if nothing is wrong with it."""
    try:
        read()
    except InputError as error:
        is_meant = re.search(rf"\b{re.escape(field)}(\[\d+\])?$", error.field)
        return error.expected if is_meant else None
    return None


def in_short(told: Iterable[str | None], kind: str | None = None) -> tuple[str, ...]:
    """Messages as what is accepted, each once, `kind` first. That a value is of another kind is
    said by `kind` alone, and not even there if it is text and more is known."""
    said = dict.fromkeys(_plain(message) for message in told if message is not None)
    limits = [text for text in said if text not in _ABOUT_THE_KIND]
    first = "" if kind is None else _plain(kind)
    if "number" in first:
        limits = [re.sub(r"^a number (of )?", "", text) for text in limits]
    limits.sort(key=lambda text: text.startswith("only along with"))
    if first in limits or (first == "text" and limits):
        first = ""
    return (first, *limits) if first else tuple(limits)


def _plain(message: str) -> str:
    return _OF_THE_PROBE.sub("", message).removeprefix("expected ").strip()
