"""Writing the records, in processes of their own, so that neither the display nor a slow pipe makes
them late: first as fast as Redis takes them, then evenly over a time.

Record number i of all goes to stream i modulo the streams and has the value i // streams, so that
each stream holds 0, 1, 2, ... in order.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection

from spillover.live.leases.streams.writer import StreamWriter
from spillover.model.errors import RunError, SpilloverError
from spillover.tools.processes.child import Child

WRITERS_MAX = 4
BLOCK = 1_000
"""Records of one stream in a row, and of a batch."""

TICK_S = 0.05
"""How often the feeding process appends what is due."""


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
    """Returns how many write: one core is for Redis, which is the first to be busy."""
    return max(1, min(WRITERS_MAX, streams, os.cpu_count() or 1))


async def write(
    portions: Sequence[Portion],
    on_progress: Callable[[int], None],
    start: asyncio.Event | None = None,
) -> None:
    """Writes them all at the same time; `on_progress` is told how many records Redis has. With
    `start`, the processes are made ready at once and begin when it is set.

    Raises RunError if one fails. Cancelling ends the processes.
    """
    written = [0] * len(portions)

    async def listen(number: int, child: Child) -> None:
        while (told := await child.receive()) is not None:
            written[number] = told
            on_progress(sum(written))

    async with AsyncExitStack() as stack:
        name = "a process that writes records"
        children = [stack.enter_context(Child(name, _run, portion)) for portion in portions]
        if start is not None:
            await start.wait()
        for child in children:
            child.send(None)
        listening = [asyncio.create_task(listen(*one)) for one in enumerate(children)]
        stack.push_async_callback(_cancel, listening)
        await asyncio.gather(*listening)


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _run(portion: Portion, connection: Connection) -> None:
    """What the process does, until it is done or the demo has ended."""
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
        connection.send(RunError(f"records could not be written: {error}"))


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
