"""Consumers that go away in the midst of something: their objects come back once it is known."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from spillover.core.queue import events as ev
from spillover.core.queue.settings import ProducerSettings
from spillover.live.queue import bodies
from spillover.live.queue.shell import QueueShell
from support.queue_service import Producer, call, connected, producers, until

LARGE_BYTES = 24_000_000
"""Far more than the kernel takes of what nobody reads."""


@pytest.fixture
def producer() -> Iterator[Producer]:
    with producers(buffers=2, visibility_s=20.0, deliveries_max=2) as (one,):
        yield one


def test_a_consumer_that_leaves_costs_no_object(producer: Producer) -> None:
    body = b'{"consumer":"c","probe_id":"gone"}'
    with closing(connected(producer.url)) as line:
        line.sendall(b"POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body))
        line.sendall(body)
        until(lambda: producer.state["takes"] == 1)
    until(lambda: producer.state["takes"] == 0)
    producer.put(b"x")
    assert producer.take().body == b"x"
    assert producer.state["returned"] == 0


def begun_to_read(url: str) -> socket.socket:
    """A connection of a consumer that asks, and has read the beginning of the answer."""
    body = b'{"consumer":"c","probe_id":"slow"}'
    line = connected(url)
    line.sendall(b"POST /take HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    assert line.recv(12) == b"HTTP/1.1 200"
    return line


@pytest.mark.parametrize("piece_bytes", [1 << 20, LARGE_BYTES // 2])
def test_a_consumer_that_vanishes_in_mid_transfer_gives_it_back(
    piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, also where it is the last piece that it has not made room for."""
    monkeypatch.setattr(bodies, "PIECE_BYTES", piece_bytes)
    content = os.urandom(LARGE_BYTES)
    with producers(object_limit_bytes=LARGE_BYTES) as (one,):
        one.put(content)
        begun_to_read(one.url).close()
        until(lambda: one.state["returned"] == 1)
        assert one.take().body == content
        story = [told["words"] for told in call(f"{one.url}/explain/1").told["story"]]
        assert "its consumer went away before it was sent: it is back" in story


@pytest.mark.parametrize("size_bytes", [1000, 200_000])
def test_a_consumer_that_dies_before_it_has_read_its_object_gives_it_back(size_bytes: int) -> None:
    """The producer's kernel has taken all of it by then. Who has read it may close in order."""
    with producers(visibility_s=3600.0) as (one,):
        one.put(b"x" * size_bytes)
        with closing(begun_to_read(one.url)):
            until(lambda: one.state["open_grants"][0]["state"] == "given")
            until(lambda: call(f"{one.url}/explain/1").told["story"][-1]["words"] == "sent")
        until(lambda: one.state["returned"] == 1)
        again = one.take()  # on a connection that is closed in order behind it
        assert again.body == b"x" * size_bytes
        assert one.take(deadline_ms=300).status == 204
        assert one.tell(again.headers["spillover-grant"], "ack").status == 204


@pytest.mark.parametrize("when", ["just now", "before it was heard"])
async def test_an_object_of_a_peer_is_not_taken_for_a_consumer_that_has_gone(when: str) -> None:
    """It would be away for the visibility time, though the next turn of the loop ends the call."""
    settings = ProducerSettings(id="p1", buffers=1, visibility_s=9.0)
    shell = QueueShell(settings, {"p2": "http://127.0.0.1:9"}, None, "http://127.0.0.1:9")
    gone: asyncio.Future[Callable[[], None]] = asyncio.get_running_loop().create_future()

    def taken(ref: int) -> ev.Taken:
        return ev.Taken(ref, "a take", "c", 1, {"p1": 1.0}, False, shell.now_s + 9.0)

    def watch(leave: Callable[[], None]) -> None:
        gone.set_result(leave)
        if when == "before it was heard":
            leave()

    asking = asyncio.create_task(shell.ask(taken, watch, ev.TakeGone))
    (await gone)()
    offer = ev.Offer("a take", "p2", "a grant", 1)
    assert not shell.ask_now(lambda ref: ev.OfferCame(ref, offer)).taken
    assert isinstance(await asking, int)
    assert not shell.machine.takes
    await shell.close()
