"""Both ends of `spillover bench proxy` in this loop: what the service writes and when, and what its
clients make of what comes to them."""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from spillover.model.errors import RunError
from spillover.tools.bench.proxy import readers, service
from spillover.tools.bench.proxy.readers import Asked, Counted, Left, Opened, Unread, _Worker
from spillover.tools.bench.proxy.service import END, MARK, TIME_DIGITS, large_target, stream_target
from support.loop import turn, until

STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
HOUR_MS = 3_600_000.0


class Service:
    """The service; `doors` has what serves each connection."""

    def __init__(self):
        self.ticker = service._Ticker(asyncio.get_running_loop())
        self.doors = []
        self.address = ("", 0)
        self.url = ""

    def door(self):
        self.doors.append(service._Served(self.ticker))
        return self.doors[-1]


@asynccontextmanager
async def serving(factory):
    server = await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()
    finally:
        server.close()
        await server.wait_closed()
        await turn()  # whatever was closed is gone then


@asynccontextmanager
async def running():
    own = Service()
    async with serving(own.door) as own.address:
        own.url = f"http://127.0.0.1:{own.address[1]}"
        yield own


def play(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 20.0))


def get(target):
    return f"GET {target} HTTP/1.1\r\nHost: service\r\n\r\n".encode()


async def chunks_of(reader):
    """Those of one answer, without the empty last one."""
    chunks = []
    while size := int(await reader.readline(), 16):
        chunks.append(await reader.readexactly(size))
        assert await reader.readexactly(2) == b"\r\n"
    assert await reader.readexactly(2) == b"\r\n"
    return chunks


def test_events_are_of_their_size_and_one_period_apart():
    """Each says when it was written. After the last one the connection is for the next request."""

    async def main():
        async with running() as own:
            reader, writer = await asyncio.open_connection(*own.address)
            answers = []
            for count in (3, 1):
                began_ns = time.monotonic_ns()
                target = stream_target(7, period_ms=20.0, count=count, size_bytes=60)
                writer.write(get(target))
                head = await reader.readuntil(b"\r\n\r\n")
                answers.append((head, began_ns, await chunks_of(reader), time.monotonic_ns()))
            writer.close()
            await until(lambda: own.doors[0]._turn == 3, what="the end of the connection")
            return answers, own.ticker.lost

    answers, lost = play(main())
    assert [len(chunks) for _, _, chunks, _ in answers] == [3, 1]
    for head, began_ns, chunks, ended_ns in answers:
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"\r\nContent-Type: text/event-stream\r\n" in head
        assert {len(chunk) for chunk in chunks} == {60}
        assert all(chunk.startswith(MARK) and chunk.endswith(b"." + END) for chunk in chunks)
        assert all(chunk.count(END) == 1 for chunk in chunks)
        times = [int(chunk[len(MARK) : len(MARK) + TIME_DIGITS]) for chunk in chunks]
        assert began_ns <= times[0] <= times[-1] <= ended_ns
        # What is due is due from the first one on, however late one of them was.
        assert all(at - times[0] >= 20e6 * n - 2e6 for n, at in enumerate(times))
    assert lost == {}, "it was over"


def test_requests_come_in_pieces_and_large_answers_as_they_are_read():
    """The head in two and the body in two. The rest of what is larger than the system takes at once
    is written once the first part was read."""
    large_bytes = 8_000_000

    async def main():
        async with running() as own:
            reader, writer = await asyncio.open_connection(*own.address)
            for piece in (b"POST /do HTTP/1.1\r\nContent-Le", b"ngth: 4\r\n\r\nab", b"cd"):
                writer.write(piece)
                await turn(0)
            small = await reader.readuntil(b"}")
            writer.write(get(large_target(large_bytes)))
            head = await reader.readuntil(b"\r\n\r\n")
            large = await reader.readexactly(large_bytes)
            writer.write(get("/"))
            next_one = await reader.readuntil(b"}")
            writer.close()
            return small, head, large, next_one

    small, head, large, next_one = play(main())
    assert small == next_one
    assert small.startswith(b"HTTP/1.1 200 OK\r\n")
    assert small.endswith(b'Content-Length: 11\r\n\r\n{"ok":true}')
    assert head == b"HTTP/1.1 200 OK\r\nContent-Length: 8000000\r\n\r\n"
    assert large == bytes(large_bytes)


def test_who_does_not_read_is_sent_no_more(monkeypatch):
    """Until it leaves, with everything else that is open."""
    few = readers.RECEIVE_BYTES
    monkeypatch.setattr(readers, "RECEIVE_BYTES", 24_576)

    async def main():
        async with running() as own:
            worker, size = _Worker(), 1 << 28
            await worker._do(Unread(url=own.url, answers=2, size_bytes=size))
            await until(lambda: [one._is_behind for one in own.doors] == [True, True])
            left = [one._large_bytes for one in own.doors]
            room = [room_of(reader) for reader in worker._unread]
            assert await worker._do(Left(every_s=0.0)) == {}
            await until(lambda: [one._turn for one in own.doors] == [1, 1], what="that they leave")
            return size, left, room

    size, left, room = play(main())
    assert all(size / 2 < bytes_left < size for bytes_left in left)
    # Linux gives twice what is asked for; little is to be there, so that it is in the node.
    assert set(room) <= {24_576, 2 * 24_576}
    assert few == 65_536


def room_of(reader):
    """How much of what comes to it the kernel keeps."""
    opened = reader._transport.get_extra_info("socket")
    return opened.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)


def test_a_stream_whose_client_is_slow_misses_events():
    """They are not kept for it."""

    async def main():
        async with running() as own:
            reader, writer = await asyncio.open_connection(*own.address)
            writer.write(get(stream_target(1, period_ms=1.0, count=50, size_bytes=50)))
            await reader.readuntil(b"\r\n\r\n")
            own.doors[0].pause_writing()
            left = own.doors[0]._left
            await turn(0.02)
            assert own.doors[0]._left == left
            own.doors[0].resume_writing()
            chunks = await chunks_of(reader)
            writer.close()
            return chunks

    assert len(play(main())) == 50


class Timers:
    """In place of a loop: the timers that were asked for, by how long."""

    def __init__(self):
        self.asked = []

    def call_later(self, delay_s, call):
        self.asked.append((delay_s, call))


def test_one_timer_is_for_all_streams():
    """A second one is asked for by the first, if something is due later; and again after all was
    over."""
    timers, written = Timers(), []
    ticker = service._Ticker(timers)
    streams = [
        SimpleNamespace(next_event=lambda due_s, turn, n=n: written.append((n, due_s, turn)))
        for n in range(3)
    ]
    now_s = time.monotonic()
    for n, due_s in enumerate((now_s - 1.0, now_s + 3600.0, now_s - 2.0)):
        ticker.at(due_s, streams[n], 7 + n)
    ((delay_s, tick),) = timers.asked
    assert delay_s <= 0.001
    tick()
    assert written == [(2, now_s - 2.0, 9), (0, now_s - 1.0, 7)]
    assert len(timers.asked) == 2, "one is due in an hour"
    ticker._due.clear()
    timers.asked.pop()[1]()
    assert len(timers.asked) == 1, "nothing is due"
    for turn_of in (8, 9, 10):
        ticker.at(now_s, streams[0], turn_of)
    assert len(timers.asked) == 2
    timers.asked.pop()[1]()
    assert [turn_of for _, _, turn_of in written[2:]] == [8, 9, 10], "as they were asked for"


@pytest.mark.parametrize(
    ("period_ms", "streams", "step_s"), [(10.0, 4, 0.0025), (50.0, 4, 0.005), (HOUR_MS, 20, 0.001)]
)
def test_streams_begin_one_after_another(period_ms, streams, step_s):
    """Within a period of theirs, which need not be a long one."""
    job = Opened(url="http://x", streams=streams, period_ms=period_ms, size_bytes=60)
    assert job.begins_within_s == pytest.approx(step_s * streams)
    at_once_s = [job.begins_in_s(place, 0.0) for place in range(streams)]
    assert at_once_s == pytest.approx([place * step_s for place in range(streams)])
    # Who is ready half a step late begins in the next period.
    assert job.begins_in_s(3, 2.5 * step_s) == pytest.approx(0.5 * step_s)
    assert job.begins_in_s(3, 3.5 * step_s) == pytest.approx((streams - 0.5) * step_s)


def test_streams_are_counted_asked_for_beside_and_left():
    """Each that was left is known by its number, at an instant after that."""

    async def main():
        async with running() as own:
            worker = _Worker()
            opened = Opened(url=own.url, streams=6, period_ms=20.0, size_bytes=60)
            began_s = time.monotonic()
            assert await worker._do(opened) is None
            assert time.monotonic() - began_s >= 0.016, (
                "the last one begins near the end of the period"
            )
            assert len(own.doors) == 6
            arrived = await worker._do(Counted(duration_s=0.2))
            asked = Asked(url=own.url, rate_per_s=100.0, duration_s=0.1, size_bytes=60)
            began_s = time.monotonic()
            took_ms = [await worker._do(asked) for _ in range(2)]
            asked_s = time.monotonic() - began_s
            connections = len(own.doors)
            await worker._do(Opened(url=own.url, streams=2, period_ms=HOUR_MS, size_bytes=60))
            left = await worker._do(Left(every_s=0.01))
            await until(lambda: own.ticker.lost.keys() == left.keys())
            assert await worker._do(Left(every_s=0.0)) == {}
            for reader in worker._idle[own.url]:
                reader.leave()
            return arrived, took_ms, asked_s, connections, left, own.ticker.lost

    arrived, took_ms, asked_s, connections, left, lost = play(main())
    assert 0.2 <= arrived.took_s < 10.0
    assert 6 <= arrived.events <= 6 * (arrived.took_s / 0.02 + 1)
    assert 0.0 < arrived.p50_ms <= arrived.p99_ms < 10_000.0
    for one in took_ms:
        assert len(one) == 10
        assert one == sorted(one)
        assert 0.0 < one[0] <= one[-1] <= asked_s * 1e3
    assert asked_s >= 0.18, "one each 10 ms"
    assert 7 <= connections <= 16, "connections are used again"
    assert sorted(left) == list(range(1, 9))
    ordered = sorted(left.values())
    assert all(at - ordered[0] >= 10e6 * n - 2e6 for n, at in enumerate(ordered))
    assert all(lost[number] >= at for number, at in left.items())


class Told(asyncio.Protocol):
    """A server that writes what a test has it write."""

    def __init__(self):
        self.heard = b""
        self.transport = None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.heard += data


@asynccontextmanager
async def connected():
    """A client that has been told the beginning of a stream, that server, and the worker that has
    it."""
    told, worker = Told(), _Worker()
    async with serving(lambda: told) as (_, port):
        opened = Opened(url=f"http://127.0.0.1:{port}", streams=1, period_ms=10.0, size_bytes=50)
        opening = asyncio.create_task(worker._do(opened))
        await until(lambda: told.heard.endswith(b"\r\n\r\n"))
        try:
            yield told, worker, opening
        finally:
            told.transport.close()
            await asyncio.gather(opening, return_exceptions=True)


def event(ago_s):
    return b"x%b%0*d...%b" % (MARK, TIME_DIGITS, time.monotonic_ns() - int(ago_s * 1e9), END)


def test_what_comes_is_counted_with_its_delays():
    """A hundred events, of which the n-th was written n seconds ago; those of before do not count,
    and the piece of a mark at the end of what came is no delay."""

    async def main():
        async with connected() as (told, worker, opening):
            asked = told.heard
            told.transport.write(STREAM + event(1000.0) * 3)
            await opening
            counting = asyncio.create_task(worker._do(Counted(duration_s=0.1)))
            await turn(0)
            told.transport.write(b"".join(event(n) for n in range(1, 101)) + MARK + b"12")
            return asked, await counting

    asked, arrived = play(main())
    target = f"/stream/1/10000/{readers.LONG}/50"
    assert asked == get(target)
    assert arrived.events == 100
    assert arrived.took_s >= 0.1
    assert arrived.p50_ms == pytest.approx(50_000.0, abs=1100.0)
    assert arrived.p99_ms == pytest.approx(99_000.0, abs=1100.0)


@pytest.mark.parametrize("breaks", [True, False], ids=["broken", "silent"])
def test_a_stream_that_breaks_off_or_says_nothing_is_no_measurement(breaks):
    async def main():
        async with connected() as (told, worker, opening):
            told.transport.write(STREAM + event(0.0))
            await opening
            if breaks:
                told.transport.write(event(0.0))
                told.transport.close()
                (reader,) = worker._streams.values()
                await until(lambda: reader.is_lost)
            await worker._do(Counted(duration_s=0.01))

    with pytest.raises(RunError, match="a stream broke off, or none came"):
        play(main())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "expected a stream, got b'HTTP/1.1 503 "),
        (None, "the connection broke"),
    ],
)
def test_what_is_no_stream_is_told(answer, why):
    async def main():
        async with connected() as (told, _, opening):
            if answer is None:
                told.transport.close()
            else:
                told.transport.write(answer)
            await opening

    with pytest.raises(RunError, match=why):
        play(main())


def test_the_end_of_an_answer_may_come_by_itself_or_with_the_rest():
    async def main():
        ends = []
        async with connected() as (told, worker, opening):
            told.transport.write(STREAM + event(0.0))
            await opening
            (reader,) = worker._streams.values()
            for piece in (b"\r\n0\r\n\r\n", b"0\r\n\r\n"):
                first = asyncio.create_task(reader.first("/again"))
                await until(lambda: told.heard.endswith(get("/again")))
                told.heard = b""
                told.transport.write(STREAM)
                await first
                ends.append(reader._whole.done())
                told.transport.write(piece)
                await reader.whole()
        return ends

    assert play(main()) == [False, False]
