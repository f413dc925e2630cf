"""Exit status 0 if what runs in this container says at /healthz that it is well, in https where it
does not speak http; else 1, with one line if nobody answers.

Run every few seconds in each container, so it imports next to nothing: run it with `python -IS`.
"""

import socket


def said(*, is_secure: bool) -> bytes:
    """Returns the beginning of the answer. It is this container's own, whatever it proves to be."""
    with connected() as connection:
        if not is_secure:
            return asked(connection)
        import ssl  # noqa: PLC0415 - takes as long as all the rest

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(connection) as encrypted:
            return asked(encrypted)


def connected() -> socket.socket:
    """Returns a connection to the service, over IPv6 where there is no IPv4."""
    try:
        return socket.create_connection(("127.0.0.1", 8080), timeout=2)
    except OSError as error:
        try:
            return socket.create_connection(("::1", 8080), timeout=2)
        except OSError:
            raise error from None


def asked(connection: socket.socket) -> bytes:
    """Returns the beginning of the answer on this connection; nothing where there is none."""
    connection.sendall(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
    return connection.recv(64)


def in_either() -> bytes:
    """Returns the beginning of the answer in http, or in https if there is none in http."""
    try:
        answer = said(is_secure=False)
    except ConnectionResetError:
        answer = b""
    return answer if answer.startswith(b"HTTP/") else said(is_secure=True)


try:
    ANSWER = in_either()
except OSError as error:
    raise SystemExit(f"healthcheck: no answer at port 8080: {error}") from None
raise SystemExit(b" 200 " not in ANSWER)
