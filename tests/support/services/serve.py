"""Servers that have no command of their own for what tests want of them: KIND PORT KEEP_S, where
KEEP_S says for how long a kept connection may be idle.
"""

import socket
import sys
import threading
import time

from answers import asgi, wsgi

ANSWER = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n"hello"'


def uvicorn(port, keep_s):
    """Uvicorn, whose own option takes whole seconds."""
    import uvicorn

    uvicorn.run(asgi, port=port, timeout_keep_alive=keep_s, lifespan="off", log_level="error")


def werkzeug(port, _):
    """The server that `flask run` starts."""
    from werkzeug.serving import WSGIRequestHandler, run_simple

    class Quiet(WSGIRequestHandler):
        def log(self, *_):
            pass

    run_simple("127.0.0.1", port, wsgi, threaded=True, request_handler=Quiet)


def closing(port, keep_s):
    """A server that says nothing of closing, and does so a moment after each answer."""

    def talk(connection):
        with connection:
            asked = b""
            while not _is_whole(asked):
                if not (more := connection.recv(65_536)):
                    return
                asked += more
            connection.sendall(ANSWER)
            end_s = time.perf_counter() + keep_s
            while time.perf_counter() < end_s:  # more exactly than a sleep
                pass

    with socket.create_server(("127.0.0.1", port), backlog=128) as listening:
        while True:
            threading.Thread(target=talk, args=(listening.accept()[0],), daemon=True).start()


def _is_whole(asked):
    head, ends, body = asked.partition(b"\r\n\r\n")
    _, _, length = head.lower().partition(b"content-length:")
    return bool(ends) and len(body) >= int(length.split(b"\r\n")[0] or 0)


if __name__ == "__main__":
    kind, port, keep_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    {"uvicorn": uvicorn, "werkzeug": werkzeug, "closing": closing}[kind](port, keep_s)
