"""An address that swallows whoever connects, as behind a firewall: nothing is refused."""

import socket
from contextlib import ExitStack, contextmanager


@contextmanager
def swallowing(host, port=0):
    """Its port. Nobody accepts, and the places of those who wait are taken."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((host, port))
        server.listen(0)
        while True:
            waits = stack.enter_context(socket.socket())
            waits.settimeout(0.1)
            try:
                waits.connect(server.getsockname())
            except TimeoutError:
                break
        yield server.getsockname()[1]
