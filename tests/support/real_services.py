"""Services that others wrote, as processes behind a door, and clients that ask them many things at
once. What they say is in tests/support/services.
"""

from __future__ import annotations

import asyncio
import http.client
import importlib.util
import shutil
import socket
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from spillover.core.overflow.events import ServersDown
from support.loop import turn
from support.ports import free_port
from support.proxy_doors import Client, doors
from support.waiting import until

HERE = Path(__file__).parent / "services"
PYTHON = sys.executable
STARTS_S = 30.0
ENDS_S = 5.0
KEEP_S = 5.0
"""For how long uvicorn and Node keep an idle connection unless told otherwise."""
THREADS = "8"
CLIENTS = 8
AT_A_TIME = 4
"""At each cluster: half of the clients wait."""


def _serve(kind):
    return lambda port, keep_s: (PYTHON, "serve.py", kind, str(port), str(keep_s))


def _gunicorn(*options):
    return lambda port, keep_s: (
        *(PYTHON, "-m", "gunicorn", "--bind", f"127.0.0.1:{port}", "--log-level", "critical"),
        *("--keep-alive", str(round(keep_s)), *options, "answers:wsgi"),
    )


KINDS = {
    "closing": (None, _serve("closing")),
    "uvicorn": ("uvicorn", _serve("uvicorn")),
    "node": (None, lambda port, keep_s: ("node", "service.js", str(port), str(1000 * keep_s))),
    "werkzeug": ("werkzeug", _serve("werkzeug")),
    "gunicorn-gthread": ("gunicorn", _gunicorn("--threads", THREADS)),
    "waitress": (
        "waitress",
        lambda port, _: (
            *(PYTHON, "-m", "waitress", f"--listen=127.0.0.1:{port}", f"--threads={THREADS}"),
            "answers:wsgi",
        ),
    ),
    "uwsgi": (
        "pyuwsgi",
        lambda port, _: (
            *(PYTHON, "-c", "import pyuwsgi; pyuwsgi.run()", "--need-app", "--disable-logging"),
            *("--http-socket", f"127.0.0.1:{port}", "--module", "answers:wsgi", "--master"),
            *("--threads", THREADS, "--die-on-term", "--home", sys.prefix),
            *("--buffer-size", "32768"),
        ),
    ),
    "http.server": (
        None,
        lambda port, _: (PYTHON, "-m", "http.server", "-b", "127.0.0.1", str(port)),
    ),
    "llama.cpp": ("xllamacpp", lambda port, _: (PYTHON, "llama.py", "{directory}", str(port))),
}
"""What must be installed, and the command for a port and for the seconds that a kept connection may
be idle, as far as that can be told."""


def missing(kind):
    """Return what is missing to start it, or None."""
    package, command = KINDS[kind]
    if package is not None and importlib.util.find_spec(package) is None:
        return f"{package} is not installed"
    program = command(0, KEEP_S)[0]
    return None if shutil.which(program) else f"{program} is not on the PATH"


class Service:
    """One such process."""

    def __init__(self, kind, directory, keep_s=KEEP_S):
        self.kind = kind
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._kind = kind
        command = KINDS[kind][1](self.port, keep_s)
        self._command = [word.format(directory=directory) for word in command]
        self._log = directory / f"{kind}-{self.port}.log"
        self._process = None

    def start(self):
        """Return when it takes connections."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=HERE, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        until(self._is_there, STARTS_S, self._said)

    def _is_there(self):
        assert self._process.poll() is None, self._said()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)):
                return False
        return self._kind != "llama.cpp" or self._has_loaded()

    def _has_loaded(self):
        """Return whether it has read its model, as it says: it takes connections before."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=STARTS_S)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def _said(self):
        return f"{self._command} serves; it said {self._log.read_text()[-2000:]}"

    def stop(self):
        """End it as an operator does."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@contextmanager
def serving(kind, directory, keep_s=KEEP_S):
    """A service of this kind that takes connections."""
    service = Service(kind, directory, keep_s)
    try:
        service.start()
        yield service
    finally:
        service.stop()


@pytest.fixture(scope="module")
def service_of(require, tmp_path_factory):
    """`service_of(kind, keep_s)`: one that runs, and is the same for all tests of a module."""
    running = {}
    with ExitStack() as stack:

        def find(kind, keep_s=KEEP_S, *, another=False):
            name = kind, keep_s, another
            if name not in running:
                problem = missing(kind)
                require(problem is None, problem)
                directory = tmp_path_factory.mktemp("service")
                running[name] = stack.enter_context(serving(kind, directory, keep_s))
            return running[name]

        yield find


@asynccontextmanager
async def home_and_hop(handler):
    """Doors of b, and of a, whose servers are down, so that it hands on to b."""
    async with doors("a", "b", handler=handler, cluster={"servers": AT_A_TIME}) as here:
        here["a"].shell.feed(ServersDown())
        yield here


class Ask(NamedTuple):
    """A request, and how the body of its answer begins."""

    method: str
    raw: bytes
    begins: bytes = b""


def ask(method, path, *headers, body=b"", begins=b""):
    """Return such a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: service.example", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return Ask(method, "\r\n".join([*lines, "", ""]).encode() + body, begins)


class Asking:
    """A client that keeps its connection while it may."""

    def __init__(self, port):
        self._port = port
        self._client = None

    async def ask(self, asked):
        """Return the answer, without what came before it as 100."""
        if self._client is None:
            told = await asyncio.open_connection("127.0.0.1", self._port)
            self._client = Client(*told)
        read = None
        try:
            read = await self._client.ask(asked.raw, asked.method)
            while read.status == 100:
                read = await self._client.answer(asked.method)
        finally:
            if read is None or not read.is_whole or read.get(b"connection").lower() == "close":
                self.close()
        return read

    def close(self):
        if self._client is not None:
            self._client.close()
            self._client = None


async def problem_of(asking, asked, way=None):
    """Return what is wrong with the answer, or None. `way`: the clusters that it came through."""
    try:
        read = await asking.ask(asked)
    except (OSError, EOFError) as error:
        return f"{asked.method}: {error!r}"
    if read.status != 200 or not read.is_whole or not read.body.startswith(asked.begins):
        return f"{asked.method}: {read.status} {read.body[:300]!r}".partition('"id"')[0]
    came = read.get(b"spillover-path")
    return f"{asked.method}: by {came}" if way not in {None, came} else None


async def ask_at_once(port, asks, *, requests=400, way=None, pause_s=lambda: 0.0):
    """Have eight clients ask these in turn, with pauses. Returns what was wrong, and how often."""
    wrong = []
    turns = iter(range(requests))

    async def one():
        asking = Asking(port)
        for number in turns:
            wrong.append(await problem_of(asking, asks[number % len(asks)], way))
            if pause := pause_s():
                await turn(pause)
        asking.close()

    await asyncio.gather(*(one() for _ in range(CLIENTS)))
    return counted(wrong)


def counted(wrong):
    """Return how often there was which problem."""
    return Counter(problem for problem in wrong if problem is not None)
