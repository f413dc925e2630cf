"""Writes that come too late: what a killed or frozen member had on its way, delivered after others
have taken over.

At the instant of a kill or a freeze the very batches are read that the victim would have written
next, under its own epochs. They are kept back until its streams run elsewhere, and then written as
it would have: the sink has to refuse every one. If it took one, records would count twice, and
`checking` would find that too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from spillover.live.leases.renewal.lease import Fenced
from spillover.live.leases.streams.effects import Effects
from spillover.live.leases.streams.example import Counting
from spillover.live.leases.streams.reader import AsyncStreamReader
from spillover.live.leases.streams.records import Batch, RecordsTrimmed
from spillover.model.errors import SpilloverError

BATCH_RECORDS = 100


@dataclass(slots=True)
class LateWrites:
    """What became of them."""

    tried: int = 0
    refused: int = 0
    accepted: int = 0


class Ghost:
    """The writes of one victim, kept back."""

    def __init__(self, url: str, group: str, held: Mapping[int, int]) -> None:
        """`held`: the epochs that it had, by stream."""
        self._url = url
        self._group = group
        self._held = dict(held)
        self._kept: list[tuple[AsyncStreamReader, Batch]] = []

    async def prepare(self, within_s: float) -> None:
        """Read what the victim would have written next; streams without new records have none."""
        await asyncio.gather(*(self._read(p, e, within_s) for p, e in self._held.items()))

    async def deliver(self, counts: LateWrites) -> None:
        """Write it now."""
        for reader, batch in self._kept:
            effects, count = Effects(), Counting(batch.partition)
            for record in batch.records:
                count(record, effects)
            counts.tried += 1
            try:
                await reader.apply(batch, effects)
            except Fenced:
                counts.refused += 1
            else:
                counts.accepted += 1
        await self.close()

    async def close(self) -> None:
        for reader, _ in self._kept:
            await reader.close()
        self._kept.clear()

    async def _read(self, partition: int, epoch: int, within_s: float) -> None:
        reader = AsyncStreamReader(
            self._url,
            self._group,
            partition,
            epoch,
            batch_records=BATCH_RECORDS,
            read_ahead=False,
            retry_s=within_s,
        )
        batch = None
        try:
            batch = await reader.read(within_s)
        except (Fenced, RecordsTrimmed):
            batch = None  # somebody was faster: there is nothing left that could come too late
        except SpilloverError:
            await reader.close()
            raise
        if batch is None:
            await reader.close()
        else:
            self._kept.append((reader, batch))
