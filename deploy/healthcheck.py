"""Exit status 0 if what runs in this container says at /healthz that it is well.

Run every few seconds in each container, so it imports next to nothing: run it with `python -IS`.
"""

import socket

with socket.create_connection(("127.0.0.1", 8080), timeout=2) as connection:
    connection.sendall(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
    status_line = connection.recv(64)
raise SystemExit(b" 200 " not in status_line)
