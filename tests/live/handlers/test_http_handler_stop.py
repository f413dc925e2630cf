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
from support.loop import until


async def test_an_upstream_is_not_busy_with_what_was_stopped():
    """Or after some timeouts no request would go there any more, though it is idle."""

    async def silent(reader, writer):
        try:
            await reader.read()
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    timers, told = Timers(asyncio.get_running_loop()), []
    cluster = Cluster(id="a", servers=4, handler=f"http:http://127.0.0.1:{port}/run")
    workers = make_workers(
        cluster, "test", timers, lambda event, _: told.append(event), told.append
    )
    (upstream,) = workers.upstreams._all
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


async def test_a_node_may_stop_work_as_it_hears_that_nothing_can_be_reached():
    """The one ends there: it is neither sent on nor reported again."""
    loop = asyncio.get_running_loop()
    errors, ended, writers = [], [], []
    loop.set_exception_handler(lambda _, context: errors.append(context))
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    timers = Timers(loop)
    cluster = Cluster(id="a", servers=4, handler=f"http:http://127.0.0.1:{port}/run")
    workers = make_workers(
        cluster, "test", timers, lambda event, _: ended.append(event), lambda _: workers.stop(1)
    )
    (upstream,) = workers.upstreams._all
    try:
        await until(lambda: upstream.client.idle and writers)  # the first look has found it
        server.close()
        for writer in writers:
            writer.transport.abort()
        await until(lambda: not upstream.client.idle)
        now_s = time.monotonic()
        request = Request("r1", keyed=False, work=msgspec.Raw(b"{}"))
        workers.start(Start(1, request, now_s, now_s + 30.0))
        await until(lambda: not upstream.up)
        await until(lambda: ended)
        assert [event.outcome for event in ended] == [Outcome.CANCELLED]
        assert workers._calls == {}
    finally:
        await workers.close()
        timers.close()
    assert errors == []
