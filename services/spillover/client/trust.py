"""Whom a client believes where a url is https."""

from __future__ import annotations

import ssl
from functools import cached_property

from spillover.live.tls.contexts import trusting_context


class Trust:
    """The CAs of this file; with None those of the file that SPILLOVER_CA_FILE names, or else of
    the system. Raises InputError for a file without any."""

    def __init__(self, ca_file: str | None) -> None:
        self._ca_file = ca_file
        if ca_file is not None:
            _ = self._context  # what is wrong with it is told now

    def of(self, url: str) -> ssl.SSLContext | None:
        """Returns what `HttpClient` is to be told for this url."""
        return self._context if url.startswith("https:") else None

    @cached_property
    def _context(self) -> ssl.SSLContext:
        return trusting_context(self._ca_file)
