"""A connection that forwards share, between a socket and one of its ends (`frames`). It moves
bytes, and all that is due leaves in one write per turn of the loop. It does not know what the bytes
mean."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from spillover.live.engine.reads import SharedReads, take_over
from spillover.live.overflow.frames.outgoing import Outgoing

WRITE_BYTES: Final = 131_072
"""The most bytes of bodies that are written at once, so that short messages need not wait behind
more."""

UNSENT_IN_SYSTEM_BYTES: Final = 65_536
"""The most bytes, roughly, that the system takes in beyond what the network carries (Linux, macOS).

Why: what the system holds cannot be overtaken.
"""

_NOTSENT_LOWAT: Final = getattr(socket, "TCP_NOTSENT_LOWAT", None)


CALLER, CALLEE = ENDS = ("caller", "callee")
"""The ends of such connections that a node may have."""


class SharedCounts:
    """The counts of a node's shared connections."""

    def __init__(self) -> None:
        self.open: dict[str, set[SharedConnection]] = {end: set() for end in ENDS}
        self._sent = self._received = 0
        """The numbers of frames of connections that have ended."""

    def ended(self, connection: SharedConnection) -> None:
        for connections in self.open.values():
            connections.discard(connection)
        self._sent += connection.out.frames
        self._received += connection.frames_received

    @property
    def frames(self) -> dict[str, int]:
        """Returns how many frames were ever sent and received."""
        found = [one for connections in self.open.values() for one in connections]
        return {
            "sent": self._sent + sum(one.out.frames for one in found),
            "received": self._received + sum(one.frames_received for one in found),
        }

    @property
    def unsent_bytes(self) -> int:
        """Returns how many bytes have not been given to a connection's transport."""
        return sum(one.out.unsent_bytes for several in self.open.values() for one in several)


class SharedConnection(asyncio.Protocol):
    """The mover of the bytes of one connection; `out` is what leaves from this end."""

    def __init__(self, transport: asyncio.Transport, out: Outgoing) -> None:
        self.transport = transport
        self.out = out
        self.frames_received = 0
        self._is_due = False
        self._loop = asyncio.get_running_loop()

    def take_over(self) -> None:
        """Read and write the connection by this protocol from now on."""
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
        """Do nothing: the bytes that wait for the other end are bounded by what was asked for."""

    def pause_writing(self) -> None:
        """Stop writing: the other end does not keep up."""
        self.out.is_blocked = True

    def resume_writing(self) -> None:
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
