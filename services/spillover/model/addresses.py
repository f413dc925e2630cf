"""The forms of addresses that users write, whatever is behind them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from urllib.parse import urlsplit

HOST = r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]"
"""A regular expression; a text that matches may still be no `is_host`."""

_HOST_AND_PORT = re.compile(rf"({HOST})(?::([0-9]{{1,5}}))?")

SHOWN_MAX = 60


def of_socket(told: object) -> tuple[str, int] | None:
    """Returns the address that a socket tells of one of its ends, None where it is none of the
    internet. An IPv4 address stays one where a socket of IPv6 takes both (RFC 4291, 2.5.5.2)."""
    if not isinstance(told, tuple) or len(told) < 2:
        return None
    host = str(told[0])
    return host.removeprefix(_IPV4_AS_IPV6) if "." in host else host, int(told[1])


_IPV4_AS_IPV6 = "::ffff:"


def is_host(host: str) -> bool:
    """Returns whether what matches HOST is a host: in brackets, an IPv6 address."""
    if not host.startswith("["):
        return True
    try:
        ipaddress.IPv6Address(host[1:-1])
    except ValueError:
        return False
    return True


def is_host_and_port(text: str) -> bool:
    """Returns whether it is HOST or HOST:PORT."""
    match = _HOST_AND_PORT.fullmatch(text)
    return match is not None and is_host(match[1]) and 0 < int(match[2] or 80) < 65_536


def is_plain_url(text: str) -> bool:
    """Returns whether it is http://HOST[:PORT] or https://HOST[:PORT] and nothing more."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    plain = f"{parts.scheme}://{host}" if port is None else f"{parts.scheme}://{host}:{port}"
    # Comparing with the parts put together again refuses paths, users, queries and odd ports.
    same = text.lower() == plain and re.search(r"\s", text) is None
    known = parts.scheme in ("http", "https")
    return known and bool(parts.hostname) and port != 0 and same


def may_be_led_to(url: str, given: Collection[str]) -> bool:
    """Returns whether who was given these urls may go where an answer says, with what it shows
    there. Who was given https is not led to http, where everybody on the way can read it."""
    is_secret = any(one.startswith("https:") for one in given)
    return not is_secret or url.startswith("https:") or url in given


def shown(text: str) -> str:
    """Returns the text as an error message may quote it."""
    quoted = repr(text)
    return quoted if len(quoted) <= SHOWN_MAX else f"{quoted[: SHOWN_MAX - 3]}..."
