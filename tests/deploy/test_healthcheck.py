"""What tells a container's engine whether a service is well: run as it lies there, against one at
another port than its own."""

import runpy
import socket
import ssl
import struct
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from support.certificates import Authority, put

SCRIPT = Path(__file__).parents[2] / "deploy" / "healthcheck.py"
RESET = struct.pack("ii", 1, 0)


@contextmanager
def serving(status, context=None):
    """The port of a service that says this at /healthz, and elsewhere the contrary; where it is
    encrypted it resets whoever does not begin so."""

    def answer(connection):
        if context is not None:
            if connection.recv(1, socket.MSG_PEEK) == b"G":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                return
            with context.wrap_socket(connection, server_side=True) as encrypted:
                say(encrypted)
        else:
            say(connection)

    def say(connection):
        path = connection.recv(4096).split(b" ")[1:2]
        said = status if path == [b"/healthz"] else 703 - status
        connection.sendall(b"HTTP/1.1 %d Whatever\r\n\r\n" % said)

    def serve(listening):
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.fixture
def exit_status(monkeypatch):
    """`exit_status(port)` of the script."""
    opened = socket.create_connection

    def run(port):
        def redirected(address, **options):
            assert address in (("127.0.0.1", 8080), ("::1", 8080))
            return opened(("127.0.0.1", port), **options)

        monkeypatch.setattr(socket, "create_connection", redirected)
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(SCRIPT))
        # A text is printed, and the status is 1 then.
        return ended.value.code if isinstance(ended.value.code, str) else int(ended.value.code)

    return run


@pytest.mark.parametrize(("status", "ends"), [(200, 0), (503, 1)])
def test_it_goes_by_what_the_service_says_of_itself(exit_status, tmp_path, status, ends):
    """Encrypted or not, whatever its certificate is for: it is this container's own."""
    with serving(status) as port:
        assert exit_status(port) == ends
    authority = Authority()
    files = put(tmp_path, "a", authority.sign("elsewhere"), authority)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    with serving(status, context) as port:
        assert exit_status(port) == ends


def test_a_service_that_is_not_there_is_one_line(exit_status):
    with serving(200) as port:
        pass
    said = exit_status(port)
    assert said.startswith("healthcheck: no answer at port 8080: ")
    assert said.count("\n") == 0


def test_a_service_that_hangs_up_on_both_is_one_line(exit_status):
    """What speaks neither http nor https, or has just begun to end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=hang_up, args=(listening,), daemon=True).start()
        said = exit_status(listening.getsockname()[1])
    assert said.startswith("healthcheck: no answer at port 8080: ")


def hang_up(listening):
    with suppress(OSError):
        while True:
            connection, _ = listening.accept()
            connection.recv(4096)
            connection.close()
