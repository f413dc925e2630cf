"""What is declared about a field where the field stands: its type, its default, the docstring below
it, and in that docstring the reason for the default, after `Why:`.

Values that are accepted are found out in `accepted`, command lines are read in `options`.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass

WHY = "Why:"

UNITS = {"_ms": "milliseconds", "_s": "seconds", "_bytes": "bytes"}
"""By the end of a field's name, where units stand in this product."""


class Undocumented(Exception):
    """Something that users can set is not explained. The text has one line for each such thing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing that users can set, as a page shows it. `default` is None where it is required."""

    name: str
    says: str
    why: str
    default: str | None
    unit: str = ""
    accepts: tuple[str, ...] = ()

    def gaps(self, where: str) -> Iterator[str]:
        """Returns what is missing, a line each; `where` says in which place to add it."""
        if not self.says:
            yield f"{self.name}: expected what it means, {where}"
        if self.default is not None and not self.why:
            yield f"{self.name}: expected why its default is {self.default}, {where}"

    def text(self) -> str:
        """Returns the entry as Markdown."""
        default = "Required." if self.default is None else f"Default: {self.default}."
        unit = f"In {self.unit}." if self.unit else ""
        accepts = f"Accepts {', '.join(self.accepts)}." if self.accepts else ""
        facts = " ".join(part for part in (default, unit, accepts) if part)
        why = f"\n*{WHY}* {self.why[:1].upper()}{self.why[1:]}\n" if self.why else ""
        return f"### `{self.name}`\n\n{facts}\n\n{self.says}\n{why}"


def entry_of(
    name: str, docstring: str, default: str | None, accepts: tuple[str, ...] = ()
) -> Entry:
    """Returns an entry from the docstring of a field."""
    says, _, why = docstring.partition(WHY)
    return Entry(
        name=name,
        says=paragraphs(says),
        why=paragraphs(why),
        default=default,
        unit=unit_of(name),
        accepts=accepts,
    )


def docstrings(owner: type) -> dict[str, str]:
    """Returns the docstrings below the fields of a class, by field."""
    tree = ast.parse(inspect.getsource(owner))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef))
    found = {}
    for field, told in itertools.pairwise(body):
        match field, told:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[name] = text
    return found


def shown(value: object) -> str:
    """Returns a value as one would write it in a file."""
    match value:
        case None:
            return "not set"
        case () | []:
            return "none"
        case tuple() | list() | set() | frozenset():
            return f"`{json.dumps([json.loads(_plain(one)) for one in value])}`"
        case str():
            return f"`{value}`"
    return f"`{_plain(value)}`"


def unit_of(name: str) -> str:
    """Returns the unit that a name ends with; empty without one."""
    return next((unit for end, unit in UNITS.items() if name.endswith(end)), "")


def paragraphs(text: str) -> str:
    """Returns a docstring as Markdown: one line a paragraph, without the indentation of the
    source."""
    parts = inspect.cleandoc(text.strip()).split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in parts)


def _plain(value: object) -> str:
    """JSON, with whole numbers written as such."""
    return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value)
