"""A peer of a producer that is none, or says what no producer says: its object comes back, and goes
to whoever asks next."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from spillover.core.queue import consumer
from spillover.core.queue import consumer_events as cn
from spillover.core.queue import events as ev
from spillover.core.queue.consumer import ConsumerSettings
from spillover.core.queue.settings import ProducerSettings
from spillover.live.http1.trust import Trust
from spillover.live.queue.client_wire import Address
from spillover.live.queue.consumer_shell import ConsumerShell
from spillover.live.queue.directory import find_producers
from spillover.live.queue.shell import QueueShell
from spillover.live.queue.wire import PRODUCERS_MAX
from support.loop import until
from support.scripted_server import RESET, answer, scripted

PROBE = ev.Probe(
    id="probe", first="liar", consumer="c", hop=2, max_hops=2, access={"p1": 1.0},
    avoid_visited=False, visited=("liar",), left_s=30.0,
)  # fmt: skip


@pytest.mark.parametrize(
    "said",
    [
        answer(200, b""),
        answer(200, b"[]"),
        answer(200, b"\xff\xfe"),
        answer(200, b"<html>", kind="text/html"),
        answer(200, {"taken": "yes"}),
        answer(200, {"taken": False}),
        answer(404, {"taken": True}),
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        RESET,
    ],
)
async def test_an_offer_that_is_answered_with_nonsense_counts_as_declined(said):
    async with scripted(said) as liar:
        settings = ProducerSettings(id="p1", buffers=2, visibility_s=60.0)
        peers = {"liar": liar.url}
        shell = QueueShell(settings, peers, None, "http://127.0.0.1:1", random=Random(1))
        errors = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: errors.append(told))
        try:
            admitted = await shell.ask(lambda ref: ev.Offered(ref, shell.now_s + 5.0, 3))
            await shell.object_read(admitted.ref, "text/plain", b"one")
            shell.feed(ev.ProbeCame(PROBE))
            objects = shell.machine.objects
            assert len(objects.granted) == 1
            await until(lambda: liar.seen and not objects.granted)
            assert objects.buffered == 1
            given = await shell.ask(
                lambda ref: ev.Taken(ref, "t", "c", 1, {"p1": 1.0}, False, shell.now_s + 5.0)
            )
            assert isinstance(given, ev.Give)
        finally:
            await shell.close()
        assert not errors


@pytest.mark.parametrize("said", [answer(503, {}), answer(200, {}), answer(404, {}), RESET])
async def test_a_probe_that_no_202_answers_has_not_come(said):
    """It waits where it was sent from, so that its consumer is given what comes there."""
    async with scripted(said) as liar:
        settings = ProducerSettings(id="p1", buffers=2, visibility_s=60.0)
        peers = {"liar": liar.url}
        shell = QueueShell(settings, peers, None, "http://127.0.0.1:1", random=Random(1))
        try:
            access, until_s = {"liar": 1.0}, shell.now_s + 60.0
            take = asyncio.create_task(
                shell.ask(lambda ref: ev.Taken(ref, "t", "c", 2, access, False, until_s))
            )
            await until(lambda: liar.seen and len(shell.machine.parked_probes) == 1)
            admitted = await shell.ask(lambda ref: ev.Offered(ref, until_s, 3))
            await shell.object_read(admitted.ref, "text/plain", b"one")
            assert isinstance(await take, ev.Give)
        finally:
            await shell.close()


async def test_a_producer_that_makes_up_others_makes_up_no_more_than_there_can_be():
    """Each takes a consumer memory, for as long as that lives."""
    settings = ConsumerSettings(
        name="c", producers=("p1",), access=None, learns=False, max_hops=1,
        avoid_visited=False, at_once=1, take_s=5.0,
    )  # fmt: skip
    shell = ConsumerShell(settings, {"p1": "http://127.0.0.1:9"}, Trust(None))
    led = [
        shell._pointed(f"take{k}", "p1", Address(f"q{k}", "http://127.0.0.1:9", "g", 1))
        for k in range(PRODUCERS_MAX + 5)
    ]
    kinds = [type(one) for one in led]
    assert kinds == [cn.Pointed] * (PRODUCERS_MAX - 1) + [cn.Unreachable] * 6
    again = shell._pointed("again", "p1", Address("q7", "http://127.0.0.1:9", "g", 1))
    assert isinstance(again, cn.Pointed)
    await shell.close()


@pytest.mark.parametrize("url", ["", "http://", "http://h:99999", "http://[", "gopher://h", "h"])
async def test_who_is_led_to_no_url_asks_elsewhere(url):
    settings = ConsumerSettings(
        name="c", producers=("p1",), access=None, learns=False, max_hops=1,
        avoid_visited=False, at_once=1, take_s=5.0,
    )  # fmt: skip
    shell = ConsumerShell(settings, {"p1": "http://127.0.0.1:9"}, Trust(None))
    led = shell._pointed("take", "p1", Address("q1", url, "g", 1))
    assert led == cn.Unreachable("take", "p1")
    assert list(shell._clients) == ["p1"]
    await shell.close()
    told = {"producer": "p1", "producers": {"p1": "http://h:1", "p2": url}}
    async with scripted(answer(200, told)) as liar:
        assert await find_producers([liar.url], Trust(None)) == {"p1": liar.url}


async def test_an_object_is_acknowledged_where_it_was_given_whoever_is_said_to_have_it():
    given = answer(
        200, b"x", spillover_object="q-1", spillover_grant="g", spillover_producer="else",
        spillover_deliveries="1", spillover_probes="1", spillover_visibility_ms="60000",
    )  # fmt: skip

    async with scripted(given, answer(204)) as liar:
        settings = ConsumerSettings(
            name="c", producers=("p1",), access=None, learns=False, max_hops=1,
            avoid_visited=False, at_once=1, take_s=5.0,
        )  # fmt: skip
        shell = ConsumerShell(settings, {"p1": liar.url}, Trust(None))
        (await shell.next()).settle(well=True)
        await until(lambda: ("POST /grants/g/ack") in [line for line, _ in liar.seen])
        await shell.close()


async def test_who_asks_by_https_is_led_nowhere_else():
    """What one producer says must not have its consumers show others what they show it."""
    settings = ConsumerSettings(
        name="c", producers=("p1",), access=None, learns=False, max_hops=1,
        avoid_visited=False, at_once=1, take_s=5.0,
    )  # fmt: skip
    shell = ConsumerShell(settings, {"p1": "https://127.0.0.1:9"}, Trust(None))
    led = [
        shell._pointed("take", "p1", Address(name, f"{scheme}://127.0.0.1:9", "g", 1))
        for name, scheme in (("q1", "http"), ("q2", "https"))
    ]
    assert [type(one) for one in led] == [cn.Unreachable, cn.Pointed]
    await shell.close()


@pytest.mark.parametrize("health", [RESET, answer(200, b"ok"), answer(503, {})])
async def test_a_producer_that_leaves_a_call_unanswered_is_asked_whether_it_is_there(
    health, monkeypatch
):
    """Whoever answers that, be it what it may, has the call; whoever does not is called anew."""
    monkeypatch.setattr(consumer, "CHECK_S", 0.02)
    monkeypatch.setattr(consumer, "PASSED_OVER_S", 0.02)

    async with scripted(b"", health) as silent:
        settings = ConsumerSettings(
            name="c", producers=("p1",), access=None, learns=False, max_hops=1,
            avoid_visited=False, at_once=1, take_s=300.0,
        )  # fmt: skip
        shell = ConsumerShell(settings, {"p1": silent.url}, Trust(None))
        asking = asyncio.create_task(shell.next())

        def asked(what):
            return sum(one.startswith(what) for one, _ in silent.seen)

        try:
            if health is RESET:
                await until(lambda: asked("POST ") >= 2)
                assert asked("GET /healthz") >= 1
            else:
                await until(lambda: asked("GET /healthz") >= 3)
                assert asked("POST ") == 1
        finally:
            asking.cancel()
            await shell.close()
