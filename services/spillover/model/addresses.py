"""What an address in a handler looks like, whatever is behind it."""

from __future__ import annotations

import ipaddress

HOST = r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]"
"""A regular expression; what matches may still be no `is_host`."""

SHOWN_MAX = 60


def is_host(host: str) -> bool:
    """Returns whether what matches HOST is a host: in brackets, an IPv6 address."""
    if not host.startswith("["):
        return True
    try:
        ipaddress.IPv6Address(host[1:-1])
    except ValueError:
        return False
    return True


def shown(text: str) -> str:
    """As it may stand in a line of complaint."""
    quoted = repr(text)
    return quoted if len(quoted) <= SHOWN_MAX else f"{quoted[: SHOWN_MAX - 3]}..."
