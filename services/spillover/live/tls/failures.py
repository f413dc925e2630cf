"""The reasons for which a handshake can fail, as few words that can be counted, and as a line."""

from __future__ import annotations

import ssl

from spillover.live.tls.contexts import HANDSHAKE_S

UNTRUSTED, EXPIRED, NOT_YET_VALID = "untrusted", "expired", "not_yet_valid"
WRONG_NAME, NO_CERTIFICATE = "wrong_name", "no_certificate"
REFUSED, NO_TLS, TIMEOUT, PROTOCOL = "refused", "no_tls", "timeout", "protocol"

REASONS = (
    UNTRUSTED, EXPIRED, NOT_YET_VALID, WRONG_NAME, NO_CERTIFICATE, REFUSED, NO_TLS, TIMEOUT,
    PROTOCOL,
)  # fmt: skip
"""`refused`: it is the other end that refuses; `protocol`: all else, from versions that do not meet
to bytes that mean nothing."""

_OF_VERIFYING = {9: NOT_YET_VALID, 10: EXPIRED, 62: WRONG_NAME, 63: WRONG_NAME, 64: WRONG_NAME}
"""Failures by OpenSSL's number of what is wrong with a certificate (X509_V_ERR_...)."""

_NOT_TLS = ("HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")


def is_of_handshake(error: BaseException) -> bool:
    """Returns whether it is TLS for which a connection was not to be had: there may have been
    nobody to shake hands with, or somebody who left."""
    # The second is what loops raise where a handshake takes long.
    return isinstance(error, ssl.SSLError | ConnectionAbortedError)


def reason_of(error: BaseException) -> str:
    """Returns one of REASONS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _OF_VERIFYING.get(error.verify_code, UNTRUSTED)
    if isinstance(error, TimeoutError | ConnectionAbortedError):
        return TIMEOUT
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    if "_ALERT_" in reason:
        return REFUSED
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return NO_CERTIFICATE
    return NO_TLS if reason in _NOT_TLS else PROTOCOL


def in_words(error: Exception) -> str:
    """Returns what is wrong, without OpenSSL's own names for it where it has words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not believed: {error.verify_message.rstrip('.')}"
    if reason_of(error) == TIMEOUT:
        return f"its part of the handshake did not come within {HANDSHAKE_S:g} s"
    reason = (getattr(error, "reason", None) or str(error)).lower().replace("_", " ")
    if reason_of(error) == REFUSED:
        return f"it does not believe this side's certificate, or was shown none ({reason})"
    if reason_of(error) == NO_TLS:
        return f"it does not speak TLS ({reason})"
    return f"no handshake came about ({reason})"
