"""Nodes that are killed while an answer passes through them, at each byte of it: what clients use
to read it sees an error, never a short success. `make soak` takes each byte, else it is some.

An upstream that dies so is in `test_proxy_answers`, a neighbor whose frames are cut at each byte in
`tests/live/overflow/test_passed_link_cut.py`.
"""

import asyncio
import http.client
import os
import threading
from urllib.parse import urlsplit

import httpx
import pytest

from spillover.live.http1.framing import ByLength, Chunked
from support.dying_nodes import dying_nodes
from support.loop import until
from support.lying_service import lying_service

EACH_BYTE = "SPILLOVER_SOAK_S" in os.environ
LIMIT_S = 30.0

HEADS = {
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n",
}
BODIES = {"chunks": b"5\r\nsome \r\n7\r\nanswers\r\n0\r\n\r\n", "length": b"some answers"}
READERS = {"chunks": Chunked, "length": lambda: ByLength(12)}


def body_bytes(kind, count):
    """How much of the body is in so many bytes of the answer."""
    came = BODIES[kind][: max(0, count - len(HEADS[kind]))]
    return len(READERS[kind]().feed(came)) if came else 0


class Client:
    """Asks in a thread, by one library: `status`, `seen` bytes, and `error` once it is `over`."""

    def __init__(self, library, url):
        self.status = self.error = None
        self.seen = 0
        self._ask = {"httpx": self._by_httpx, "http.client": self._by_standard}[library]
        self._thread = threading.Thread(target=self._run, args=(url,))
        self._thread.start()

    @property
    def over(self):
        return not self._thread.is_alive()

    def _run(self, url):
        try:
            self._ask(url)
        except (httpx.HTTPError, http.client.HTTPException, OSError) as error:
            self.error = error

    def _by_httpx(self, url):
        with (
            httpx.Client(trust_env=False, timeout=LIMIT_S) as client,
            client.stream("GET", url) as answer,
        ):
            self.status = answer.status_code
            for piece in answer.iter_raw():
                self.seen += len(piece)

    def _by_standard(self, url):
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=LIMIT_S)
        try:
            connection.request("GET", "/")
            answer = connection.getresponse()
            self.status = answer.status
            while piece := answer.read1(5):
                self.seen += len(piece)
            if answer.length:  # `read1` does not say so by itself
                raise http.client.IncompleteRead(b"", answer.length)
        finally:
            connection.close()


async def killed_at(service, kind, count, library, victim):
    """What a client sees whose answer's `victim` is killed once so much of it was sent."""
    sent = asyncio.Event()

    async def begin(talk, *_):
        await talk.say((HEADS[kind] + BODIES[kind])[:count])
        sent.set()
        await talk.until_closed()

    service.answer = begin
    with dying_nodes(service.url, "a", "b") as (url, processes):
        client = Client(library, url)
        await sent.wait()
        await until(lambda: client.over or client.seen >= body_bytes(kind, count))
        processes[victim].kill()
        await until(lambda: client.over, limit_s=LIMIT_S)
    return client


@pytest.mark.parametrize(
    ("kind", "library", "victim"),
    [
        ("chunks", "httpx", "a"),
        ("chunks", "http.client", "b"),
        ("length", "http.client", "a"),
        ("length", "httpx", "b"),
    ],
)
def test_it_is_never_a_short_success(kind, library, victim):
    """The node at home, which the client talks to, and the one behind it that runs the request."""
    size = len(HEADS[kind] + BODIES[kind])
    some = [len(HEADS[kind]) + 6 if library == "httpx" else size - 1]
    counts = range(1, size) if EACH_BYTE else some

    async def main():
        async with lying_service() as service:
            for count in counts:
                client = await killed_at(service, kind, count, library, victim)
                is_told = client.error is not None or client.status >= 500
                assert is_told, (count, client.status, client.seen)

    asyncio.run(main())
