"""Readers of one partition at one epoch: `StreamReader` synchronous, `AsyncStreamReader` asyncio.

    with StreamReader(url, "orders", partition, epoch, stop=stop_event) as reader:
        while not stop_event.is_set():
            batch = reader.read()
            if batch is not None:
                store(batch.records, batch.epoch, batch.position)
                reader.commit(batch)

or, with everything that can go wrong with a handler taken care of, `reader.consume(on_record)`.
A reader belongs to one thread, or to one task. What the calls do is in `reading` and `consuming`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Self, TypedDict, Unpack

from spillover.live.leases.streams.client import AsyncClient, Client
from spillover.live.leases.streams.consuming import Attempts, Consumed, Consuming, OnRecord
from spillover.live.leases.streams.effects import Effects
from spillover.live.leases.streams.keys import SOURCE, StreamKeys
from spillover.live.leases.streams.reading import (
    ASIDE_RECORDS,
    BATCH_BYTES,
    BATCH_RECORDS,
    OnTrimmed,
    ReadLimits,
    SetAside,
    StreamReading,
)
from spillover.live.leases.streams.records import Batch, Checkpoint
from spillover.live.leases.streams.steps import Guard, Holder, Stop
from spillover.live.redis.rotation import RedisUrl
from spillover.model.errors import InputError

WAIT_S = 0.5
TIMEOUT_S = 5.0
RETRY_S = 30.0


class ReaderOptions(TypedDict, total=False):
    """What a reader may be told besides what it reads.

    `stop` ends waits early: a threading.Event (for coroutines better an asyncio.Event), or that of
    a lease. With a `lease` nothing is asked, or tried again, once it is over: Fenced. Redis being
    down is borne as long as the lease lasts, for `retry_s` at most. Of records that were set aside
    the last `aside_records` are kept for each partition.

    `on_trimmed`, for records that the stream lost before they were read: `skip` (the default) goes
    on with what is there, logs, and counts them in the checkpoint; `fail` raises RecordsTrimmed.
    Redis before 7 does not count entries: there `skip` does not notice, `fail` raises InputError.
    """

    stop: Stop | None
    lease: Holder | None
    batch_records: int
    batch_bytes: int
    aside_records: int
    on_trimmed: OnTrimmed
    read_ahead: bool
    timeout_s: float
    retry_s: float
    random: Random


class _Reader:
    """The common part of both readers: the options, and the last known state."""

    def __init__(self, group: str, partition: int, epoch: int, options: ReaderOptions) -> None:
        """Raises InputError."""
        self._timeout_s = options.get("timeout_s", TIMEOUT_S)
        retry_s = options.get("retry_s", RETRY_S)
        for name, value_s in (("timeout_s", self._timeout_s), ("retry_s", retry_s)):
            if not value_s > 0.0:
                raise InputError(SOURCE, name, f"expected seconds above 0, got {value_s:g}")
        self._stop = options.get("stop")
        self._random = options.get("random") or Random()
        self._read_ahead = options.get("read_ahead", True)
        self._reading = StreamReading(
            StreamKeys.of(group),
            partition,
            epoch,
            Guard(options.get("lease"), self._stop, retry_s, self._random),
            ReadLimits(
                options.get("batch_records", BATCH_RECORDS),
                options.get("batch_bytes", BATCH_BYTES),
                options.get("aside_records", ASIDE_RECORDS),
            ),
            options.get("on_trimmed", "skip"),
        )

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Returns the checkpoint that this reader has stored; None before it has claimed."""
        return self._reading.checkpoint

    @property
    def lag(self) -> int | None:
        """Returns how many records lay beyond the checkpoint at the last read."""
        return self._reading.lag

    def _consuming(
        self,
        on_record: OnRecord,
        attempts: Attempts | None,
        on_batch: Callable[[Consumed], object],
    ) -> Consuming:
        given = attempts or Attempts()
        return Consuming(self._reading, on_record, given, self._random, on_batch)


class StreamReader(_Reader):
    """A reader for code that never awaits."""

    def __init__(
        self,
        url: RedisUrl,
        group: str,
        partition: int,
        epoch: int,
        **options: Unpack[ReaderOptions],
    ) -> None:
        """The reader connects nowhere yet. Raises InputError."""
        super().__init__(group, partition, epoch, options)
        self._client = Client(url, self._timeout_s, self._stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def claim(self) -> Checkpoint:
        """Fence holders of earlier epochs, and go to the checkpoint. Raises Fenced."""
        return self._client.carry_out(self._reading.claim())

    def read(self, wait_s: float = WAIT_S) -> Batch | None:
        """Reads the next records; None if there were none for so long. Claims first if need be.
        Being told to stop ends the wait at once on an event loop; on a thread, after `wait_s` at
        most.

        Raises Fenced, CheckpointMoved, RecordsTrimmed, StoreUnreachable, StoreRefused.
        """
        steps = self._reading.read(wait_s, read_ahead=self._read_ahead)
        return self._client.carry_out(steps)

    def commit(self, batch: Batch) -> None:
        """Store that everything up to the end of the batch has been handled, batches read before it
        too. Raises as `apply`."""
        self._client.carry_out(self._reading.commit(batch))

    def apply(self, batch: Batch, effects: Effects, set_aside: Sequence[SetAside] = ()) -> None:
        """Carry out the effects of the batch that begins at the checkpoint (else ValueError), and
        move the checkpoint, at once. Raises Fenced, CheckpointMoved, StoreRefused: nothing was
        done; StoreUnreachable: unknown, and the same call may be made again."""
        self._client.carry_out(self._reading.apply(batch, effects, set_aside))

    def consume(
        self,
        on_record: OnRecord,
        *,
        attempts: Attempts | None = None,
        wait_s: float = WAIT_S,
        to_end: bool = False,
        on_batch: Callable[[Consumed], object] = lambda _: None,
    ) -> Consumed:
        """Call `on_record(record, effects)` for each record until `stop`; see `Consuming.run`."""
        consuming = self._consuming(on_record, attempts, on_batch)
        return self._client.carry_out(consuming.run(wait_s, to_end=to_end))

    def close(self) -> None:
        self._client.close()


class AsyncStreamReader(_Reader):
    """A reader for the event loop on which it is first used."""

    def __init__(
        self,
        url: RedisUrl,
        group: str,
        partition: int,
        epoch: int,
        **options: Unpack[ReaderOptions],
    ) -> None:
        """The reader connects nowhere yet. Raises InputError."""
        super().__init__(group, partition, epoch, options)
        self._client = AsyncClient(url, self._timeout_s, self._stop)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def claim(self) -> Checkpoint:
        """Do the same as `StreamReader.claim`."""
        return await self._client.carry_out(self._reading.claim())

    async def read(self, wait_s: float = WAIT_S) -> Batch | None:
        """Do the same as `StreamReader.read`."""
        steps = self._reading.read(wait_s, read_ahead=self._read_ahead)
        return await self._client.carry_out(steps)

    async def commit(self, batch: Batch) -> None:
        """Do the same as `StreamReader.commit`."""
        await self._client.carry_out(self._reading.commit(batch))

    async def apply(
        self, batch: Batch, effects: Effects, set_aside: Sequence[SetAside] = ()
    ) -> None:
        """Do the same as `StreamReader.apply`."""
        await self._client.carry_out(self._reading.apply(batch, effects, set_aside))

    async def consume(
        self,
        on_record: OnRecord,
        *,
        attempts: Attempts | None = None,
        wait_s: float = WAIT_S,
        to_end: bool = False,
        on_batch: Callable[[Consumed], object] = lambda _: None,
    ) -> Consumed:
        """Do the same as `StreamReader.consume`; `on_record` may be async, `on_batch` may not."""
        consuming = self._consuming(on_record, attempts, on_batch)
        return await self._client.carry_out(consuming.run(wait_s, to_end=to_end))

    async def close(self) -> None:
        await self._client.close()
