"""The trust of a client where a url is https."""

from __future__ import annotations

from functools import cached_property
from os import PathLike, fspath

from spillover.live.http1.trusted import TrustedCas
from spillover.model.arguments import wrong


class Trust:
    """The CAs of this file; with None those of the file that SPILLOVER_CA_FILE names, or else of
    the system. Raises InputError for a file without any."""

    def __init__(self, ca_file: str | PathLike[str] | None) -> None:
        self._ca_file = None if ca_file is None else _checked_path(ca_file)
        if ca_file is not None:
            _ = self._cas  # what is wrong with it is told now

    def of(self, url: str) -> TrustedCas | None:
        """Returns what `HttpClient` is to be told for this url."""
        return self._cas if url.startswith("https:") else None

    @cached_property
    def _cas(self) -> TrustedCas:
        return TrustedCas(self._ca_file)


def _checked_path(given: object) -> str:
    """Returns the path. An empty one, of an empty variable, is refused: nobody meant the system's
    CAs by it."""
    path = fspath(given) if isinstance(given, PathLike) else given
    if not isinstance(path, str) or not path:
        raise wrong("ca_file", "a path", given)
    return path
