"""Looking names up, each in a thread of its own that nothing waits for: neither other names, nor
the end of the process. What is remembered, and for how long, is in `core.hosts.answers`.

Loops have threads for that, too: four in uvloop, which all names share, and which each one that
hangs takes for as long as the system's resolver is patient, once for each connection; their end is
waited for at the end of the process.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping

from spillover.core.hosts.answers import Address, Answers, Failure

NO_SUCH_NAME = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}


def is_literal(host: str) -> bool:
    """Returns whether it is an address, which nobody has to look up."""
    if ":" in host:
        return True
    try:
        socket.inet_pton(socket.AF_INET, host)
    except (OSError, ValueError):
        return False
    return True


def literal(host: str) -> Address:
    """Returns what `is_literal` says is an address as one."""
    return (socket.AF_INET6 if ":" in host else socket.AF_INET), host, 0, 0


class Hosts:
    """Names and their addresses, for all loops and threads of a process."""

    def __init__(
        self,
        resolve: Callable[..., Iterable[tuple[int, object, object, object, tuple[object, ...]]]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`resolve` is called as `socket.getaddrinfo`, which it is but for tests."""
        self._resolve = resolve
        self.clock = clock
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget everything, such as after a fork, which threads do not follow."""
        self._lock = threading.Lock()
        self._answers = Answers()
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def ask(self, name: str) -> tuple[Address, ...] | float:
        """Returns the addresses to be tried, in order, or until when to wait for them (`join`) and
        ask again. Raises OSError where there are none."""
        with self._lock:
            now_s = self.clock()
            begins = self._answers.begin(name, now_s)
            told = self._answers.ask(name, now_s)
        if begins:
            self._begin(name)
        if isinstance(told, Failure):
            raise socket.gaierror(told.number, told.text) if told.number else OSError(told.text)
        return told

    def join(self, name: str, wake: Callable[[], None]) -> bool:
        """Have `wake` called when the lookup that is under way ends, from another thread; False if
        it has ended."""
        with self._lock:
            if not self._answers.is_under_way(name):
                return False
            self._waiting.setdefault(name, []).append(wake)
            return True

    def leave(self, name: str, wake: Callable[[], None]) -> None:
        """Not wait any more. The lookup goes on."""
        with self._lock:
            waiting = self._waiting.get(name, [])
            if wake in waiting:
                waiting.remove(wake)

    def tried(self, name: str, won: Address | None, lost: Mapping[Address, str]) -> None:
        """See `Answers.tried`."""
        with self._lock:
            self._answers.tried(name, won, lost, self.clock())

    def why_late(self, name: str) -> str:
        """See `Answers.why_late`."""
        with self._lock:
            return self._answers.why_late(name, self.clock())

    def _begin(self, name: str) -> None:
        thread = threading.Thread(target=self._look_up, args=(name,), name="lookup", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no room for it
            self._end(name, Failure("no room for a thread that looks it up"))

    def _look_up(self, name: str) -> None:
        try:
            found = self._resolve(name, None, type=socket.SOCK_STREAM)
            addresses = [_address(one[0], one[4]) for one in found]
        except Exception as error:  # noqa: BLE001 - a name may be one that nobody can encode
            number = error.errno if isinstance(error, OSError) else None
            text = (error.strerror if isinstance(error, OSError) else None) or str(error)
            is_gone = isinstance(error, socket.gaierror) and number in NO_SUCH_NAME
            self._end(name, Failure(text, number, is_gone=is_gone))
        else:
            self._end(name, addresses or Failure("the name leads nowhere"))

    def _end(self, name: str, came_to: list[Address] | Failure) -> None:
        with self._lock:
            if isinstance(came_to, Failure):
                self._answers.failed(name, came_to, self.clock())
            else:
                self._answers.found(name, came_to, self.clock())
            waiting = self._waiting.pop(name, [])
        for wake in waiting:
            wake()


def _address(family: int, place: tuple[object, ...]) -> Address:
    flow, scope = (*place[2:], 0, 0)[:2]
    return family, str(place[0]), int(str(flow)), int(str(scope))


HOSTS = Hosts(socket.getaddrinfo)
"""The lookups of this process."""

os.register_at_fork(after_in_child=HOSTS.begin_anew)
