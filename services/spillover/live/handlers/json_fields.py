"""Fields of a body that is a JSON object, found without making anything of its other fields: a body
may have a hundred thousand of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

Body: TypeAlias = bytes | memoryview | msgspec.Raw

MISSING = msgspec.Raw(b"")


class JsonFields:
    """The fields of these names, none of which has a quote or a backslash."""

    def __init__(self, names: Sequence[str]) -> None:
        places = {name: f"field{at}" for at, name in enumerate(dict.fromkeys(names))}
        wanted = msgspec.defstruct(
            "Wanted",
            [(place, msgspec.Raw, MISSING) for place in places.values()],
            rename={place: name for name, place in places.items()},
        )
        self._places = [places[name] for name in names]
        self._decode = msgspec.json.Decoder(wanted).decode

    def of(self, body: Body) -> list[bytes]:
        """Returns the texts of the fields, each empty where it is missing. Raises one of
        UNREADABLE."""
        found = self._decode(body)
        return [bytes(getattr(found, place)) for place in self._places]
