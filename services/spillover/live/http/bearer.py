"""How a client shows an API token: `Authorization: Bearer SECRET`."""

from __future__ import annotations

import os

from spillover.model.errors import InputError

TOKEN_VARIABLE = "SPILLOVER_TOKEN"  # noqa: S105 - a name


def bearer_headers(token: str | None) -> tuple[tuple[bytes, bytes], ...]:
    """Returns the headers of requests that show this secret; with None that of the environment, if
    there is one. Raises InputError for what can be none."""
    token = (os.environ.get(TOKEN_VARIABLE) or None) if token is None else token
    if token is None:
        return ()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError("token", "", "expected printable ASCII characters without blanks")
    return ((b"authorization", b"Bearer " + token.encode()),)
