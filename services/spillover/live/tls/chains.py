"""The test of whether a certificate leads to one that is trusted, by way of those that are sent
along with it: in whatever order they stand, and whatever else is sent."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from cryptography import x509

TIME = "%Y-%m-%d %H:%M:%S UTC"


def has_signed(ca: x509.Certificate, given: x509.Certificate) -> bool:
    """Returns whether this one has signed that one itself."""
    try:
        given.verify_directly_issued_by(ca)
    except Exception:  # noqa: BLE001 - of another name, key, kind of key: it has not
        return False
    return True


def holds(certificate: x509.Certificate, now: datetime) -> bool:
    """Returns whether it has begun and not ended."""
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def when_it_holds(certificate: x509.Certificate, now: datetime) -> str:
    """Returns when one that does not hold begins, or has ended."""
    begins = certificate.not_valid_before_utc
    if now < begins:
        return f"it begins at {begins:{TIME}}"
    return f"it has ended at {certificate.not_valid_after_utc:{TIME}}"


def leads_to(
    leaf: x509.Certificate,
    between: Sequence[x509.Certificate],
    trusted: Collection[x509.Certificate],
    now: datetime | None,
) -> bool:
    """Returns whether there is a way from this certificate to one of those that are trusted; given
    `now`, one over certificates that hold then."""
    reached, left = [leaf], [one for one in between if now is None or holds(one, now)]
    while reached:
        one = reached.pop()
        if any(ca == one or has_signed(ca, one) for ca in trusted):
            return True
        reached += [issuer for issuer in left if has_signed(issuer, one)]
        left = [issuer for issuer in left if issuer not in reached]
    return False


def is_cut_by_time(
    leaf: x509.Certificate,
    between: Sequence[x509.Certificate],
    trusted: Collection[x509.Certificate],
    now: datetime,
) -> bool:
    """Returns whether nobody can believe a certificate only because of when those hold that are
    sent along. Where others may be trusted, that is so if no issuer of its own holds."""
    if leads_to(leaf, between, trusted, now):
        return False
    issuers = [one for one in between if one != leaf and has_signed(one, leaf)]
    has_issuer = any(holds(one, now) for one in issuers)
    return (bool(issuers) and not has_issuer) or leads_to(leaf, between, trusted, None)


def missing_issuer(leaf: x509.Certificate, between: Sequence[x509.Certificate]) -> str:
    """Returns the name of who is missing to believe a certificate: the issuer of the last one to
    which it leads."""
    last, left = leaf, [one for one in between if one != leaf]
    while issuer := next((one for one in left if has_signed(one, last)), None):
        last = issuer
        left.remove(issuer)
    return last.issuer.rfc4514_string()
