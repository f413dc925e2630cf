"""Who is at the other end of a connection with TLS, by the certificate that it has shown there.
What follows from that is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """Of the other end. It held when the connection was made."""

    names: frozenset[str]
    """For which it is, in lower case."""
    not_after_s: float
    """When it ends, in seconds since 1970."""
    der: bytes


def certificate_of(transport: asyncio.BaseTransport) -> PeerCertificate | None:
    """Returns what was shown on this connection; None without TLS, where nothing was shown, and
    where a session from before was resumed: who vouched for that may have gone."""
    connection: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    if connection is None or connection.session_reused:
        return None
    der = connection.getpeercert(binary_form=True)
    told: dict[str, Any] | None = connection.getpeercert()
    if not der or not told:
        return None
    names = (value.lower() for kind, value in told.get("subjectAltName", ()) if kind == "DNS")
    return PeerCertificate(frozenset(names), ssl.cert_time_to_seconds(told["notAfter"]), der)
