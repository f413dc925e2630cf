"""What a service shows of itself and whom it trusts: a certificate, its key and a bundle of CAs,
read from three files and checked. Whatever is wrong with them is told in one line, before anything
goes by them.

What they are used for is in `contexts`, when they are read again in `rotation`. Needs the extra
`tls`: call `check_extra` before importing this.
"""

from __future__ import annotations

import hashlib
import math
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from spillover.live.tls.chains import (
    TIME,
    has_signed,
    holds,
    is_cut_by_time,
    leads_to,
    missing_issuer,
    when_it_holds,
)
from spillover.live.tls.pem_files import read_pem, what_else
from spillover.model.certified_names import same_name
from spillover.model.errors import InputError

SHOWN_MAX = 8
"""Names of a certificate that errors tell."""

SENT_MAX = 100
"""Certificates of one file. OpenSSL takes no more than 100 KiB of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Where the three are."""

    cert: str
    """The certificate, and behind it those in between, in PEM."""
    key: str
    """Its private key in PEM, without a password."""
    ca: str | None
    """Certificates of the CAs that vouch for the others; None where only clients call, and show
    none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """The contents of the files, which are right."""

    files: TlsFiles
    digest: bytes
    leaf: x509.Certificate
    between: tuple[x509.Certificate, ...]
    """The certificates that are sent along with it."""
    trusted: tuple[x509.Certificate, ...]
    """All CAs of the file."""
    cas: tuple[x509.Certificate, ...]
    warnings: tuple[str, ...] = ()
    """Remarks that are no errors, a line each."""

    @property
    def not_after_s(self) -> float:
        """Returns when the certificate ends, in seconds since 1970."""
        return self.leaf.not_valid_after_utc.timestamp()

    @property
    def between_not_after_s(self) -> float:
        """Returns when the first ends of those that are sent along; infinite if there are none."""
        return _first_end_s(self.between)

    @property
    def cas_not_after_s(self) -> float:
        """Returns when the first of the CAs ends; infinite if there are none."""
        return _first_end_s(self.trusted)

    def is_as_in_files(self) -> bool:
        """Returns whether the same still stands there."""
        try:
            return _digest(_read_all(self.files)) == self.digest
        except InputError:
            return False

    def vouches_for(self, certificate: bytes) -> bool:
        """Returns whether one of the CAs has signed this certificate (DER) itself."""
        try:
            given = x509.load_der_x509_certificate(certificate)
        except ValueError:
            return False
        return any(has_signed(ca, given) for ca in self.cas)


def read_material(files: TlsFiles, name: str | None, now: datetime | None = None) -> Material:
    """Reads the three and checks that they fit: the key is that of the certificate, which holds now
    and, unless `name` is None, is for this DNS name. Raises InputError."""
    now = datetime.now(UTC) if now is None else now
    contents = _read_all(files)
    cert_pem, key_pem, ca_pem = contents
    leaf, *between = sent = _sent(files.cert, cert_pem)
    _check_key(files, key_pem, sent)
    _check_leaf(files.cert, leaf, name, now)
    trusted = () if files.ca is None else _checked_cas(files.ca, ca_pem, now)
    cas = _holding(trusted, now)
    _check_between(files.cert, sent, cas, now)
    return Material(
        files=files,
        digest=_digest(contents),
        leaf=leaf,
        between=tuple(between),
        trusted=trusted,
        cas=cas,
        warnings=tuple(_warnings(files, sent, trusted, now)),
    )


def faults_of(files: TlsFiles, name: str | None, now: datetime) -> list[InputError]:
    """Returns what is wrong with each of the three by itself, where `read_material` raises what it
    meets first. `source` says which."""
    found: list[InputError] = []
    sent: tuple[x509.Certificate, ...] = ()
    cas: tuple[x509.Certificate, ...] = ()
    with _noted(found):
        sent = _sent(files.cert, read_pem(files.cert))
        _check_leaf(files.cert, sent[0], name, now)
    with _noted(found):
        _check_key(files, read_pem(files.key), sent)
    if files.ca is not None:
        with _noted(found):
            cas = _holding(_checked_cas(files.ca, read_pem(files.ca), now), now)
    if sent:
        with _noted(found):
            _check_between(files.cert, sent, cas, now)
    return found


def read_certificates(path: str) -> tuple[x509.Certificate, ...]:
    """Returns those of a file, at least one. Raises InputError."""
    return _certificates(path, read_pem(path))


def is_ca(certificate: x509.Certificate) -> bool:
    """Returns whether it says that it may sign others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def names_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """Returns the DNS names that a certificate is for."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return ()
    return tuple(found.value.get_values_for_type(x509.DNSName))


def why_unissued(
    files: TlsFiles, sent: Sequence[x509.Certificate], cas: Collection[x509.Certificate]
) -> str | None:
    """Returns what to expect of the CAs where none of them vouches for the certificate, whenever
    those hold that are sent along; None where one does."""
    if leads_to(sent[0], sent[1:], cas, None):
        return None
    expected = f"expected the CA that has issued {files.cert}, {missing_issuer(sent[0], sent[1:])}"
    return f"{expected} (or, behind the certificate in that file, those in between)"


def described(certificate: x509.Certificate) -> str:
    """Returns words by which a certificate can be found: its names, fingerprint and issuer."""
    names = names_of(certificate)
    told = ", ".join(names[:SHOWN_MAX]) or "no DNS name"
    if len(names) > SHOWN_MAX:
        told += f" and {len(names) - SHOWN_MAX} more"
    issuer = certificate.issuer.rfc4514_string() or "nobody"
    return f"one for {told} (sha256 {fingerprint(certificate)}, issued by {issuer})"


def fingerprint(certificate: x509.Certificate) -> str:
    """Returns its SHA-256, as `openssl x509 -fingerprint -sha256` writes it."""
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def _read_all(files: TlsFiles) -> tuple[bytes, bytes, bytes]:
    cert, key = read_pem(files.cert), read_pem(files.key)
    return cert, key, b"" if files.ca is None else read_pem(files.ca)


def _digest(contents: Iterable[bytes]) -> bytes:
    return b"".join(hashlib.sha256(content).digest() for content in contents)


def _certificates(path: str, content: bytes) -> tuple[x509.Certificate, ...]:
    try:
        return tuple(x509.load_pem_x509_certificates(content))
    except (ValueError, UnsupportedAlgorithm):
        expected = f"expected certificates in PEM, got {what_else(content)}"
        raise InputError(path, "", expected) from None


def _sent(path: str, content: bytes) -> tuple[x509.Certificate, ...]:
    found = _certificates(path, content)
    if len(found) > SENT_MAX:
        expected = f"expected a certificate and those in between, {SENT_MAX} at most"
        raise InputError(path, "", f"{expected}, got {len(found)}")
    return found


def _holding(cas: Iterable[x509.Certificate], now: datetime) -> tuple[x509.Certificate, ...]:
    return tuple(ca for ca in cas if holds(ca, now))


def _first_end_s(certificates: Iterable[x509.Certificate]) -> float:
    ends = (one.not_valid_after_utc.timestamp() for one in certificates)
    return min(ends, default=math.inf)


@contextmanager
def _noted(found: list[InputError]) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        found.append(error)


def _check_key(files: TlsFiles, content: bytes, sent: Sequence[x509.Certificate]) -> None:
    try:
        key = load_pem_private_key(content, None)
    except TypeError:
        raise InputError(files.key, "", "expected a key without a password") from None
    except (ValueError, UnsupportedAlgorithm):
        expected = f"expected a private key in PEM, got {what_else(content)}"
        raise InputError(files.key, "", expected) from None
    own = _encoded(key.public_key())
    fits = next((at for at, one in enumerate(sent, 1) if _public_key_of(one) == own), None)
    if not sent or fits == 1:
        return
    if fits is not None:
        expected = "expected the certificate first, and behind it those in between; got the one"
        raise InputError(files.cert, "", f"{expected} of {files.key} as number {fits}")
    expected = f"expected the key of the certificate in {files.cert}"
    raise InputError(files.key, "", f"{expected}, {described(sent[0])}; got another one")


def _public_key_of(certificate: x509.Certificate) -> bytes | None:
    """Returns the public key, or None where it is of an unknown kind."""
    try:
        return _encoded(certificate.public_key())
    except (ValueError, UnsupportedAlgorithm):
        return None


def _encoded(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _check_leaf(path: str, leaf: x509.Certificate, name: str | None, now: datetime) -> None:
    if name is not None:
        _check_name(path, leaf, name)
        check_usage(path, leaf)
    _check_dates(path, leaf, now)


def _check_name(path: str, leaf: x509.Certificate, name: str) -> None:
    if name not in set(map(same_name, names_of(leaf))):
        expected = f"expected a certificate with the DNS name (SAN) {name}"
        raise InputError(path, "", f"{expected}, got {described(leaf)}")


def _check_dates(path: str, leaf: x509.Certificate, now: datetime) -> None:
    if holds(leaf, now):
        return
    expected = "expected a certificate that still holds"
    if now < leaf.not_valid_before_utc:
        expected = "expected a certificate that holds already, or a clock that is right"
    when = f"{when_it_holds(leaf, now)}, now it is {now:{TIME}}"
    raise InputError(path, "", f"{expected}: {when}; got {described(leaf)}")


def _check_between(
    path: str,
    sent: Sequence[x509.Certificate],
    cas: Collection[x509.Certificate],
    now: datetime,
) -> None:
    """Check certificates that are sent along as strictly as the first one, if it cannot do without
    them."""
    leaf, *between = sent
    if holds(leaf, now) and is_cut_by_time(leaf, between, cas, now):
        told = "; ".join(_out_of_time(between, now))
        expected = "expected those between the certificate and its CA to hold, too"
        raise InputError(path, "", f"{expected}: {told}, now it is {now:{TIME}}")


def _out_of_time(certificates: Iterable[x509.Certificate], now: datetime) -> Iterable[str]:
    """Returns words for each that does not hold."""
    for one in certificates:
        if not holds(one, now):
            subject = one.subject.rfc4514_string() or "one without a name"
            yield f"{subject} (sha256 {fingerprint(one)}): {when_it_holds(one, now)}"


def check_usage(path: str, leaf: x509.Certificate) -> None:
    """Nodes call each other: each is server and client. Raises InputError."""
    try:
        usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    except ValueError as error:
        raise InputError(path, "", f"expected a certificate that can be read ({error})") from None
    both = {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    if not both <= set(usage) and ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE not in usage:
        expected = "expected a certificate for servers and clients (extended key usage)"
        raise InputError(path, "", f"{expected}, got {described(leaf)}")


def _checked_cas(path: str, content: bytes, now: datetime) -> tuple[x509.Certificate, ...]:
    """Returns them, of which one at least holds: one that has ended vouches for nobody, and does no
    harm beside others."""
    cas = _certificates(path, content)
    for ca in cas:
        if not is_ca(ca):
            raise InputError(path, "", f"expected certificates of CAs, got {described(ca)}")
    if not _holding(cas, now):
        expected = "expected a CA that holds now"
        raise InputError(path, "", f"{expected}, got {described(cas[0])}")
    return cas


def _warnings(
    files: TlsFiles,
    sent: Sequence[x509.Certificate],
    trusted: Sequence[x509.Certificate],
    now: datetime,
) -> Iterable[str]:
    mode = stat.S_IMODE(Path(files.key).stat().st_mode)
    if mode & stat.S_IROTH:
        yield f"{files.key}: anybody on this machine can read the key (mode {mode:03o}): chmod 600"
    for told in _out_of_time(sent[1:], now):
        yield f"{files.cert}: expected those that are sent along to hold, got {told}"
    for told in _out_of_time(trusted, now):
        yield f"{files.ca}: expected CAs that hold, got {told}: it vouches for nobody"
    expected = why_unissued(files, sent, _holding(trusted, now)) if trusted else None
    if expected is not None:
        yield f"{files.ca}: {expected}: neighbors that trust the same CAs refuse it"
