"""nginx as a relay: found, started on one thread, and never left behind."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from spillover.model.errors import InputError
from spillover.tools.bench.foreign import find_program, foreign_server
from spillover.tools.bench.servers import HOST, Server

# Answers leave as they come, connections are kept, and a client that leaves is known of.
_RELAY = """\
daemon off;
master_process off;
error_log /dev/null;
pid nginx.pid;
events {{ worker_connections 16384; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    keepalive_timeout 300s;
    keepalive_requests 1000000000;
    upstream service {{
        server {address};
        keepalive 1024;
        keepalive_requests 1000000000;
    }}
    server {{
        listen {host}:{port} reuseport;
        location / {{
            proxy_pass http://service;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 600s;
            send_timeout 600s;
        }}
    }}
}}
"""


def find_nginx() -> str | None:
    """Returns the one on the PATH, or where packages put it."""
    return find_program("nginx")


@asynccontextmanager
async def nginx_relay(upstream: str) -> AsyncIterator[Server]:
    """Starts nginx as a relay. Raises InputError if there is none, RunError if it does not
    start."""
    binary = find_nginx()
    if binary is None:
        raise InputError("nginx", "", "expected it on the PATH, got none")
    address = upstream.removeprefix("http://")
    with socket.socket() as place, tempfile.TemporaryDirectory() as directory:
        # It cannot be given a socket that listens; this one only keeps the port for it.
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        place.bind((HOST, 0))
        file = Path(directory) / "nginx.conf"
        port = place.getsockname()[1]
        file.write_text(_RELAY.format(address=address, host=HOST, port=port), encoding="utf-8")
        command = (binary, "-p", directory, "-c", str(file))
        async with foreign_server("nginx", command, place) as server:
            yield server
