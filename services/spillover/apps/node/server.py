"""A node as a process: sockets, signals, the server, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator

import uvicorn

from spillover.apps.node.app import create_app
from spillover.live.node_shell import NodeShell
from spillover.model.errors import InputError
from spillover.model.topology import Topology

KEEP_ALIVE_S = 120
"""Longer than any client of ours keeps an idle connection, so that it is never the server that
closes one which a request is just being written to."""

STOP_S = 2.0
"""For connections to be let go of at the end."""

_log = logging.getLogger(__name__)


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling: signals mean drain here."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve_node(
    topology: Topology,
    cluster_id: str,
    *,
    bind: tuple[str, int],
    seed: int | None = None,
    drain_timeout_s: float = 30.0,
    end_with_stdin: bool = False,
) -> None:
    """Serve one cluster until SIGTERM or SIGINT, then drain and return. A second signal ends it
    at once. With `end_with_stdin` it also ends when standard input does: the sign that whoever
    started it has died. Raises InputError if the address cannot be bound.
    """
    listening = bind_socket(*bind)
    shell = NodeShell(topology, cluster_id, seed=seed)
    _warn_of_file_limit(topology.cluster(cluster_id).queue_limit)
    server = _Server(_config(create_app(shell)))
    stop = asyncio.Event()
    end = asyncio.Event()
    _on_signals(stop, end)
    if end_with_stdin:
        _on_stdin_end(end)
    running = asyncio.create_task(shell.run())
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    gc.collect()
    gc.freeze()  # what is there now stays: the collector need not look at it again
    try:
        await _first(stop.wait(), end.wait(), running, serving)
        if stop.is_set() and not end.is_set():
            await _first(_drain(shell, drain_timeout_s), end.wait(), running, serving)
    finally:
        await shell.close()
        server.should_exit = True
        await serving
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def _drain(shell: NodeShell, timeout_s: float) -> None:
    lost = await shell.drain(timeout_s)
    if lost:
        _log.warning("cluster %s: %d requests were lost at the end", shell.cluster.id, lost)


async def _first(*waits: Awaitable[object]) -> None:
    """Wait until one is done, drop the ones made here, and raise what failed."""
    futures = [asyncio.ensure_future(wait) for wait in waits]
    done, _ = await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    for wait, future in zip(waits, futures, strict=True):
        if future is not wait:
            future.cancel()
    for future in done:
        future.result()


def bind_socket(host: str, port: int) -> socket.socket:
    """A listening socket, or InputError: the port is in use, or the address not of this host."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        reason = error.strerror or str(error)
        expected = f"expected an address that can be bound, got {host}:{port} ({reason})"
        raise InputError("--bind", "", expected) from error
    listening.listen(2048)
    return listening


def _config(app: Callable[..., object]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(STOP_S),
    )


def _on_signals(stop: asyncio.Event, end: asyncio.Event) -> None:
    def on_signal() -> None:
        if stop.is_set():
            end.set()
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)


def _on_stdin_end(end: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()

    def on_readable() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            loop.remove_reader(sys.stdin)
            end.set()

    loop.add_reader(sys.stdin, on_readable)


def _warn_of_file_limit(queue_limit: int) -> None:
    """Every waiting request holds a connection: as many files as the queue is long, and some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * queue_limit + 1024
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        _log.warning(
            "only %d files may be open (ulimit -n): a queue of %d requests needs %d",
            soft,
            queue_limit,
            wanted,
        )
