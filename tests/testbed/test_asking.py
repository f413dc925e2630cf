"""What is asked of nodes that are not there, or say something else."""

import asyncio
import gc
import socket
import ssl

from spillover.testbed.asking import Asking


async def test_nobody_there_is_told_nothing_and_leaves_nothing_open():
    """Nor a transport of TLS that has never begun, as loops would complain."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with Asking({}, ssl.create_default_context()) as asking:
        for scheme in ("http", "https"):
            url = f"{scheme}://127.0.0.1:{port}"
            assert await asking.told(url) == {}
            assert not await asking.is_up(url)
            assert not await asking.answers(url, "a")
    gc.collect()


async def test_an_answer_that_is_no_object_is_none():
    """And what is shown goes with the question."""
    heard = []

    async def answer(reader, writer):
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n[1]")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Asking({"authorization": "Bearer x"}) as asking:
            assert await asking.told(url) == {}
    assert b"GET /state " in heard[0]
    assert b"authorization: Bearer x\r\n" in heard[0]
