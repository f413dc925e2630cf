"""Exit status 0 if what runs in this container says at /healthz that it is well, in https where it
does not speak http.

Run every few seconds in each container, so it imports next to nothing: run it with `python -IS`.
"""

import socket


def is_well(*, is_secure: bool) -> bool:
    """Returns whether it says so. It is this container's own, whatever it proves to be."""
    with socket.create_connection(("127.0.0.1", 8080), timeout=2) as connection:
        if not is_secure:
            return says_so(connection)
        import ssl  # noqa: PLC0415 - takes as long as all the rest

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(connection) as encrypted:
            return says_so(encrypted)


def says_so(connection: socket.socket) -> bool:
    """Returns whether the answer on this connection is 200."""
    connection.sendall(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
    return b" 200 " in connection.recv(64)


try:
    IS_WELL = is_well(is_secure=False)
except ConnectionResetError:
    IS_WELL = False
raise SystemExit(not (IS_WELL or is_well(is_secure=True)))
