"""Checks of certificates: those of a directory, of files, or of a door that is open. Files are
judged as a node would judge them (`live.tls.material`), and a door as a client would. What is found
is told, right or wrong.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509

from spillover.certificates.directory import (
    CA_FILE,
    KEY_FILE,
    LEAF_FILE,
    CertificateDirectory,
    sans_of,
)
from spillover.certificates.names import hosts_of
from spillover.live.hosts.blocking import connect
from spillover.live.http1.base_url import BaseUrl
from spillover.live.tls.certified import chain_of
from spillover.live.tls.chains import holds, when_it_holds
from spillover.live.tls.contexts import trusting_context
from spillover.live.tls.material import (
    TlsFiles,
    check_usage,
    described,
    faults_of,
    fingerprint,
    is_ca,
    names_of,
    read_certificates,
    read_material,
    why_unissued,
)
from spillover.live.tls.rehearsal import why_refused
from spillover.model.certified_names import certified_name, same_name
from spillover.model.errors import InputError, RunError, blamed_on
from spillover.model.topology import Topology

ANSWER_WITHIN_S = 5.0

DAYS_LEFT = 14
"""The default: it is when alerts begin."""

TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The demands on a certificate: the name that it must have, where its holder is known; the
    hosts under which its node is called. Less than `days_left` is too little."""

    expected: str | None = None
    hosts: Sequence[str] = ()
    cluster: str | None = None
    days_left: int = DAYS_LEFT

    @classmethod
    def of(cls, topology: Topology | None, cluster: str | None, days_left: int) -> Wanted:
        """Returns those of a cluster of a topology, as far as they are known."""
        if topology is None or cluster is None:
            return cls(cluster=cluster, days_left=days_left)
        name = certified_name(cluster, topology.name)
        return cls(name, hosts_of(topology.cluster(cluster)), cluster, days_left)


@dataclass(slots=True)
class CheckResult:
    """One certificate, and what is wrong with it. `warnings` are what works, and should not be."""

    place: str
    expected: str | None = None
    subject: str | None = None
    names: list[str] = field(default_factory=list)
    fingerprint: str | None = None
    issuer: str | None = None
    not_before: str | None = None
    not_after: str | None = None
    days_left: float | None = None
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def check_files(files: TlsFiles, wanted: Wanted, now: datetime) -> list[CheckResult]:
    """Returns what is found in the files of one node: its certificate and those that are sent along
    with it, then the key if anything is wrong with it, and the CAs. What is wrong stands with the
    file that it is wrong with."""
    found = CheckResult(files.cert, wanted.expected)
    key, cas, between = CheckResult(files.key), list[CheckResult](), list[CheckResult]()
    if files.ca is not None:
        cas = check_cas(files.ca, wanted.days_left, now)
    for fault in faults_of(files, wanted.expected, now):
        at = {files.cert: found, files.key: key}.get(fault.source) or cas[0]
        if fault.expected not in at.problems:
            at.problems.append(fault.expected)
    with suppress(InputError):
        material = read_material(files, wanted.expected, now)
        found.warnings += material.warnings
        refused = why_refused(material, wanted.expected or _name_of_peer(material.leaf))
        found.problems += filter(None, [refused])
    with suppress(InputError):
        sent = read_certificates(files.cert)
        _tell(sent[0], wanted, now, found)
        _check_names(wanted, found)
        between = _check_others(sent[1:], files.cert, wanted, now)
        if files.ca is not None:
            told = why_unissued(files, sent, read_certificates(files.ca))
            cas[0].problems += [] if told is None else [told]
    return [found, *between, *([key] if key.problems else []), *cas]


def _name_of_peer(leaf: x509.Certificate) -> str | None:
    """The first name by which a node or a producer proves who it is; None for servers alone, as
    lease members are."""
    try:
        check_usage("", leaf)
    except InputError:
        return None
    return next((same_name(name) for name in names_of(leaf) if _is_of_node(name)), None)


def _is_of_node(name: str) -> bool:
    return same_name(name).endswith(".spillover")


def _check_others(
    others: Sequence[x509.Certificate], place: str, wanted: Wanted, now: datetime
) -> list[CheckResult]:
    """Returns the results for those that stand beside a certificate in its file, or behind its
    url."""
    places = [f"{place}, {one.subject.rfc4514_string()}" for one in others]
    told = zip(others, places, strict=True)
    return [_check_dates(one, where, wanted.days_left, now) for one, where in told]


def check_cas(file: str, days_left: int, now: datetime) -> list[CheckResult]:
    """Returns what is found in a file of CAs."""
    try:
        authorities = read_certificates(file)
    except InputError as error:
        return [CheckResult(file, problems=[error.expected])]
    return [_check_ca(ca, file, days_left, now) for ca in authorities]


def _check_ca(ca: x509.Certificate, file: str, days_left: int, now: datetime) -> CheckResult:
    found = _check_dates(ca, file, days_left, now)
    if not is_ca(ca):
        found.problems = [f"expected certificates of CAs, got {described(ca)}"]
    return found


def _check_dates(one: x509.Certificate, place: str, days_left: int, now: datetime) -> CheckResult:
    """Returns the result for one that vouches for others, in a file of CAs or sent along."""
    found = CheckResult(place)
    _tell(one, Wanted(days_left=days_left), now, found)
    if not holds(one, now):
        expected = "expected a CA that holds now"
        found.problems.append(f"{expected}: {when_it_holds(one, now)}")
    return found


def check_directory(
    path: Path, topology: Topology | None, cluster: str | None, days_left: int, now: datetime
) -> list[CheckResult]:
    """Returns what is found in a directory, of all clusters or of one. Raises InputError where
    nothing is found there that could be checked."""
    whole = CertificateDirectory(path)
    if (path / LEAF_FILE).exists():
        return check_files(_files_in(path), Wanted.of(topology, cluster, days_left), now)
    there = whole.clusters()
    clusters = sorted({*there, *_ids(topology)})
    if cluster is not None:
        if cluster not in clusters:
            expected = f"expected one of {', '.join(clusters) or 'none'}, got {cluster!r}"
            raise InputError("--cluster", "", expected)
        clusters = [cluster]
    if not clusters:
        expected = f"expected {LEAF_FILE}, or a directory of each cluster with one"
        raise InputError(str(path), "", expected)
    found = check_cas(str(path / CA_FILE), days_left, now)
    for one in clusters:
        given = topology if one in _ids(topology) else None
        leaf, *rest = check_files(_files_in(path / one), Wanted.of(given, one, days_left), now)
        has_any = (path / one).is_dir()  # else one line says that there is nothing
        found += [leaf, *(other for other in rest if has_any and other.problems)]
    return found


def describe(certificate: x509.Certificate, place: Path, now: datetime) -> CheckResult:
    """Returns what is in a certificate, held against nothing."""
    found = CheckResult(str(place))
    _tell(certificate, Wanted(days_left=0), now, found)
    return found


def check_url(url: str, ca_file: str | None, wanted: Wanted, now: datetime) -> list[CheckResult]:
    """Returns what the door at this url shows of itself: its certificate, those that it sends
    along, and the CA by which it is believed. Raises RunError where there is no TLS, InputError for
    a file without CAs."""
    found = CheckResult(url, wanted.expected)
    with blamed_on("WHAT"):
        BaseUrl(url)
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    shown.check_hostname = False
    shown.verify_mode = ssl.CERT_NONE  # it is told, and judged below
    trusting = trusting_context(ca_file)
    host = same_name(urlsplit(url).hostname or "")
    try:
        leaf, *others = map(x509.load_der_x509_certificate, _shown(url, shown, host))
    except (OSError, ValueError) as error:
        raise RunError(f"no TLS at {url}: {getattr(error, 'strerror', None) or error}") from None
    _tell(leaf, wanted, now, found)
    for name in dict.fromkeys([wanted.expected or host, host]):
        # A node is known by its name alone, which `certified` compares; a host by OpenSSL's rules.
        trusting.check_hostname = name == host
        try:
            by = map(x509.load_der_x509_certificate, _shown(url, trusting, name))
        except ssl.SSLCertVerificationError as error:
            found.problems.append(f"as {name}: {error.verify_message}")
        except (OSError, ValueError) as error:
            raise RunError(f"no TLS at {url} as {name}: {error}") from None
        else:
            others += [one for one in by if one not in (leaf, *others)]
    if wanted.expected is not None and wanted.expected not in map(same_name, found.names):
        mismatch = f"Hostname mismatch, certificate is not valid for '{wanted.expected}'"
        found.problems.append(f"as {wanted.expected}: {mismatch}")
    return [found, *_check_others(others, url, wanted, now)]


def _shown(url: str, context: ssl.SSLContext, server_name: str) -> list[bytes]:
    """The certificates that a door shows to who calls it by this name, its own first, or by which
    it is believed where that is asked for."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 443
    with (
        connect(host, port, ANSWER_WITHIN_S) as way,
        context.wrap_socket(way, server_hostname=server_name) as secured,
    ):
        return list(chain_of(secured, is_verified=context.verify_mode != ssl.CERT_NONE))


def _ids(topology: Topology | None) -> Sequence[str]:
    return () if topology is None else topology.cluster_ids


def _files_in(directory: Path) -> TlsFiles:
    named = {"cert": LEAF_FILE, "key": KEY_FILE, "ca": CA_FILE}
    return TlsFiles(**{field: str(directory / name) for field, name in named.items()})


def _tell(one: x509.Certificate, wanted: Wanted, now: datetime, found: CheckResult) -> None:
    end = one.not_valid_after_utc
    found.names = [str(name.value) for name in sans_of(one)]
    found.subject = one.subject.rfc4514_string()
    found.fingerprint = fingerprint(one)
    found.issuer = one.issuer.rfc4514_string()
    found.not_before = f"{one.not_valid_before_utc:{TIME}}"
    found.not_after = f"{end:{TIME}}"
    found.days_left = round((end - now) / timedelta(days=1), 1)
    if now < end < now + timedelta(days=wanted.days_left):
        found.problems.append(
            f"expected {wanted.days_left} days more: it ends at {found.not_after}"
        )


def _check_names(wanted: Wanted, found: CheckResult) -> None:
    names = set(map(same_name, found.names))
    told = f"; found {', '.join(found.names) or 'none'}"
    dotted = [name for name in found.names if name.endswith(".") and not _is_of_node(name)]
    if dotted:
        refused = "a dot at the end of a host's name has OpenSSL, and who goes by it, refuse it"
        found.warnings.append(f"{refused}: {', '.join(dotted)}")
    missing = [host for host in wanted.hosts if same_name(host) not in names]
    if missing:
        found.problems.append(f"expected names for its urls too: {', '.join(missing)}{told}")
    first = "" if wanted.cluster is None else f"{wanted.cluster.lower()}."
    if wanted.expected is None and not any(
        name.startswith(first) and _is_of_node(name) for name in names
    ):
        expected = f"expected the name {first or 'ID.'}FEDERATION.spillover"
        found.problems.append(f"{expected}{told}")
