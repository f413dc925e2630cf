"""A handler fed by a queue: what it is given, when it is tried again, and what ends it."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from types import ModuleType

import pytest

from spillover.client import InputError, consume, produce
from spillover.core.queue import events as ev
from spillover.live.queue import consumer_shell, held
from spillover.live.queue import work as work_module
from spillover.live.queue.client_wire import Received
from spillover.live.queue.consuming import AsyncQueueObject
from spillover.live.queue.held import HeldObject
from spillover.live.queue.work import NotDone, QueueWork, payload_of
from spillover.model.topology import Cluster
from support.loop import until
from support.lying_service import lying_service
from support.queue_producers import producers
from support.scripted_server import answer, scripted

LATER = "later"
"""An object that a service says when to send again, if it is busy: in a second."""


@pytest.fixture
def told(monkeypatch, caplog):
    """What is logged, as (words, fields). Other tests may just have had the same lines."""
    logs = work_module._log, consumer_shell._log, held._log
    for log in logs:
        monkeypatch.setattr(log, "filters", [])
    names = [log.name for log in logs]
    return lambda: [(one.msg.words, one.msg.fields) for one in caplog.records if one.name in names]


@asynccontextmanager
async def working(url, handler, *, at_once=1, deadline_s=60.0):
    """The work under way."""
    pool = Cluster(id="work", servers=at_once, handler=handler)
    work = QueueWork(consume(url, at_once=at_once), pool, "--handler", deadline_s)
    running = asyncio.create_task(work.run())
    try:
        yield work
    finally:
        work.stop()
        await asyncio.wait([running], timeout=0.5)
        await work.close()
        await running


@pytest.fixture
def jobs(monkeypatch):
    """A module of handlers, `python:queue_jobs:...`."""
    module = ModuleType("queue_jobs")
    module.seen, module.cancelled, module.left_ms = [], [], []

    def see(payload, ctx):
        module.seen.append((payload, ctx.id))
        module.left_ms.append(ctx.remaining_ms)

    async def wait(payload):
        module.seen.append(payload)
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            module.cancelled.append(payload)
            raise

    def fail(payload):
        raise ValueError(f"cannot {payload}")

    module.see, module.wait, module.fail = see, wait, fail
    monkeypatch.setitem(sys.modules, "queue_jobs", module)
    return module


def object_of(content_type, body):
    received = Received(
        body=body, content_type=content_type, id="p1-1", grant="g", producer="p1", deliveries=1,
        probes=1, visibility_s=9.0,
    )  # fmt: skip
    return AsyncQueueObject(HeldObject(received, lambda _: None))


@pytest.mark.parametrize(
    ("content_type", "is_json"),
    [
        ("application/json", True),
        (" Application/JSON ; charset=utf-8", True),
        ("application/problem+json", True),
        ("image/svg+JSON;q=1", True),
        ("application/json5", False),
        ("application/jsonp+xml", False),
        ("text/json", False),
        ("+json/text", False),
    ],
)
def test_what_says_that_it_is_json_is_and_all_else_is_wrapped(content_type, is_json):
    given = bytes(payload_of(object_of(content_type, b' {"a": [1]} ')))
    wrapped = {"content_type": content_type, "body_base64": "IHsiYSI6IFsxXX0g"}
    assert given == b' {"a": [1]} ' if is_json else json.loads(given) == wrapped


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"a": 1', b"NaN", b'"\xff"', b'{"a": "\xff"}', b"[" * 100_000]
)
def test_what_says_that_it_is_json_and_is_not_is_not_done(body):
    with pytest.raises(NotDone, match=r"^expected JSON, as its type says: "):
        payload_of(object_of("application/json", body))


@asynccontextmanager
async def upstream(statuses):
    """A service that answers with these, then with 200; and the bodies that came."""
    came = []

    async def say(talk, head, body):
        assert b"idempotency-key" not in head.lower(), "no name outlives a producer"
        came.append(json.loads(body))
        later = b"Retry-After: 1\r\n" * (came[-1] == LATER)
        status = statuses.pop(0) if statuses else 200
        await talk.say(b"HTTP/1.1 %d X\r\n%bContent-Length: 0\r\n\r\n" % (status, later))
        return True

    async with lying_service() as service:
        service.answer = say
        yield f"{service.url}/work", came


async def test_work_that_surely_was_not_begun_is_tried_again_here():
    """A service that is busy costs an object none of its deliveries."""
    async with producers(1) as (one,), produce(one.url) as queue, upstream([503, 429]) as there:
        url, came = there
        await queue.put(b"7", content_type="application/json")
        async with working(one.url, f"http:{url}") as work:
            await until(lambda: one.objects.acknowledged == 1)
        assert came == [7, 7, 7]
        assert (work.done, work.given_back, one.shell.machine.returned) == (1, 0, 0)


async def test_a_stop_gives_back_what_waits_to_be_tried_again():
    async with producers(1) as (one,), produce(one.url) as queue, upstream([503] * 99) as there:
        url, came = there
        await queue.put(b"7", content_type="application/json")
        async with working(one.url, f"http:{url}") as work:
            await until(lambda: came)
        assert (work.done, work.given_back, one.objects.buffered) == (0, 1, 1)


async def test_what_waits_to_be_tried_again_is_given_up_with_its_grant():
    """Another consumer may have it by then."""
    async with producers(1) as (one,), produce(one.url) as queue, upstream([503] * 99) as there:
        url, came = there
        await queue.put(b"7", content_type="application/json")
        async with working(one.url, f"http:{url}") as work:
            await until(lambda: came)
            (grant,) = one.shell.machine.grants
            one.shell.feed(ev.Nacked(0, grant.id))
            await until(lambda: work.given_back == 1)


async def test_a_handler_whose_grant_has_ended_is_stopped(jobs):
    async with producers(1, visibility_s=0.5) as (one,), produce(one.url) as queue:
        await queue.put(b"7", content_type="application/json")
        async with working(one.url, "python:queue_jobs:wait"):
            await until(lambda: jobs.seen == [7])
            (grant,) = one.shell.machine.grants
            one.shell.feed(ev.Nacked(0, grant.id))
            await until(lambda: jobs.cancelled == [7])
            await until(lambda: jobs.seen == [7, 7])


async def test_a_handler_that_cannot_be_had_is_told_before_anything_is_taken():
    pool = Cluster(id="work", servers=1, handler="python:not_there:run")
    with pytest.raises(InputError, match="cannot import 'not_there'"):
        QueueWork(consume("http://127.0.0.1:1"), pool, "--handler", 1.0)


async def test_a_service_that_says_when_is_asked_again_then(monkeypatch):
    """Here in one second instead of ten minutes."""
    monkeypatch.setattr(work_module, "AGAIN_S", 600.0)
    monkeypatch.setattr(work_module, "AGAIN_S_MAX", 600.0)

    async with producers(1) as (one,), produce(one.url) as queue, upstream([503]) as there:
        url, came = there
        await queue.put(json.dumps(LATER).encode(), content_type="application/json")
        async with working(one.url, f"http:{url}"):
            await until(lambda: one.objects.acknowledged == 1)
        assert came == [LATER, LATER]


@pytest.mark.parametrize(
    ("handler", "body", "deadline_s", "problem"),
    [
        ("fail", b"7", 20.0, "ValueError: cannot 7"),
        ("wait", b"7", 0.05, "not done in 0.05 s"),
        ("see", b"7 8", 20.0, "expected JSON, as its type says: "),
    ],
)
async def test_why_an_object_was_not_handled_is_told(
    jobs, told, handler, body, deadline_s, problem
):
    async with producers(1, deliveries_max=1) as (one,), produce(one.url) as queue:
        name = await queue.put(body, content_type="application/json")
        async with working(one.url, f"python:queue_jobs:{handler}", deadline_s=deadline_s) as work:
            await until(lambda: one.objects.dead and work.given_back)
            assert (work.done, work.given_back) == (0, 1)
    ((words, fields),) = told()
    assert (words, fields["object"]) == ("an object was not handled", name)
    assert problem in fields["problem"]


async def test_an_object_whose_grant_has_ended_meanwhile_is_told_as_one_that_may_be_handled_twice(
    jobs, told
):
    async with producers(1, visibility_s=60.0) as (one,), produce(one.url) as queue:

        async def see(payload):  # on the loop, as the machine is
            (grant,) = one.shell.machine.grants
            if not one.shell.machine.returned:
                one.shell.feed(ev.Nacked(0, grant.id))

        jobs.see = see
        name = await queue.put(b"7", content_type="application/json")
        async with working(one.url, "python:queue_jobs:see") as work:
            await until(lambda: one.objects.acknowledged == 1)
            await until(lambda: work.done == 1)
        assert work.given_back == 0
        ((words, fields),) = told()
        assert words == "an object may be handled twice"
        assert fields["problem"].startswith(f"the grant of object {name} had ended")


@pytest.mark.parametrize(("handler", "counts"), [("see", (1, 0)), ("wait", (0, 1))])
@pytest.mark.parametrize("said", [b"", answer(503)])
async def test_what_is_under_way_at_the_end_counts_as_it_ended(
    jobs, monkeypatch, handler, counts, said
):
    """What is done is done, all else is given back; and where its producer does not hear of that
    nobody waits until the grant has ended."""
    for module in (consumer_shell, work_module):
        monkeypatch.setattr(module, "CLOSE_S", 0.02)

    state = answer(200, {"producer": "p1", "producers": {}})
    given = answer(
        *(200, b"7"), spillover_object="p1-1", spillover_grant="g", spillover_producer="p1",
        spillover_deliveries=1, spillover_probes=1, spillover_visibility_ms=60_000,
    )  # fmt: skip
    async with scripted(state, given, said) as producer:
        async with working(producer.url, f"python:queue_jobs:{handler}") as work:
            await until(lambda: jobs.seen)
            await until(lambda: handler == "wait" or len(producer.seen) == 3)
        assert (work.done, work.given_back) == counts
        ended = "ack" if handler == "see" else "nack"
        assert producer.seen[2][0] == f"POST /grants/g/{ended}"
        assert work._running == {}
