"""A server that speaks Redis's protocol and says what a test has it say: answers that a real one
gives once in a thousand years, or never."""

import socket
import threading
from contextlib import contextmanager, suppress

ENDS_S = 20.0


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
        self._threads = []
        self._ended = False
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self):
        with suppress(OSError):
            while True:
                line, _ = self._listening.accept()
                if self._ended:
                    line.close()
                    return
                self.accepted += 1
                self.open += 1
                self._lines.append(line)
                told = threading.Thread(target=self._converse, args=(line,), daemon=True)
                self._threads.append(told)
                self._threads[-1].start()

    def _converse(self, line):
        with suppress(OSError, ValueError), line.makefile("rb") as incoming:  # cut off, too
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
        self._ended = True
        with suppress(OSError), socket.socket() as waking:  # by no name: tests move those
            waking.settimeout(ENDS_S)
            waking.connect(("127.0.0.1", self.port))
        self._accepting.join(ENDS_S)
        self._listening.close()
        for line in self._lines:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()
        for thread in self._threads:
            thread.join(ENDS_S)
        assert not any(one.is_alive() for one in (self._accepting, *self._threads))


@contextmanager
def scripted_redis(answer):
    server = ScriptedRedis(answer)
    try:
        yield server
    finally:
        server.close()
