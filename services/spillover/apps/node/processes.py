"""One process of several on this machine that are one cluster (decision 0050): what it gets from
the process that started it, by the environment, and what one of them serves at a time.
`testbed.processes` starts them."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import threading
from collections.abc import MutableMapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from spillover.apps.http.server import HttpServer
from spillover.inputs.topology_file import read_told
from spillover.live.overflow.site import SiteProcess
from spillover.live.process.listening import bind_socket
from spillover.live.process.own_threads import start_own
from spillover.model.topology import Topology

VARIABLE = "SPILLOVER_PROCESS"
"""The variable of the environment by which a process knows that it is one of several."""

BEAT_S = 1.0
"""The time, in seconds, between signs of life of a process to the one that started it."""


class OwnProcess(msgspec.Struct, frozen=True):
    """The things that a process gets from the one that started it."""

    number: int
    """The number of the process, counted from 1."""
    urls: tuple[str, ...]
    """The addresses at which the processes call each other."""
    public: tuple[str, int]
    """The address of clients, which all processes share, and that of a proxy's."""
    proxy: tuple[str, int] | None
    peer_fd: int | None
    """The listening socket of neighbors, which one process serves at a time."""
    file_fd: int
    """The file that has the topology, and is locked by the process that serves neighbors."""
    life_fd: int
    """The pipe on which the process says that it runs."""

    @property
    def of_site(self) -> SiteProcess:
        return SiteProcess(self.number, self.urls)

    def topology(self, source: str) -> Topology:
        """Returns the topology of all of them, read from the file as it was when they were
        started."""
        text = os.pread(self.file_fd, os.fstat(self.file_fd).st_size, 0).decode()
        return read_told(text, source, Path(source).stem or "topology")

    def bind(self, sockets: ExitStack) -> list[socket.socket | None]:
        """Returns the sockets for clients, neighbors, the other processes, and clients of a proxy;
        None for a kind of caller that there is not. Raises InputError."""
        public = bind_socket(*self.public, is_shared=True)
        proxy = None if self.proxy is None else bind_socket(*self.proxy, is_shared=True)
        peer = None if self.peer_fd is None else socket.socket(fileno=self.peer_fd)
        at = urlsplit(self.urls[self.number - 1])
        own = bind_socket(at.hostname or "", at.port or 0, is_shared=True)
        bound = [public, peer, own, proxy]
        for one in filter(None, bound):
            one.set_inheritable(False)
            sockets.enter_context(one)
        return bound

    def not_inherited(self, bound: Sequence[socket.socket | None]) -> list[socket.socket | None]:
        """Returns the sockets that no other process has: once closed, nobody listens there."""
        public, _, own, proxy = bound
        return [public, own, proxy]

    def tell_alive(self) -> None:
        """Say that the process listens and, from then on, that it runs, in the loop that runs
        now."""
        with suppress(OSError):  # a full pipe says as much, and without a reader it ends soon
            os.write(self.life_fd, b".")
        asyncio.get_running_loop().call_later(BEAT_S, self.tell_alive)

    async def its_turn(self) -> None:
        """Return once no other process serves neighbors: that is this one's part until it ends. A
        thread waits, as the system grants it; if this is cancelled, the turn goes to the next."""
        loop, turn, is_given_up = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def wait() -> None:
            fcntl.lockf(self.file_fd, fcntl.LOCK_EX)
            if is_given_up.is_set():
                fcntl.lockf(self.file_fd, fcntl.LOCK_UN)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(turn.set)

        start_own(threading.Thread(target=wait, name="turn", daemon=True))
        try:
            await turn.wait()
        except asyncio.CancelledError:
            is_given_up.set()
            fcntl.lockf(self.file_fd, fcntl.LOCK_UN)  # the turn may have come just now
            raise


def own_process(environment: MutableMapping[str, str]) -> OwnProcess | None:
    """Returns which of several processes this one is, or None. The environment of what it starts no
    longer says so."""
    told = environment.pop(VARIABLE, None)
    if told is None:
        return None
    process = msgspec.json.decode(told, type=OwnProcess)
    for fd in (process.peer_fd, process.file_fd, process.life_fd):
        if fd is not None:
            os.set_inheritable(fd, False)  # noqa: FBT003 - as it takes it
    os.set_blocking(process.life_fd, False)
    return process


class ServerInTurn(HttpServer):
    """A server that listens from its process's turn on; until then another process does."""

    def __init__(self, process: OwnProcess, *told: Any, **named: Any) -> None:
        super().__init__(*told, **named)
        self._process = process
        self.servers = []
        self._begins: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._listening = sockets or []  # to be closed in any case, else neighbors wait there
        self.ready.set()
        self._begins = asyncio.create_task(self._begin(sockets), name="turn")

    async def _begin(self, sockets: list[socket.socket] | None) -> None:
        await self._process.its_turn()
        await super().startup(sockets)

    def stop_listening(self) -> None:
        if self._begins is not None:
            self._begins.cancel()
        super().stop_listening()

    def stop(self) -> None:
        if self._begins is not None:
            self._begins.cancel()
        super().stop()
