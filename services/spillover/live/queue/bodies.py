"""The objects themselves: their bytes, in memory or on disk, by number. Who gets one, and when, is
the machine's business (`core.queue`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from spillover.live.process.logs import Message, OncePerPeriod
from spillover.live.queue.store import FILE_BYTES_MIN, ObjectStore, StoredObject, StoreFull

PIECE_BYTES = 1_048_576
"""Given at once of an object in memory. It takes none of its own."""

FILE_PIECE_BYTES = 262_144
"""Given at once of one on disk."""

NOTE_S = 0.05
"""After a delivery its count is written, unless the object is acknowledged by then: most are, and
cost the disk nothing."""

REST_MS_MAX = 86_400_000
"""An object rests no longer after a start."""

_log = logging.getLogger(__name__)
_log.addFilter(OncePerPeriod())


class Damaged(Exception):
    """The disk does not have an object as it was given, in one line."""


@dataclass(slots=True)
class Body:
    """One object; `content` is None where it is a file."""

    content_type: str
    size_bytes: int
    content: bytes | None
    since_s: float
    """When it came, or was found in the store at the start."""


class Bodies:
    """The bodies of one producer's objects; in `store` if there is one, else in memory alone.
    `clock` gives the times at which they come."""

    def __init__(self, store: ObjectStore | None, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._bodies: dict[int, Body] = {}
        self._last = 0
        self._last_forgotten: Future[None] | None = None
        self._deliveries: dict[int, int] = {}
        """The counts of deliveries that are to be written, by number."""
        self._noting: asyncio.TimerHandle | None = None
        self.memory_bytes = 0

    def __len__(self) -> int:
        return len(self._bodies)

    def __contains__(self, number: int) -> bool:
        return number in self._bodies

    def __getitem__(self, number: int) -> Body:
        return self._bodies[number]

    @property
    def is_durable(self) -> bool:
        return self._store is not None

    def held_bytes(self, size_bytes: int) -> int:
        """Returns how much memory an object of that size takes once it is stored."""
        return 0 if self._is_file(size_bytes) else size_bytes

    def _is_file(self, size_bytes: int) -> bool:
        return self._store is not None and size_bytes > FILE_BYTES_MIN

    def recover(self) -> list[StoredObject]:
        """Returns what was stored before, in its order. To be called once, first."""
        if self._store is None:
            return []
        found, self._last = self._store.recover()
        for one in found:
            self._keep(one.number, one.content_type, one.size_bytes, one.body)
        return found

    def add(self, content_type: str, content: bytes) -> int:
        """A new object: its number."""
        self._last += 1
        self._keep(self._last, content_type, len(content), content)
        return self._last

    def store(self, number: int, on_stored: Callable[[BaseException | None], None]) -> None:
        """Have an object kept safe, then `on_stored`, in the loop: at once where memory will do."""
        body = self._bodies[number]
        if self._store is None:
            on_stored(None)
            return
        assert body.content is not None, "it has just come"  # noqa: S101
        loop = asyncio.get_running_loop()

        def stored(done: Future[None]) -> None:
            error = done.exception()
            loop.call_soon_threadsafe(self._stored, number, error, on_stored)

        self._store.put(number, body.content_type, body.content).add_done_callback(stored)

    def _stored(
        self,
        number: int,
        error: BaseException | None,
        on_stored: Callable[[BaseException | None], None],
    ) -> None:
        body = self._bodies[number]
        if error is not None:
            self._drop(number)
        elif self._is_file(body.size_bytes):
            self.memory_bytes -= body.size_bytes
            body.content = None
        on_stored(error)

    def forget(self, number: int) -> None:
        """An object is gone for good; on disk too once `settled` returns."""
        self._drop(number)
        if self._store is not None:
            self._last_forgotten = self._store.forget(number)

    async def settled(self) -> None:
        """Return when all that was forgotten by now is so on the disk, or the disk has been found
        not to write: such objects come again after a restart, unless it writes before."""
        if self._last_forgotten is not None:
            try:
                await asyncio.shield(asyncio.wrap_future(self._last_forgotten))
            except StoreFull as error:
                _log.error(Message("acknowledgements cannot be stored", problem=str(error)))

    def note(
        self, number: int, deliveries: int, *, dead: bool = False, rest_s: float = 0.0
    ) -> None:
        """Remember how often an object was granted, whether it is dead, and how much longer it
        rests, if anything outlives the process."""
        self._deliveries.pop(number, None)
        if self._store is not None:
            until_ms = _wall_ms() + round(1e3 * rest_s) if rest_s else 0
            self._store.note(number, deliveries, dead=dead, rests_until_ms=until_ms)

    def rest_s(self, found: StoredObject) -> float:
        """Returns how much longer an object rests that was found in the store: no longer than was
        meant, whatever became of the clock meanwhile."""
        left_ms = found.rests_until_ms - _wall_ms()
        return min(max(0, left_ms), REST_MS_MAX) / 1e3

    def delivered(self, number: int, deliveries: int) -> None:
        """Remember soon how often an object was granted, if it is still there by then."""
        if self._store is None:
            return
        self._deliveries[number] = deliveries
        if self._noting is None:
            self._noting = asyncio.get_running_loop().call_later(NOTE_S, self._note_deliveries)

    def _note_deliveries(self) -> None:
        self._noting = None
        counts, self._deliveries = self._deliveries, {}
        for number, deliveries in counts.items():
            self.note(number, deliveries)

    def chunks(self, number: int) -> AsyncIterator[bytes | memoryview]:
        """Gives the object piece by piece. It may be forgotten meanwhile. Raises Damaged."""
        body = self._bodies[number]
        if body.content is not None:
            return _memory_chunks(memoryview(body.content))
        assert self._store is not None, "only a store has files"  # noqa: S101
        return _file_chunks(self._store.path_of(number), body.size_bytes)

    def check(self, number: int) -> None:
        """Raise Damaged where an object that is a file is not there any more, or not as large."""
        body = self._bodies[number]
        if body.content is not None:
            return
        assert self._store is not None, "only a store has files"  # noqa: S101
        path = self._store.path_of(number)
        try:
            size_bytes = path.stat().st_size
        except OSError as error:
            raise Damaged(f"{path}: {error.strerror}") from error
        if size_bytes != body.size_bytes:
            raise _of_another_size(path, body.size_bytes, size_bytes)

    def close(self) -> None:
        if self._noting is not None:
            self._noting.cancel()
            self._note_deliveries()
        if self._store is not None:
            self._store.close()

    def _keep(self, number: int, content_type: str, size_bytes: int, content: bytes | None) -> None:
        self._bodies[number] = Body(content_type, size_bytes, content, self._clock())
        if content is not None:
            self.memory_bytes += size_bytes

    def _drop(self, number: int) -> None:
        body = self._bodies.pop(number)
        self._deliveries.pop(number, None)
        if body.content is not None:
            self.memory_bytes -= body.size_bytes


def _wall_ms() -> int:
    """A clock that goes on while no process runs."""
    return time.time_ns() // 1_000_000


async def _memory_chunks(view: memoryview) -> AsyncIterator[memoryview]:
    for start in range(0, len(view), PIECE_BYTES):
        yield view[start : start + PIECE_BYTES]


async def _file_chunks(path: Path, size_bytes: int) -> AsyncIterator[bytes]:
    try:
        file = await asyncio.to_thread(path.open, "rb")
    except OSError as error:
        raise Damaged(f"{path}: {error.strerror}") from error
    read_bytes = 0
    try:
        while piece := await _read(file, path):
            read_bytes += len(piece)
            yield piece
    finally:
        file.close()
    if read_bytes != size_bytes:
        raise _of_another_size(path, size_bytes, read_bytes)


async def _read(file: BinaryIO, path: Path) -> bytes:
    try:
        return await asyncio.to_thread(file.read, FILE_PIECE_BYTES)
    except OSError as error:
        raise Damaged(f"{path}: {error.strerror}") from error


def _of_another_size(path: Path, expected_bytes: int, found_bytes: int) -> Damaged:
    return Damaged(f"{path}: expected {expected_bytes} bytes, found {found_bytes}")
