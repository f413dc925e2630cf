"""What runs the requests of a cluster, as its handler says, and for how long where requests say
nothing of it."""

import asyncio
import time

import msgspec
import pytest

from spillover.core.overflow.events import Start
from spillover.live.engine.timers import Timers
from spillover.live.handlers.make import make_workers
from spillover.live.handlers.service_payload import ServiceTimes
from spillover.live.handlers.sharing_sleep import SharingSleepWorkers
from spillover.live.handlers.sleep import SleepWorkers
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


def sleeping(rate, timers, on_end):
    """Servers alike, or one with a speed that is shared."""
    times = ServiceTimes(0.02)
    if rate is None:
        return SleepWorkers(times, timers, on_end)
    return SharingSleepWorkers(times, rate, timers, on_end)


@pytest.mark.parametrize("rate", [None, 2.0])
async def test_only_what_takes_no_time_is_done_as_it_starts(rate):
    """No timer, which would take a millisecond."""
    told = []
    timers = Timers(asyncio.get_running_loop())
    workers = sleeping(rate, timers, lambda event, at_s: told.append((event, at_s)))
    command = started(1, b'{"service_ms": 0}')
    workers.start(command)
    ((event, at_s),) = told
    assert (event.ref, event.outcome, event.service_s) == (1, DONE, 0.0)
    assert (bytes(event.result), at_s) == (b'{"service_ms":0.0}', command.at_s)
    assert len(timers) == 0
    workers.start(started(2, b'{"service_ms": 500}'))
    assert (len(told), len(timers)) == (1, 1)
    await workers.close()
    timers.close()


@pytest.mark.parametrize("rate", [None, 2.0])
async def test_nothing_is_heard_of_what_slept_when_its_servers_were_closed(rate):
    """Nor is it raised where nobody would catch it; of what was stopped before it is told once."""
    raised, told = [], []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, said: raised.append(said))
    timers = Timers(loop)

    def on_end(event, _):
        told.append((event.ref, event.outcome))

    workers = sleeping(rate, timers, on_end)
    for ref in range(3):
        workers.start(started(ref, b'{"service_ms": 60000}'))
    for _ in range(2):
        workers.stop(1)
    assert told == [(1, Outcome.CANCELLED)]
    await workers.close()
    for ref in range(3):
        workers.stop(ref)
    timers.run_due(time.monotonic() + 1_000.0)
    assert told == [(1, Outcome.CANCELLED)]
    assert raised == []
    await workers.close()
    timers.close()


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


# --- service times --------------------------------------------------------------------------------


def read_s(payload, default_s=0.02):
    """The service time of a payload, or what is wrong with it."""
    raw = msgspec.Raw(payload)
    return ServiceTimes(default_s).problem_with(raw) or ServiceTimes(default_s).read_s(raw)


@pytest.mark.parametrize(
    ("payload", "service_s"),
    [
        (b'{"service_ms": 12.5}', 0.0125),
        (b'{"service_ms": 0}', 0.0),
        (b'{"a": [1], "service_ms": 7}', 0.007),
        (b'{"service_ms": 86400000}', 86_400.0),
        *[(other, 0.02) for other in (b"{}", b'{"service_ms": null}', b'{"a": 1}', b"[1]", b'"x"')],
        (b"7", 0.02),
    ],
)
def test_a_payload_may_say_how_long_it_takes_in_milliseconds(payload, service_s):
    assert read_s(payload) == pytest.approx(service_s)


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (b'{"service_ms": -1}', "expected 0 to 86400000, got -1"),
        (b'{"service_ms": 90000000}', "expected 0 to 86400000, got 9e+07"),
        (b'{"service_ms": "x"}', "Expected `float | null`, got `str`"),
    ],
)
def test_what_a_payload_may_not_say_is_told(payload, problem):
    assert read_s(payload).startswith(f"payload.service_ms: {problem}")
    with pytest.raises(ValueError, match=r"^payload\.service_ms: "):
        ServiceTimes(0.0).read_s(msgspec.Raw(payload))
