"""How a client shows an API token: `Authorization: Bearer SECRET`."""

from __future__ import annotations

import os

from spillover.model.errors import InputError

TOKEN_VARIABLE = "SPILLOVER_TOKEN"  # noqa: S105 - a name


def bearer_headers(token: str | None) -> tuple[tuple[bytes, bytes], ...]:
    """Returns the headers of requests that show this secret; with None that of the environment, if
    there is one. Raises InputError for what can be none."""
    source = "token"
    if token is None:  # of a file, perhaps, with a newline at its end
        token, source = os.environ.get(TOKEN_VARIABLE, "").strip(), TOKEN_VARIABLE
        if not token:
            return ()
    is_text = isinstance(token, str)  # what users leave out is often none
    if not is_text or not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(source, "", "expected printable ASCII characters without blanks")
    return ((b"authorization", b"Bearer " + token.encode()),)
