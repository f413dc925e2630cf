"""Appending records, as steps: they are collected, and leave in batches, one script each.

Batches of a writer are numbered, and Redis keeps the number of its last one for a day: a batch
whose answer was lost is sent again as it was, and is appended once.
"""

from __future__ import annotations

import uuid
from typing import Any

from spillover.live.leases.streams.keys import SOURCE, StreamKeys, check_partition, partition_of
from spillover.live.leases.streams.reading import load_script
from spillover.live.leases.streams.steps import Guard, Run, Steps
from spillover.model.errors import InputError, StoreRefused, StoreUnreachable

REMEMBERED_S = 86_400


class Writing:
    """The state of one writer: what waits to be sent, and the batch on its way."""

    def __init__(
        self,
        keys: StreamKeys,
        partitions: int,
        guard: Guard,
        *,
        batch_records: int,
        batch_bytes: int,
        max_length: int | None,
    ) -> None:
        for name, value in (
            ("partitions", partitions),
            ("batch_records", batch_records),
            ("batch_bytes", batch_bytes),
            ("max_length", 1 if max_length is None else max_length),
        ):
            if value < 1:
                raise InputError(SOURCE, name, f"expected at least 1, got {value}")
        self.appended = 0
        """Records that Redis has."""
        self._keys = keys
        self._partitions = partitions
        self._guard = guard
        self._batch_records = batch_records
        self._batch_bytes = batch_bytes
        self._max_length = max_length or 0
        self._name = uuid.uuid4().hex
        self._number = 0
        self._is_open = False
        self._waiting: list[tuple[int, bytes, bytes | None]] = []
        self._waiting_bytes = 0
        self._on_its_way: tuple[Run, int] | None = None
        self._open_script = load_script("open")
        self._append_script = load_script("append")

    @property
    def unsent(self) -> int:
        """Returns how many records wait, or are not known to have been taken."""
        return len(self._waiting) + (self._on_its_way[1] if self._on_its_way else 0)

    def add(self, value: bytes | str, key: bytes | str | None, partition: int | None) -> bool:
        """Takes a record, and returns whether it is time to flush. The partition is that given,
        else the key's.
        """
        value_bytes = value.encode() if isinstance(value, str) else value
        key_bytes = key.encode() if isinstance(key, str) else key
        if partition is None:
            if key_bytes is None:
                raise InputError(SOURCE, "key", "expected a key or a partition, got neither")
            partition = partition_of(key_bytes, self._partitions)
        else:
            check_partition(partition, self._partitions)
        self._waiting.append((partition, value_bytes, key_bytes))
        self._waiting_bytes += len(value_bytes) + len(key_bytes or b"")
        return len(self._waiting) >= self._batch_records or self._waiting_bytes >= self._batch_bytes

    def flush(self) -> Steps[None]:
        """Send all that waits. Raises StoreUnreachable, StoreRefused: then what is not appended, or
        not known to be, stays, and the next flush sends it again without appending it twice."""
        try:
            if not self._is_open:
                yield from self._open()
            while self._on_its_way or self._waiting:
                run, count = self._on_its_way = self._on_its_way or self._next()
                yield from self._guard.patiently(run)
                self._on_its_way = None
                self.appended += count
        except (StoreRefused, StoreUnreachable) as error:
            raise type(error)(f"{error}; records left in the writer: {self.unsent}") from None

    def _open(self) -> Steps[None]:
        keys = self._keys.facts, self._keys.group
        answer = yield from self._guard.patiently(Run(self._open_script, keys, (self._partitions,)))
        if int(answer) != self._partitions:
            expected = f"expected {int(answer)}, as the group has them, got {self._partitions}"
            raise InputError(SOURCE, "partitions", expected)
        self._is_open = True

    def _next(self) -> tuple[Run, int]:
        batch, self._waiting = self._waiting, []
        self._waiting_bytes = 0
        self._number += 1
        streams: dict[int, int] = {}
        given: list[Any] = [self._number, REMEMBERED_S, self._max_length]
        for partition, value, key in batch:
            given += (streams.setdefault(partition, len(streams) + 1), value)
            given += (0,) if key is None else (1, key)
        keys = (self._keys.writer(self._name), *(self._keys.stream(p) for p in streams))
        return Run(self._append_script, keys, tuple(given)), len(batch)
