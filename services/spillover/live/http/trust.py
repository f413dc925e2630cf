"""Whom a client believes where a url is https."""

from __future__ import annotations

from functools import cached_property
from os import PathLike, fspath

from spillover.live.http.trusted import TrustedCas
from spillover.model.errors import InputError


class Trust:
    """The CAs of this file; with None those of the file that SPILLOVER_CA_FILE names, or else of
    the system. Raises InputError for a file without any."""

    def __init__(self, ca_file: str | PathLike[str] | None) -> None:
        try:
            self._ca_file = None if ca_file is None else fspath(ca_file)
        except TypeError:
            raise InputError("ca_file", "", f"expected a path, got {ca_file!r:.80}") from None
        if ca_file is not None:
            _ = self._cas  # what is wrong with it is told now

    def of(self, url: str) -> TrustedCas | None:
        """Returns what `HttpClient` is to be told for this url."""
        return self._cas if url.startswith("https:") else None

    @cached_property
    def _cas(self) -> TrustedCas:
        return TrustedCas(self._ca_file)
