"""The care of every service with certificates while it runs: their files are looked at, connections
by those that hold no more count as such without, and their metrics are shown along with its own.
`live.tls` judges certificates."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from spillover.apps.http.connection import HttpConnection
from spillover.apps.http.server import HttpServer

if TYPE_CHECKING:
    from spillover.live.tls.rotation import Credentials


@contextlib.contextmanager
def watching(
    credentials: Credentials,
    servers: Sequence[HttpServer],
    registry: CollectorRegistry,
    labelled: tuple[str, str],
    fail: Callable[[BaseException], None],
    *,
    forget: Callable[[HttpConnection], None] | None = None,
    look_s: float | None = None,
) -> Iterator[None]:
    """Look at the files until this ends, now and then. `forget` is told of each connection of these
    servers whose certificate holds no more, `labelled` is the label of the service's metrics and
    its value, and `fail` hears if the looking breaks."""
    from spillover.live.tls.metrics import TlsMetrics  # noqa: PLC0415 - needs the extra `tls`
    from spillover.live.tls.rotation import LOOK_S  # noqa: PLC0415

    credentials.on_look.append(partial(_distrust, servers, forget))
    registry.register(TlsMetrics(labelled, credentials))
    task = asyncio.get_running_loop().create_task(
        credentials.watch(look_s or LOOK_S), name="certificates"
    )
    task.add_done_callback(partial(_ended, fail))
    try:
        yield
    finally:
        task.cancel()


def _distrust(
    servers: Sequence[HttpServer],
    forget: Callable[[HttpConnection], None] | None,
    credentials: Credentials,
    *,
    renewed: bool,
) -> None:
    """Connections by certificates that hold no more are nobody's from now on: what has come on them
    is answered, and nothing that comes. They are not closed here, since a request may be on its way
    on one, and would be lost; who is refused decides again."""
    del renewed  # what matters is what is over
    for server in servers:
        for connection in server.connections:
            shown = connection.certificate
            if shown is not None and credentials.is_over(shown):
                connection.certificate = None
                if forget is not None:
                    forget(connection)


def _ended(fail: Callable[[BaseException], None], task: asyncio.Task[None]) -> None:
    """End a service whose files nobody looks at any more: unnoticed, it would go by the old
    ones."""
    if not task.cancelled() and (error := task.exception()) is not None:
        fail(error)
