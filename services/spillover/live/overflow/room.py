"""The bytes that a node holds. Kept answers give way to all else, and free memory goes back to the
system. The machine decides how much may be held (`core.overflow.held`)."""

from __future__ import annotations

from spillover.core.overflow.events import Accepted
from spillover.core.overflow.held import HeldBytes
from spillover.core.overflow.idempotency import IdempotencyTable
from spillover.live.engine.moving import Moving
from spillover.live.process.allocator import FreedMemory


class Room:
    """The room for what comes in, made of answers that are `kept`; `moving` counts what is being
    read or has not been read yet."""

    def __init__(self, held: HeldBytes, moving: Moving, kept: IdempotencyTable) -> None:
        self._held = held
        self.moving = moving
        self.kept = kept
        self._freed = FreedMemory()
        self._made_bytes = 0
        """The number of held bytes for which kept answers have given way already."""

    @property
    def held_bytes(self) -> int:
        """Returns the number of bytes that count for `held_limit_bytes`."""
        return self._held.request_bytes + self.moving.bytes + self.kept.kept_bytes

    def on_accepted(self, _: Accepted) -> None:
        """Make room at once for a request that was accepted, if more is held than at the last
        report."""
        held = self._held
        if held.request_bytes + held.moving_bytes > self._made_bytes:
            self.make()

    def make(self) -> None:
        """Have kept answers give way to what is held now, or let them take what has become free."""
        self._made_bytes = taken_bytes = self._held.total_bytes
        self._freed.note(taken_bytes)
        self.kept.make_room(self._held.limit_bytes - taken_bytes)

    def on_report(self, now_s: float) -> None:
        """Now and then, drop what has been kept for long enough, and give back free memory."""
        self.kept.expire(now_s)
        self.make()
        held_bytes = self.held_bytes
        self._freed.note(held_bytes)
        self._freed.give_back(held_bytes, now_s)
