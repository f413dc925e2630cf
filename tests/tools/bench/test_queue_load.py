"""Who produces and who consumes in `spillover bench queue`: so many objects, acknowledged and gone
from wherever they were."""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
from contextlib import AsyncExitStack
from functools import partial

import pytest

from spillover.model.errors import RunError
from spillover.tools.bench.model import BenchPlan
from spillover.tools.bench.queue import load, makers, measuring, rabbitmq, sides
from spillover.tools.bench.queue.load import (
    PRODUCER,
    RABBITMQ,
    REDIS_LIST,
    REDIS_STREAM,
    LoadPlan,
)
from spillover.tools.processes.child import Child
from support.children import in_this_loop
from support.loop import until
from support.queue_producers import producers
from support.scripted_server import answer, scripted


def limited(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 30.0))


async def through(by, url, *, count=7, at_once=3, size_bytes=500, sides=(False, True)):
    """Both ends at once, as soon as both are ready."""
    async with AsyncExitStack() as stack:
        children = []
        for consumes in sides:
            plan = LoadPlan(
                by=by,
                url=url,
                consumes=consumes,
                size_bytes=size_bytes,
                count=count,
                at_once=at_once,
            )
            child = in_this_loop(Child("the load", load.work), partial(load._work, plan))
            children.append(await stack.enter_async_context(child))
        told = [await child.receive(10.0) for child in children]
        for child in children:
            child.send(None)
        await measuring._all_done(children)
        return told


def test_objects_go_through_a_producer():
    """Each once: as many as were asked for, however many at a time."""

    async def main():
        async with producers(1) as (one,):
            told = await through(PRODUCER, one.url)
            return told, one.objects.produced, one.objects.acknowledged

    assert limited(main()) == ([None, None], 7, 7)


@pytest.mark.parametrize(
    ("answers", "consumes", "why"),
    [
        ([answer(500, {})], False, "expected 201 for an object, got 500"),
        ([answer(404, {})], True, "expected an object, got 404, 2 bytes"),
        ([answer(200, b"short")], True, "expected an object, got 200, 5 bytes"),
        (
            [answer(200, b"x" * 500, spillover_grant="g1"), answer(410, {})],
            True,
            "expected 204 for an acknowledgement, got 410",
        ),
    ],
)
def test_what_is_no_object_ends_it(answers, consumes, why):
    async def main():
        async with scripted(*answers) as server:
            plan = {"by": PRODUCER, "url": server.url, "consumes": consumes}
            make = load._MAKERS[PRODUCER]
            once, close = await make(LoadPlan(**plan, size_bytes=500, count=1, at_once=1))
            try:
                await once(2)
            finally:
                await close()
                await until(lambda: not server._connections)

    with pytest.raises(RunError, match=why):
        limited(main())


def test_a_consumer_acknowledges_what_it_was_given():
    async def main():
        object_ = answer(200, b"x" * 500, spillover_grant="g1")
        async with scripted(object_, answer(204)) as server:
            plan = LoadPlan(
                by=PRODUCER, url=server.url, consumes=True, size_bytes=500, count=1, at_once=1
            )
            once, close = await load._MAKERS[PRODUCER](plan)
            await once(2)
            await close()
            await until(lambda: not server._connections)
            return server.seen, server.bodies

    seen, bodies = limited(main())
    assert [line for line, _ in seen] == ["POST /take", "POST /grants/g1/ack"]
    assert b'"consumer": "c2"' in bodies[0]


@pytest.mark.processes
@pytest.mark.parametrize("by", [REDIS_LIST, REDIS_STREAM])
def test_objects_go_through_redis_and_nothing_is_left(redis_server, by):
    redis_server.client.flushall()
    assert limited(through(by, redis_server.url)) == [None, None]
    keys = {key: redis_server.client.type(key) for key in redis_server.client.keys("bench-*")}
    if by == REDIS_LIST:
        assert keys == {}
    else:
        assert keys == {load.STREAM: "stream"}
        assert redis_server.client.xlen(load.STREAM) == 0
        assert redis_server.client.xpending(load.STREAM, load.GROUP)["pending"] == 0
    redis_server.client.flushall()


@pytest.mark.processes
@pytest.mark.parametrize("by", [REDIS_LIST, REDIS_STREAM])
def test_who_waits_in_vain_is_told_by_redis(redis_server, monkeypatch, by):
    """Which ends the call by itself, sooner than its client would."""
    monkeypatch.setattr(load, "TAKE_S", 1.0)
    monkeypatch.setattr(load, "SPARE_S", 0.8)

    async def main():
        plan = {"by": by, "url": redis_server.url, "consumes": True}
        once, close = await load._MAKERS[by](LoadPlan(**plan, size_bytes=1, count=1, at_once=1))
        try:
            await once(0)
        finally:
            await close()

    redis_server.client.flushall()
    with pytest.raises(RunError, match="expected an object of Redis, got none"):
        limited(main())
    redis_server.client.flushall()


@pytest.mark.processes
@pytest.mark.parametrize("by", [REDIS_LIST, REDIS_STREAM])
def test_objects_of_another_size_are_wrong(redis_server, by):
    redis_server.client.flushall()

    async def main():
        await through(by, redis_server.url, count=1, sides=(False,))
        url = redis_server.url
        plan = LoadPlan(by=by, url=url, consumes=True, size_bytes=499, count=1, at_once=1)
        once, close = await load._MAKERS[by](plan)
        try:
            await once(0)
        finally:
            await close()

    with pytest.raises(RunError, match="expected an object of Redis, got none"):
        limited(main())
    redis_server.client.flushall()


@pytest.fixture
def brokers():
    """The module of a broker that speaks as RabbitMQ does."""
    pytest.importorskip("aiormq")
    from support import scripted_broker

    return scripted_broker


def test_objects_go_through_a_broker_confirmed_and_acknowledged(brokers):
    """Whoever consumes holds no more of them than it has workers."""

    async def main():
        async with brokers.broker() as one:
            plan = LoadPlan(
                by=RABBITMQ, url=one.url, consumes=False, size_bytes=500, count=5, at_once=1
            )
            put, close = await load._MAKERS[RABBITMQ](plan)
            for number in range(5):
                await put(number)
            (kept,) = one.queues.values()
            assert [len(body) for body in kept] == [500] * 5
            await through(RABBITMQ, one.url, count=5, at_once=2, sides=(True,))
            await close()
            await until(lambda: one.acknowledged == 5)
            return one, kept

    one, kept = limited(main())
    assert kept == []
    assert (one.confirmed, one.held_most, one.closed) == (5, 2, 2)


def test_objects_of_a_broker_that_have_another_size_are_wrong(brokers):
    async def main():
        async with brokers.broker() as one:
            await through(RABBITMQ, one.url, count=1, at_once=1, sides=(False,))
            plan = {"by": RABBITMQ, "url": one.url, "consumes": True}
            take, close = await load._MAKERS[RABBITMQ](
                LoadPlan(**plan, size_bytes=499, count=1, at_once=1)
            )
            try:
                await take(0)
            finally:
                await close()

    with pytest.raises(RunError, match="expected an object of RabbitMQ, got none"):
        limited(main())


def test_without_its_library_rabbitmq_is_left_out(monkeypatch, tmp_path):
    for name in ("rabbitmq-server", "epmd"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "aiormq", None)
    why = rabbitmq.why_not()
    assert why is not None
    assert "pip install spillover[bench]" in why


@pytest.mark.parametrize("at_once", [1, 2])
def test_the_first_thing_that_went_wrong_is_told(at_once):
    """By itself, of however many at a time."""
    (port,) = rabbitmq._free_ports(1)
    url = f"http://127.0.0.1:{port}"
    plan = LoadPlan(by=PRODUCER, url=url, consumes=False, size_bytes=9, count=4, at_once=at_once)
    ours, there = multiprocessing.Pipe()
    with ours, there:
        ours.send("begin")
        load.work(plan, there)
        assert ours.recv() is None, "it was ready"
        error = ours.recv()
    assert isinstance(error, RunError)
    assert str(error).startswith("producer: ")
    assert "TaskGroup" not in str(error)
    assert str(port) in str(error)


def test_nobody_is_waited_for_whose_other_has_failed():
    """Who produces may wait for a place for ever that nobody makes any more."""

    async def fails(connection):
        connection.send(RunError("no object came"))

    async def hangs(_):
        await asyncio.Event().wait()

    async def main():
        async with (
            in_this_loop(Child("one", hangs), hangs) as one,
            in_this_loop(Child("other", fails), fails) as other,
        ):
            before = asyncio.all_tasks()
            with pytest.raises(RunError, match="no object came"):
                await measuring._all_done([one, other])
            return asyncio.all_tasks() - before

    assert limited(main()) == set()


def test_what_moves_is_what_a_producer_sends_and_what_redis_is_sent_and_sends():
    told = b"""# TYPE spillover_queue_sent_bytes_total counter
spillover_queue_sent_bytes_total{producer="p1"} 1.5e3
spillover_queue_objects{producer="p1"} 7
"""
    assert sides.sent_bytes(told) == 1500.0
    with pytest.raises(RunError, match="expected the bytes that were sent in the metrics"):
        sides.sent_bytes(told.replace(b"sent", b"kept"))
    stats = {"total_net_input_bytes": 700, "total_net_output_bytes": 40, "other": 1}
    assert sides.moved_bytes(stats) == 740.0


def test_sizes_and_counts_are_those_of_their_names():
    assert measuring.SIZES == {"1 KiB": 1024, "64 KiB": 65_536, "4 MiB": 4_194_304}
    assert measuring.COUNTS.keys() == measuring.AT_ONCE.keys() == measuring.SIZES.keys()
    quick = BenchPlan(quick=True)
    for full, small in measuring.COUNTS.values():
        assert quick.of(full, small) == small == full / 10


def test_a_call_is_waited_for_longer_than_a_client_waits_at_the_door():
    """By half as long again at most: who hangs is told soon after."""
    header, told = makers.DEADLINE
    assert header == b"spillover-deadline-ms"
    assert 1.0 < makers.CALL_S * 1e3 / int(told) <= 1.5


@pytest.mark.parametrize(("installed", "runs"), [("rabbitmq-server epmd", True), ("epmd", False),
                                                 ("rabbitmq-server", False)])  # fmt: skip
def test_rabbitmq_is_compared_where_all_of_it_is_installed(monkeypatch, tmp_path, installed, runs):
    """The broker, and Erlang's daemon beside it."""
    pytest.importorskip("aiormq")
    for name in installed.split():
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(rabbitmq, "SCRIPT", tmp_path / "none")
    assert rabbitmq.why_not() == (None if runs else "no rabbitmq-server is installed")
    monkeypatch.setattr(rabbitmq, "SCRIPT", tmp_path / "epmd")
    told = "no rabbitmq-server is installed" if "epmd" not in installed else None
    assert rabbitmq.why_not() == told
