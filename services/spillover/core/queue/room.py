"""The room that one producer has for objects: places, and bytes of memory. An offer that is
admitted has both from then on; whom to admit is the machine's business.
"""

from __future__ import annotations

from typing import NamedTuple


class WaitingOffer(NamedTuple):
    """An offer that waits for a place: how large, and since when. `alarm` ends that."""

    size_bytes: int
    since_s: float
    alarm: int


class Room:
    """`places` are for objects that nobody has been granted, `limit_bytes` for all in memory."""

    def __init__(self, places: int, limit_bytes: float) -> None:
        self._places = places
        self._limit_bytes = limit_bytes
        self._admitted: dict[int, int] = {}
        """Offers that have a place, while their objects are read and stored, and how large those
        may be."""
        self._storing: dict[int, tuple[int, int]] = {}
        """Numbers of objects on their way to the store, their offers, and what they take there."""
        self._held: dict[int, int] = {}
        """The sizes of objects that are in memory, by number."""
        self.held_bytes = 0
        """The bytes of offers and objects together."""

    @property
    def admitted(self) -> int:
        """Returns how many offers have a place."""
        return len(self._admitted)

    def fits(self, buffered: int, size_bytes: int) -> bool:
        """Returns whether there is room for one more beside so many that are buffered. Where
        nothing is held any size will do: it would wait for ever."""
        if buffered + len(self._admitted) >= self._places:
            return False
        return not self.held_bytes or self.held_bytes + size_bytes <= self._limit_bytes

    def admit(self, ref: int, size_bytes: int) -> None:
        self._admitted[ref] = size_bytes
        self.held_bytes += size_bytes

    def leave(self, ref: int) -> bool:
        """An offer gives its place up, unless it has none, or its object is being stored."""
        if ref not in self._admitted or any(ref == one for one, _ in self._storing.values()):
            return False
        self.held_bytes -= self._admitted.pop(ref)
        return True

    def read(self, ref: int, number: int, held_bytes: int) -> None:
        """Its object is here whole, and will be held with so many bytes once it is stored."""
        self._storing[number] = (ref, held_bytes)

    def stored(self, number: int) -> int:
        """The object is a buffered one: its offer."""
        ref, held_bytes = self._storing.pop(number)
        self.held_bytes -= self._admitted.pop(ref)
        self.hold(number, held_bytes)
        return ref

    def not_stored(self, number: int) -> int:
        """It is not taken: its offer."""
        ref, _ = self._storing.pop(number)
        self.held_bytes -= self._admitted.pop(ref)
        return ref

    def hold(self, number: int, held_bytes: int) -> None:
        """An object is in memory from now on."""
        if held_bytes:
            self._held[number] = held_bytes
            self.held_bytes += held_bytes

    def gone(self, number: int) -> None:
        self.held_bytes -= self._held.pop(number, 0)

    def check(self) -> None:
        assert self.held_bytes == sum(self._admitted.values()) + sum(self._held.values()), "bytes"
        assert {ref for ref, _ in self._storing.values()} <= self._admitted.keys(), (
            "stored without a place"
        )
