"""Who can reach a door of a service, and what is said at its start where that may be too many."""

from __future__ import annotations

import ipaddress
import logging
import socket

from spillover.live.process.logs import Message

_log = logging.getLogger(__name__)


def is_loopback(door: socket.socket) -> bool:
    """Returns whether nobody on other machines can reach it."""
    return ipaddress.ip_address(door.getsockname()[0].partition("%")[0]).is_loopback


def warn_of_clients(
    what: str, door: socket.socket, url: str, *, is_secure: bool, has_tokens: bool
) -> None:
    """Where others than this machine can reach it: what they can do that they should not. `what`
    is what the service is called."""
    if is_loopback(door):
        return
    if not has_tokens:
        words = f"whoever reaches this {what} may use and operate it: it has no API tokens"
        _log.warning(Message(f"{words} (--tokens)", address=url, tls=is_secure))
    elif not is_secure:
        words = f"API tokens are sent in the clear, unless something before this {what} speaks TLS"
        _log.warning(Message(words, address=url, tls=is_secure))
