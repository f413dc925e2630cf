"""Effects are the changes that a handler wants in the same Redis: named first, and then carried out
with the checkpoint.

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

INCREMENT = "HINCRBY"
FIELD_COMMANDS = frozenset({"HSET", "HDEL"})
EXACT = 2**53
BIT_MAX = 2**32 - 1


class Effects:
    """Effects in order. `name` is that of the hash, set or bitmap, one kind of thing for each
    name."""

    def __init__(self) -> None:
        self._list: list[Effect] = []
        self._amounts: dict[int, int] = {}
        """The sum of the increment at that index of the list."""
        self._open: dict[tuple[str, bytes], int] = {}
        """The index, by (name, field), of the increment that a later one may be added to."""

    def __len__(self) -> int:
        return len(self._list)

    def __iter__(self) -> Iterator[Effect]:
        for index, (command, name, given) in enumerate(self._list):
            if command == INCREMENT:
                yield command, name, (given[0], b"%d" % self._amounts[index])
            else:
                yield command, name, given

    def increment(self, name: str, field: Text, by: int = 1) -> None:
        """Add to an integer in the hash `name`. It must stay below 2^53, as `by` must."""
        if not -EXACT < by < EXACT:
            raise ValueError(f"expected an increment below 2^53, got {by}")
        self._add(name, _encoded(field), by)

    def put(self, name: str, field: Text, value: Text) -> None:
        """Set a field of the hash `name`."""
        self._append("HSET", name, (_encoded(field), _encoded(value)))

    def remove(self, name: str, field: Text) -> None:
        """Remove a field of the hash `name`."""
        self._append("HDEL", name, (_encoded(field),))

    def add_member(self, name: str, member: Text) -> None:
        """Add to the set `name`."""
        self._append("SADD", name, (_encoded(member),))

    def remove_member(self, name: str, member: Text) -> None:
        """Remove from the set `name`."""
        self._append("SREM", name, (_encoded(member),))

    def set_bit(self, name: str, offset: int, *, value: bool = True) -> None:
        """Set one bit of the bitmap `name`; Redis takes memory up to the highest offset."""
        if not 0 <= offset <= BIT_MAX:
            raise ValueError(f"expected an offset of 0 to {BIT_MAX}, got {offset}")
        self._append("SETBIT", name, (b"%d" % offset, b"1" if value else b"0"))

    def extend(self, others: Effects) -> None:
        """Take over the effects of another handler's call."""
        for index, (command, name, given) in enumerate(others._list):
            if command == INCREMENT:
                self._add(name, given[0], others._amounts[index])
            else:
                self._append(command, name, given)

    def _add(self, name: str, field: bytes, by: int) -> None:
        at = name, field
        index = self._open.get(at)
        if index is not None and -EXACT < self._amounts[index] + by < EXACT:
            self._amounts[index] += by
            return
        index = self._open[at] = len(self._list)
        self._amounts[index] = by
        self._list.append((INCREMENT, name, (field,)))

    def _append(self, command: str, name: str, given: tuple[bytes, ...]) -> None:
        self._list.append((command, name, given))
        if command in FIELD_COMMANDS:
            self._open.pop((name, given[0]), None)


def _encoded(text: Text) -> bytes:
    return text.encode() if isinstance(text, str) else text
