"""A request that is stopped at its upstream leaves nothing behind there: not even the belief that
it is busy."""

from __future__ import annotations

import asyncio
import time

import msgspec

from spillover.core.overflow.events import Start
from spillover.live.engine.timers import Timers
from spillover.live.handlers.make import make_workers
from spillover.model.request import Outcome, Request
from spillover.model.topology import Cluster


def test_an_upstream_is_not_busy_with_what_was_stopped(run):
    """Or after some timeouts no request would go there any more, though it is idle."""

    async def silent(reader, writer):
        try:
            await reader.read()
        finally:
            writer.transport.abort()

    async def main():
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        timers, told = Timers(asyncio.get_running_loop()), []
        cluster = Cluster(id="a", servers=4, handler=f"http:http://127.0.0.1:{port}/run")
        workers = make_workers(
            cluster, "test", timers, lambda event, _: told.append(event), told.append
        )
        (upstream,) = workers._upstreams._all
        try:
            for ref in (1, 2, 3):
                request = Request(f"r{ref}", keyed=False, work=msgspec.Raw(b"{}"))
                now_s = time.monotonic()
                workers.start(Start(ref, request, now_s, now_s + 30.0))
            assert upstream.running == 3
            for ref in (1, 2):
                workers.stop(ref)
            assert upstream.running == 1
            workers.stop(2)
            assert upstream.running == 1
            workers.stop(3)
            assert upstream.running == 0
            assert [event.outcome for event in told] == [Outcome.CANCELLED] * 3
        finally:
            await workers.close()
            timers.close()
            server.close()

    run(main())
