"""Several processes on this machine that are one cluster, under the one that was started: it keeps
their sockets, starts again what dies, and hands on what it is told to do (decision 0050).

Clients' sockets are shared: the system spreads connections over the processes that listen. That of
neighbors is kept here and inherited; one process at a time serves it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

import msgspec

from spillover.apps.node.processes import BEAT_S, VARIABLE, OwnProcess
from spillover.inputs.topology_file import told_text
from spillover.live.process.listening import bind_socket
from spillover.live.process.logs import Message
from spillover.live.process.stdin_end import on_stdin_end
from spillover.live.process.stopping import StopSignals
from spillover.model.errors import InputError
from spillover.model.topology import HELD_LIMIT_BYTES_MIN, Cluster, Topology
from spillover.testbed.revival import DELAYS_S, Revival
from spillover.testbed.supervisor import EXIT_USAGE

LOOPBACK = "127.0.0.1"

BEATS_MISSED_MAX = 30
"""A process that has not told for so many beats that it runs is killed: connections that the system
gives it are served by nobody."""

ENDS_IN_S = 3.0
"""The processes may take so much longer to end than what they wait for."""

_log = logging.getLogger(__name__)


class Addresses(NamedTuple):
    """The addresses of the doors of a cluster; None where it has no such door."""

    public: tuple[str, int]
    peer: tuple[str, int] | None
    proxy: tuple[str, int] | None


@dataclass(slots=True)
class Running:
    """One process, and what it has told."""

    process: asyncio.subprocess.Process
    life_fd: int
    """The pipe on which it tells that it runs."""
    listens: bool = False
    missed: int = 0
    """The beats since it last told so."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def look(self) -> None:
        self.missed += self.listens
        with suppress(BlockingIOError):
            if os.read(self.life_fd, 4096):
                self.listens, self.missed = True, 0

    def signal(self, number: int) -> None:
        if self.process.returncode is None:
            self.process.send_signal(number)


def check_processes(
    options_given: Sequence[str], topology: Topology, cluster: Cluster, count: int, source: str
) -> None:
    """Raise InputError where a cluster cannot be so many processes. `options_given` are those that
    name what they cannot have."""
    where = f"clusters[{topology.cluster_ids.index(cluster.id)}]"
    if options_given:
        raise InputError(options_given[0], "", "expected none along with --processes")
    if cluster.node_count > 1:
        expected = f"expected one node along with --processes, cluster {cluster.id} has several"
        raise InputError(source, f"{where}.nodes", expected)
    if cluster.bounds is not None:
        expected = "expected a number or a list along with --processes, which share the servers"
        raise InputError(source, f"{where}.servers", expected)
    if cluster.counts_work:
        expected = "expected none along with --processes, which count requests"
        raise InputError(source, f"{where}.{_place_of_work(cluster)}", expected)
    if (problem := cluster.problem_with_nodes(count)) is not None:
        raise InputError("--processes", "", problem)
    limit_bytes = cluster.held_limit_bytes
    if limit_bytes is not None and limit_bytes // count < HELD_LIMIT_BYTES_MIN:
        expected = f"expected at least {HELD_LIMIT_BYTES_MIN} for each of {count} processes"
        raise InputError(source, f"{where}.held_limit_bytes", f"{expected}, got {limit_bytes}")
    if topology.neighbors(cluster.id) and cluster.peer_url is None:
        expected = "expected an address for neighbors alone along with --processes"
        raise InputError(source, f"{where}.peer_url", f"{expected}: one of them speaks for all")
    if not hasattr(socket, "SO_REUSEPORT"):
        expected = "expected 1: this system lets no two processes listen at one port (SO_REUSEPORT)"
        raise InputError("--processes", "", expected)


def _place_of_work(cluster: Cluster) -> str:
    """Returns the first field that says how large requests are."""
    told = {"work": cluster.work}
    told |= {f"routes[{at}].work": route.work for at, route in enumerate(cluster.routes)}
    return next(field for field, one in told.items() if one is not None and not one.counted)


class Processes:
    """So many processes of this command line, which go by this topology, whatever the file says by
    the time that one is started again. What they share is closed with `sockets`. An orderly end
    takes them `limit_s` at most."""

    def __init__(
        self,
        count: int,
        addresses: Addresses,
        sockets: ExitStack,
        *,
        topology: Topology,
        limit_s: float,
    ) -> None:
        self._count, self._limit_s = count, limit_s
        self._public = _reserve(sockets, addresses.public, "--bind")
        proxy = addresses.proxy
        self._proxy = None if proxy is None else _reserve(sockets, proxy, "--proxy-bind")
        peer = addresses.peer
        self._peer = (
            None
            if peer is None
            else sockets.enter_context(bind_socket(*peer, option="--peer-bind"))
        )
        own = [_reserve(sockets, (LOOPBACK, 0), "--processes") for _ in range(count)]
        scheme = "https" if topology.is_secure else "http"
        self._urls = tuple([f"{scheme}://{host}:{port}" for host, port in own])
        self._file: IO[bytes] = sockets.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        self._file.write(told_text(topology).encode())
        self._file.flush()
        self._running: dict[int, Running] = {}
        self._stopping = asyncio.Event()
        self._status = 0

    async def run(self, *, end_with_stdin: bool) -> int:
        """Run them until they are told to end, or one cannot even start. Returns the exit
        status."""
        at_once = asyncio.Event()
        StopSignals(self._stop, at_once.set, self._limit_s + ENDS_IN_S).heed([self._reread])
        if end_with_stdin:
            on_stdin_end(at_once)
        ending = asyncio.create_task(self._end_at_once(at_once))
        first = asyncio.create_task(self._keep(1))
        kept = [first]
        while not (first.done() or self._listens(1)):  # noqa: ASYNC110 - a pipe tells, not an event
            await asyncio.sleep(BEAT_S / 20)
        if not self._stopping.is_set():
            others = range(2, self._count + 1)
            kept += [asyncio.create_task(self._keep(number)) for number in others]
        beating = asyncio.create_task(self._look())
        await asyncio.gather(*kept)
        for task in (ending, beating):
            task.cancel()
        return self._status

    # --- what it is told ----------------------------------------------------------------------

    def _stop(self, number: int) -> None:
        self._stopping.set()
        if self._peer is not None:
            self._peer.close()  # once no process serves it any more, neighbors are turned away
        self._signal(number)

    async def _end_at_once(self, at_once: asyncio.Event) -> None:
        """Whoever started this has died, or asks a second time."""
        await at_once.wait()
        self._stopping.set()
        for one in self._running.values():
            if one.process.stdin is not None:
                one.process.stdin.close()

    def _reread(self) -> None:
        self._signal(signal.SIGHUP)

    def _signal(self, number: int) -> None:
        for one in self._running.values():
            one.signal(number)

    # --- processes ----------------------------------------------------------------------------

    def _listens(self, number: int) -> bool:
        one = self._running.get(number)
        if one is not None:
            one.look()
        return one is not None and one.listens

    async def _look(self) -> None:
        """Kill those that stand still. Looks are counted, as this process may stand still too."""
        while True:
            await asyncio.sleep(BEAT_S)
            for number, one in self._running.items():
                one.look()
                if one.missed > BEATS_MISSED_MAX and not self._stopping.is_set():
                    _log.error(Message("process stands still: it is killed", process=number))
                    one.signal(signal.SIGKILL)

    async def _keep(self, number: int) -> None:
        """Run this process, and start it again whenever it dies. If the first of all does not come
        to listen, all end."""
        revival, may_die = Revival(), number > 1
        while not self._stopping.is_set():
            began_s = time.monotonic()
            said, told, status, has_listened = await self._live(number)
            may_die |= has_listened
            if self._stopping.is_set():
                if has_listened or status > 0:  # else it was told to end before it could heed that
                    self._status = self._status or _exit_status(status)
                return
            if not may_die:
                if status != EXIT_USAGE:  # else it has said why
                    _log.error(Message(f"{said}, all end", process=number, **told))
                self._status = _exit_status(status) or 1
                self._stop(signal.SIGTERM)
                return
            pause_s = revival.delay_s(time.monotonic() - began_s) or DELAYS_S[-1]
            _log.error(Message(said, process=number, **told, again_in_s=pause_s))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)

    async def _live(self, number: int) -> tuple[str, dict[str, Any], int, bool]:
        """Run this process once. Returns what is to be logged, the exit status (0 where it could
        not even be started), and whether it came to listen."""
        try:
            one = self._running[number] = await self._start(number)
        except OSError as error:
            return "process cannot be started", {"reason": error.strerror or str(error)}, 0, False
        if self._stopping.is_set():  # told while it was started
            one.signal(signal.SIGTERM)
        status = await one.process.wait()
        one.look()
        os.close(one.life_fd)
        del self._running[number]
        return "process has ended", {"status": status}, status, one.listens

    async def _start(self, number: int) -> Running:
        life_fd, told_fd = os.pipe()
        os.set_blocking(life_fd, False)
        peer_fd = None if self._peer is None else self._peer.fileno()
        file_fd = self._file.fileno()
        own = OwnProcess(number, self._urls, self._public, self._proxy, peer_fd, file_fd, told_fd)
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "spillover", *sys.argv[1:]),
                stdin=asyncio.subprocess.PIPE,  # it ends with this process
                pass_fds=[fd for fd in (peer_fd, file_fd, told_fd) if fd is not None],
                env={**os.environ, VARIABLE: msgspec.json.encode(own).decode()},
                start_new_session=True,  # Ctrl-C is for this process, which tells the others
            )
        except BaseException:
            os.close(life_fd)
            raise
        finally:
            os.close(told_fd)
        return Running(process, life_fd)


def _reserve(sockets: ExitStack, address: tuple[str, int], option: str) -> tuple[str, int]:
    """Returns the address, with a port that stays ours as long as processes come and go. Raises
    InputError where somebody else has it, who may share ports too."""
    host, port = address
    with bind_socket(host, port, option) as trial:
        port = trial.getsockname()[1]
    sockets.enter_context(bind_socket(host, port, option, is_shared=True))
    return host, port


def _exit_status(status: int) -> int:
    """Returns that of this process, where one of its own has ended with this one, or by a
    signal."""
    return status if status >= 0 else 1
