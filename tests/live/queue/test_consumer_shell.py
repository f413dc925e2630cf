"""A consumer as a running thing, with producers that say what a test has them say: what they are
asked, what follows from each answer, and what is left at the end."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

import pytest

from spillover.core.queue import consumer as machine_module
from spillover.core.queue.consumer import ConsumerSettings
from spillover.live.http1.trust import Trust
from spillover.live.queue import consumer_shell as shell_module
from spillover.live.queue.consumer_shell import ConsumerShell
from spillover.model.errors import OutcomeUnknown, Rejected
from support.loop import turn, until
from support.scripted_server import RESET, answer, problem, scripted

SHOWN = ((b"authorization", b"Bearer of-c"),)
SETTINGS = ConsumerSettings(
    name="c", producers=("p1",), access=None, learns=False, max_hops=4, avoid_visited=True,
    at_once=1, take_s=20.0,
)  # fmt: skip
SILENCE = b""
"""No answer at all: the call stays open."""


def given(number, visibility_s=60.0):
    """An object with its grant."""
    return answer(
        *(200, b"body %d" % number), kind="text/plain", spillover_object=f"p1-{number}",
        spillover_grant=f"g/{number}", spillover_producer="p1", spillover_deliveries=2,
        spillover_probes=3, spillover_visibility_ms=visibility_s * 1e3,
    )  # fmt: skip


def pointed(url, producer="p2"):
    """Where an object is."""
    return answer(
        303, location=f"{url}/objects/g%2F1", spillover_producer=producer, spillover_grant="g/1",
        spillover_probes=5,
    )  # fmt: skip


UNKNOWN = problem(404, "unknown_grant")


@asynccontextmanager
async def consuming(*answers, at_once=1):
    """The shell and the one producer that it knows."""
    async with scripted(*answers) as producer, asyncio.timeout(20.0):
        settings = replace(SETTINGS, at_once=at_once)
        shell = ConsumerShell(
            settings, {"p1": producer.url}, Trust(None), random=Random(1), headers=SHOWN
        )
        try:
            yield shell, producer
        finally:
            producer.answers(answer(204))
            await shell.close()


def asked(producer, what):
    """How often it was asked for that."""
    return sum(line.startswith(what) for line, _ in producer.seen)


def is_passed_over(shell, producer="p1"):
    return shell.machine._is_passed_over(producer, shell._timers.clock())


async def test_an_object_that_is_elsewhere_is_fetched_there():
    async with scripted(given(1), answer(204)) as other, consuming(pointed(other.url)) as told:
        shell, _ = told
        received = (await shell.next()).received
        assert (received.probes, received.body) == (5, b"body 1")
        ((line, headers),) = other.seen
        assert (line, headers["authorization"]) == ("GET /objects/g%2F1", "Bearer of-c")
        assert shell._calls == shell._probes == {}


@pytest.mark.parametrize(
    ("said", "is_at_fault"),
    [
        (answer(204), False),
        (answer(200, b"no grant"), True),
        (answer(303), True),
        (answer(205), True),
        (answer(503), True),
        (RESET, True),
    ],
)
async def test_a_producer_that_has_nothing_is_asked_again_and_one_that_fails_passed_over(
    said, is_at_fault
):
    async with consuming(said, SILENCE) as (shell, producer):
        asking = asyncio.create_task(shell.next())
        if is_at_fault:
            await until(lambda: is_passed_over(shell))
            assert asked(producer, "POST /take") == 1
        else:
            await until(lambda: asked(producer, "POST /take") == 2)
            assert not is_passed_over(shell)
        asking.cancel()


@pytest.mark.parametrize(
    ("said", "is_at_fault"),
    [
        (UNKNOWN, False),
        (problem(404, "not_found"), True),
        (answer(200, b"no grant"), True),
        (answer(204), True),
        (RESET, True),
    ],
)
async def test_an_object_that_is_not_where_it_was_said_to_be(said, is_at_fault):
    """It may have gone meanwhile, which is nobody's fault."""
    async with scripted(said) as other, consuming(pointed(other.url), SILENCE) as told:
        shell, producer = told
        asking = asyncio.create_task(shell.next())
        await until(lambda: asked(producer, "POST /take") == 2)
        assert is_passed_over(shell, "p2") == is_at_fault
        assert not is_passed_over(shell)
        assert shell._probes == {}
        asking.cancel()


async def test_while_nobody_waits_nothing_is_asked_for():
    async with consuming(answer(204)) as (shell, producer):
        first, second = (asyncio.create_task(shell.next()) for _ in range(2))
        await until(lambda: asked(producer, "POST /take") > 2)
        first.cancel()
        await until(first.done)
        before = len(producer.seen)
        await until(lambda: len(producer.seen) > before + 3)
        second.cancel()
        await until(lambda: second.done() and shell.machine.idle)
        before = len(producer.seen)
        await turn(0.02)
        assert len(producer.seen) == before
        assert shell._waiters == 0


async def test_an_acknowledgement_that_nobody_hears_is_told_again(monkeypatch):
    monkeypatch.setattr(machine_module, "AGAIN_S", 0.01)

    async with consuming(given(1), answer(503), RESET, answer(404), answer(204)) as told:
        shell, producer = told
        await (await shell.next()).acknowledge()
        assert asked(producer, "POST /grants/g%2F1/ack") == 4
    async with consuming(given(1, visibility_s=1.0), answer(503)) as (shell, producer):
        with pytest.raises(OutcomeUnknown, match=r"^producer p1 .*; object p1-1 may come ag"):
            await (await shell.next()).acknowledge()
        assert asked(producer, "POST /grants/g%2F1/ack") > 1


async def test_what_is_held_at_the_end_is_given_back_and_what_was_settled_is_not():
    async with consuming(given(1), answer(204), given(2), answer(204)) as (shell, producer):
        await (await shell.next()).acknowledge()
        await shell.next()
        await shell.close()
        assert [line for line, _ in producer.seen][1:] == [
            *("POST /grants/g%2F1/ack", "POST /take", "POST /grants/g%2F2/nack"),
        ]
        client = shell._clients["p1"]
        assert (client.idle, client.busy) == (0, 0)


async def test_an_end_waits_for_no_producer_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(shell_module, "CLOSE_S", 0.02)

    async with consuming(given(1), SILENCE) as (shell, _):
        acknowledging = asyncio.create_task((await shell.next()).acknowledge())
        await turn(0)
        await shell.close()
        with pytest.raises(OutcomeUnknown):
            await acknowledging


async def test_an_end_breaks_off_what_is_asked_for(monkeypatch):
    """Nobody waits for that any more, and whoever did is told that there is nothing."""
    monkeypatch.setattr(shell_module, "CLOSE_S", 600.0)

    async with consuming(SILENCE) as (shell, producer):
        asking = asyncio.create_task(shell.next())
        await until(lambda: producer.seen)
        await shell.close()
        assert await asking is None


async def test_who_waits_as_it_breaks_is_told_why(monkeypatch):
    monkeypatch.setattr(shell_module, "CLOSE_S", 600.0)

    async with consuming(SILENCE) as (shell, producer):
        asking = asyncio.create_task(shell.next())
        await until(lambda: producer.seen)
        shell._driver.close()  # as it does then
        shell._on_failure(LookupError("a bug"))
        with pytest.raises(LookupError, match="a bug"):
            await asking
        with pytest.raises(LookupError, match="a bug"):
            await shell.next()


async def test_a_call_that_is_never_taken_ends_it_once_all_is_settled():
    """Others of its hands may hold objects."""
    async with consuming(given(1), answer(204), at_once=2) as (shell, producer):
        held = await shell.next()
        await until(lambda: not shell._calls)
        producer.answers(problem(422, "bad", "no such thing"), answer(204))
        asking = asyncio.create_task(shell.next())
        await until(lambda: shell._error is not None)
        await turn()
        assert not asking.done()
        await held.acknowledge()
        with pytest.raises(Rejected, match=r"^p1: status 422 bad no such thing$"):
            await asking


async def test_a_second_object_is_for_who_has_a_hand_free():
    """With one hand the first has to be settled before; after a stop there is no second one."""
    async with consuming(given(1), given(2), SILENCE, at_once=2) as (shell, _):
        assert [(await shell.next()).received.id for _ in range(2)] == ["p1-1", "p1-2"]
    async with consuming(given(1), answer(204)) as (shell, _):
        held = await shell.next()
        with pytest.raises(RuntimeError, match="expected the last object to be settled"):
            await shell.next()
        shell.stop()
        waiting = asyncio.create_task(shell.next())
        await turn()
        assert not waiting.done()
        held.settle(well=False)
        assert await waiting is None
