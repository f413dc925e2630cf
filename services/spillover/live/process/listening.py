"""The sockets that services listen on. What they serve is not known here."""

from __future__ import annotations

import socket

from spillover.model.errors import InputError

BACKLOG = 2048


def bind_socket(host: str, port: int, option: str = "--bind") -> socket.socket:
    """Returns a listening socket. Raises InputError if the port is in use, or the address not of
    this host."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError, TypeError, ValueError) as error:  # of names that are none, too
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        expected = f"expected an address that can be bound, got {host}:{port} ({reason})"
        raise InputError(option, "", expected) from error
    listening.listen(BACKLOG)
    return listening
