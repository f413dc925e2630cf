"""Limits of the size of a text of YAML or JSON, before anybody asks for its meaning, and a check of
values that are there already. While YAML is read, `yaml_text` keeps to them by itself."""

from __future__ import annotations

from typing import Final, NamedTuple


class TextLimits(NamedTuple):
    """The most that a text may have."""

    characters: int = 1_048_576
    """The characters of the text, and of all its scalars once aliases are written out. Why: a
    federation of 1,000 clusters takes some 200,000."""
    nodes: int = 100_000
    """The names and values, those that an alias stands for included. Why: 1,000 clusters of 20
    fields have 41,000 of them, and 5,000 links another 35,000."""
    depth: int = 32
    """The lists and mappings within each other. Why: no file of ours needs more than seven."""
    fields: int = 1_000
    """The fields of one mapping. Why: no cluster has more than 40, and servers of a pool are a few
    hundred."""
    entries: int = 10_000
    """The entries of one list. Why: 1,000 clusters have some 3,000 links, and no other list is as
    long."""


LIMITS: Final = TextLimits()

_CALLED = {
    "characters": "characters once aliases are written out",
    "nodes": "values",
    "depth": "lists and mappings within each other",
    "fields": "fields in a mapping",
    "entries": "entries in a list",
}


def too_many(limits: TextLimits, of: str) -> str:
    """Returns the message for a text that has too many of these, by the name of the limit."""
    return f"expected at most {getattr(limits, of)} {_CALLED[of]}, got more"


def check_size(value: object, limits: TextLimits = LIMITS) -> None:
    """Raise ValueError where lists and mappings, as JSON has them, are beyond these limits."""
    nodes, depth, level = 1, 0, [value]
    while level := [one for one in level if isinstance(one, dict | list)]:
        depth += 1
        if depth > limits.depth:
            raise ValueError(too_many(limits, "depth"))
        parts: list[object] = []
        for one in level:
            of = "fields" if isinstance(one, dict) else "entries"
            if len(one) > getattr(limits, of):
                raise ValueError(too_many(limits, of))
            nodes += 2 * len(one) if isinstance(one, dict) else len(one)
            if nodes > limits.nodes:
                raise ValueError(too_many(limits, "nodes"))
            parts += one.values() if isinstance(one, dict) else one
        level = parts
