"""The further duties of a node with certificates: which door asks for them, and what ends when one
is no longer valid. `live.tls` judges certificates."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

from spillover.apps.http import certificates
from spillover.apps.http.connection import HttpConnection
from spillover.apps.http.server import HttpServer
from spillover.live.overflow.shell import NodeShell
from spillover.live.tls.handshakes import Front
from spillover.model.topology import Cluster, Topology

if TYPE_CHECKING:
    from spillover.live.tls.rotation import Credentials


def is_secure(topology: Topology, cluster: Cluster, *, apart: bool) -> list[bool]:
    """Returns whether each door of a cluster is encrypted. If the doors are `apart`, that of
    clients comes first, then that of neighbors."""
    of_clients = (cluster.url or "").startswith("https:")
    return [of_clients, topology.is_secure] if apart else [topology.is_secure]


def door_contexts(
    topology: Topology, cluster: Cluster, credentials: Credentials | None, *, apart: bool
) -> list[Front | None]:
    """Returns how to listen at each door; None where nothing is encrypted. Neighbors must have a
    certificate at a door of their own; clients are not asked for one at theirs."""
    callers = [ssl.CERT_NONE, ssl.CERT_REQUIRED] if apart else [ssl.CERT_OPTIONAL]
    secure = is_secure(topology, cluster, apart=apart)
    return [
        credentials.front(asked) if credentials is not None and encrypted else None
        for asked, encrypted in zip(callers, secure, strict=True)
    ]


def proxy_context(cluster: Cluster, credentials: Credentials | None) -> Front | None:
    """Returns how to listen for the clients of a service, as its `proxy_url` says."""
    if credentials is None or not (cluster.proxy_url or "").startswith("https:"):
        return None
    return credentials.front(ssl.CERT_NONE)


def watching(
    credentials: Credentials,
    shell: NodeShell,
    servers: Sequence[HttpServer],
    look_s: float | None = None,
) -> AbstractContextManager[None]:
    """Watches a node's certificates while it is entered, as `apps.http.certificates.watching`
    does."""
    labelled = ("cluster", shell.cluster.id)
    forget = partial(_forget, shell)
    return certificates.watching(
        *(credentials, servers, shell.metrics.registry, labelled, shell.fail),
        forget=forget,
        look_s=look_s,
    )


def _forget(shell: NodeShell, connection: HttpConnection) -> None:
    """Has a connection forget its peer: the other end is no neighbor any more."""
    peer, connection.peer = connection.peer, None
    if peer is not None:
        shell.neighborhood.streams.end(peer.neighbor)
