"""What operators put before and behind a door: nginx and HAProxy as mere relays, as processes.

Each takes over a socket that is listening already, so that nobody has to ask whether it is up.
"""

import asyncio
import os
import shutil
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path

from spillover.live.process.listening import bind_socket

PLACES = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"))

NGINX = """\
daemon off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/error.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    client_body_timeout 1s;
    client_header_timeout 1s;
    lingering_close off;
    upstream behind {{ server {upstream}; keepalive 4; }}
    server {{
        listen {listens_at};
        location / {{
            proxy_pass http://behind;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $http_host;
            proxy_buffering off;
            proxy_next_upstream off;
        }}
    }}
}}
"""

HAPROXY = """\
global
    nbthread 1
defaults
    mode http
    timeout connect 5s
    timeout http-request 1s
    timeout client 1s
    timeout server 5s
    http-reuse always
frontend public
    bind "fd@{descriptor}"
    default_backend upstream
backend upstream
    server upstream {upstream}
"""

COMMANDS = {
    "nginx": (NGINX, ("-p", "{directory}", "-e", "{directory}/error.log", "-c", "{file}")),
    "haproxy": (HAPROXY, ("-db", "-q", "-f", "{file}")),
}


def find(kind):
    """Returns where it is, or None."""
    return shutil.which(kind, path=PLACES)


@asynccontextmanager
async def relay(kind, upstream):
    """A relay of this kind in front of `HOST:PORT`; the port that it listens at."""
    text, options = COMMANDS[kind]
    with tempfile.TemporaryDirectory() as directory, bind_socket("127.0.0.1", 0) as listening:
        port, descriptor = listening.getsockname()[1], listening.fileno()
        told = {"directory": directory, "file": Path(directory, "configuration")}
        told |= {"upstream": upstream, "listens_at": f"127.0.0.1:{port}", "descriptor": descriptor}
        told["file"].write_text(text.format(**told), encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            find(kind),
            *(option.format(**told) for option in options),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={"NGINX": f"{descriptor};"},  # how nginx hands its sockets to its successor
            pass_fds=[descriptor],
        )
        try:
            yield port
            assert process.returncode is None, f"{kind} has ended"
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()
