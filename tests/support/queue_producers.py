"""Producers of a queue on sockets of loopback, in the loop of the test: `async with producers(3)`.

No rule of the product lives here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillover.apps.http.access import Access
from spillover.apps.http.server import HttpServer, url_of
from spillover.apps.queue.app import QueueApp
from spillover.apps.queue.server import front_of, watch_files
from spillover.core.queue.settings import ProducerSettings
from spillover.live.process.listening import bind_socket
from spillover.live.queue.certified import certify
from spillover.live.queue.client_wire import Headers
from spillover.live.queue.shell import QueueShell
from spillover.live.queue.store import ObjectStore

if TYPE_CHECKING:
    from spillover.live.tls.material import TlsFiles


@dataclass
class RunningProducer:
    """One of them."""

    id: str
    url: str
    shell: QueueShell
    server: HttpServer
    serving: asyncio.Task[None]

    @property
    def objects(self) -> Any:
        return self.shell.machine.objects

    async def end(self) -> None:
        """It goes, and its objects with it."""
        if not self.serving.done():
            await self.shell.close()
            self.server.stop()
            await self.serving


@asynccontextmanager
async def producers(
    count: int,
    *,
    object_limit_bytes: int = 1 << 24,
    access: Access | None = None,
    shown: Headers = (),
    certificates: Mapping[str, TlsFiles] | None = None,
    stores: Path | None = None,
    **changed: Any,
) -> AsyncIterator[list[RunningProducer]]:
    """p1, p2, ..., which know each other. `changed` are settings of all of them. With `access` they
    are for who has API tokens, and show each other what is `shown`; with `certificates`, by id, all
    is https. With `stores` each keeps its objects in a directory of its name there."""
    told = {"buffers": 5, "visibility_s": 3.0, "probe_expiry_s": 1.0, **changed}
    with ExitStack() as ends:
        sockets = [ends.enter_context(bind_socket("127.0.0.1", 0)) for _ in range(count)]
        is_secure = certificates is not None
        urls = {f"p{k + 1}": url_of(one, is_secure=is_secure) for k, one in enumerate(sockets)}
        running = []
        for (name, url), listening in zip(urls.items(), sockets, strict=True):
            peers = {other: its for other, its in urls.items() if other != name}
            settings = ProducerSettings(id=name, **told)
            certified = None if certificates is None else certify(certificates[name], name, peers)
            store = None if stores is None else ObjectStore(stores / name, name, "test")
            shell = QueueShell(settings, peers, store, url, headers=shown, certified=certified)
            app = QueueApp(shell, object_limit_bytes=object_limit_bytes, access=access)
            server = HttpServer(app, tls=front_of(certified))
            watch_files(ends, shell, server, None)
            serving = asyncio.create_task(server.serve([listening]))
            running.append(RunningProducer(name, url, shell, server, serving))
        try:
            for one in running:
                await one.server.ready.wait()
            yield running
        finally:
            for one in running:
                await one.end()
