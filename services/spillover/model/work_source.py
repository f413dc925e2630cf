"""Where a request says how large it is, as the configuration tells it."""

from __future__ import annotations

import re
from dataclasses import dataclass

BYTES = "bytes"
"""The word, in files, for a source that is the size of the body."""

COUNTED = 1
"""The number, in files, that each request counts as where no source is given."""

EXPECTED = "expected 1, bytes, {header: NAME} or {json: FIELD, prompt: FIELD}"

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,100}")
_FIELD = re.compile(r"[ !#-\[\]-~]{1,100}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSource:
    """The parts of a request that its time grows with."""

    bytes: bool | None = None
    """The size of the body counts."""
    header: str | None = None
    """A header, with a number."""
    json: str | None = None
    """A field, with a number, of a body that is a JSON object."""
    prompt: str | None = None
    """A field of it whose length counts."""
    counted: bool | None = None
    """Nothing of it counts: such requests of a route count as the mean."""

    @property
    def is_in_fields(self) -> bool:
        """Returns whether it is part of the body as JSON."""
        return self.json is not None or self.prompt is not None

    def fault(self) -> str | None:
        """Returns why it is no source; None if it is one."""
        given = [self.bytes is True, self.counted is True]
        given += [self.header is not None, self.is_in_fields]
        names = [one for one in (self.json, self.prompt) if one is not None]
        if given.count(True) != 1 or not all(_FIELD.fullmatch(one) for one in names):
            return EXPECTED
        if self.header is not None and not _NAME.fullmatch(self.header):
            return EXPECTED
        return None
