"""The identity of the other end of a connection with TLS, by the certificate that it has shown
there.

Which cluster or producer somebody is stands in a DNS name, and is one rule for both ends of a
connection: the name is there, in whatever case, with or without a dot at its end. A wildcard is
nobody's name: who holds it would be everybody.
"""

from __future__ import annotations

import _ssl
import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spillover.model.certified_names import same_name

HOSTNAME_MISMATCH = 62
"""OpenSSL's number for a certificate of another name (X509_V_ERR_HOSTNAME_MISMATCH)."""


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """The certificate of the other end. It held when the connection was made."""

    names: frozenset[str]
    """The names for which it is, as `same_name` writes them."""
    not_after_s: float
    """When the first ends of those by which it was believed, in seconds since 1970."""
    der: bytes
    chain: tuple[bytes, ...] = ()
    """The chain by which it was believed, itself first and a CA last, in DER."""


class ProvedObject(ssl.SSLObject):
    """The client's end of a connection on which the other one has to prove to be `server_hostname`:
    a context makes these that does not have OpenSSL check the host."""

    def do_handshake(self) -> None:
        super().do_handshake()
        # Addresses are spelled in one way.
        if self.server_hostname not in _names(self.getpeercert() or {}, "DNS", "IP Address"):
            told = f"certificate is not valid for '{self.server_hostname}'"
            error = ssl.SSLCertVerificationError(1, f"Hostname mismatch, {told}")
            error.verify_code = HOSTNAME_MISMATCH
            error.verify_message = f"Hostname mismatch, {told}"
            raise error


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
    chain = chain_of(connection, is_verified=True)
    ends_s = [ssl.cert_time_to_seconds(one["notAfter"]) for one in (told, *chain.values())]
    return PeerCertificate(_names(told, "DNS"), min(ends_s), der, tuple(chain))


def chain_of(
    connection: ssl.SSLObject | ssl.SSLSocket, *, is_verified: bool
) -> dict[bytes, dict[str, Any]]:
    """Returns the certificates (DER, and what Python tells of each) by which the other end's was
    believed, or else those that were sent."""
    inner: Any = connection._sslobj  # type: ignore[union-attr]  # noqa: SLF001 - public from 3.13 on
    found = inner.get_verified_chain() if is_verified else inner.get_unverified_chain()
    return {one.public_bytes(_ssl.ENCODING_DER): one.get_info() for one in found or ()}


def _names(told: Mapping[str, Any], *kinds: str) -> frozenset[str]:
    names = (value for kind, value in told.get("subjectAltName", ()) if kind in kinds)
    return frozenset(map(same_name, names))
