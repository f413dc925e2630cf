"""Ports for the servers of tests. Each test process has a block of its own, so that tests that run
at the same time never get the same, and walks through it, so that a port comes again late. Ports
that the system gives out (port 0) do not belong here.
"""

from __future__ import annotations

import atexit
import socket
from contextlib import suppress

FIRST, END = 20_000, 30_000
"""Below those that systems give to clients."""
BLOCK = 200


class _Block:
    """Ports that no other test process takes, as long as this one lives: the block's first port is
    held as one of UDP, which no server of ours uses."""

    def __init__(self) -> None:
        self._mark = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        atexit.register(self._mark.close)
        free = (first for first in range(FIRST, END, BLOCK) if self._is_ours(first))
        self._first = self._next = next(free, END)
        assert self._first < END, "other test processes have all ports"

    def row(self, count: int) -> int:
        """Return the first of `count` ports in a row that are free now."""
        for _ in range(BLOCK):
            if self._next + count > self._first + BLOCK:
                self._next = self._first
            first = self._next
            self._next += 1
            if all(_is_free(port) for port in range(first, first + count)):
                self._next = first + count
                return first
        raise AssertionError(f"no {count} free ports in a row from {self._first} on")

    def _is_ours(self, first: int) -> bool:
        with suppress(OSError):
            self._mark.bind(("127.0.0.1", first))
            return True
        return False


def _is_free(port: int) -> bool:
    """As servers bind: connections of before that linger there are no obstacle. Else hundreds of
    servers within a minute leave one port free, which all that ask next would get."""
    with socket.socket() as probe, suppress(OSError):
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False


_blocks: list[_Block] = []


def free_row(count: int) -> int:
    """Return the first of so many ports in a row that are free now."""
    if not _blocks:
        _blocks.append(_Block())
    return _blocks[0].row(count)


def free_port() -> int:
    """Return one that is free now."""
    return free_row(1)


def free_ports(count: int) -> list[int]:
    """Return ports that are free now. Whoever asks again before they are taken gets others."""
    return [free_port() for _ in range(count)]
