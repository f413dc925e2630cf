"""What runs the requests of a cluster, as its handler says, and for how long where requests say
nothing of it."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from spillover.core.overflow.events import Start
from spillover.live.engine.timers import Timers
from spillover.live.handlers.make import make_workers
from spillover.model.errors import InputError
from spillover.model.request import DONE, Outcome, Request
from spillover.model.topology import Cluster


def started(ref, payload):
    now_s = time.monotonic()
    request = Request(f"r{ref}", keyed=False, work=msgspec.Raw(payload))
    return Start(ref, request, now_s, now_s + 30.0)


def ended(handler, *payloads, stop=False):
    """What these come to, one by one: their ends, and when each is told to have been."""
    cluster = Cluster(id="a", handler=handler, servers=1, service_ms=20.0)

    async def main():
        ends = asyncio.Queue()
        timers = Timers(asyncio.get_running_loop())

        def on_end(event, now_s):
            ends.put_nowait((event, now_s))

        workers = make_workers(cluster, "here", timers, on_end, lambda _: None)
        came = []
        for ref, payload in enumerate(payloads):
            command = started(ref, payload)
            workers.start(command)
            if stop:
                workers.stop(ref)
            event, now_s = await asyncio.wait_for(ends.get(), 20.0)
            came.append((event, now_s - command.at_s))
        await workers.close()
        timers.close()
        return came

    return asyncio.run(main())


def test_a_server_that_sleeps_does_so_for_as_long_as_was_said():
    """By the payload, else by the cluster; told at the very instant."""
    took = []
    for event, took_s in ended("sleep", b"{}", b'{"service_ms": 5}', b'{"service_ms": 0}'):
        assert event.outcome is DONE
        assert took_s == pytest.approx(event.service_s, abs=1e-6)
        took.append((event.service_s, msgspec.json.decode(event.result)))
    assert took == [
        (0.02, {"service_ms": 20.0}),
        (0.005, {"service_ms": 5.0}),
        (0.0, {"service_ms": 0.0}),
    ]


def test_who_is_stopped_in_its_sleep_has_done_nothing():
    ((event, took_s),) = ended("sleep", b'{"service_ms": 60000}', stop=True)
    assert (event.outcome, event.service_s, event.ref) == (Outcome.CANCELLED, 0.0, 0)
    assert 0.0 <= took_s < 10.0


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        ("proxy:http://127.0.0.1:9", "expected a node that passes answers on"),
        ("http:nonsense", "expected"),
        ("dask:nonsense", "expected"),
    ],
)
def test_a_handler_that_cannot_be_had_is_named(handler, says):
    with pytest.raises(InputError, match=says) as error:
        ended(handler)
    assert str(error.value).startswith("here: handler: ")
