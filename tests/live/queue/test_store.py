"""The store of objects: what it was told is there after any end, and only that."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from pathlib import Path
from random import Random
from types import NoneType

import pytest

from spillover.live.queue import store as store_module
from spillover.live.queue.store import FILE_BYTES_MIN, ObjectStore, StoreFull
from spillover.model.errors import InputError
from support.waiting import until

LARGE = os.urandom(FILE_BYTES_MIN + 1)

WRITER = """
import sys
from pathlib import Path
from spillover.live.queue.store import FILE_BYTES_MIN, ObjectStore
store = ObjectStore(Path(sys.argv[1]), "p1", "test")
found, last = store.recover()
number = last
while True:
    number += 1
    body = bytes([number % 256]) * (FILE_BYTES_MIN * 2 if number % 3 == 0 else 100)
    store.put(number, "application/octet-stream", body).result()
    print("put", number, flush=True)
    if number % 2 == 0:
        store.forget(number - 1).result()
        print("gone", number - 1, flush=True)
"""


def opened(directory: Path, producer: str = "p1") -> ObjectStore:
    return ObjectStore(directory, producer, "test")


def body_of(store: ObjectStore, number: int, body: bytes | None) -> bytes:
    return store.path_of(number).read_bytes() if body is None else body


def test_objects_are_there_again_in_their_order(tmp_path: Path) -> None:
    store = opened(tmp_path)
    assert store.recover() == ([], 0)
    for number, body in ((1, b"one"), (2, LARGE), (3, b"")):
        store.put(number, "text/plain", body).result(10)
    store.note(1, 4, dead=True).result(10)
    store.forget(3).result(10)
    store.close()
    store = opened(tmp_path)
    found, last = store.recover()
    assert [(one.number, one.size_bytes, one.deliveries, one.dead) for one in found] == [
        (1, 3, 4, True),
        (2, len(LARGE), 0, False),
    ]
    assert [body_of(store, one.number, one.body) for one in found] == [b"one", LARGE]
    assert last == 3, "a number is never given twice, also where its object is gone"
    store.close()


def test_a_file_goes_with_its_object(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put(1, "", LARGE).result(10)
    assert store.path_of(1).exists()
    store.forget(1).result(10)
    assert not store.path_of(1).exists()
    store.close()


def test_a_file_that_no_row_names_is_removed(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.path_of(7).write_bytes(b"rubbish")
    others = store.path_of(7).with_name("photo.jpeg")
    others.write_bytes(b"of somebody who had a directory of that name")
    others.with_name("album").mkdir()
    assert store.recover() == ([], 0)
    assert not store.path_of(7).exists()
    assert others.exists()
    store.close()


def test_a_store_is_of_one_process(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with pytest.raises(InputError, match="expected a store that no other process uses"):
        opened(tmp_path)
    store.close()
    opened(tmp_path).close()


def test_a_store_is_of_one_producer(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(InputError, match="expected a store of producer p2, got one of p1"):
        opened(tmp_path, "p2")
    opened(tmp_path).close()


def test_what_is_no_store_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "queue.sqlite3").write_bytes(b"no database at all" * 100)
    with pytest.raises(InputError, match="expected a store of this program"):
        opened(tmp_path)
    (tmp_path / "queue.sqlite3").unlink()
    store = opened(tmp_path)
    for number in range(1, 40):
        store.put(number, "", LARGE[:FILE_BYTES_MIN])
    store.close()
    with (tmp_path / "queue.sqlite3").open("r+b") as file:
        file.seek(FILE_BYTES_MIN * 9)
        file.write(os.urandom(FILE_BYTES_MIN * 3))
    store = opened(tmp_path)
    with pytest.raises(
        InputError, match=r"^test: expected a store that can be read, .* malformed$"
    ):
        store.recover()
    store.close()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="expected a directory that can be written"):
        opened(tmp_path / "file")


def test_what_is_acknowledged_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not just with the system, whose power may fail: a file and its name before the row that names
    it, and the row before anybody is told."""
    store = opened(tmp_path)
    assert store._database.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    synced: list[tuple[int, int, int]] = []

    def fsync(file: int) -> None:
        usual(file)
        other = sqlite3.connect(tmp_path / "queue.sqlite3")
        (rows,) = other.execute("SELECT count(*) FROM objects").fetchone()
        other.close()
        about = os.fstat(file)
        synced.append((about.st_ino, rows, about.st_size))

    usual = os.fsync
    monkeypatch.setattr(os, "fsync", fsync)
    store.put(1, "", LARGE).result(10)
    path = store.path_of(1)
    assert [one[:2] for one in synced] == [(path.stat().st_ino, 0), (path.parent.stat().st_ino, 0)]
    assert synced[0][2] == len(LARGE)
    store.close()


def test_who_reads_beside_it_holds_up_no_object(tmp_path: Path) -> None:
    """As a backup does, or whoever looks; and a store that was closed is one file and its
    objects."""
    store = opened(tmp_path)
    store.put(1, "", b"x").result(10)
    other = sqlite3.connect(tmp_path / "queue.sqlite3", isolation_level=None)
    other.execute("BEGIN")
    assert other.execute("SELECT number FROM objects").fetchall() == [(1,)]
    store.put(2, "", b"x").result(10)
    other.execute("COMMIT")
    other.close()
    store.close()
    assert {path.name for path in tmp_path.iterdir()} == {"lock", "objects", "queue.sqlite3"}


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    database = sqlite3.connect(tmp_path / "queue.sqlite3")
    database.execute("UPDATE about SET value = '2' WHERE name = 'version'")
    database.commit()
    database.close()
    with pytest.raises(InputError, match="expected a store of version 1, got one of 2"):
        opened(tmp_path)


@contextmanager
def no_writing(directory: Path) -> Iterator[None]:
    """The disk refuses all that concerns an object, in the midst of its transaction."""
    kinds = ("INSERT", "UPDATE", "DELETE")
    refuse = "BEGIN SELECT RAISE(ABORT, 'no room'); END"
    other = sqlite3.connect(directory / "queue.sqlite3", isolation_level=None)
    for kind in kinds:
        other.execute(f"CREATE TRIGGER no_{kind} BEFORE {kind} ON objects {refuse}")
    yield
    for kind in kinds:
        other.execute(f"DROP TRIGGER no_{kind}")
    other.close()


@contextmanager
def busy(directory: Path, store: ObjectStore, wishes: int) -> Iterator[None]:
    """The disk is slow: what is asked for within this, after the first of it, is one batch of so
    many wishes."""
    other = sqlite3.connect(directory / "queue.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    first = store.note(0, 0, dead=False)
    thread = store._thread.ident
    until(lambda: sys._current_frames()[thread].f_code is ObjectStore._transact.__code__)
    yield
    until(lambda: store._wishes.qsize() == wishes)
    other.execute("ROLLBACK")
    other.close()
    first.result(10)


class Twin:
    """What a store should hold, in a dict."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = opened(directory)
        self.there: dict[int, tuple[int, int, bool]] = {}
        self.owed: set[int] = set()
        self.last = 0

    def restart(self) -> None:
        """What is owed may have been written at any time since the disk writes again."""
        self.store.close()
        self.store = opened(self.directory)
        found, last = self.store.recover()
        assert last == self.last
        for number in self.owed - {one.number for one in found}:
            del self.there[number]
        self.owed.clear()
        there = [(one.number, (one.size_bytes, one.deliveries, bool(one.dead))) for one in found]
        assert there == sorted(self.there.items())
        files = {path.name for path in (self.directory / "objects").iterdir()}
        large = [n for n, (size_bytes, *_) in self.there.items() if size_bytes > FILE_BYTES_MIN]
        assert files == set(map(str, large))

    def wrote(self) -> None:
        """What the disk owes is written after what it was asked for, before all else."""
        for number in self.owed:
            self.there.pop(number, None)
        self.owed.clear()
        self.store.note(0, 0, dead=False).result(10)

    def put(self, size_bytes: int, *, works: bool) -> None:
        number = self.last + 1
        self._done(self.store.put(number, "", bytes(size_bytes)), works=works)
        if works:
            self.there[number], self.last = (size_bytes, 0, False), number

    def forget(self, number: int, *, works: bool) -> None:
        self._done(self.store.forget(number), works=works)
        if works:
            self.there.pop(number)
        else:
            self.owed.add(number)

    def note(self, number: int, deliveries: int, *, dead: bool, works: bool) -> None:
        self._done(self.store.note(number, deliveries, dead=dead), works=works)
        if works:
            self.there[number] = self.there[number][0], deliveries, dead

    def _done(self, done: Future[None], *, works: bool) -> None:
        assert isinstance(done.exception(10), NoneType if works else StoreFull)


@pytest.mark.parametrize("seed", range(4))
def test_any_history_is_that_of_a_dict(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    twin = Twin(tmp_path)
    for _ in range(40):
        what = random.random()
        if what < 0.15:
            twin.restart()
            continue
        works = random.random() < 0.7
        # One that is owed may be gone already, of which the disk refuses nothing.
        numbers = [number for number in twin.there if works or number not in twin.owed]
        with nullcontext() if works else no_writing(tmp_path):
            if what < 0.55 or not numbers:
                twin.put(random.choice([0, 10, len(LARGE)]), works=works)
            elif what < 0.75:
                twin.forget(random.choice(numbers), works=works)
            else:
                dead = random.random() < 0.5
                number = random.choice(numbers)
                twin.note(number, random.randrange(9), dead=dead, works=works)
        if works:
            twin.wrote()
    twin.restart()
    twin.store.close()


def test_what_could_not_be_written_leaves_no_file(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with no_writing(tmp_path):
        assert isinstance(store.put(1, "", LARGE).exception(10), StoreFull)
    assert not store.path_of(1).exists()
    store.close()


def test_one_object_too_many_does_not_refuse_the_others(tmp_path: Path) -> None:
    """They came while the disk was busy, and are one transaction at first."""
    store = opened(tmp_path)
    pages = store._database.execute("PRAGMA page_count").fetchone()[0]
    store._database.execute(f"PRAGMA max_page_count = {pages + 8}")
    with busy(tmp_path, store, 3):
        sizes = (10, FILE_BYTES_MIN, 10)
        all_done = [store.put(number, "", bytes(size)) for number, size in enumerate(sizes, 1)]
    assert [type(done.exception(10)) for done in all_done] == [type(None), StoreFull, type(None)]
    store.close()
    store = opened(tmp_path)
    assert [one.number for one in store.recover()[0]] == [1, 3]
    store.close()


def test_what_was_asked_for_before_the_end_is_written(tmp_path: Path) -> None:
    store = opened(tmp_path)
    closing = threading.Thread(target=store.close)
    with busy(tmp_path, store, 3):
        all_done = [store.put(number, "", b"x") for number in (1, 2)]
        closing.start()
    closing.join(10)
    assert [done.exception(0) for done in all_done] == [None, None]
    store = opened(tmp_path)
    assert [one.number for one in store.recover()[0]] == [1, 2]
    store.close()


def test_what_is_owed_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be forgotten beyond so many is there again after a restart."""
    monkeypatch.setattr(store_module, "OWED_MAX", 2)
    store = opened(tmp_path)
    for number in range(1, 5):
        store.put(number, "", b"x").result(10)
    with no_writing(tmp_path):
        for number in range(1, 5):
            store.forget(number).exception(10)
    store.put(5, "", b"x").result(10)
    store.close()
    store = opened(tmp_path)
    assert len(store.recover()[0]) == 3
    store.close()


def test_the_more_is_owed_the_longer_nobody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the disk does not write, each wish has a bounded part of it tried again; after that, it
    is all written with the next."""
    monkeypatch.setattr(store_module, "BATCH_MAX", 10)
    store = opened(tmp_path)
    for number in range(1, 201):
        done = store.put(number, "", b"x")
    done.result(10)
    said: list[str] = []
    with no_writing(tmp_path):
        for number in range(1, 201):
            done = store.forget(number)
        assert isinstance(done.exception(10), StoreFull)
        for _ in range(2):  # the second is done after what the first one had tried again
            store.note(0, 0, dead=False).result(10)
        store._database.set_trace_callback(said.append)
        store.note(0, 0, dead=False).result(10)
    assert said.count("BEGIN IMMEDIATE") <= 2 * (1 + 11)
    store.put(201, "", b"x").result(10)
    store.close()
    store = opened(tmp_path)
    assert [one.number for one in store.recover()[0]] == [201]
    store.close()


@pytest.mark.processes
def test_a_process_that_fails_with_its_store_open_ends(tmp_path: Path) -> None:
    fails = WRITER.partition("number = last")[0] + "raise SystemExit(3)"
    command = [sys.executable, "-c", fails, str(tmp_path)]
    assert subprocess.run(command, timeout=60.0, check=False).returncode == 3


@pytest.mark.processes
def test_what_was_told_to_be_stored_survives_sigkill(tmp_path: Path) -> None:
    there: set[int] = set()
    gone: set[int] = set()
    perhaps: set[int] = set()
    for lines in (3, 40):
        told = _write_until_killed(tmp_path, lines)
        there |= {number for what, number in told if what == "put"}
        gone |= {number for what, number in told if what == "gone"}
        perhaps.add(max(there) - 1)  # its forgetting may have been under way
        store = opened(tmp_path)
        found, last = store.recover()
        numbers = {one.number for one in found}
        assert there - gone - perhaps <= numbers
        assert not numbers & gone
        assert last >= max(there)
        for one in found:
            body = body_of(store, one.number, one.body)
            assert body == bytes([one.number % 256]) * one.size_bytes
        store.close()


def _write_until_killed(directory: Path, lines: int) -> list[tuple[str, int]]:
    """Have a process write; what it said was done, after so many lines or a few more."""
    command = [sys.executable, "-c", WRITER, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        said = "".join(writer.stdout.readline() for _ in range(lines))
        writer.send_signal(signal.SIGKILL)
        said += writer.stdout.read()
    whole = said[: said.rfind("\n") + 1].splitlines()
    return [(what, int(number)) for what, number in map(str.split, whole)]
