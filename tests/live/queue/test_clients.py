"""`produce` and `consume` with producers on real sockets, in one loop."""

import asyncio
from contextlib import suppress

import pytest

from spillover.client import (
    GrantLost,
    InputError,
    OutcomeUnknown,
    QueueFull,
    Refused,
    Rejected,
    Unreachable,
    consume,
    produce,
)
from spillover.core.queue import events as ev
from spillover.core.queue.producer import EXPIRED, PARKED
from support.loop import turn, until
from support.queue_producers import producers
from support.scripted_server import answer, scripted


async def test_a_grant_that_has_ended_is_told_and_cannot_be_acknowledged():
    async with producers(1, visibility_s=0.3) as (one,), produce([one.url]) as queue:
        await queue.put(b"taken away")
        async with consume([one.url]) as consumer:
            async for obj in consumer:
                one.shell.feed(ev.Nacked(0, obj.grant))
                await asyncio.wait_for(obj.until_lost(), 30.0)
                assert obj.lost
                with pytest.raises(GrantLost, match=f"{obj.id} had ended before"):
                    await obj.ack()
                consumer.stop()
        assert one.objects.acknowledged == 0


async def test_objects_of_one_of_three_producers_come_to_one_hand_without_a_wait():
    """By the paper's rule a take in three would be parked at an empty producer, for 60 s here."""
    async with producers(3, buffers=100, probe_expiry_s=60.0) as (one, two, rich):
        async with produce([rich.url]) as queue:
            for _ in range(100):
                await queue.put(b"x")
        left = 100
        async for obj in consume([one.url]):
            async with obj:
                left -= 1
            if not left:
                break
        machines = [each.shell.machine for each in (one, two, rich)]
        assert sum(machine.probes[EXPIRED] + machine.probes[PARKED] for machine in machines) == 0


async def test_where_a_consumer_breaks_down_nothing_is_known_of_what_it_holds():
    async with producers(1) as (one,), produce([one.url]) as queue:
        await queue.put(b"x")
        consumer = consume([one.url])
        async with consumer:
            obj = await first_of(consumer)
            acknowledging = asyncio.create_task(obj.ack())
            await turn(0)
            consumer._shell._on_failure(LookupError("a bug"))
            with pytest.raises(OutcomeUnknown, match="may come again"):
                await acknowledging
            with pytest.raises(LookupError, match="a bug"):
                await first_of(consumer)


async def test_how_an_object_ended_is_said_once():
    async with producers(1) as (one,), produce([one.url]) as queue:
        for _ in range(2):
            await queue.put(b"x")
        async with consume([one.url], at_once=2) as consumer:
            first, second = await first_of(consumer), await first_of(consumer)
            await first.ack()
            await first.ack()
            with pytest.raises(RuntimeError, match=f"{first.id} was acknowledged before"):
                await first.nack()
            await second.nack()
            with pytest.raises(RuntimeError, match=f"{second.id} was given back before"):
                await second.ack()
            async with await first_of(consumer) as again:
                await again.nack()
            assert (again.id, again.deliveries) == (second.id, 2)
            with suppress(ZeroDivisionError):
                async with await first_of(consumer) as last:
                    await last.ack()
                    raise ZeroDivisionError
            assert one.objects.acknowledged == 2


async def test_leaving_the_loop_gives_back_what_is_held():
    async with producers(1, visibility_s=60.0) as (one,), produce([one.url]) as queue:
        for _ in range(3):
            await queue.put(b"x")
        async for _ in consume([one.url], at_once=3):
            break
        await until(lambda: one.objects.buffered == 3)
        assert not one.objects.granted


async def test_a_put_tells_what_surely_did_not_happen():
    async with producers(1, buffers=1, object_limit_bytes=100) as (one,):
        queue_of_one = produce([one.url], deadline_s=0.1)
        async with queue_of_one as queue:
            with pytest.raises(Rejected) as too_large:
                await queue.put(bytes(101))
            assert (too_large.value.status, too_large.value.reason) == (413, "too_large")
            await queue.put(b"x")
            with pytest.raises(QueueFull) as full:
                await queue.put(b"y")
            assert full.value.surely_did_not_run
            with pytest.raises(InputError, match="body: expected bytes, got str"):
                await queue.put("text")
            one.shell.feed(ev.Drain())
            with pytest.raises(Refused) as draining:
                await queue.put(b"z")
            assert draining.value.reason == "draining"
            await one.end()
            with pytest.raises(Unreachable) as gone:
                await queue.put(b"z")
            assert gone.value.surely_did_not_run


async def first_of(consumer):
    """Wait for one, which stays unsettled."""
    async for obj in consumer:
        return obj
    return None


async def test_what_no_producer_takes_ends_the_loop_with_its_reason():
    async with producers(2) as (one, _):
        stranger = answer(200, {"producer": "p3", "producers": {}})
        async with scripted(stranger) as three:
            with pytest.raises(Rejected, match=r"access: expected producers \(p1, p2\), got 'p3'"):
                await first_of(consume([one.url, three.url], access={"p1": 1.0, "p3": 0.0}))
        with pytest.raises(InputError, match=r"access: expected producers \(p1, p2\)"):
            await first_of(consume([one.url], access={"p9": 1.0}))
