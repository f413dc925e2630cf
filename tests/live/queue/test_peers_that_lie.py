"""What a consumer makes of a producer that says what none says. What a producer makes of such peers
is in `test_shell_peers`."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from spillover.core.queue import consumer
from spillover.core.queue import consumer_events as cn
from spillover.core.queue.consumer import ConsumerSettings
from spillover.live.http1.trust import Trust
from spillover.live.queue.client_wire import Address
from spillover.live.queue.consumer_shell import ConsumerShell
from spillover.live.queue.directory import find_producers
from spillover.live.queue.wire import PRODUCERS_MAX
from support.loop import until
from support.scripted_server import RESET, answer, scripted

NOWHERE = "http://127.0.0.1:9"


@asynccontextmanager
async def consuming(url=NOWHERE):
    """A consumer that knows p1 at this url."""
    settings = ConsumerSettings(
        name="c", producers=("p1",), access=None, learns=False, max_hops=1,
        avoid_visited=False, at_once=1, take_s=300.0,
    )  # fmt: skip
    shell = ConsumerShell(settings, {"p1": url}, Trust(None))
    try:
        yield shell
    finally:
        await shell.close()


async def test_a_producer_that_makes_up_others_makes_up_no_more_than_there_can_be():
    """Each takes a consumer memory, for as long as that lives."""
    async with consuming() as shell:
        led = [
            shell._pointed(f"take{k}", "p1", Address(f"q{k}", NOWHERE, "g", 1))
            for k in range(PRODUCERS_MAX + 5)
        ]
        kinds = [type(one) for one in led]
        assert kinds == [cn.Pointed] * (PRODUCERS_MAX - 1) + [cn.Unreachable] * 6
        again = shell._pointed("again", "p1", Address("q7", NOWHERE, "g", 1))
        assert isinstance(again, cn.Pointed)


@pytest.mark.parametrize("url", ["", "http://", "http://h:99999", "http://[", "gopher://h", "h"])
async def test_who_is_led_to_no_url_asks_elsewhere(url):
    async with consuming() as shell:
        led = shell._pointed("take", "p1", Address("q1", url, "g", 1))
        assert led == cn.Unreachable("take", "p1")
        assert list(shell._clients) == ["p1"]
    told = {"producer": "p1", "producers": {"p1": "http://h:1", "p2": url}}
    async with scripted(answer(200, told)) as liar:
        assert await find_producers([liar.url], Trust(None)) == {"p1": liar.url}


async def test_an_object_is_acknowledged_where_it_was_given_whoever_is_said_to_have_it():
    given = answer(
        200, b"x", spillover_object="q-1", spillover_grant="g", spillover_producer="else",
        spillover_deliveries="1", spillover_probes="1", spillover_visibility_ms="60000",
    )  # fmt: skip
    async with scripted(given, answer(204)) as liar, consuming(liar.url) as shell:
        (await shell.next()).settle(well=True)
        await until(lambda: "POST /grants/g/ack" in [line for line, _ in liar.seen])


async def test_who_asks_by_https_is_led_nowhere_else():
    """What one producer says must not have its consumers show others what they show it."""
    async with consuming(NOWHERE.replace("http", "https")) as shell:
        led = [
            shell._pointed("take", "p1", Address(name, f"{scheme}://127.0.0.1:9", "g", 1))
            for name, scheme in (("q1", "http"), ("q2", "https"))
        ]
        assert [type(one) for one in led] == [cn.Unreachable, cn.Pointed]


@pytest.mark.parametrize("health", [RESET, answer(503, {})])
async def test_a_producer_that_leaves_a_call_unanswered_is_asked_whether_it_is_there(
    health, monkeypatch
):
    """Whoever answers that, be it what it may, has the call; whoever does not is called anew."""
    monkeypatch.setattr(consumer, "CHECK_S", 0.02)
    monkeypatch.setattr(consumer, "PASSED_OVER_S", 0.02)
    async with scripted(b"", health) as silent, consuming(silent.url) as shell:
        asking = asyncio.create_task(shell.next())

        def asked(what):
            return sum(one.startswith(what) for one, _ in silent.seen)

        if health is RESET:
            await until(lambda: asked("POST ") >= 2)
            assert asked("GET /healthz") >= 1
        else:
            await until(lambda: asked("GET /healthz") >= 3)
            assert asked("POST ") == 1
        asking.cancel()
