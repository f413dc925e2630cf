"""A connection that forwards share, between a socket and one of its ends (`frames`): bytes are
moved, and in one write a turn of the loop all that is due leaves. What they mean is not known here.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from spillover.live.engine.reads import SharedReads, take_over
from spillover.live.overflow.frames.outgoing import Outgoing

WRITE_BYTES: Final = 131_072
"""No more than this of bodies is written at once: what is short need not wait behind more."""

UNSENT_IN_SYSTEM_BYTES: Final = 65_536
"""The system takes in no more than about this beyond what the network carries (Linux, macOS).

Why: what it holds nobody can overtake."""

_NOTSENT_LOWAT: Final = getattr(socket, "TCP_NOTSENT_LOWAT", None)


CALLER, CALLEE = ENDS = ("caller", "callee")
"""The ends of such connections that a node may have."""


class SharedCounts:
    """What is told of the shared connections of a node."""

    def __init__(self) -> None:
        self.open: dict[str, set[SharedConnection]] = {end: set() for end in ENDS}
        self._sent = self._received = 0
        """The frames of connections that have ended."""

    def ended(self, connection: SharedConnection) -> None:
        """A connection is open no more."""
        for connections in self.open.values():
            connections.discard(connection)
        self._sent += connection.out.frames
        self._received += connection.frames_received

    @property
    def frames(self) -> dict[str, int]:
        """Returns how many were ever sent and received."""
        found = [one for connections in self.open.values() for one in connections]
        return {
            "sent": self._sent + sum(one.out.frames for one in found),
            "received": self._received + sum(one.frames_received for one in found),
        }

    @property
    def unsent_bytes(self) -> int:
        """Returns how much has not been given to a connection's transport."""
        return sum(one.out.unsent_bytes for several in self.open.values() for one in several)


class SharedConnection(asyncio.Protocol):
    """Moves the bytes of one connection, of whose end `out` is what leaves."""

    def __init__(self, transport: asyncio.Transport, out: Outgoing) -> None:
        self.transport = transport
        self.out = out
        self.frames_received = 0
        self._is_due = False
        self._loop = asyncio.get_running_loop()

    def take_over(self) -> None:
        """Have it read and written by this from now on."""
        transport, opened = self.transport, self.transport.get_extra_info("socket")
        if _NOTSENT_LOWAT is not None and opened is not None:
            opened.setsockopt(socket.IPPROTO_TCP, _NOTSENT_LOWAT, UNSENT_IN_SYSTEM_BYTES)
        is_encrypted = transport.get_extra_info("ssl_object") is not None
        take_over(transport, SharedReads(self) if is_encrypted else self)

    def write_soon(self) -> None:
        """Write what is due at the end of this turn, or once the other end keeps up."""
        if self.out.is_blocked:
            self.wait_unread()
        elif not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._write)

    def wait_unread(self) -> None:
        """Do nothing: what waits for the other end is bounded by what was asked for."""

    def pause_writing(self) -> None:
        """Leave all where it is: the other end does not keep up."""
        self.out.is_blocked = True

    def resume_writing(self) -> None:
        """Go on."""
        self.out.is_blocked = False
        self.write_soon()

    def _write(self) -> None:
        self._is_due = False
        out, transport = self.out, self.transport
        if out.is_blocked or transport.is_closing():
            return
        parts = out.due(WRITE_BYTES)
        if parts:
            transport.write(b"".join(parts))
        if out.waiting_bytes and out.is_due:
            self.write_soon()
