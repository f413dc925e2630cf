"""The store of objects: what it was told is there after any end, and only that."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

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
    assert store.recover() == ([], 0)
    assert not store.path_of(7).exists()
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
    synced: list[tuple[int, int]] = []

    def fsync(file: int) -> None:
        usual(file)
        other = sqlite3.connect(tmp_path / "queue.sqlite3")
        (rows,) = other.execute("SELECT count(*) FROM objects").fetchone()
        other.close()
        synced.append((os.fstat(file).st_ino, rows))

    usual = os.fsync
    monkeypatch.setattr(os, "fsync", fsync)
    store.put(1, "", LARGE).result(10)
    path = store.path_of(1)
    assert synced == [(path.stat().st_ino, 0), (path.parent.stat().st_ino, 0)]
    store.close()


def test_larger_objects_are_files(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for number, size_bytes in ((1, FILE_BYTES_MIN), (2, FILE_BYTES_MIN + 1)):
        store.put(number, "", bytes(size_bytes)).result(10)
    assert [store.path_of(number).exists() for number in (1, 2)] == [False, True]
    store.close()


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    database = sqlite3.connect(tmp_path / "queue.sqlite3")
    database.execute("UPDATE about SET value = '2' WHERE name = 'version'")
    database.commit()
    database.close()
    with pytest.raises(InputError, match="expected a store of version 1, got one of 2"):
        opened(tmp_path)


@contextmanager
def no_writing(store: ObjectStore) -> Iterator[None]:
    """The disk does not write for a while."""
    store._database.execute("PRAGMA query_only = ON")
    yield
    store._database.execute("PRAGMA query_only = OFF")


@contextmanager
def busy(directory: Path, store: ObjectStore, wishes: int) -> Iterator[None]:
    """The disk is slow: what is asked for within this, after the first of it, is one batch of so
    many wishes."""
    other = sqlite3.connect(directory / "queue.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    first = store.note(0, 0, dead=False)
    until(lambda: store._wishes.qsize() == 0)
    yield
    until(lambda: store._wishes.qsize() == wishes)
    other.execute("ROLLBACK")
    other.close()
    first.result(10)


@pytest.mark.parametrize("seed", range(4))
def test_any_history_is_that_of_a_dict(tmp_path: Path, seed: int) -> None:
    """Whatever is asked for, while the disk writes and while it does not, and over restarts."""
    random = Random(seed)
    store = opened(tmp_path)
    store.recover()
    there: dict[int, tuple[int, int, bool]] = {}
    last, owed = 0, set[int]()
    for _ in range(60):
        what = random.choice(["put", "put", "forget", "note", "restart"])  # noqa: TID251
        number = random.choice([*there, 0])  # noqa: TID251
        if what == "restart":
            store.close()
            store, owed = opened(tmp_path), set()
            found, number = store.recover()
            assert number == last
            kept = {one.number: (one.size_bytes, one.deliveries, bool(one.dead)) for one in found}
            assert kept == there
            assert list(kept) == sorted(there)
            files = {path.name for path in (tmp_path / "objects").iterdir()}
            assert files == {str(n) for n, (size, *_) in there.items() if size > FILE_BYTES_MIN}
            continue
        number = last + 1 if what == "put" else number
        size, deliveries, dead = random.choice([0, 10, len(LARGE)]), random.randrange(9), seed > 1  # noqa: TID251

        def ask(what=what, number=number, size=size, deliveries=deliveries, dead=dead):
            if what == "put":
                return store.put(number, "", bytes(size))
            if what == "forget":
                return store.forget(number)
            return store.note(number, deliveries, dead=dead)

        if random.random() < 0.3:
            with no_writing(store):
                assert isinstance(ask().exception(10), StoreFull)
            if what == "forget":
                owed.add(number)
            continue
        ask().result(10)
        if what == "put":
            there[number], last = (size, 0, False), number
        elif what == "forget":
            there.pop(number, None)
        elif number in there:
            there[number] = there[number][0], deliveries, dead
        for gone in owed:
            there.pop(gone, None)
        owed = set()
    store.close()


def test_what_could_not_be_written_leaves_no_file(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with no_writing(store):
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
    with no_writing(store):
        for number in range(1, 5):
            store.forget(number).exception(10)
    store.put(5, "", b"x").result(10)
    store.close()
    store = opened(tmp_path)
    assert len(store.recover()[0]) == 3
    store.close()


def test_a_full_disk_refuses_and_loses_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.put(1, "", b"x").result(10)
    database = sqlite3.connect(tmp_path / "queue.sqlite3")
    pages = database.execute("PRAGMA page_count").fetchone()[0]
    database.close()
    store._database.execute(f"PRAGMA max_page_count = {pages + 4}")  # SQLite's own full disk
    refused = None
    for number in range(2, 40):
        done = store.put(number, "", b"x" * 20_000)
        if done.exception(10) is not None:
            refused = number
            assert isinstance(done.exception(), StoreFull)
            break
    assert refused is not None
    for number in range(2, refused):
        store.forget(number).result(10)
    store.put(100, "", b"room again").result(10)
    store.close()
    store = opened(tmp_path)
    assert [one.number for one in store.recover()[0]] == [1, 100]
    store.close()


@pytest.mark.processes
@pytest.mark.parametrize("lines", [3, 40, 97])
def test_what_was_told_to_be_stored_survives_sigkill(tmp_path: Path, lines: int) -> None:
    there: set[int] = set()
    gone: set[int] = set()
    perhaps: set[int] = set()
    for _ in range(3):
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
