"""The sockets of one connection while its host's addresses are tried. Who waits for them, and how,
is in `dialing` and `blocking`.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Sequence

from spillover.core.hosts.answers import Address
from spillover.core.hosts.race import Race, delay_within

UNDER_WAY = {errno.EINPROGRESS, errno.EINTR}


class Attempts:
    """Begins attempts when they are due, and closes all but the first that has come to something.

    Who waits calls `begin`, waits until one of its sockets can be written to (`end`) or until
    `race.due_s`, and so on until `is_over`; then `close`.
    """

    def __init__(self, addresses: Sequence[Address], port: int, limit_s: float) -> None:
        self.race = Race(addresses, delay_within(limit_s, len(addresses)))
        self._port = port
        self.open: dict[socket.socket, Address] = {}
        """The attempts under way."""
        self._won: tuple[socket.socket, Address] | None = None

    @property
    def is_over(self) -> bool:
        """Returns whether `take` has an answer."""
        return self._won is not None or self.race.is_lost

    def begin(self, now_s: float) -> list[socket.socket]:
        begun = []
        while self._won is None and (address := self.race.next(now_s)) is not None:
            opened = None
            try:
                # By its name, or asyncio leaves the delay of Nagle's algorithm.
                opened = socket.socket(address[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
                opened.settimeout(0.0)
                number = opened.connect_ex(_place(address, self._port))
            except OSError as error:
                if opened is not None:
                    opened.close()
                # A new one: this has all that is here in its traceback.
                self.race.fail(address, OSError(in_words(error)))
                continue
            self.open[opened] = address
            if number in UNDER_WAY:
                begun.append(opened)
            else:
                self._settle(opened, number)
        return begun

    def end(self, opened: socket.socket) -> None:
        self._settle(opened, opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def take(self) -> socket.socket:
        """Returns the socket that is connected. Raises OSError if none is."""
        if self._won is not None:
            return self._won[0]
        errors = self.race.failed
        if len(errors) == 1:
            (error,) = errors.values()
            raise OSError(*error.args)
        told: dict[str, list[str]] = {}
        for address, error in errors.items():
            told.setdefault(in_words(error), []).append(address[1])
        # In one order: what is logged once must not count as news each time.
        lines = [f"{why} ({', '.join(sorted(where))})" for why, where in sorted(told.items())]
        raise OSError("; ".join(lines))

    def abandon(self) -> None:
        """Nobody wants the one that has won."""
        if self._won is not None:
            self._won[0].close()

    def close(self, now_s: float) -> tuple[Address | None, dict[Address, str]]:
        """Close those under way; returns the address that has won, and those that have not in
        their time, and why."""
        lost = {address: in_words(error) for address, error in self.race.failed.items()}
        lost |= dict.fromkeys(self.race.lagging(now_s), "no answer")
        for opened in self.open:
            opened.close()
        self.open.clear()
        return None if self._won is None else self._won[1], lost

    def _settle(self, opened: socket.socket, number: int) -> None:
        address = self.open.pop(opened)
        if number:
            opened.close()
            self.race.fail(address, OSError(number, os.strerror(number)))
        elif self._won is None:
            self._won = opened, address
            del self.race.under_way[address]
        else:
            opened.close()


def in_words(error: OSError) -> str:
    """Returns why there is no connection, without what asyncio adds: `Connect call failed` and a
    tuple, for every kind of failure."""
    if error.errno is None:
        return str(error)
    of_names = isinstance(error, socket.gaierror)
    return (error.strerror if of_names else os.strerror(error.errno)) or str(error)


def _place(address: Address, port: int) -> tuple[str, int] | tuple[str, int, int, int]:
    family, host, flow, scope = address
    return (host, port, flow, scope) if family == socket.AF_INET6 and scope else (host, port)
