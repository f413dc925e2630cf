"""What a node with certificates does besides: which door asks for them, and what ends when one
holds no more. What is right about them is judged in `live.tls`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from spillover.apps.http.server import HttpServer
from spillover.live.overflow.shell import NodeShell
from spillover.model.topology import Cluster, Topology

if TYPE_CHECKING:
    from spillover.live.tls.rotation import Credentials


def is_secure(topology: Topology, cluster: Cluster, *, apart: bool) -> list[bool]:
    """Returns whether each door of a cluster is encrypted; if they are `apart` clients' first, then
    that of neighbors."""
    of_clients = (cluster.url or "").startswith("https:")
    return [of_clients, topology.is_secure] if apart else [topology.is_secure]


def door_contexts(
    topology: Topology, cluster: Cluster, credentials: Credentials | None, *, apart: bool
) -> list[ssl.SSLContext | None]:
    """Returns how to listen at each door; None where nothing is encrypted. At one of their own
    neighbors must have a certificate, and clients are not asked for one at theirs."""
    callers = [ssl.CERT_NONE, ssl.CERT_REQUIRED] if apart else [ssl.CERT_OPTIONAL]
    secure = is_secure(topology, cluster, apart=apart)
    return [
        credentials.front(asked) if credentials is not None and encrypted else None
        for asked, encrypted in zip(callers, secure, strict=True)
    ]


def proxy_context(cluster: Cluster, credentials: Credentials | None) -> ssl.SSLContext | None:
    """Returns how to listen for the clients of a service: as its `proxy_url` says."""
    if credentials is None or not (cluster.proxy_url or "").startswith("https:"):
        return None
    return credentials.front(ssl.CERT_NONE)


@contextlib.contextmanager
def watching(
    credentials: Credentials,
    shell: NodeShell,
    servers: Sequence[HttpServer],
    look_s: float | None = None,
) -> Iterator[None]:
    """Look at the files until this ends, now and then, and let go of what holds no more. Their
    metrics are told along with the node's."""
    from spillover.live.tls.metrics import TlsMetrics  # noqa: PLC0415 - needs the extra `tls`
    from spillover.live.tls.rotation import LOOK_S  # noqa: PLC0415

    credentials.on_look.append(partial(_distrust, shell, servers))
    shell.metrics.registry.register(TlsMetrics(shell.cluster.id, credentials))
    task = asyncio.get_running_loop().create_task(
        credentials.watch(look_s or LOOK_S), name="certificates"
    )
    task.add_done_callback(partial(fail, shell))
    try:
        yield
    finally:
        task.cancel()


def _distrust(
    shell: NodeShell, servers: Sequence[HttpServer], credentials: Credentials, *, renewed: bool
) -> None:
    """Connections by certificates that hold no more are nobody's from now on: what has come on them
    is answered, and nothing that comes. They are not closed here, since a request may be on its way
    on one, and would be lost; who is refused decides again."""
    del renewed  # what matters is what is over
    for server in servers:
        for connection in server.connections:
            shown = connection.certificate
            if shown is None or not credentials.is_over(shown):
                continue
            peer, connection.peer, connection.certificate = connection.peer, None, None
            if peer is not None:
                shell.streams.end(peer.neighbor)


def fail(shell: NodeShell, task: asyncio.Task[None]) -> None:
    """End a node whose files nobody looks at any more: unnoticed, it would go by the old ones."""
    if not task.cancelled() and (error := task.exception()) is not None:
        shell.fail(error)
