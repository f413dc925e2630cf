"""A producer as a running thing, without its server: what it finds in its store, what it says is
left as it ends, and what it tells of those that wait."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spillover.core.queue import events as ev
from spillover.core.queue.settings import ProducerSettings
from spillover.live.queue import history as history_module
from spillover.live.queue import shell as shell_module
from spillover.live.queue.history import OBJECT, PROBE
from spillover.live.queue.shell import QueueShell
from spillover.live.queue.store import FILE_BYTES_MIN, ObjectStore
from support.loop import turn, until
from support.scripted_server import answer, scripted

SETTINGS = ProducerSettings(id="p1", buffers=4, visibility_s=60.0)


@pytest.fixture(autouse=True)
def every_line(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Other tests may just have had the same lines written."""
    monkeypatch.setattr(shell_module._log, "filters", [])
    caplog.set_level(logging.INFO, "spillover.live.queue.shell")


@asynccontextmanager
async def with_shell(store: Path | None = None, **changed: Any) -> AsyncIterator[QueueShell]:
    kept = None if store is None else ObjectStore(store, "p1", "test")
    settings = replace(SETTINGS, **changed)
    shell = QueueShell(settings, {}, kept, "http://127.0.0.1:1", random=Random(1))
    try:
        async with asyncio.timeout(20.0):
            yield shell
    finally:
        await shell.close()


async def put(shell: QueueShell, content: bytes) -> ev.Command:
    admitted = await shell.ask(lambda ref: ev.Offered(ref, shell.now_s + 10.0, len(content)))
    return await shell.object_read(admitted.ref, "text/plain", content)


async def take(shell: QueueShell) -> ev.Give:
    """An object that is here; this waits for none."""
    until_s = shell.now_s + 10.0
    given = await shell.ask(lambda ref: ev.Taken(ref, "t", "c", 1, {"p1": 1.0}, False, until_s))
    assert isinstance(given, ev.Give)
    return given


async def test_what_is_found_in_the_store_counts_as_it_did_before(tmp_path: Path) -> None:
    sizes = 10, FILE_BYTES_MIN, FILE_BYTES_MIN + 1

    async with with_shell(tmp_path) as shell:
        for size in sizes:
            assert isinstance(await put(shell, bytes(size)), ev.Accept)
    async with with_shell(tmp_path) as shell:
        objects, held_bytes = shell.machine.objects, shell.machine.room.held_bytes
        assert (objects.buffered, held_bytes) == (3, 10 + FILE_BYTES_MIN)
        assert shell.bodies.memory_bytes == held_bytes
        assert (await take(shell)).number == 1
        assert shell.object_id(1) == "p1-1", "as before the restart"


async def test_what_rests_rests_on_after_a_restart(tmp_path: Path) -> None:
    """And a store of before that was kept is used on."""
    async with with_shell(tmp_path) as shell:
        for content in (b"one", b"two"):
            await put(shell, content)
        grant = (await take(shell)).grant
        shell.ask_now(lambda ref: ev.Nacked(ref, grant, 3600.0))
    async with with_shell(tmp_path) as shell:
        objects = shell.machine.objects
        assert (objects.resting, objects.deliveries(1)) == ({1}, 1)
        assert (await take(shell)).number == 2
        assert shell.machine.next_deadline() < shell.now_s + 3600.0
    with closing(sqlite3.connect(tmp_path / "queue.sqlite3")) as database:
        database.execute("ALTER TABLE objects DROP COLUMN rests_until_ms")

    async with with_shell(tmp_path) as shell:
        assert (shell.machine.objects.ready, shell.machine.objects.deliveries(1)) == (2, 1)


async def test_how_often_an_object_was_given_is_known_after_a_restart(tmp_path: Path) -> None:
    async with with_shell(tmp_path, deliveries_max=3) as shell:
        for content in (b"one", b"two", b"three"):
            await put(shell, content)
        for _ in range(3):
            given = await take(shell)
            shell.feed(ev.Sent(given.grant, whole=True))
            shell.ask_now(lambda ref, grant=given.grant: ev.Nacked(ref, grant))
        given = await take(shell)
        assert given.number == 2
        objects = shell.machine.objects
        assert [objects.deliveries(number) for number in (1, 2, 3)] == [3, 1, 0]
    async with with_shell(tmp_path, deliveries_max=9) as shell:
        objects = shell.machine.objects
        assert (objects.buffered, list(objects.dead)) == (2, [1])
        assert [objects.deliveries(number) for number in (2, 3)] == [1, 0]
        shell.ask_now(lambda ref: ev.PutBack(ref, 1))
        assert shell._calls == {}, "nobody waits for an answer that has come"
    async with with_shell(tmp_path, deliveries_max=9) as shell:
        objects = shell.machine.objects
        assert (objects.buffered, list(objects.dead)) == (3, [])
        assert objects.deliveries(1) == 0, "it begins anew"
        assert words_of(shell, OBJECT, 1) == ["found in the store when the process started"]
    async with with_shell(tmp_path, deliveries_max=1) as shell:
        assert (shell.machine.objects.buffered, list(shell.machine.objects.dead)) == (2, [2])
        assert words_of(shell, OBJECT, 2)[1:] == ["granted too often in vain: dead"]


async def test_objects_in_memory_are_not_taken_for_those_of_another_life() -> None:
    async with with_shell() as shell:
        assert shell.object_id(7) == f"p1-{shell.epoch:x}-7"


async def test_what_is_lost_with_the_process_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async with with_shell() as shell:
        for content in (b"one", b"two", b"three"):
            await put(shell, content)
        await take(shell)
        assert not shell.is_empty
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == (
        "the producer ends: it loses objects that were in memory: 2 that nobody took, "
        "1 given and not acknowledged, 0 dead"
    )


async def test_an_end_waits_for_what_is_here(caplog: pytest.LogCaptureFixture) -> None:
    async with with_shell() as shell:
        await put(shell, b"one")
        draining = asyncio.create_task(shell.drain(20.0))
        await until(lambda: caplog.records)
        given = await take(shell)
        assert not draining.done()
        shell.feed(ev.Sent(given.grant, whole=True))
        told = shell.ask_now(lambda ref: ev.Acked(ref, given.grant))
        assert isinstance(told, ev.Told)
        await draining
    (record,) = caplog.records
    assert record.getMessage().startswith("the producer ends: it waits for 1 that nobody took, ")


async def test_a_producer_that_was_resumed_waits_anew_at_its_end() -> None:
    async with with_shell() as shell:
        await shell.drain(20.0)
        shell.feed(ev.Resume())
        await put(shell, b"one")
        draining = asyncio.create_task(shell.drain(20.0))
        await until(lambda: shell.machine.draining)
        await turn()
        assert not draining.done()
        given = await take(shell)
        shell.ask_now(lambda ref: ev.Acked(ref, given.grant))
        await draining


async def test_what_waits_in_a_store_holds_up_no_end_but_who_is_here_does(tmp_path: Path) -> None:
    async with with_shell(tmp_path) as shell:
        await put(shell, b"one")
        assert shell.is_empty
        admitted = await shell.ask(lambda ref: ev.Offered(ref, shell.now_s + 10.0, 3))
        assert not shell.is_empty
        await shell.object_read(admitted.ref, "text/plain", b"two")
        assert shell.is_empty
        for _ in range(2):
            given = await take(shell)
            assert not shell.is_empty
            shell.feed(ev.Sent(given.grant, whole=True))
            shell.ask_now(lambda ref, grant=given.grant: ev.Acked(ref, grant))
            assert shell.is_empty
        until_s = shell.now_s + 10.0
        asking = asyncio.create_task(
            shell.ask(lambda ref: ev.Taken(ref, "t", "c", 1, {"p1": 1.0}, False, until_s))
        )
        await until(lambda: len(shell.machine.takes) == 1)
        assert not shell.is_empty
        asking.cancel()


async def test_who_has_ended_holds_no_connection_to_its_peers() -> None:
    async with scripted(answer(202)) as peer:
        shell = QueueShell(SETTINGS, {"p2": peer.url}, None, "http://127.0.0.1:1")
        await shell._clients["p2"].warm(2)
        await until(lambda: len(peer._connections) == 2)
        await shell.close()
        await until(lambda: not peer._connections)


async def test_what_cannot_be_stored_is_not_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with with_shell(tmp_path) as shell:
        store = shell.bodies._store
        assert store is not None
        await put(shell, b"one")
        pages = store._database.execute("PRAGMA page_count").fetchone()[0]
        store._database.execute(f"PRAGMA max_page_count = {pages}")  # SQLite's own full disk
        refused = await put(shell, bytes(50_000))
        assert isinstance(refused, ev.RefuseOffer)
        assert refused.reason is ev.Reason.STORE_FULL
        (record,) = caplog.records
        assert record.getMessage().startswith("an object cannot be stored problem=")
        assert (shell.machine.objects.buffered, shell.bodies.memory_bytes) == (1, 3)
        assert isinstance(await put(shell, b"two"), ev.Accept)


async def test_what_peers_are_asked_comes_back_from_those_that_answer() -> None:
    async with scripted(answer(200, b"one")) as good, scripted(answer(503, b"no")) as bad:
        peers = {"p2": good.url, "p3": bad.url, "p4": "http://127.0.0.1:1", "p5": good.url}
        shell = QueueShell(SETTINGS, peers, None, "http://127.0.0.1:1")
        told = await shell.ask_peers("/state", 3)
        assert told == {"p2": b"one", "p3": None, "p4": None}
        assert [asked for asked, _ in good.seen] == ["GET /state"]
        await shell.close()


async def test_who_has_gone_is_no_caller_any_more() -> None:
    async with with_shell() as shell:
        leaves: list[Callable[[], None]] = []
        until_s = shell.now_s + 10.0
        asking = asyncio.create_task(
            shell.ask(
                lambda ref: ev.Taken(ref, "t", "c", 1, {"p1": 1.0}, False, until_s),
                leaves.append,
                ev.TakeGone,
            )
        )
        await until(lambda: len(shell.machine.takes) == 1)
        assert shell.oldest_s()["object"] == 0.0
        leaves[0]()
        assert len(shell.machine.takes) == 0
        assert isinstance(await asking, int)
        assert shell._calls == {}
        await put(shell, b"one")
        assert shell.machine.objects.buffered == 1
        await until(lambda: not shell._calls)
        has_gone = await shell.ask(
            lambda ref: ev.Taken(ref, "u", "c", 1, {"p1": 1.0}, False, until_s),
            lambda leave: leave(),
            ev.TakeGone,
        )
        assert isinstance(has_gone, int)
        assert words_of(shell, PROBE, "u") == [], "nothing was asked for"
        unsaid = await shell.ask(
            lambda ref: ev.Taken(ref, "v", "c", 1, {"p1": 1.0}, False, until_s),
            lambda leave: leave(),
        )
        assert isinstance(unsaid, int)
        assert words_of(shell, PROBE, "v")[0] == "consumer c asks here: up to 1 hop"
        assert shell.machine.objects.buffered == 1


async def test_what_producers_count(tmp_path: Path) -> None:
    async with with_shell(tmp_path) as shell:

        def value(name: str, **labels: str) -> float | None:
            sample = {"node": "p1", **labels}
            return shell.metrics.registry.get_sample_value(f"spillover_queue_{name}", sample)

        for content in (b"one", b"three"):
            await put(shell, content)
        given = await take(shell)
        shell.metrics.waited(0.25)
        shell.metrics.sent_bytes += 3
        assert value("offers_total", outcome="accepted") == 2.0
        assert value("takes_total", outcome="here") == 1.0
        assert value("takes_total", outcome="nothing") == 0.0
        assert value("buffered") == 1.0
        assert value("granted") == 1.0
        assert value("held_bytes") == 8.0
        assert value("durable") == 1.0
        assert value("take_wait_seconds_count") == 1.0
        assert value("take_wait_seconds_sum") == 0.25
        assert value("sent_bytes_total") == 3.0
        assert value("produced_total") == 2.0
        shell.feed(ev.Sent(given.grant, whole=True))
        shell.ask_now(lambda ref: ev.Acked(ref, given.grant))
        assert (value("granted"), value("acknowledged_total")) == (0.0, 1.0)


def words_of(shell: QueueShell, kind: str, name: str | int) -> list[str]:
    return [words for _, words in shell.history.story(kind, name)]


async def test_stories_are_bounded_and_the_newest_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "STORIES_MAX", 3)
    monkeypatch.setattr(history_module, "RECORDS_MAX", 4)

    async with with_shell() as shell:
        await put(shell, b"one")
        for _ in range(3):
            given = await take(shell)
            shell.feed(ev.Sent(given.grant, whole=True))
            shell.ask_now(lambda ref, grant=given.grant: ev.Nacked(ref, grant))
        story = words_of(shell, OBJECT, 1)
        assert len(story) == 4
        assert story[0] == "taken in and buffered: 201"
        assert story[-2:] == ["sent", "given back by its consumer"]
        for content in (b"two", b"three", b"four"):
            await put(shell, content)
        assert [len(words_of(shell, OBJECT, number)) for number in (1, 2, 3, 4)] == [0, 1, 1, 1]
