"""The door of an emulated service takes requests in whatever pieces they come."""

from __future__ import annotations

import asyncio
from functools import partial

from spillover.tools.bench.door import OK, Door
from support.loop import turn

POST = b"POST /x HTTP/1.1\r\nHost: h\r\nX-Of: %b\r\nContent-Length: 6\r\n\r\n"


async def talked(pieces, count):
    """What was taken of these pieces, and the answers."""
    taken = []

    def take(door, body):
        taken.append((door.headers[b"x-of"], body))
        door.answer(OK, body.upper())

    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(Door, take), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    for piece in pieces:
        writer.write(piece)
        await turn(0)
    answers = []
    for _ in range(count):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.rpartition(b"content-length: ")[2])
        answers.append((head.partition(b"\r\n")[0], await reader.readexactly(length)))
    writer.close()
    server.close()
    await server.wait_closed()
    return taken, answers


def test_a_body_may_come_in_pieces_and_the_next_request_with_it():
    """Each byte by itself; and two requests at once. Who asks for nothing is answered too."""
    two = POST % b"1" + b"abcdef" + POST % b"2" + b"ghijkl" + b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
    taken = [(b"1", b"abcdef"), (b"2", b"ghijkl")]
    told = [(b"HTTP/1.1 200 OK", body) for body in (b"ABCDEF", b"GHIJKL", b"{}")]
    for pieces in ([two], [two[at : at + 1] for at in range(len(two))]):
        assert asyncio.run(talked(pieces, 3)) == (taken, told)
