"""Secrets come from a file or from the environment, never from the command line."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from spillover.model.errors import InputError

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

TOKEN_VARIABLE = "SPILLOVER_TOKEN"  # noqa: S105 - a name
"""The variable of the environment that may have the secret; others cannot read it."""

SECRET_LENGTH_MAX = 500


def read_secret(path: str | None) -> str | None:
    """Returns the API token's secret that the file holds, else that of the environment; None
    without either. No message shows it. Raises InputError."""
    if path is None:
        source, text = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE, "")
    else:
        source = f"--token-file {path}" if path.isprintable() else "--token-file"
        text = _read(source, path)
    secret = text.strip()
    if path is None and not secret:
        return None
    if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise InputError(source, "", "expected the secret of an API token, one word and no more")
    if len(secret) > SECRET_LENGTH_MAX:
        raise InputError(source, "", f"expected at most {SECRET_LENGTH_MAX} characters, got more")
    return secret


def _read(source: str, path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return file.read(SECRET_LENGTH_MAX + 100).decode("latin-1")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "no such file"
        raise InputError(source, "", f"expected a readable file, got: {why}") from None


def add_token_file(parser: argparse.ArgumentParser) -> None:
    """Declare --token-file, for commands that call nodes."""
    parser.add_argument(
        "--token-file", metavar="FILE",
        help="show nodes the secret of an API token that is in this file (default: what "
        f"{TOKEN_VARIABLE} says; never an option, since `ps` shows these to everybody)",
    )  # fmt: skip


def token_headers(options: argparse.Namespace) -> Headers:
    """Returns the headers of requests that show the token, or none without one. Raises
    InputError."""
    secret = read_secret(options.token_file)
    return () if secret is None else ((b"authorization", f"Bearer {secret}".encode()),)
