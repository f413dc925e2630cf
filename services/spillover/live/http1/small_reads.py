"""Connections to a server whose answers are handed on as they come: read in small parts, so that no
more than one of them is there when whoever gets them has to wait.

A loop reads up to 256 KiB at once. An answer that nobody reads would have as much in memory at each
hop, besides what is unsent.
"""

from __future__ import annotations

import asyncio
from typing import Final

from spillover.live.engine.reads import SharedReads

READ_BYTES: Final = 65_536


def read_in_parts(transport: asyncio.Transport, owner: asyncio.Protocol) -> None:
    """Have a new connection read so. With TLS, what is not read yet would be dropped when the other
    end closes: there all that has come is read at once, and while reading is paused no more than
    one part is taken from the socket, so that its end is not seen before what was sent."""
    if transport.get_extra_info("ssl_object") is None:
        transport.set_protocol(SharedReads(owner, READ_BYTES))
    else:
        transport.set_read_buffer_limits(high=1)  # type: ignore[attr-defined] # of TLS
