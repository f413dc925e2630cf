"""A peer of a producer that is none, or says what no producer says: its object comes back, and goes
to whoever asks next."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from spillover.core.queue import events as ev
from spillover.core.queue.settings import ProducerSettings
from spillover.live.queue.shell import QueueShell
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
def test_an_offer_that_is_answered_with_nonsense_counts_as_declined(said):
    async def check():
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

    asyncio.run(check())
