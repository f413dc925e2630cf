"""The test of whether a request that was written surely has not been read: the kernel knows what
left and what the other end's kernel has acknowledged.

A connection's end comes with an acknowledgement of all that had arrived when it was sent. So where
the end is there and nothing of a request is acknowledged, the other end had closed before any of it
arrived. A reset tells less: it may come after the request was read. Linux tells these numbers;
elsewhere nothing is sure.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final, NamedTuple

_TCP_INFO: Final = getattr(socket, "TCP_INFO", None)
_BYTES: Final = 216
"""The size of `struct tcp_info`, up to the last field that is read; Linux 4.19 has it."""

_ACKED_AT: Final = 120
_SENT_AT: Final = 200


class AcknowledgedBytes(NamedTuple):
    """Bytes of a connection since it was opened."""

    left: int
    """The bytes that have left this machine, retransmissions left out."""
    acknowledged: int


def told_of(transport: asyncio.BaseTransport) -> AcknowledgedBytes | None:
    """Returns what the kernel tells of a connection; None where it does not."""
    opened = transport.get_extra_info("socket")
    if opened is None or _TCP_INFO is None:
        return None
    try:
        info = opened.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _BYTES)
    except OSError:
        return None
    if len(info) < _BYTES:
        return None
    (acknowledged,) = struct.unpack_from("Q", info, _ACKED_AT)
    sent, again = struct.unpack_from("QQ", info, _SENT_AT)
    if acknowledged < 1:  # the opening itself counts as one: who does not count it does not count
        return None
    return AcknowledgedBytes(sent - again, acknowledged - 1)
