"""How connections are encrypted, and whom either end believes: TLS 1.2 and 1.3, suites that are
authenticated, no tickets, nothing compressed. Where the certificates come from is in `material`.
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING

from spillover.live.tls.certified import ProvedObject
from spillover.live.tls.pem_files import BUNDLE_BYTES_MAX, read_pem, what_else
from spillover.model.errors import InputError
from spillover.model.trust import CA_VARIABLE

if TYPE_CHECKING:
    from spillover.live.tls.material import Material

HANDSHAKE_S = 5.0
"""The longest time for a handshake, from its first step on."""

SHUTDOWN_S = 2.0
"""The time that the other end has to say goodbye, too, before the connection is cut off."""

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""The ciphers of TLS 1.2; those of 1.3 are all good."""


def server_context(
    material: Material, *, callers: ssl.VerifyMode = ssl.CERT_OPTIONAL
) -> ssl.SSLContext:
    """Returns how to serve with this certificate. `callers` says whether those who connect are
    asked for theirs, and whether they must have one: what they show must hold in any case. Raises
    InputError where OpenSSL does not take what is in the files."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    harden(context)
    # An old ticket would be good after its CA has gone.
    context.num_tickets = 0
    context.verify_mode = callers
    _show(context, material)
    if material.files.ca is not None:
        _trust(context, material.files.ca)
    return context


def client_context(material: Material) -> ssl.SSLContext:
    """Returns how to call with this certificate those whom its CAs vouch for, and who have the name
    by which they are called. It is for loops (`wrap_bio`), whose objects look at that name. Raises
    InputError as `server_context`."""
    context = trusting_context(material.files.ca)
    context.check_hostname = False
    context.sslobject_class = ProvedObject
    _show(context, material)
    return context


def trusting_context(ca_file: str | None) -> ssl.SSLContext:
    """Returns how to call without a certificate those whom these CAs vouch for; with None those of
    the file that the environment names, or else of the system. Raises InputError for a file
    without any."""
    ca_file = ca_file or os.environ.get(CA_VARIABLE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    harden(context)
    context.hostname_checks_common_name = False
    if not ca_file:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _trust(context, ca_file)
    return context


def harden(context: ssl.SSLContext) -> None:
    """Have this context, of either end, take only what is in the first lines of this module."""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    # A CA of the bundle is trusted, also if another one has signed it.
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    # Python 3.13 adds RFC 5280's strict form to some contexts, which many companies' CAs lack (no
    # authority key identifier): a chain that is believed on one Python is believed on all.
    context.verify_flags &= ~ssl.VerifyFlags.VERIFY_X509_STRICT


def _show(context: ssl.SSLContext, material: Material) -> None:
    files = material.files
    try:
        context.load_cert_chain(files.cert, files.key)
    except (OSError, ValueError) as error:
        raise InputError(files.cert, "", f"expected what OpenSSL takes ({error})") from None


def _trust(context: ssl.SSLContext, ca_file: str) -> None:
    content = read_pem(ca_file, BUNDLE_BYTES_MAX)
    try:
        context.load_verify_locations(ca_file)
    except ssl.SSLError:
        expected = f"expected certificates in PEM, got {what_else(content)}"
        raise InputError(ca_file, "", expected) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(ca_file, "", f"expected a file that can be read ({reason})") from None
