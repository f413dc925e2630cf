"""Where a request says which session it belongs to, as the configuration tells it."""

from __future__ import annotations

import re
from typing import NamedTuple

HEADER, COOKIE, JSON, PREFIX = "header", "cookie", "json", "prefix"
EXPECTED = "expected header:NAME, cookie:NAME, json:FIELD or prefix"

_FORM = re.compile(
    rf"(?P<kind>{HEADER}|{COOKIE}):(?P<name>[!#$%&'*+\-.^_`|~0-9A-Za-z]{{1,100}})"
    rf"|(?P<json>{JSON}):(?P<field>[ !#-\[\]-~]{{1,100}})|(?P<prefix>{PREFIX})"
)


class SessionSource(NamedTuple):
    """The part of a request that names its session."""

    kind: str
    name: str

    @classmethod
    def of(cls, text: str) -> SessionSource:
        """Returns what a configuration says. Raises ValueError."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise ValueError(f"{EXPECTED}, got {text!r}")
        kind = match["kind"] or match["json"] or match["prefix"]
        return cls(kind, match["name"] or match["field"] or "")

    @property
    def is_in_body(self) -> bool:
        return self.kind in (JSON, PREFIX)
