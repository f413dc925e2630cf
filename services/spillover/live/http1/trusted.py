"""The CAs that a client believes that shows no certificate of its own: those of a file, which is
read again once it has changed. That is looked at where a connection is opened: requests cost
nothing."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path

from spillover.live.process.logs import Message
from spillover.live.tls.contexts import trusting_context
from spillover.model.errors import InputError
from spillover.model.trust import CA_VARIABLE

_log = logging.getLogger(__name__)


class TrustedCas:
    """The CAs of this file; with None those of the file that the environment names, or else of the
    system, which are read once. Raises InputError for a file without any."""

    def __init__(self, ca_file: str | None) -> None:
        self._file = ca_file or os.environ.get(CA_VARIABLE) or None
        self._seen = self._look()
        self._context = trusting_context(self._file)

    def context(self) -> ssl.SSLContext:
        """Returns what the next connection goes by. A file that cannot be read, or is none, leaves
        the CAs as they were, and is told once."""
        seen = self._look()
        if seen != self._seen:
            self._seen = seen
            try:
                self._context = trusting_context(self._file)
            except InputError as error:
                words = "the CAs of services stay as they were: they cannot be read"
                _log.warning(Message(words, reason=str(error)))
            else:
                _log.info(Message("the CAs of services are renewed", file=self._file))
        return self._context

    def _look(self) -> tuple[int, int, int] | None:
        """Returns marks of the file that differ where another one is there; None without a file."""
        if self._file is None:
            return None
        try:
            found = Path(self._file).stat()
        except (OSError, ValueError):
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns
