"""The bytes of objects, in memory and on disk: what counts, what is given, what is damaged."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from spillover.live.queue import bodies as bodies_module
from spillover.live.queue.bodies import FILE_PIECE_BYTES, PIECE_BYTES, Bodies, Damaged
from spillover.live.queue.store import FILE_BYTES_MIN, ObjectStore
from support.loop import turn, until

LARGE = os.urandom(FILE_BYTES_MIN + FILE_PIECE_BYTES + 1)


@asynccontextmanager
async def with_bodies(directory: Path | None = None) -> AsyncIterator[Bodies]:
    store = None if directory is None else ObjectStore(directory, "p1", "test")
    bodies = Bodies(store, iter(range(100, 200)).__next__)
    bodies.recover()
    try:
        async with asyncio.timeout(20.0):
            yield bodies
    finally:
        bodies.close()


async def stored(bodies: Bodies, content: bytes) -> int:
    number = bodies.add("text/plain", content)
    told: list[BaseException | None] = []
    bodies.store(number, told.append)
    await until(lambda: told)
    assert told == [None]
    return number


async def pieces(bodies: Bodies, number: int) -> list[bytes]:
    return [bytes(piece) async for piece in bodies.chunks(number)]


async def test_in_memory_each_takes_as_much_as_it_is_long() -> None:
    async with with_bodies() as bodies:
        content = os.urandom(2 * PIECE_BYTES + 1)
        for one in (b"", b"abc", content):
            await stored(bodies, one)
        assert (len(bodies), 3 in bodies, 4 in bodies) == (3, True, False)
        assert bodies.memory_bytes == 3 + len(content)
        assert not bodies.is_durable
        assert bodies.held_bytes(10**9) == 10**9
        assert [(bodies[n].size_bytes, bodies[n].since_s) for n in (1, 2, 3)] == [
            (0, 100),
            (3, 101),
            (len(content), 102),
        ]
        given = await pieces(bodies, 3)
        assert [len(piece) for piece in given] == [PIECE_BYTES, PIECE_BYTES, 1]
        assert b"".join(given) == content
        bodies.check(3)
        bodies.forget(3)
        await bodies.settled()
        assert (len(bodies), bodies.memory_bytes) == (2, 3)


async def test_a_file_takes_no_memory_once_it_is_stored(tmp_path: Path) -> None:
    async with with_bodies(tmp_path) as bodies:
        assert bodies.is_durable
        for size in (0, FILE_BYTES_MIN):
            assert bodies.held_bytes(size) == size
        assert bodies.held_bytes(FILE_BYTES_MIN + 1) == 0
        number = bodies.add("", LARGE)
        assert bodies.memory_bytes == len(LARGE), "until it is there"
        told: list[BaseException | None] = []
        bodies.store(number, told.append)
        await until(lambda: told)
        assert (bodies.memory_bytes, bodies[number].content) == (0, None)
        given = await pieces(bodies, number)
        assert b"".join(given) == LARGE
        assert max(map(len, given)) <= FILE_PIECE_BYTES
        bodies.check(number)
        bodies.forget(number)
        assert bodies.memory_bytes == 0


@pytest.mark.parametrize("change", [1, -1, None])
async def test_a_file_that_is_not_as_it_was_given_is_damaged(
    tmp_path: Path, change: int | None
) -> None:
    async with with_bodies(tmp_path) as bodies:
        number = await stored(bodies, LARGE)
        assert bodies._store is not None
        path = bodies._store.path_of(number)
        if change is None:
            path.unlink()
            says = "No such file or directory"
        else:
            os.truncate(path, len(LARGE) + change)
            says = f"expected {len(LARGE)} bytes, found {len(LARGE) + change}"
        with pytest.raises(Damaged, match=says) as error:
            bodies.check(number)
        assert str(error.value).startswith(f"{path}: ")
        with pytest.raises(Damaged, match=says):
            await pieces(bodies, number)


async def test_how_often_an_object_was_granted_is_written_soon_and_at_the_end(
    tmp_path: Path,
) -> None:
    async with with_bodies(tmp_path) as bodies:
        for content in (b"one", b"two", b"three", b"four"):
            await stored(bodies, content)
        for number, deliveries in ((1, 1), (2, 1), (1, 2), (3, 5)):
            bodies.delivered(number, deliveries)
        bodies.forget(2)
        bodies.note(3, 6, dead=True)
        await until(lambda: bodies._noting is None)
        assert bodies._deliveries == {}
        bodies.delivered(4, 3)
    async with with_bodies(tmp_path) as bodies:
        assert bodies._store is not None
        found, last = bodies._store.recover()
        told = [(one.number, one.deliveries, bool(one.dead)) for one in found]
        assert (told, last) == ([(1, 2, False), (3, 6, True), (4, 3, False)], 4)
        assert bodies.add("", b"five") == 5


async def test_who_waits_no_more_for_an_acknowledgement_leaves_the_others_waiting(
    tmp_path: Path,
) -> None:
    """They wait for the same one, since the disk takes them together."""
    async with with_bodies(tmp_path) as bodies:
        number = await stored(bodies, b"abc")
        busy = sqlite3.connect(tmp_path / "queue.sqlite3", isolation_level=None)
        busy.execute("BEGIN IMMEDIATE")
        bodies.forget(number)
        gone, waits = (asyncio.create_task(bodies.settled()) for _ in range(2))
        await turn(0)
        gone.cancel()
        await asyncio.wait([gone])
        assert not waits.done()
        busy.execute("ROLLBACK")
        busy.close()
        await waits
        assert gone.cancelled()


async def test_acknowledgements_that_cannot_be_stored_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is kept waiting: such objects come again after a restart."""
    monkeypatch.setattr(bodies_module._log, "filters", [])
    async with with_bodies(tmp_path) as bodies:
        number = await stored(bodies, b"abc")
        database = sqlite3.connect(tmp_path / "queue.sqlite3", isolation_level=None)
        refuse = "BEGIN SELECT RAISE(ABORT, 'no room'); END"
        database.execute(f"CREATE TRIGGER full BEFORE DELETE ON objects {refuse}")
        database.close()
        bodies.forget(number)
        await bodies.settled()
        told = [one.getMessage() for one in caplog.records if "acknowledge" in one.getMessage()]
        assert len(told) == 1
        assert "no room" in told[0]
