"""Connections whose other end may be gone without a word: how the system notices."""

from __future__ import annotations

import socket
from typing import Final

_IDLE: Final = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))
"""Linux, macOS."""


def keep_alive(opened: socket.socket, within_s: float) -> None:
    """Have a connection break when its other end has been gone for about so long: while something
    sent is not acknowledged (Linux), and while an answer is awaited and nothing is sent, too."""
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if _IDLE is not None:
        opened.setsockopt(socket.IPPROTO_TCP, _IDLE, max(1, int(within_s / 2)))
    for name, value in (
        ("TCP_KEEPINTVL", max(1, int(within_s / 6))),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", int(within_s * 1e3)),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            opened.setsockopt(socket.IPPROTO_TCP, option, value)
