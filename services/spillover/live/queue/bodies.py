"""The objects themselves: their bytes, in memory or on disk, by number. Who gets one, and when, is
the machine's business (`core.queue`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from spillover.live.queue.store import FILE_BYTES_MIN, ObjectStore, StoredObject

CHUNK_BYTES = 262_144
"""Read at once of an object that is a file."""


@dataclass(slots=True)
class Body:
    """One object; `content` is None where it is a file."""

    content_type: str
    size_bytes: int
    content: bytes | None


class Bodies:
    """Those of one producer; in `store` if there is one, else in memory alone."""

    def __init__(self, store: ObjectStore | None) -> None:
        self._store = store
        self._bodies: dict[int, Body] = {}
        self._last = 0
        self._last_forgotten: asyncio.Future[None] | None = None
        self.memory_bytes = 0
        """Of what is in memory."""

    def __len__(self) -> int:
        return len(self._bodies)

    def __getitem__(self, number: int) -> Body:
        return self._bodies[number]

    @property
    def is_durable(self) -> bool:
        """Returns whether they outlive the process."""
        return self._store is not None

    def recover(self) -> list[StoredObject]:
        """Returns what was stored before, in its order. To be called once, first."""
        if self._store is None:
            return []
        found, self._last = self._store.recover()
        for one in found:
            self._keep(one.number, Body(one.content_type, one.size_bytes, one.body))
        return found

    def add(self, content_type: str, content: bytes) -> int:
        """A new object: its number."""
        self._last += 1
        self._keep(self._last, Body(content_type, len(content), content))
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
        elif body.size_bytes > FILE_BYTES_MIN:
            self.memory_bytes -= body.size_bytes
            body.content = None
        on_stored(error)

    def forget(self, number: int) -> None:
        """An object is gone for good; on disk too once `settled` returns."""
        self._drop(number)
        if self._store is not None:
            self._last_forgotten = asyncio.wrap_future(self._store.forget(number))

    async def settled(self) -> None:
        """Return when all that was forgotten by now is so on the disk. Raises StoreFull where the
        disk does not write any more: such objects come again after a restart."""
        if self._last_forgotten is not None:
            await asyncio.shield(self._last_forgotten)

    def note(self, number: int, deliveries: int, *, dead: bool) -> None:
        """Remember how often an object was granted, if anything outlives the process."""
        if self._store is not None:
            self._store.note(number, deliveries, dead=dead)

    async def chunks(self, number: int) -> AsyncIterator[bytes]:
        """Gives the object piece by piece. It may be forgotten meanwhile."""
        body = self._bodies[number]
        if body.content is not None:
            yield body.content
            return
        assert self._store is not None, "only a store has files"  # noqa: S101
        async for piece in _file_chunks(self._store.path_of(number)):
            yield piece

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def _keep(self, number: int, body: Body) -> None:
        self._bodies[number] = body
        if body.content is not None:
            self.memory_bytes += body.size_bytes

    def _drop(self, number: int) -> None:
        body = self._bodies.pop(number)
        if body.content is not None:
            self.memory_bytes -= body.size_bytes


async def _file_chunks(path: Path) -> AsyncIterator[bytes]:
    file = await asyncio.to_thread(path.open, "rb")
    try:
        while piece := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield piece
    finally:
        file.close()
