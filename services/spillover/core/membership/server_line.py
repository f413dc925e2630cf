"""The servers that a client asks next stand in a line, each once. `client_session` decides which
ones, and when."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from spillover.core.membership.session_events import SessionServer


class ServerLine:
    """A server is its url here, since that is what is asked: lists of different times, of nodes and
    of the store, may know one by different ids or by none. Who stands in line keeps the place."""

    def __init__(self) -> None:
        self._line: deque[SessionServer] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[SessionServer]:
        return iter(self._line)

    def __contains__(self, server: SessionServer) -> bool:
        return any(one.is_at(server) for one in self._line)

    @property
    def first(self) -> SessionServer | None:
        return self._line[0] if self._line else None

    def join(self, servers: Iterable[SessionServer]) -> None:
        """Let those stand at the end that are not in the line yet."""
        for server in servers:
            if server not in self:
                self._line.append(server)

    def put_first(self, server: SessionServer) -> None:
        """Let this one be asked next, wherever it stood."""
        self.drop(server)
        self._line.appendleft(server)

    def drop(self, server: SessionServer) -> None:
        """Let nobody stand there who is called by this server's url."""
        self._line = deque(one for one in self._line if not one.is_at(server))

    def take_first(self) -> SessionServer:
        """Returns the first, which stands there no more."""
        return self._line.popleft()

    def clear(self) -> None:
        """Let nobody stand there."""
        self._line.clear()
