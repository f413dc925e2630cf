"""A service made of raw sockets: it records what comes, byte for byte, and answers what a test has
it say, when and how it likes."""

import asyncio
from contextlib import asynccontextmanager


class Talk:
    """One connection to the service."""

    def __init__(self, reader, writer):
        self.reader = reader
        self.writer = writer
        self.closed = asyncio.Event()

    async def request(self):
        """(head with its empty line, body) of what comes next; None at the end."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        size = 0
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
        return head, await self.reader.readexactly(size)

    async def say(self, *parts):
        for part in parts:
            self.writer.write(part)
            await self.writer.drain()

    async def until_closed(self):
        """Return when the other side has gone."""
        while await self.reader.read(65_536):
            pass

    def reset(self):
        self.writer.transport.abort()


class Service:
    """`seen` has each request that came; `answer` is how they are answered: bytes, or a coroutine
    function of (talk, head, body) that returns True to go on with the connection."""

    def __init__(self):
        self.seen = []
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        self.connections = 0
        self.gone = 0
        self.url = ""
        self._talks = set()

    async def talk(self, reader, writer):
        talk = Talk(reader, writer)
        self._talks.add(talk)
        self.connections += 1
        try:
            while (asked := await talk.request()) is not None:
                self.seen.append(asked)
                if isinstance(self.answer, bytes):
                    await talk.say(self.answer)
                elif not await self.answer(talk, *asked):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, RuntimeError):
            pass  # the other side has gone; RuntimeError is uvloop's word for it
        finally:
            self.gone += 1
            self._talks.discard(talk)
            writer.close()

    def hang_up(self):
        for talk in list(self._talks):
            talk.reset()


@asynccontextmanager
async def lying_service():
    """A service for as long as the block lasts."""
    service = Service()
    server = await asyncio.start_server(service.talk, "127.0.0.1", 0, limit=2**22)
    service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield service
    finally:
        server.close()
        service.hang_up()
        await server.wait_closed()
