"""What producers say to each other: answered without a task where it comes whole, and no worse
where it does not, or where something is wrong."""

from __future__ import annotations

from contextlib import closing
from socket import socket
from typing import Any

import pytest

from spillover.apps.queue import calls
from spillover.core.queue import events as ev
from spillover.live.queue import wire
from support.queue_service import connected, producers

PROBE = ev.Probe("a take", "p2", "c", 1, 2, {"p2": 1.0}, False, (), 9.0)
OFFER = ev.Offer("a take", "p2", "a grant", 1)
MESSAGES = {
    wire.PROBE_PATH: (wire.encode_probe(PROBE), b"HTTP/1.1 202 Accepted\r\n"),
    wire.OFFER_PATH: (wire.encode_offer(OFFER), b'{"taken":false}'),
}
"""Of a peer, and what is in the answers."""


def say(line: socket, path: str, *more: bytes) -> None:
    """What a peer says, whole unless there is more in its head."""
    body = MESSAGES[path][0]
    lines = [b"POST %b HTTP/1.1" % path.encode(), b"Host: a", b"Content-Length: %d" % len(body)]
    line.sendall(b"\r\n".join([*lines, *more, b"", b"" if more else body]))


def answer_of(line: socket) -> bytes:
    """All that comes before the other side closes, or is silent."""
    seen = b""
    while not seen.endswith((b"\r\n\r\n", b"}")):
        piece = line.recv(4096)
        if not piece:
            break
        seen += piece
    return seen


@pytest.mark.parametrize("path", MESSAGES)
def test_what_a_peer_says_in_pieces_is_the_same(path: str) -> None:
    with producers(2) as (first, _), closing(connected(first.url)) as line:
        say(line, path)
        whole = answer_of(line)
        assert MESSAGES[path][1] in whole
        say(line, path, b"Expect: 100-continue")
        assert answer_of(line) == b"HTTP/1.1 100 Continue\r\n\r\n"
        line.sendall(MESSAGES[path][0])
        assert answer_of(line) == whole


@pytest.mark.parametrize("path", MESSAGES)
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_message_may_be_so_long_and_no_longer(
    path: str, is_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, usual = MESSAGES[path]
    with producers(2) as (first, _), closing(connected(first.url)) as line:
        for size, in_answer in ((len(body), usual), (len(body) - 1, b"HTTP/1.1 413 ")):
            monkeypatch.setattr(calls, "MESSAGE_LIMIT_BYTES", size)
            say(line, path, *([] if is_whole else [b"Expect: 100-continue"]))
            said = answer_of(line)
            if said.startswith(b"HTTP/1.1 100 "):
                line.sendall(body)
                said = answer_of(line)
            assert in_answer in said


def test_a_bug_in_what_a_peer_says_is_an_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("a bug")

    with producers(2) as (first, _), closing(connected(first.url)) as line:
        monkeypatch.setattr(first.shell, "feed", broken)
        say(line, wire.PROBE_PATH)
        assert answer_of(line).startswith(b"HTTP/1.1 500")
        monkeypatch.undo()
    assert "internal error" in caplog.text


def test_a_producer_that_has_ended_answers_no_offer() -> None:
    """Its peer has the object back then."""
    with producers(2) as (first, _), closing(connected(first.url)) as line:
        assert first.shell is not None
        first.shell._driver.close()
        say(line, wire.OFFER_PATH)
        assert answer_of(line) == b""
