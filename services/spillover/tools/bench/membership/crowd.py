"""The clients of the load generator in a process of their own, which tells where they are."""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection
from typing import Any

import uvloop

from spillover.model.errors import RunError
from spillover.tools.processes.child import Child
from spillover_loadgen.clients_driver import ClientsLoad, run

LOOK_WITHIN_S = 30.0
END_WITHIN_S = 60.0
"""For what is under way to end, and all to say goodbye."""


class CrowdProcess(Child):
    """Connected clients: there on entry, ended on exit."""

    def __init__(self, load: ClientsLoad) -> None:
        super().__init__("the clients' process", _work, load)

    async def look(self) -> dict[str, Any]:
        """Waits for the next look, a few times a second. Raises RunError if there is none."""
        found: dict[str, Any] = await self.receive(LOOK_WITHIN_S)
        if "timeline" in found:
            raise RunError("the clients ended before they were to")
        return found

    async def finish(self) -> dict[str, Any]:
        """Have them all leave; returns the load generator's result."""
        self.send(None)
        async with asyncio.timeout(END_WITHIN_S):
            while "timeline" not in (found := await self.receive(END_WITHIN_S)):
                pass
        result: dict[str, Any] = found
        return result


def _work(load: ClientsLoad, connection: Connection) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        connection.send(runner.run(_have_clients(load, connection)))


async def _have_clients(load: ClientsLoad, connection: Connection) -> dict[str, Any]:
    """Until there is a word, or nobody who could say one."""
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def end() -> None:
        loop.remove_reader(connection.fileno())
        stop.set()

    loop.add_reader(connection.fileno(), end)
    return await run(load, stop, connection.send)
