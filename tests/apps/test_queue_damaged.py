"""Objects that the disk does not give back as they were given: told in one line, and out of the way
in the end."""

from __future__ import annotations

import os
from collections.abc import Callable
from http.client import IncompleteRead
from pathlib import Path

import pytest

from spillover.apps.queue import calls
from spillover.live.queue.store import FILE_BYTES_MIN
from support.queue_service import call, producers

LARGE = os.urandom(FILE_BYTES_MIN + 1)


def cut(path: Path) -> None:
    os.truncate(path, 100)


def grown(path: Path) -> None:
    os.truncate(path, 1_000_000)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (Path.unlink, "No such file or directory"),
        (cut, "expected 65537 bytes, found 100"),
        (grown, "expected 65537 bytes, found 1000000"),
    ],
)
def test_an_object_whose_file_is_damaged_is_told_and_dies(
    damage: Callable[[Path], None],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(calls._log, "filters", [])  # another test may have told the same
    with producers(stores=tmp_path, deliveries_max=2) as (one,):
        one.put(LARGE)
        one.put(b"behind it")
        damage(tmp_path / "p1" / "objects" / "1")
        for _ in range(2):
            answer = one.take()
            assert (answer.status, answer.told["reason"]) == (500, "store_damaged")
        assert one.take().body == b"behind it"
        state = one.state
        assert (state["dead"], state["granted"], state["buffered"]) == (1, 1, 0)
        shown = call(f"{one.url}/dead/1")
        assert (shown.status, shown.told["reason"]) == (500, "store_damaged")
        assert call(f"{one.url}/dead/1", "DELETE").status == 200
    told = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(told) == 3
    assert all(words in str(record.msg) and record.exc_info is None for record in told)


def test_what_is_damaged_while_it_is_sent_is_no_whole_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It was whole when its sending began. Operators read what is wrong, and of no bug."""
    monkeypatch.setattr(calls._log, "filters", [])
    with producers(stores=tmp_path) as (one,):
        one.put(LARGE)
        assert one.shell is not None
        monkeypatch.setattr(one.shell.bodies, "check", lambda _: cut(tmp_path / "p1/objects/1"))
        with pytest.raises(IncompleteRead, match="100 bytes read"):
            one.take()
        assert one.state["returned"] == 1
    (told,) = [record for record in caplog.records if record.exc_info or "1:" in str(record.msg)]
    assert "an object is damaged in the store" in str(told.msg)
