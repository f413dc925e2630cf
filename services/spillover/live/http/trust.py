"""Whom a client believes where a url is https."""

from __future__ import annotations

from functools import cached_property

from spillover.live.http.trusted import TrustedCas


class Trust:
    """The CAs of this file; with None those of the file that SPILLOVER_CA_FILE names, or else of
    the system. Raises InputError for a file without any."""

    def __init__(self, ca_file: str | None) -> None:
        self._ca_file = ca_file
        if ca_file is not None:
            _ = self._cas  # what is wrong with it is told now

    def of(self, url: str) -> TrustedCas | None:
        """Returns what `HttpClient` is to be told for this url."""
        return self._cas if url.startswith("https:") else None

    @cached_property
    def _cas(self) -> TrustedCas:
        return TrustedCas(self._ca_file)
