"""A server that speaks Redis's protocol and says what a test has it say: answers that a real one
gives once in a thousand years, or never."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress

STARTS_S = 20.0


def bulk(text):
    """Text as Redis answers it; None for nothing there."""
    return b"$-1\r\n" if text is None else b"$%d\r\n%s\r\n" % (len(text), text.encode())


def rows(*answers):
    """Several answers as one."""
    return b"*%d\r\n%s" % (len(answers), b"".join(answers))


class ScriptedRedis:
    """`answer(words)`, in a thread for each connection, says what a command is answered: bytes, or
    nothing. What the library introduces itself with is answered here. `asked` has the rest, and
    `open` counts connections that have not ended."""

    def __init__(self, answer):
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.asked = []
        self.open = 0
        self.accepted = 0
        self._lines = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self):
        with suppress(OSError):
            while True:
                line, _ = self._listening.accept()
                self.accepted += 1
                self.open += 1
                self._lines.append(line)
                self._threads.append(threading.Thread(target=self._converse, args=(line,)))
                self._threads[-1].start()

    def _converse(self, line):
        with suppress(OSError), line.makefile("rb") as incoming:
            while head := incoming.readline():
                words = [self._word(incoming) for _ in range(int(head[1:]))]
                if words[0] == "CLIENT":
                    line.sendall(b"+OK\r\n")
                    continue
                self.asked.append(words)
                line.sendall(self._answer(words) or b"")
        self.open -= 1

    def _word(self, incoming):
        size = int(incoming.readline()[1:])
        return incoming.read(size + 2)[:-2].decode()

    def close(self):
        for one in (self._listening, *self._lines):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        for thread in self._threads:
            thread.join(STARTS_S)


@contextmanager
def scripted_redis(answer):
    server = ScriptedRedis(answer)
    try:
        yield server
    finally:
        server.close()
