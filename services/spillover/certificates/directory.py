"""The directory in which certificates of a federation are made and renewed.

    ca.key              stays where certificates are made; no node needs it
    ca.crt              the CAs that nodes trust: two while the CA is being changed
    ID/tls.crt          the certificate of cluster ID, ID/tls.key its key, ID/ca.crt as above:
    ID/tls.key          what one node gets, under the names that cert-manager and Kubernetes'
    ID/ca.crt           secrets have

A CA is changed in three steps, with all nodes' files copied after each: `renew_ca` (a new CA, both
trusted), `renew` (leaves of the new one), `drop_old_ca`. What stands in certificates is in
`making`, whether they are right in `checking`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from spillover.certificates.making import Pair, make_ca, make_leaf, names_of, pem
from spillover.certificates.names import CertificateHolder, holders_of
from spillover.model.certified_names import certified_name
from spillover.model.errors import InputError
from spillover.model.topology import Topology

CA_KEY, CA_FILE, LEAF_FILE, KEY_FILE = "ca.key", "ca.crt", "tls.crt", "tls.key"
KEY_MODE, CERTIFICATE_MODE = 0o600, 0o644
OPTION = "--out"
DAYS = 90
"""A leaf holds so many days, unless another number is given."""


class CertificateDirectory:
    """One such directory. Everything raises InputError, naming `--out`, where a file is not what
    it should be or cannot be read or written. Times are given."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def clusters(self) -> list[str]:
        """Returns the ids of the clusters that have a certificate here."""
        try:
            return sorted(file.parent.name for file in self.path.glob(f"*/{LEAF_FILE}"))
        except OSError as error:
            raise _trouble(error) from error

    def make(
        self,
        name: str,
        holders: Sequence[CertificateHolder],
        now: datetime,
        days: int,
        *,
        force: bool,
    ) -> None:
        """Make a CA, called after the federation, and a leaf for each of these. With `force` in
        place of what is there."""
        self._check_absent([CA_KEY, *_keys(holders)], force=force)
        ca = make_ca(name, now)
        self._write(CA_KEY, ca.key_pem, KEY_MODE)
        self._write(CA_FILE, pem(ca.certificate), CERTIFICATE_MODE)
        for holder in holders:
            self._make_leaf(ca, holder, now, days)

    def complete(self, topology: Topology, now: datetime, days: int = DAYS) -> None:
        """Make what is missing for a topology, the CA first."""
        if not (self.path / CA_FILE).exists():
            self.make(topology.name, holders_of(topology), now, days, force=False)
            return
        there = self.clusters()
        missing = [one for one in holders_of(topology) if one.id not in there]
        if missing:
            self.add(missing, now, days, force=False)

    def add(
        self, holders: Sequence[CertificateHolder], now: datetime, days: int, *, force: bool
    ) -> None:
        self._check_absent(_keys(holders), force=force)
        ca = self._ca()
        for holder in holders:
            self._make_leaf(ca, holder, now, days)

    def name(self) -> str:
        """Returns what the CA is called after: the federation, the queue or the group."""
        self._ca()
        return federation_of(self.trusted()[0])

    def renew(
        self, clusters: Sequence[str], topology: Topology | None, now: datetime, days: int
    ) -> None:
        """Make new leaves, each with a new key, so that a stolen one is of use no longer than its
        certificate. They have the names that the topology gives, else those that they had."""
        ca = self._ca()
        known = {} if topology is None else {one.id: one for one in holders_of(topology)}
        had = {cluster: self.leaf(cluster) for cluster in clusters if cluster not in known}
        for cluster in clusters:
            if cluster in known:
                self._make_leaf(ca, known[cluster], now, days)
            else:
                self._write_leaf(make_leaf(ca, cluster, sans_of(had[cluster]), now, days), cluster)

    def renew_ca(self, now: datetime) -> None:
        """Make a second CA, which signs from now on, and have both trusted."""
        self._ca()  # without its key nothing here can be renewed
        if len(trusted := self.trusted()) > 1:
            expected = f"expected one CA in {self.path / CA_FILE}, got {len(trusted)}: end the "
            raise InputError(OPTION, "", f"{expected}change that is under way, with --drop-old-ca")
        new = make_ca(federation_of(trusted[0]), now)
        # Trusted first: what an interruption leaves behind is one that nobody uses.
        self._trust([new.certificate, *trusted])
        self._write(CA_KEY, new.key_pem, KEY_MODE)

    def drop_old_ca(self) -> None:
        """Have only the CA trusted that signs now."""
        current = self._ca().certificate
        for cluster in self.clusters():
            if not is_issued_by(self.leaf(cluster), current):
                expected = "expected leaves of the new CA, renew them first (and have nodes use "
                raise InputError(
                    OPTION, "", f"{expected}them): that of {cluster} is of the old one"
                )
        self._trust([current])

    def leaf(self, cluster: str) -> x509.Certificate:
        return self._certificates(self.path / cluster / LEAF_FILE)[0]

    def trusted(self) -> list[x509.Certificate]:
        """Returns the CAs."""
        return self._certificates(self.path / CA_FILE)

    def _ca(self) -> Pair:
        certificate, key = self.path / CA_FILE, self.path / CA_KEY
        try:
            return Pair.read(certificate.read_bytes(), key.read_bytes())
        except FileNotFoundError as error:
            expected = "expected the directory of `spillover tls init`, with the CA and its key"
            raise InputError(OPTION, "", f"{expected}; there is no {error.filename}") from None
        except OSError as error:
            raise _trouble(error) from error
        except ValueError as error:
            expected = f"expected a CA in {certificate} and its key in {key}: {error}"
            raise InputError(OPTION, "", expected) from None

    def _certificates(self, file: Path) -> list[x509.Certificate]:
        try:
            return x509.load_pem_x509_certificates(file.read_bytes())
        except OSError as error:
            raise _trouble(error) from error
        except ValueError as error:
            raise InputError(OPTION, "", f"expected certificates in {file}: {error}") from None

    def _trust(self, certificates: Sequence[x509.Certificate]) -> None:
        self._write(CA_FILE, pem(*certificates), CERTIFICATE_MODE)
        for cluster in self.clusters():
            self._write(f"{cluster}/{CA_FILE}", pem(*certificates), CERTIFICATE_MODE)

    def _make_leaf(self, ca: Pair, holder: CertificateHolder, now: datetime, days: int) -> None:
        names = names_of(certified_name(holder.id, holder.name), holder.hosts)
        self._write_leaf(make_leaf(ca, holder.id, names, now, days), holder.id)

    def _write_leaf(self, leaf: Pair, cluster: str) -> None:
        self._write(f"{cluster}/{CA_FILE}", pem(*self.trusted()), CERTIFICATE_MODE)
        self._write(f"{cluster}/{KEY_FILE}", leaf.key_pem, KEY_MODE)
        self._write(f"{cluster}/{LEAF_FILE}", pem(leaf.certificate), CERTIFICATE_MODE)

    def _check_absent(self, keys: Sequence[str], *, force: bool) -> None:
        for key in (self.path / name for name in keys):
            if not force and key.exists():
                expected = f"expected to replace no keys, {key} is there"
                raise InputError(OPTION, "", f"{expected}: `spillover tls renew`, or --force")

    def _write(self, name: str, content: bytes, mode: int) -> None:
        """Write a file in one step, and never with more rights than it is to have."""
        file = self.path / name
        new = file.with_name(f".{file.name}.new")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            new.unlink(missing_ok=True)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            with os.fdopen(descriptor, "wb") as opened:
                opened.write(content)
            new.replace(file)
        except OSError as error:
            raise _trouble(error) from error


def certify(directory: Path, topology: Topology, cluster: str) -> Path:
    """Makes what is missing for a topology that runs on this machine, and returns the directory of
    what the node of this cluster gets."""
    CertificateDirectory(directory).complete(topology, datetime.now(UTC))
    return directory / cluster


def _keys(holders: Sequence[CertificateHolder]) -> list[str]:
    return [f"{holder.id}/{KEY_FILE}" for holder in holders]


def sans_of(certificate: x509.Certificate) -> list[x509.GeneralName]:
    """Returns the names for which it holds."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return list(found.value)


def federation_of(ca: x509.Certificate) -> str:
    """Returns whose CA it is, from its name."""
    name = ca.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return str(name[0].value) if name else "spillover"


def is_issued_by(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    """Returns whether this CA has signed it."""
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _trouble(error: OSError) -> InputError:
    expected = f"expected a directory to read and write, got {error.filename}: {error.strerror}"
    return InputError(OPTION, "", expected)
