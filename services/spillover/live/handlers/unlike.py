"""The servers of a pool of unlike servers: each has workers of its own.

How many requests a server runs at a time, and which, is the machine's business; here they find the
server that they are sent to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from spillover.core.overflow.events import NotStarted, ServiceEnded, Start
from spillover.live.handlers.base import OnEnd, Workers
from spillover.live.handlers.service_payload import ServiceTimes


class UnlikeWorkers:
    """One `Workers` for each server, in the order in which they are added. Each tells `ended`.

    `times` reads the payloads where some server is an emulated one: nobody knows before which one a
    request will run on.
    """

    def __init__(self, on_end: OnEnd, times: ServiceTimes | None) -> None:
        self._on_end = on_end
        self._times = times
        self._servers: list[Workers] = []
        self._at: dict[int, Workers] = {}
        """Where each request runs, by its ref."""

    def add(self, server: Workers) -> None:
        self._servers.append(server)

    def __iter__(self) -> Iterator[Workers]:
        return iter(self._servers)

    def problem_with(self, payload: Any) -> str | None:
        return None if self._times is None else self._times.problem_with(payload)

    def start(self, command: Start) -> None:
        server = self._at[command.ref] = self._servers[command.server]
        server.start(command)

    def stop(self, ref: int) -> None:
        if (server := self._at.get(ref)) is not None:
            server.stop(ref)

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers))

    def ended(self, event: ServiceEnded | NotStarted, at_s: float | None) -> None:
        del self._at[event.ref]
        self._on_end(event, at_s)
