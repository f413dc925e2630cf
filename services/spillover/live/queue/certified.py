"""Producers with certificates: each proves to the others which one it is, by the same kind of name
as nodes (`model.certified_names`). Whoever brings objects, or takes them, is no producer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from spillover.live.http1.client import HttpClient
from spillover.live.tls.certified import PeerCertificate
from spillover.model.certified_names import certified_name, check_names, same_name
from spillover.model.errors import InputError, blamed_on

if TYPE_CHECKING:
    from spillover.live.tls.material import TlsFiles
    from spillover.live.tls.rotation import Credentials

CONNECTIONS_MAX = 512
"""The most connections to one peer; each takes 100 KiB or more here and there. What is said beyond
that counts as not said."""

NAMES_TOLD_MAX = 8
"""A caller that is turned away reads at most so many names of its certificate."""


class CertifiedProducers:
    """The certificates of one producer: its own, and the names by which it knows its peers."""

    def __init__(self, credentials: Credentials, federation: str, peers: Iterable[str]) -> None:
        self.credentials = credentials
        self._names = {peer: certified_name(peer, federation) for peer in peers}

    def options_of(self, peer: str) -> dict[str, Any]:
        """Returns what an `HttpClient` of this peer is told besides, so that the peer has to prove
        who it is."""
        return {
            "connections_max": CONNECTIONS_MAX,
            "tls": self.credentials.client,
            "server_name": self._names[peer],
            "on_tls_failure": self.credentials.failed_out,
        }

    def keep_new(self, clients: Iterable[HttpClient]) -> None:
        """Have these go by the newest certificates, and let go of connections by older ones."""

        def on_look(credentials: Credentials, *, renewed: bool) -> None:
            for client in clients:
                client.retire(credentials.is_over)
                if renewed:
                    client.renew(credentials.client)

        self.credentials.on_look.append(on_look)

    def why_not(self, shown: PeerCertificate | None, claimed: str | None = None) -> str | None:
        """Returns why who has shown this is not the peer that it claims to be, or without a claim
        no peer at all; None if it is."""
        expected = [name for peer, name in self._names.items() if claimed in (None, peer)]
        names = frozenset[str]() if shown is None else shown.names
        if not names.isdisjoint(expected):
            return None
        told = ", ".join(sorted(names)[:NAMES_TOLD_MAX]) or "none"
        whose = "of a peer" if claimed is None or not expected else f"for {expected[0]}"
        return f"expected a certificate {whose}, got {told}"


def certify(files: TlsFiles, producer: str, peers: Collection[str]) -> CertifiedProducers:
    """Returns what the producer goes by that has these files. Which queue it is of stands in its
    certificate: `<id>.<queue>.spillover`; without peers nobody asks. Raises InputError."""
    from spillover.live.tls.material import (  # noqa: PLC0415 - needs the extra `tls`
        described,
        names_of,
        read_material,
    )
    from spillover.live.tls.rotation import Credentials  # noqa: PLC0415

    if not peers:
        return CertifiedProducers(Credentials(files, None), "", ())
    leaf = read_material(files, None).leaf
    found = queues_of(names_of(leaf), producer)
    if len(found) != 1:
        expected = f"expected a certificate with one DNS name (SAN) {producer.lower()}.QUEUE"
        raise InputError(files.cert, "", f"{expected}.spillover, got {described(leaf)}")
    (queue,) = found
    with blamed_on("--peer"):
        check_names(queue, [producer, *peers])
    return CertifiedProducers(Credentials(files, certified_name(producer, queue)), queue, peers)


def queues_of(names: Iterable[str], producer: str) -> set[str]:
    """Returns those in which one with these names in its certificate is this producer."""
    before, behind = f"{producer.lower()}.", ".spillover"
    told = map(same_name, names)
    middle = {
        name[len(before) : -len(behind)]
        for name in told
        if name.startswith(before) and name.endswith(behind)
    }
    return {one for one in middle if one and "." not in one}
