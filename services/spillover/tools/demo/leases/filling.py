"""Writing the records, in processes of their own, so that neither the display nor a slow pipe makes
them late: first as fast as Redis takes them, then evenly over a time.

Record number i of all goes to stream i modulo the streams and has the value i // streams, so that
each stream holds 0, 1, 2, ... in order.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from spillover.live.leases.streams.writer import StreamWriter
from spillover.live.process.parent_death import end_with_parent
from spillover.model.errors import RunError, SpilloverError

WRITERS_MAX = 4
BLOCK = 1_000
"""Records of one stream in a row, and of a batch."""

TICK_S = 0.05
"""How often the feeding process appends what is due."""

END_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Portion:
    """What one process writes: records `first` to `end` - 1 of all, of these those of its streams,
    every `writers`-th one."""

    url: str
    group: str
    streams: int
    first: int
    end: int
    writer: int = 0
    writers: int = 1
    over_s: float = 0.0
    """Evenly over so long; 0: as fast as Redis takes them."""


def writer_count(streams: int) -> int:
    """One core is for Redis, which is the first to be busy."""
    return max(1, min(WRITERS_MAX, streams, os.cpu_count() or 1))


async def write(
    portions: Sequence[Portion],
    on_progress: Callable[[int], None],
    start: asyncio.Event | None = None,
) -> None:
    """Write them all at the same time; `on_progress` is told how many records Redis has. With
    `start`, the processes are made ready at once and begin when it is set.

    Raises RunError if one fails. Cancelling ends the processes.
    """
    writing = [_Writing(portion, lambda: on_progress(total())) for portion in portions]

    def total() -> int:
        return sum(one.written for one in writing)

    try:
        for one in writing:
            one.start()
        if start is not None:
            await start.wait()
        for one in writing:
            one.begin()
        for one in writing:
            await one.done
    finally:
        for one in writing:
            one.end()


class _Writing:
    """One process that writes, and what it has told."""

    def __init__(self, portion: Portion, on_progress: Callable[[], None]) -> None:
        self.written = 0
        self._portion = portion
        self._on_progress = on_progress
        self._loop = asyncio.get_running_loop()
        self.done: asyncio.Future[None] = self._loop.create_future()
        self._process: BaseProcess | None = None
        self._here: Connection | None = None

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=_run, args=(self._portion, there), daemon=True)
        self._process.start()
        there.close()
        self._loop.add_reader(self._here.fileno(), self._on_readable)

    def begin(self) -> None:
        """What stands before the first record is done: write."""
        if self._here is not None:
            with suppress(OSError):  # it has died, and is told so
                self._here.send(None)

    def end(self) -> None:
        if self._here is not None:
            self._loop.remove_reader(self._here.fileno())
            self._here.close()
        if self._process is not None:
            self._process.terminate()
            self._process.join(END_WITHIN_S)
            if self._process.is_alive():
                self._process.kill()
        self.done.cancel()

    def _on_readable(self) -> None:
        if self._here is None or self.done.done():
            return
        try:
            told = self._here.recv()
        except (EOFError, OSError):
            self.done.set_exception(RunError("a process that writes records died"))
            return
        if isinstance(told, int):
            self.written = told
            self._on_progress()
        elif told is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(RunError(f"records could not be written: {told}"))


def _run(portion: Portion, connection: Connection) -> None:
    """What the process does, until it is done or the demo has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    connection.recv()
    try:
        with StreamWriter(
            portion.url, portion.group, portion.streams, batch_records=BLOCK
        ) as writer:
            if portion.over_s > 0.0:
                _feed(portion, writer, connection)
            else:
                _fill(portion, writer, connection)
        connection.send(writer.appended)
        connection.send(None)
    except SpilloverError as error:
        connection.send(str(error))


def _fill(portion: Portion, writer: StreamWriter, connection: Connection) -> None:
    streams = portion.streams
    mine = range(portion.writer, streams, portion.writers)
    numbers = {
        stream: range(
            _number(portion.first, stream, streams), _number(portion.end, stream, streams)
        )
        for stream in mine
    }
    longest = max(map(len, numbers.values()), default=0)
    for at in range(0, longest, BLOCK):
        for stream, of_stream in numbers.items():
            for number in of_stream[at : at + BLOCK]:
                writer.append(b"%d" % number, partition=stream)
        connection.send(writer.appended)


def _number(record: int, stream: int, streams: int) -> int:
    """The first number of the stream that belongs to a record of at least this index."""
    return len(range(stream, record, streams))


def _feed(portion: Portion, writer: StreamWriter, connection: Connection) -> None:
    began_s = time.monotonic()
    streams, count = portion.streams, portion.end - portion.first
    sent = 0
    while sent < count:
        share = min(1.0, (time.monotonic() - began_s) / portion.over_s)
        due = int(share * count)
        for record in range(portion.first + sent, portion.first + due):
            writer.append(b"%d" % (record // streams), partition=record % streams)
        writer.flush()
        if due > sent:
            connection.send(writer.appended)
        sent = due
        time.sleep(TICK_S)
