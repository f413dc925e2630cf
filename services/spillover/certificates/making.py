"""Keys, certificates of CAs and of clusters: P-256, valid from five minutes ago, since clocks of
sites differ. Where they are kept is in `directory`, what they are called in `names`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from spillover.certificates.names import is_address

CA_DAYS = 3650
BACKDATED = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: EllipticCurvePrivateKey

    @classmethod
    def read(cls, certificate: bytes, key: bytes) -> Pair:
        """Returns what PEM says, of several certificates the one that the key fits. Raises
        ValueError."""
        try:
            private = load_pem_private_key(key, password=None)
        except TypeError:
            raise ValueError("the key is encrypted") from None
        if not isinstance(private, EllipticCurvePrivateKey):
            raise ValueError("the key is not of an elliptic curve")  # noqa: TRY004 - of a file
        for one in x509.load_pem_x509_certificates(certificate):
            if one.public_key() == private.public_key():
                return cls(one, private)
        raise ValueError("the key fits no certificate beside it")

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def pem(*certificates: x509.Certificate) -> bytes:
    """Returns a file of these certificates."""
    return b"".join(one.public_bytes(Encoding.PEM) for one in certificates)


def make_ca(federation: str, now: datetime) -> Pair:
    """Returns a CA of its own, which vouches for leaves only. Its name has a piece of its key, so
    that people tell an old one from a new one."""
    key = generate_private_key(SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    attributes = {
        NameOID.ORGANIZATION_NAME: federation,
        NameOID.COMMON_NAME: f"CA {identifier.digest.hex()[:8]}",
    }
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes.items()])
    certificate = (
        _begun(name, name, key.public_key(), now, CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return Pair(certificate, key)


def make_leaf(
    ca: Pair, cluster: str, names: Iterable[x509.GeneralName], now: datetime, days: int
) -> Pair:
    """Returns a certificate of a node for these names, with a key of its own, for both ends of a
    connection. It ends with its CA at the latest."""
    key = generate_private_key(SECP256R1())
    public = key.public_key()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, cluster)])
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    issuer = x509.SubjectKeyIdentifier.from_public_key(ca.key.public_key())
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer)
    certificate = (
        _begun(subject, ca.certificate.subject, public, now, days, ca.certificate)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(issued_by, critical=False)
        .sign(ca.key, hashes.SHA256())
    )
    return Pair(certificate, key)


def names_of(identity: str, hosts: Iterable[str]) -> list[x509.GeneralName]:
    """Returns the names of a certificate, the identity first."""
    return [x509.DNSName(identity), *map(_host_name, hosts)]


def _host_name(host: str) -> x509.GeneralName:
    if is_address(host):
        return x509.IPAddress(ipaddress.ip_address(host))
    return x509.DNSName(host)


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    public: EllipticCurvePublicKey,
    now: datetime,
    days: int,
    ca: x509.Certificate | None = None,
) -> x509.CertificateBuilder:
    end = now + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(end if ca is None else min(end, ca.not_valid_after_utc))
    )


def _usage(*, certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificates,
        crl_sign=certificates,
        encipher_only=False,
        decipher_only=False,
    )
