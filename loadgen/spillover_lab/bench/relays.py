"""Programs of others as processes: HAProxy, nginx and more, found, started and never left behind.

`haproxy_sites` writes the configuration that has HAProxy do more than relay.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from spillover.live.process.listening import bind_socket
from spillover.model.errors import InputError, PeerError, RunError
from spillover.testbed.watchdog import Watchdog, end_group
from spillover_lab.bench.nodes import ask
from spillover_lab.bench.servers import HOST, READY_POLL_S, READY_WITHIN_S, Server

SYSTEM_DIRECTORIES = ("/usr/local/sbin", "/usr/sbin")
"""Where packages put them, and which are not on the PATH of every user."""

_HAPROXY = """\
global
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    http-reuse always
{options}frontend public
    bind "fd@{descriptor}"
    default_backend upstream
backend upstream
    server upstream {address}
"""

# Answers leave as they come, connections are kept, and a client that leaves is known of.
_NGINX = """\
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


def find_program(name: str) -> str | None:
    """Returns the one on the PATH, or where packages put it."""
    places = (os.environ.get("PATH", os.defpath), *SYSTEM_DIRECTORIES)
    return shutil.which(name, path=os.pathsep.join(places))


def check_haproxy() -> str:
    """Returns HAProxy's path. Raises InputError, which says how to get it."""
    if (binary := find_program("haproxy")) is None:
        how = "expected it on the PATH, got none (Debian: apt install haproxy, macOS: brew install "
        raise InputError("haproxy", "", f"{how}haproxy)")
    return binary


@asynccontextmanager
async def haproxy_relay(upstream: str, *options: str) -> AsyncIterator[Server]:
    """Starts HAProxy as a relay on one thread, with more lines of its defaults. Raises as
    `running_haproxy`."""
    address = upstream.removeprefix("http://")
    with bind_socket(HOST, 0) as listening:
        lines = "".join(f"    {option}\n" for option in options)
        text = _HAPROXY.format(descriptor=listening.fileno(), address=address, options=lines)
        async with running_haproxy(text, listening) as server:
            yield server


@asynccontextmanager
async def running_haproxy(configuration: str, listening: socket.socket) -> AsyncIterator[Server]:
    """Starts HAProxy, which takes over `listening` by its descriptor; from then on it is closed
    here. Gives it once it answers a GET by 200.

    Raises InputError if there is none, RunError if it does not start.
    """
    binary = check_haproxy()
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "haproxy.cfg"
        file.write_text(configuration, encoding="utf-8")
        command = (binary, "-db", "-q", "-f", str(file))
        async with started("HAProxy", command, _url_of(listening), listening) as server:
            yield server


@asynccontextmanager
async def nginx_relay(upstream: str) -> AsyncIterator[Server]:
    """Starts nginx as a relay on one thread. Raises InputError if there is none, RunError if it
    does not start."""
    if (binary := find_program("nginx")) is None:
        raise InputError("nginx", "", "expected it on the PATH, got none")
    address = upstream.removeprefix("http://")
    with socket.socket() as place, tempfile.TemporaryDirectory() as directory:
        # It cannot be given a socket that listens; this one only keeps the port for it.
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        place.bind((HOST, 0))
        file = Path(directory) / "nginx.conf"
        port = place.getsockname()[1]
        file.write_text(_NGINX.format(address=address, host=HOST, port=port), encoding="utf-8")
        command = (binary, "-p", directory, "-c", str(file))
        async with started("nginx", command, _url_of(place), place) as server:
            yield server


@asynccontextmanager
async def started(
    name: str,
    command: Sequence[str],
    url: str,
    listening: socket.socket | None = None,
    path: str = "/",
) -> AsyncIterator[Server]:
    """Starts a program that listens at this address, or takes over `listening`, by its descriptor
    or by its port. Gives it once it answers a GET of the path by 200.

    Raises RunError if it does not start.
    """
    with Watchdog() as watchdog:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            pass_fds=[] if listening is None else [listening.fileno()],
            start_new_session=True,
        )
        watchdog.watch(process.pid)
        try:
            if listening is not None:
                listening.close()  # it has its own: else the port would seem open when it is not
            await _ready(name, process, url, path)
            yield Server(url, process.pid)
        finally:
            end_group(process.pid)
            await process.wait()


def _url_of(listening: socket.socket) -> str:
    return f"http://{HOST}:{listening.getsockname()[1]}"


async def _ready(name: str, process: asyncio.subprocess.Process, url: str, path: str) -> None:
    limit_s = time.monotonic() + READY_WITHIN_S
    while True:
        with suppress(PeerError):
            if (await ask(url, "GET", path)).status == 200:
                return
        if process.returncode is not None or time.monotonic() > limit_s:
            raise RunError(f"{name} did not start")
        await asyncio.sleep(READY_POLL_S)
