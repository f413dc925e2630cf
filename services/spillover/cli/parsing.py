"""Reading addresses and origins in options. Numbers, and usage errors, are read by
`spillover_loadgen.option_types`."""

from __future__ import annotations

import argparse
from urllib.parse import urlsplit

from spillover.apps.sites import origin_of


def address(text: str) -> tuple[str, int]:
    """HOST:PORT, the host of an IPv6 address in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, got {text!r}")
    return host.strip("[]"), int(port)


def origin(text: str) -> str:
    """An origin of pages: http(s)://HOST[:PORT], or * for all."""
    try:
        return origin_of(text)
    except ValueError:
        expected = "expected http(s)://HOST[:PORT] or *"
        raise argparse.ArgumentTypeError(f"{expected}, got {text!r}") from None


def add_allow_origin(parser: argparse.ArgumentParser) -> None:
    """Of the commands that start nodes."""
    parser.add_argument(
        "--allow-origin",
        type=origin,
        action="append",
        default=[],
        metavar="ORIGIN",
        help="let pages of this other site make requests; may be repeated, * is all sites "
        "(default: none)",
    )


def node_url(text: str) -> str:
    """http://HOST[:PORT], without a path."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    bare = f"{parts.scheme}://{parts.netloc}"
    # What is left over beside scheme, host and port: a path, a query, a user, blanks.
    extra = text.removesuffix("/") != bare or "@" in bare or " " in bare or not bare.isprintable()
    if parts.scheme != "http" or not parts.hostname or port == 0 or extra:
        raise argparse.ArgumentTypeError(f"expected http://HOST[:PORT], got {text!r}")
    return bare
