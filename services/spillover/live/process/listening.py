"""The sockets that services listen on. What they serve is not known here."""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress

from spillover.model.errors import InputError

BACKLOG = 2048

_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)

_SO_ATTACH_FILTER = 26
_NO_NEW_ONES = b"".join(
    struct.pack("HBBI", *instruction)
    for instruction in (
        (0x30, 0, 0, 13),  # load the flags of the TCP segment
        (0x45, 0, 1, 0x02),  # is it a SYN?
        (0x06, 0, 0, 0),  # drop it
        (0x06, 0, 0, 0xFFFFFFFF),  # take it
    )
)
"""A program of classic BPF that decides what a listening socket takes."""


def bind_socket(
    host: str, port: int, option: str = "--bind", *, is_shared: bool = False
) -> socket.socket:
    """Returns a listening socket. `::` is all addresses, those of IPv4 too, and those alone where
    there is no IPv6. Raises InputError if the port is in use, or the address not of this host. One
    that `is_shared` does not listen yet; others that are may have the same address, and the system
    spreads connections evenly over those that listen."""
    failed: Exception | None = None
    for family, at in _ways(host):
        try:
            listening = _bound(family, at, port, is_shared=is_shared)
        except OSError as error:
            failed = failed or error
            if not isinstance(error, socket.gaierror) and error.errno not in _NO_IPV6:
                break
        except (OverflowError, TypeError, ValueError) as error:  # of names that are none, too
            failed = failed or error
            break
        else:
            if not is_shared:
                listening.listen(BACKLOG)
            return listening
    reason = getattr(failed, "strerror", None) or str(failed)
    expected = f"expected an address that can be bound, got {host}:{port} ({reason})"
    raise InputError(option, "", expected) from failed


def _ways(host: str) -> list[tuple[socket.AddressFamily, str]]:
    """Returns the addresses to try in turn. A name may have addresses of IPv6 alone."""
    if host == "::":
        return [(socket.AF_INET6, host), (socket.AF_INET, "0.0.0.0")]  # noqa: S104 - as asked for
    if ":" in host:
        return [(socket.AF_INET6, host)]
    return [(socket.AF_INET, host), (socket.AF_INET6, host)]


def _bound(family: socket.AddressFamily, host: str, port: int, *, is_shared: bool) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if host == "::":
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.bind((host, port))
    except BaseException:
        made.close()
        raise
    return made


def let_nobody_begin(sockets: Iterable[socket.socket]) -> None:
    """Have sockets that will soon be closed leave unanswered who wants to connect. Else whoever has
    connected and was not accepted when they are closed is reset, perhaps with a request sent
    already; so those who come too late try again after a second, and are refused before they have
    sent anything. Does nothing where this is not Linux."""
    if sys.platform != "linux":
        return
    program = ctypes.create_string_buffer(_NO_NEW_ONES)
    told = struct.pack("HP", len(_NO_NEW_ONES) // 8, ctypes.addressof(program))
    for listening in sockets:
        with suppress(OSError):  # not allowed here
            listening.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, told)
