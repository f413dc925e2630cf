"""Writers of a group's streams: `StreamWriter` synchronous, `AsyncStreamWriter` asyncio.

    with StreamWriter(url, "orders", partitions=32) as writer:
        for order in orders:
            writer.append(order.json, key=order.customer)

Records of one key, or of one partition, lie in the order in which a writer appended them. They
leave in batches; `close`, and so leaving the `with` block without an error, sends the rest. What
could not be sent stays in the writer, to be flushed later. A writer belongs to one thread, or to
one task. How it is done is in `writing`.
"""

from __future__ import annotations

from random import Random
from typing import Self, TypedDict, Unpack

from spillover.live.leases.streams.client import AsyncClient, Client
from spillover.live.leases.streams.keys import SOURCE, StreamKeys
from spillover.live.leases.streams.steps import Guard
from spillover.live.leases.streams.writing import Writing
from spillover.live.redis.rotation import RedisUrl
from spillover.model.errors import InputError

TIMEOUT_S = 5.0
RETRY_S = 30.0


class WriterOptions(TypedDict, total=False):
    """What a writer may be told besides where it writes.

    `max_length`: streams are trimmed to about so many records, read or not. A batch leaves once it
    has `batch_records` or `batch_bytes`; Redis being down is borne for `retry_s`.
    """

    batch_records: int
    batch_bytes: int
    max_length: int | None
    timeout_s: float
    retry_s: float
    random: Random


class _Writer:
    """The common part of both writers: the options, and the numbers of sent records."""

    def __init__(self, group: str, partitions: int, options: WriterOptions) -> None:
        """Raises InputError."""
        self._timeout_s = options.get("timeout_s", TIMEOUT_S)
        retry_s = options.get("retry_s", RETRY_S)
        for name, value_s in (("timeout_s", self._timeout_s), ("retry_s", retry_s)):
            if not value_s > 0.0:
                raise InputError(SOURCE, name, f"expected seconds above 0, got {value_s:g}")
        self._writing = Writing(
            StreamKeys.of(group),
            partitions,
            Guard(None, None, retry_s, options.get("random") or Random()),
            batch_records=options.get("batch_records", 1_000),
            batch_bytes=options.get("batch_bytes", 1 << 20),
            max_length=options.get("max_length"),
        )

    @property
    def appended(self) -> int:
        """Returns how many records Redis has taken."""
        return self._writing.appended

    @property
    def unsent(self) -> int:
        """Returns how many records wait here, or are not known to have been taken."""
        return self._writing.unsent


class StreamWriter(_Writer):
    """A writer for code that never awaits."""

    def __init__(
        self, url: RedisUrl, group: str, partitions: int, **options: Unpack[WriterOptions]
    ) -> None:
        """The writer connects nowhere yet. Raises InputError."""
        super().__init__(group, partitions, options)
        self._client = Client(url, self._timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.flush()
        finally:
            self._client.close()

    def append(
        self,
        value: bytes | str,
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
    ) -> None:
        """Append a record to the key's partition, or to that given; waits for Redis whenever a
        batch is full. Raises InputError (also if the group has another number of partitions), and
        as `flush`.
        """
        if self._writing.add(value, key, partition):
            self.flush()

    def flush(self) -> None:
        """Send waiting records. Raises StoreUnreachable, StoreRefused: they stay, and may be
        flushed again; nothing is appended twice."""
        self._client.carry_out(self._writing.flush())

    def close(self) -> None:
        """Send waiting records, and close the connection whatever comes of that. Raises as `flush`:
        records that were not sent stay then, and `flush` may still send them."""
        try:
            if self.unsent:
                self.flush()
        finally:
            self._client.close()


class AsyncStreamWriter(_Writer):
    """A writer for the event loop on which it is first used."""

    def __init__(
        self, url: RedisUrl, group: str, partitions: int, **options: Unpack[WriterOptions]
    ) -> None:
        """The writer connects nowhere yet. Raises InputError."""
        super().__init__(group, partitions, options)
        self._client = AsyncClient(url, self._timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            await self._client.close()

    async def append(
        self,
        value: bytes | str,
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
    ) -> None:
        """Do the same as `StreamWriter.append`."""
        if self._writing.add(value, key, partition):
            await self.flush()

    async def flush(self) -> None:
        """Do the same as `StreamWriter.flush`."""
        await self._client.carry_out(self._writing.flush())

    async def close(self) -> None:
        """Do the same as `StreamWriter.close`."""
        try:
            if self.unsent:
                await self.flush()
        finally:
            await self._client.close()
