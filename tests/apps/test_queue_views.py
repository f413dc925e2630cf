"""What a producer tells of objects, grants, takes and probes that wait, and for how long: in
milliseconds, and of each the right one. No server runs here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from spillover.apps.queue.views import About, queue_state
from spillover.core.queue import events as ev
from spillover.core.queue.settings import ProducerSettings
from spillover.live.queue.shell import QueueShell
from support.loop import turn, until

ABOUT = About("http://outside.example:9", 1_000_000)

WAITS_S = 0.03


@asynccontextmanager
async def a_producer() -> AsyncIterator[QueueShell]:
    """Run it with a producer p1 of two places, which gives an object twice at most."""
    settings = ProducerSettings(id="p1", buffers=2, visibility_s=20.0, deliveries_max=2)
    shell = QueueShell(settings, {}, None, ABOUT.url)
    try:
        yield shell
    finally:
        await shell.close()


async def put(shell: QueueShell, content: bytes, content_type: str = "text/plain") -> int:
    """Bring an object: its number."""
    until_s = shell.now_s + 20.0
    admitted = await shell.ask(lambda ref: ev.Offered(ref, until_s, len(content)))
    kept = await shell.object_read(admitted.ref, content_type, content)
    assert isinstance(kept, ev.Accept)
    return kept.number


def take(shell: QueueShell, probe_id: str) -> asyncio.Future[ev.Give]:
    access, until_s = {"p1": 1.0}, shell.now_s + 20.0
    asked = shell.ask(lambda ref: ev.Taken(ref, probe_id, "me", 1, access, False, until_s))
    return asyncio.ensure_future(asked)


class Waited:
    """How long something can have waited: from between two instants on, until between two others.
    Compare with what was told of it in milliseconds, to a tenth."""

    def __init__(self, shell: QueueShell, before_s: float, after_s: float) -> None:
        self._shell = shell
        self._since_s = before_s, after_s
        self._from_s = shell.now_s

    def is_told_by(self, told_ms: float) -> bool:
        before_s, after_s = self._since_s
        least_ms, most_ms = self._from_s - after_s, self._shell.now_s - before_s
        return least_ms * 1e3 - 0.06 <= told_ms <= most_ms * 1e3 + 0.06


async def test_how_long_an_object_a_take_and_its_probe_have_waited() -> None:
    async with a_producer() as shell:
        before_s = shell.now_s
        taking = take(shell, "mine")
        await until(lambda: shell.machine.parked_probes)
        after_s = shell.now_s
        await turn(WAITS_S)
        waited = Waited(shell, before_s, after_s)
        state = queue_state(shell, ABOUT)
        (held,), (parked,) = state.waiting_takes, state.parked_probes
        for one in (held, parked):
            assert (one.probe_id, one.consumer, one.held_by) == ("mine", "me", "p1")
        times = held.waits_ms, parked.waits_ms, state.oldest_ms["take"], state.oldest_ms["probe"]
        assert [ms for ms in times if not waited.is_told_by(ms)] == []
        assert (state.oldest_ms["object"], state.oldest_ms["offer"]) == (0.0, 0.0)
        assert (state.takes, state.parked, state.buffered, state.granted) == (1, 1, 0, 0)
        await put(shell, b"x")
        given = await taking
        shell.feed(ev.Sent(given.grant, whole=True))
        before_s = shell.now_s
        await put(shell, b"y")
        after_s = shell.now_s
        await turn(WAITS_S)
        waited = Waited(shell, before_s, after_s)
        state = queue_state(shell, ABOUT)
        assert waited.is_told_by(state.oldest_ms["object"])
        assert (state.takes, state.parked, state.buffered, state.granted) == (0, 0, 1, 1)
        assert (state.produced, state.memory_bytes) == (2, 2)
