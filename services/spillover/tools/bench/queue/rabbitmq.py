"""A RabbitMQ of the benchmark's own, and what produces and consumes there. Everything of it is on
loopback and in a directory that goes with it; nothing else on the machine is touched.

An object is confirmed to its producer and acknowledged by its consumer, as with the others; it is
transient, as theirs are.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil

from spillover.model.errors import RunError
from spillover.testbed.last_words import last_words
from spillover.testbed.watchdog import Watchdog, end_group

QUEUE = "bench-queue"
SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""What Debian's `rabbitmq-server` runs as a user of its own; that one knows one place only."""

READY_WITHIN_S = 120.0
"""Alone it takes 5 s; beside other work that keeps all cores busy, a minute and more."""
POLL_S = 0.1
LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


def why_not() -> str | None:
    """Returns why RabbitMQ cannot be among those that are compared; None if it can."""
    if _script() is None or shutil.which("epmd") is None:
        return "no rabbitmq-server is installed"
    if importlib.util.find_spec("aiormq") is None:
        return "aiormq is not installed (pip install spillover[bench])"
    return None


@contextmanager
def own_rabbitmq() -> Iterator[tuple[str, int]]:
    """Gives the URL and the process id of a RabbitMQ that ends with the block. Raises RunError if
    it does not start."""
    directory = Path(tempfile.mkdtemp(prefix="spillover-rabbitmq-"))
    with ExitStack() as stack:
        watchdog = stack.enter_context(Watchdog())
        watchdog.watch_directory(directory)
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        amqp, names, nodes = _free_ports(3)

        def run(command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
            with (directory / "log").open("ab") as log:
                process = subprocess.Popen(  # noqa: S603 - what the user has installed
                    command,
                    env={**os.environ, **environment},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            watchdog.watch(process.pid)
            stack.callback(process.wait)
            stack.callback(end_group, process.pid)
            return process

        # Erlang would leave behind one that it has started itself.
        run(["epmd", "-port", str(names), "-address", "127.0.0.1"], {})
        (directory / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{amqp}\n")
        process = run([str(_script())], _environment(directory, names, nodes))
        _wait_until_up(process, amqp, directory / "log")
        (broker,) = [
            child
            for child in psutil.Process(process.pid).children(recursive=True)
            if child.name().startswith("beam")
        ]
        yield f"amqp://guest:guest@127.0.0.1:{amqp}/", broker.pid


async def bytes_on_loopback() -> float:
    """Returns what has gone over loopback: all that is sent to the broker and by it, the headers of
    its packets too. Other things that talk there count as well, so let it be quiet."""
    return float(psutil.net_io_counters(pernic=True)[LOOPBACK].bytes_sent)


async def open_rabbitmq(
    url: str, size_bytes: int, at_once: int, *, consumes: bool
) -> tuple[Callable[[int], Awaitable[None]], Callable[[], Awaitable[None]]]:
    """Returns what brings one object, or takes and acknowledges one, and what closes the
    connection."""
    import aiormq  # noqa: PLC0415 - of the extra
    from aiormq.abc import DeliveredMessage  # noqa: PLC0415

    connection = await aiormq.connect(url)
    channel = await connection.channel(publisher_confirms=True)
    await channel.queue_declare(QUEUE)
    body = bytes(size_bytes)
    arrived: asyncio.Queue[DeliveredMessage] = asyncio.Queue()

    async def put(_: int) -> None:
        await channel.basic_publish(body, routing_key=QUEUE)

    async def take(_: int) -> None:
        message = await arrived.get()
        if len(message.body) != size_bytes or message.delivery_tag is None:
            raise RunError("expected an object of RabbitMQ, got none")
        await channel.basic_ack(message.delivery_tag)

    if consumes:
        await channel.basic_qos(prefetch_count=at_once)
        await channel.basic_consume(QUEUE, arrived.put)
    return (take if consumes else put), connection.close


def _script() -> Path | None:
    if SCRIPT.exists():
        return SCRIPT
    found = shutil.which("rabbitmq-server")
    return None if found is None else Path(found)


def _environment(directory: Path, names: int, nodes: int) -> dict[str, str]:
    return {
        "HOME": str(directory),
        "RABBITMQ_NODENAME": f"bench{names}@localhost",
        "RABBITMQ_MNESIA_BASE": str(directory / "data"),
        "RABBITMQ_LOG_BASE": str(directory / "logs"),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "RABBITMQ_DIST_PORT": str(nodes),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "ERL_EPMD_PORT": str(names),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _wait_until_up(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    limit_s = time.monotonic() + READY_WITHIN_S
    while process.poll() is None and time.monotonic() < limit_s:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return
        time.sleep(POLL_S)
    raise RunError(f"rabbitmq-server does not start: {last_words(log)}")
