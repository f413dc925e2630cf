"""Certificates for tests: CAs and what they sign, right and wrong, in files."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from spillover.live.tls.material import TlsFiles

BOTH = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


class Authority:
    """A CA, signed `by` another one or by itself; with the key and the name of one that it is
    `like`, as CAs have it that are signed anew."""

    def __init__(
        self,
        name: str = "test CA",
        *,
        lasts: timedelta = timedelta(days=3650),
        by: Authority | None = None,
        like: Authority | None = None,
        path_length: int | None = None,
        limits: Sequence[x509.ExtensionType] = (),
    ) -> None:
        self._key = generate_private_key(SECP256R1()) if like is None else like._key
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        begins = datetime.now(UTC) - timedelta(days=30)
        builder = (
            x509.CertificateBuilder()
            .subject_name(self._name)
            .issuer_name(self._name if by is None else by._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(begins + timedelta(days=30) + lasts)
            .add_extension(x509.BasicConstraints(ca=True, path_length=path_length), critical=True)
        )
        for limit in limits:
            builder = builder.add_extension(limit, critical=False)
        self.certificate = builder.sign(self._key if by is None else by._key, hashes.SHA256())
        self.pem = self.certificate.public_bytes(Encoding.PEM)

    def sign(
        self,
        *names: str,
        begins: timedelta = timedelta(minutes=-5),
        ends: timedelta = timedelta(days=90),
        usage: Sequence[x509.ObjectIdentifier] = BOTH,
        addresses: Sequence[str] = (),
        key: EllipticCurvePrivateKey | RSAPrivateKey | None = None,
    ) -> tuple[bytes, bytes]:
        """Returns (certificate, key) in PEM. `begins` and `ends` are counted from now."""
        key, now = key or generate_private_key(SECP256R1()), datetime.now(UTC)
        told = [x509.NameAttribute(NameOID.COMMON_NAME, (names or ("nobody",))[0])]
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(told))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + ends)
        )
        known = [x509.DNSName(name) for name in names]
        known += [x509.IPAddress(ipaddress.ip_address(one)) for one in addresses]
        if known:
            builder = builder.add_extension(x509.SubjectAlternativeName(known), critical=False)
        if usage:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        form = Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        return signed.public_bytes(Encoding.PEM), key.private_bytes(*form)


def weak(authority: Authority, name: str = "a.ring5.spillover") -> tuple[bytes, bytes]:
    """Returns what `sign` does, of a key that is too short for OpenSSL."""
    return authority.sign(name, key=generate_rsa_key(65537, 1024))  # noqa: S505 - see above


def put(
    directory: Path, stem: str, signed: tuple[bytes, bytes], *authorities: Authority
) -> TlsFiles:
    """Writes a certificate, its key and the CAs to trust into three files, or over those that are
    there, as an operator does: one after another."""
    directory.mkdir(parents=True, exist_ok=True)
    cert, key, ca = (directory / f"{stem}.{kind}" for kind in ("crt", "key", "ca"))
    cert.write_bytes(signed[0])
    key.touch(mode=0o600)
    key.write_bytes(signed[1])
    ca.write_bytes(b"".join(authority.pem for authority in authorities))
    return TlsFiles(cert=str(cert), key=str(key), ca=str(ca))
