"""What a handler wants to change in the same Redis, told first and then done with the checkpoint.

Effects touch hashes, sets and bitmaps named by the user, under the group's own prefix. They are few
on purpose: whether each will succeed can be seen beforehand, so that all happen or none. Only the
holder of a partition changes what only that partition's records change; to read it, and to decide
by it, is therefore safe. Redis is not asked here.
"""

from __future__ import annotations

from collections.abc import Iterator

Text = str | bytes
Effect = tuple[str, str, tuple[bytes, ...]]
"""Command, name of the sink, arguments."""

EXACT = 2**53
BIT_MAX = 2**32 - 1


class Effects:
    """Effects in order. `name`: of what they touch, one kind of thing for each name."""

    def __init__(self) -> None:
        self._list: list[Effect] = []
        self._sums: dict[tuple[str, bytes], tuple[int, int]] = {}
        """(name, field): index of the open increment there and its amount."""

    def __len__(self) -> int:
        return len(self._list)

    def __iter__(self) -> Iterator[Effect]:
        return iter(self._list)

    def increment(self, name: str, field: Text, by: int = 1) -> None:
        """Add to an integer in the hash `name`. It must stay below 2^53, as `by` must."""
        if not -EXACT < by < EXACT:
            raise ValueError(f"expected an increment below 2^53, got {by}")
        at = name, _encoded(field)
        index, before = self._sums.get(at, (len(self._list), 0))
        if not -EXACT < before + by < EXACT:
            index, before = len(self._list), 0
        effect = ("HINCRBY", name, (at[1], b"%d" % (before + by)))
        if index == len(self._list):
            self._list.append(effect)
        else:
            self._list[index] = effect
        self._sums[at] = index, before + by

    def put(self, name: str, field: Text, value: Text) -> None:
        """Set a field of the hash `name`."""
        self._append("HSET", name, field, value)

    def remove(self, name: str, field: Text) -> None:
        """Remove a field of the hash `name`."""
        self._append("HDEL", name, field)

    def add_member(self, name: str, member: Text) -> None:
        """Add to the set `name`."""
        self._append("SADD", name, member)

    def remove_member(self, name: str, member: Text) -> None:
        """Remove from the set `name`."""
        self._append("SREM", name, member)

    def set_bit(self, name: str, offset: int, *, value: bool = True) -> None:
        """Set one bit of the bitmap `name`; Redis takes memory up to the highest offset."""
        if not 0 <= offset <= BIT_MAX:
            raise ValueError(f"expected an offset of 0 to {BIT_MAX}, got {offset}")
        self._append("SETBIT", name, str(offset), "1" if value else "0")

    def extend(self, others: Effects) -> None:
        """Take over what another handler's call wants."""
        for command, name, given in others:
            if command == "HINCRBY":
                self.increment(name, given[0], int(given[1]))
            else:
                self._append(command, name, *given)

    def _append(self, command: str, name: str, *given: Text) -> None:
        encoded = tuple(map(_encoded, given))
        self._list.append((command, name, encoded))
        if command in {"HSET", "HDEL"}:
            self._sums.pop((name, encoded[0]), None)


def _encoded(text: Text) -> bytes:
    return text.encode() if isinstance(text, str) else text
