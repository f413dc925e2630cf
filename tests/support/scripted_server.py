"""A server that says what a test has it say, whatever it is asked: answers that nodes do not give
at will, and those of services that are none.
"""

import asyncio
import json
import threading
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus

from spillover.live.overflow.protocol import SHARED
from support.talking import talking

STARTS_S = 20.0

SHARES = f"GET {SHARED} ".encode()

RESET = object()
"""In place of an answer: the connection is torn down when the request has come."""


def answer(status, body=b"", *, kind="application/json", **headers):
    """An HTTP answer; `retry_after="2"` is a header."""
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Type: {kind}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def problem(status, reason, detail="", **headers):
    """A refusal or failure as nodes tell it."""
    body = {"type": "about:blank", "status": status, "reason": reason, "detail": detail}
    return answer(status, body, kind="application/problem+json", **headers)


def done(result=None):
    """A result as nodes give it."""
    timing = {"queued": 0.0, "network": 0.0, "service": 1.0, "return": 0.0, "total": 1.0}
    body = {"id": "x", "result": result, "cluster": "z", "path": ["z"], "hops": 0}
    return answer(200, {**body, "timing_ms": timing})


class Scripted:
    """Gives its answers in turn, the last one for ever. `seen` has what was asked: the first line
    and the headers, whose names are in lower case; `bodies` what came along. It shares no
    connections (`protocol.SHARED`), which says nothing about the rest."""

    def __init__(self, answers):
        self._answers = list(answers)
        self._connections = {}
        self.seen = []
        self.bodies = []
        self.url = ""

    async def talk(self, reader, writer):
        self._connections[writer] = ""
        try:
            while request := await reader.readline():
                self._connections[writer] = request.decode()
                headers = {}
                while (line := (await reader.readline()).strip()) != b"":
                    name, _, value = line.decode().partition(": ")
                    headers[name.lower()] = value
                if request.startswith(SHARES):
                    writer.write(answer(404))
                    continue
                self.bodies.append(await reader.readexactly(int(headers.get("content-length", 0))))
                self.seen.append((request.decode().rpartition(" ")[0], headers))
                next_one = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                if next_one is RESET:
                    writer.transport.abort()
                    return
                writer.write(next_one)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()
            del self._connections[writer]

    def answers(self, *answers):
        """From now on."""
        self._answers = list(answers)

    def hang_up(self, begin=""):
        """On all, or on those whose last requests begin so."""
        for writer, request in self._connections.items():
            if request.startswith(begin):
                writer.transport.abort()


@asynccontextmanager
async def scripted(*answers, tls=None):
    """A server for as long as the block lasts; of https with a context."""
    script = Scripted(answers)
    scheme = "http" if tls is None else "https"
    async with talking(script.talk, ssl=tls) as server:
        script.url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield script


@contextmanager
def scripted_aside(*answers, tls=None):
    """The same in a thread of its own, for what runs a loop itself, as commands do."""
    begun = Future()

    async def serve():
        ended = asyncio.Event()
        async with scripted(*answers, tls=tls) as script:
            begun.set_result((script, asyncio.get_running_loop(), ended))
            await ended.wait()

    serving = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    serving.start()
    script, loop, ended = begun.result(STARTS_S)
    try:
        yield script
    finally:
        loop.call_soon_threadsafe(ended.set)
        serving.join(STARTS_S)
