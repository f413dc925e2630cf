"""What others have done in time is not held against them because this process came late: it was
stopped, had no CPU time, or its loop was held up. Here by a function that blocks the loop."""

import asyncio
import socket
import threading
import time

import pytest

from spillover.live.http1.client import HttpClient
from spillover.live.process.own_lag import PatientTimeout
from spillover.model.errors import PeerError

LIMIT_S = 0.15
HELD_UP_S = 0.4

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
LINE = b"2\r\na\n\r\n"


def hold_up(duration_s):
    """Block the loop, as a handler may that never awaits; without the CPU that others need."""
    threading.Event().wait(duration_s)


async def step():
    """Let the loop do one round."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    loop.call_soon(future.set_result, None)
    await future


async def for_ever():
    await asyncio.get_running_loop().create_future()


async def answer_one(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    await reader.read()
    writer.close()


@pytest.mark.parametrize("turns", [0, 2, 7])
async def test_a_server_that_accepts_is_not_called_dead_by_a_loop_that_was_held_up(turns):
    """Whatever had been done of the connection by then."""
    server = await asyncio.start_server(answer_one, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = HttpClient(f"http://127.0.0.1:{port}", connect_timeout_s=LIMIT_S)
    asked = client.request("GET", "/", timeout_s=None)
    for _ in range(turns):
        await step()
    hold_up(HELD_UP_S)
    assert (await asked).status == 200
    await client.close()
    server.close()
    await server.wait_closed()


async def test_what_a_loop_is_late_by_is_not_counted():
    """In the middle of the limit as well as at its end."""

    async def wait():
        async with PatientTimeout(3 * LIMIT_S):
            for _ in range(3):
                await step()
                hold_up(0.2)
            await for_ever()

    began_s = time.monotonic()
    with pytest.raises(TimeoutError):
        await wait()
    took_s = time.monotonic() - began_s
    assert 3 * LIMIT_S + 0.3 < took_s < 20.0


async def test_a_loop_that_is_always_late_gives_up_all_the_same():
    """Nothing waits for ever."""

    async def be_busy():
        while True:
            hold_up(0.05)
            await step()

    busy = asyncio.create_task(be_busy())
    with pytest.raises(TimeoutError):
        async with PatientTimeout(LIMIT_S):
            await for_ever()
    busy.cancel()


def speak_twice(listening, held_up, goes_on):
    """A server in a thread: a line at once, and one while the other side's loop is held up."""
    opened, _ = listening.accept()
    with opened:
        opened.recv(1000)
        opened.sendall(HEAD + LINE)
        held_up.wait(20.0)
        opened.sendall(LINE)
        goes_on.wait(20.0)


def test_a_stream_that_has_spoken_is_not_called_silent_by_a_loop_that_was_held_up(run):
    """Its line lies in the kernel; once it is read the silence counts from there."""

    async def main(listening):
        client = HttpClient(f"http://127.0.0.1:{listening.getsockname()[1]}")
        lines = []

        def hear(line):
            lines.append(line)
            if len(lines) == 1:
                asyncio.get_running_loop().call_soon(hold_up, HELD_UP_S)
                held_up.set()

        with pytest.raises(PeerError, match="no line arrived"):
            await client.stream_lines("/", hear, silence_s=LIMIT_S)
        assert lines == [b"a", b"a"]
        await client.close()

    held_up, goes_on = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=speak_twice, args=(listening, held_up, goes_on))
        server.start()
        try:
            run(main(listening))
        finally:
            goes_on.set()
            server.join()
