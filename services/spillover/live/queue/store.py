"""Objects on disk: nothing that was acknowledged to its producer is lost when the process dies.

One thread writes. It takes all that has been asked for meanwhile into one transaction (group
commit), and whoever asked hears when that is on the disk: SQLite in WAL mode with full
synchronization, and larger objects as files of their own that are synchronized before the row which
names them. A file without a row is rubbish of a death in between, and is removed at the next start.

A directory belongs to one producer, and to one process at a time.
"""

from __future__ import annotations

import fcntl
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from spillover.live.process.own_threads import start_own
from spillover.model.errors import InputError

FILE_BYTES_MIN = 65_536
"""Larger objects are files: a database page would be copied twice."""

BATCH_MAX = 256
"""Wishes in one transaction. What waits longer than one commit takes is in the next."""

OWED_MAX = 100_000
"""Objects whose forgetting is tried again while the disk does not write. Others come again after a
restart."""

SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS objects (
    number INTEGER PRIMARY KEY,
    content_type TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    body BLOB,
    deliveries INTEGER NOT NULL DEFAULT 0,
    dead INTEGER NOT NULL DEFAULT 0,
    rests_until_ms INTEGER NOT NULL DEFAULT 0
);
"""

_LATER_COLUMNS = {"rests_until_ms": "INTEGER NOT NULL DEFAULT 0"}
"""Columns of objects that stores of this version did not have at first. A version without them
leaves them alone."""


class StoreFull(Exception):
    """The disk has no room, or does not write any more. Nothing of what was asked for is there."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """The stored facts of an object without its body; `body` is None where that is a file."""

    number: int
    content_type: str
    size_bytes: int
    body: bytes | None
    deliveries: int
    dead: int
    rests_until_ms: int = 0
    """The instant, by the clock of the machine, before which it is not to be granted."""


@dataclass(slots=True)
class _Wish:
    """Something to be written."""

    write: Callable[[sqlite3.Connection], None]
    after: Callable[[], None] | None
    """Is called once it is on the disk."""
    undo: Callable[[], None] | None
    """Is called if it cannot be written."""
    done: Future[None]
    is_owed: bool
    """True where the row is written with the next one again, if it cannot be written now."""


class ObjectStore:
    """The store in `directory`, made if there is none. Raises InputError, naming `source`, for a
    directory that cannot be used, belongs to another producer, or is in use."""

    def __init__(self, directory: Path, producer: str, source: str) -> None:
        self._files = directory / "objects"
        self._source = source
        try:
            self._files.mkdir(parents=True, exist_ok=True)
            self._lock: BinaryIO = (directory / "lock").open("wb")
        except OSError as error:
            expected = f"expected a directory that can be written, {error.strerror}"
            raise InputError(source, "", f"{expected}: {directory}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            expected = f"expected a store that no other process uses: {directory}"
            raise InputError(source, "", expected) from error
        with ExitStack() as refused:
            refused.callback(self._lock.close)
            path = directory / "queue.sqlite3"
            try:
                self._database = sqlite3.connect(
                    path, isolation_level=None, check_same_thread=False
                )
                refused.callback(self._database.close)
                self._claim(producer)
            except sqlite3.Error as error:
                expected = f"expected a store of this program, {path} says: {error}"
                raise InputError(source, "", expected) from error
            refused.pop_all()
        self._wishes: queue.SimpleQueue[_Wish | None] = queue.SimpleQueue()
        self._owed: list[_Wish] = []
        """The rows that could not be written, and are to be; they belong to the thread."""
        self._thread = threading.Thread(target=self._write_all, name="object-store", daemon=True)
        start_own(self._thread)

    def _claim(self, producer: str) -> None:
        """Make a new store this producer's. Raises InputError for one of another producer."""
        database = self._database
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.executescript(_SCHEMA)
        there = {row[1] for row in database.execute("PRAGMA table_info(objects)")}
        for name, kind in _LATER_COLUMNS.items():
            if name not in there:
                database.execute(f"ALTER TABLE objects ADD COLUMN {name} {kind}")
        owner = _about(database, "producer", producer)
        version = _about(database, "version", str(SCHEMA_VERSION))
        if owner != producer:
            expected = f"expected a store of producer {producer}, got one of {owner}"
            raise InputError(self._source, "", expected)
        if version != str(SCHEMA_VERSION):
            expected = f"expected a store of version {SCHEMA_VERSION}, got one of {version}"
            raise InputError(self._source, "", expected)

    def recover(self) -> tuple[list[StoredObject], int]:
        """Returns the objects in their order, and the largest number that was ever given. To be
        called once, before anything is written. Raises InputError for what cannot be read."""
        try:
            return self._found()
        except (sqlite3.Error, OSError, ValueError) as error:
            expected = f"expected a store that can be read, {self._files.parent} says: {error}"
            raise InputError(self._source, "", expected) from error

    def _found(self) -> tuple[list[StoredObject], int]:
        rows = self._database.execute(
            "SELECT number, content_type, size_bytes, body, deliveries, dead, rests_until_ms"
            " FROM objects ORDER BY number"
        ).fetchall()
        found = [StoredObject(*row) for row in rows]
        files = {str(one.number) for one in found if one.body is None}
        for path in self._files.iterdir():
            if path.name.isdecimal() and path.name not in files:  # others' files are not ours
                path.unlink()
        numbers = [int(_about(self._database, "last_number", "0")), *(one.number for one in found)]
        return found, max(numbers)

    def path_of(self, number: int) -> Path:
        return self._files / str(number)

    # --- wishes -------------------------------------------------------------------------------

    def put(self, number: int, content_type: str, body: bytes) -> Future[None]:
        """Keep an object, with a number larger than all before. The future raises StoreFull."""
        is_file = len(body) > FILE_BYTES_MIN
        kept = None if is_file else body
        row = (number, content_type, len(body), kept)

        def write(database: sqlite3.Connection) -> None:
            if is_file:
                self._write_file(number, body)
            database.execute(
                "INSERT INTO objects (number, content_type, size_bytes, body) VALUES (?, ?, ?, ?)",
                row,
            )
            database.execute(
                "INSERT INTO about VALUES ('last_number', ?)"
                " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                (str(number),),
            )

        remove = partial(self.path_of(number).unlink, missing_ok=True) if is_file else None
        return self._wish(write, undo=remove)

    def forget(self, number: int) -> Future[None]:
        """Let an object go. Where the disk does not write, the future raises StoreFull, and it is
        tried again later: the object is there only for a start before that."""
        path = self.path_of(number)

        def write(database: sqlite3.Connection) -> None:
            database.execute("DELETE FROM objects WHERE number = ?", (number,))

        return self._wish(write, after=partial(path.unlink, missing_ok=True), is_owed=True)

    def note(
        self, number: int, deliveries: int, *, dead: bool, rests_until_ms: int = 0
    ) -> Future[None]:
        """Remember how often an object was granted, whether it is dead, and until when it rests."""

        def write(database: sqlite3.Connection) -> None:
            database.execute(
                "UPDATE objects SET deliveries = ?, dead = ?, rests_until_ms = ? WHERE number = ?",
                (deliveries, dead, rests_until_ms, number),
            )

        return self._wish(write)

    def close(self) -> None:
        """Write what was asked for, and let go of the directory."""
        self._wishes.put(None)
        self._thread.join()
        self._database.close()
        self._lock.close()

    def _wish(
        self,
        write: Callable[[sqlite3.Connection], None],
        *,
        after: Callable[[], None] | None = None,
        undo: Callable[[], None] | None = None,
        is_owed: bool = False,
    ) -> Future[None]:
        done: Future[None] = Future()
        self._wishes.put(_Wish(write, after, undo, done, is_owed))
        return done

    # --- the thread ---------------------------------------------------------------------------

    def _write_all(self) -> None:
        while (wish := self._wishes.get()) is not None:
            batch, ends = [wish], False
            with suppress(queue.Empty):
                while len(batch) < BATCH_MAX:
                    more = self._wishes.get_nowait()
                    if more is None:
                        ends = True
                        break
                    batch.append(more)
            owed = len(self._owed)
            self._commit(batch)  # which may make room
            self._commit_owed(owed)
            if ends:
                return

    def _commit_owed(self, count: int) -> None:
        """So many of what is owed, the oldest first, up to where the disk refuses some again: else
        every wish would wait, while it does not write, until all has been refused one by one."""
        while count > 0:
            some = self._owed[: min(count, BATCH_MAX)]
            count -= len(some)
            del self._owed[: len(some)]
            left = len(self._owed)
            self._commit(some)
            if len(self._owed) > left:
                return

    def _commit(self, batch: list[_Wish]) -> None:
        """All in one transaction; where that fails, each alone: one may be too large, the others
        not."""
        try:
            self._transact(batch)
        except (sqlite3.Error, OSError) as error:
            if len(batch) > 1:
                for wish in batch:
                    self._commit([wish])
                return
            self._fail(batch[0], StoreFull(str(error)))
            return
        for wish in batch:
            if wish.after is not None:
                with suppress(OSError):  # rubbish, until the next start
                    wish.after()
            if not wish.done.done():  # what was owed has failed before
                wish.done.set_result(None)

    def _fail(self, wish: _Wish, error: StoreFull) -> None:
        if wish.undo is not None:
            with suppress(OSError):
                wish.undo()
        if wish.is_owed and len(self._owed) < OWED_MAX:
            self._owed.append(wish)
        if not wish.done.done():
            wish.done.set_exception(error)

    def _transact(self, batch: list[_Wish]) -> None:
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            for wish in batch:
                wish.write(database)
            database.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                database.execute("ROLLBACK")
            raise

    def _write_file(self, number: int, body: bytes) -> None:
        path = self.path_of(number)
        try:
            with path.open("wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            directory = os.open(self._files, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            raise


def _about(database: sqlite3.Connection, name: str, first: str) -> str:
    """Returns a fact of the store about itself; `first` from now on if there is none."""
    database.execute("INSERT OR IGNORE INTO about VALUES (?, ?)", (name, first))
    row: tuple[str] = database.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
    return row[0]
