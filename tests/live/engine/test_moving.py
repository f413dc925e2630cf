"""What is moving, and when the machine hears of it; answers that the HTTP client is reading."""

from __future__ import annotations

import asyncio
import math

import pytest

from spillover.core.overflow.held import HeldBytes
from spillover.core.overflow.idempotency import IdempotencyTable
from spillover.live.engine.moving import STEPS, Moving
from spillover.live.engine.timers import Timers
from spillover.live.http1.client import HttpClient
from spillover.live.overflow.room import Room
from spillover.model.errors import OutcomeUnknown
from support.loop import until

LIMIT = 64 * STEPS
PIECE = 300_000


def counting(held=None):
    """A count whose machine knows what it was told, all that it was told, and what tells it."""
    held = held or HeldBytes(LIMIT)
    told = []

    def tell(count):
        told.append(count)
        held.move(count)

    timers = Timers(asyncio.get_running_loop())
    return Moving(timers, held, tell), held, told, timers


def test_the_machine_is_told_in_steps_and_when_nothing_is_left(run):
    """Not within the call that changes it, but before anything else; once for all changes."""

    async def main():
        moving, held, told, timers = counting()
        changes = []
        for change in (64, 1, 100, 10, -160, -14, -1):
            before = list(told)
            moving.add(change)
            assert told == before, "told at once"
            timers.run_due(timers.clock())
            changes.append(held.moving_bytes)
        assert changes == [0, 65, 165, 165, 15, 15, 0]
        told.clear()
        moving.add(500)
        moving.add(-500)
        await until(lambda: told)  # where no event comes, too
        timers.run_due(math.inf)
        assert told == [0]

    run(main())


def test_too_much_is_what_requests_leave_no_room_for(run):
    """Counted to the byte, whatever the machine knows already."""

    async def main():
        moving, held, _, timers = counting()
        room = held.room_bytes
        held.request_bytes = 1000
        moving.add(room - 1000)
        assert not moving.is_too_much
        moving.add(1)
        assert moving.is_too_much
        timers.run_due(math.inf)
        assert moving.is_too_much
        moving.add(-1)
        assert not moving.is_too_much

    run(main())


class Endless(asyncio.Protocol):
    """Answers with a head and then with pieces for as long as somebody reads."""

    def __init__(self, head, piece, sent):
        self.head, self.piece, self.sent = head, piece, sent
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        self.paused = False

    def data_received(self, _data):
        self.transport.write(self.head)
        self.go_on()

    def pause_writing(self):
        self.paused = True

    def resume_writing(self):
        self.paused = False
        self.go_on()

    def go_on(self):
        while not (self.paused or self.transport.is_closing()):
            self.transport.write(self.piece)
            self.sent.append(len(self.piece))

    def connection_lost(self, _exc):
        self.lost.set_result(None)


HEADS = {
    "chunked": (b"Transfer-Encoding: chunked", b"%x\r\n%b\r\n" % (PIECE, b"x" * PIECE)),
    "until it closes": (b"Connection: close", b"x" * PIECE),
    "a GiB, as announced": (b"Content-Length: 1073741824", b"x" * PIECE),
}


@pytest.mark.parametrize("case", HEADS)
def test_an_answer_without_end_is_cut_at_the_limit(run, case):
    """The connection is closed, nothing counts as moving any more, and of what was announced as too
    long hardly anything is read."""
    line, piece = HEADS[case]
    limit = 20 * PIECE

    async def main():
        moving, held, told, _ = counting(HeldBytes(10 * limit))
        sent, peers = [], []

        def peer():
            peers.append(Endless(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % line, piece, sent))
            return peers[-1]

        loop = asyncio.get_running_loop()
        listener = await loop.create_server(peer, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        client = HttpClient(f"http://127.0.0.1:{port}", body_limit_bytes=limit, moving=moving)
        with pytest.raises(OutcomeUnknown, match=f"exceeds {limit} bytes"):
            await client.request("POST", "/", body=b"{}", timeout_s=10.0)
        assert (moving.bytes, client.busy, client.idle) == (0, 0, 0)
        await peers[0].lost
        if case == "a GiB, as announced":
            assert told == []
        else:
            await until(lambda: told and held.moving_bytes == 0)
            assert max(told) <= limit + PIECE
        await client.close()
        listener.close()

    run(main())


def test_all_that_a_node_holds_counts(run):
    """Requests, what is moving, and answers that are kept, as operators see it beside the limit."""

    async def main():
        held = HeldBytes(LIMIT)
        moving, *_ = counting(held)
        kept = IdempotencyTable(60.0, 10, LIMIT)
        room = Room(held, moving, kept)
        assert room.held_bytes == 0
        held.request_bytes = 70
        moving.add(30)
        assert room.held_bytes == 100
        moving.add(-10)
        assert room.held_bytes == 90

    run(main())
