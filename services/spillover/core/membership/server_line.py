"""The servers that a client asks next stand in a line, each once. `client_session` decides which
ones, and when."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from spillover.core.membership.session_events import SessionServer


class ServerLine(deque[SessionServer]):
    """A server is its url here, since that is what is asked: lists of different times, of nodes and
    of the store, may know one by different ids or by none. Who stands in line keeps the place."""

    @property
    def first(self) -> SessionServer | None:
        return self[0] if self else None

    def join(self, servers: Iterable[SessionServer]) -> None:
        """Let those stand at the end that are not in the line yet."""
        for server in servers:
            if not any(one.is_at(server) for one in self):
                self.append(server)

    def put_first(self, server: SessionServer) -> None:
        """Let this one be asked next, wherever it stood."""
        self.drop(server)
        self.appendleft(server)

    def drop(self, server: SessionServer) -> None:
        """Let nobody stand there who is called by this server's url."""
        others = [one for one in self if not one.is_at(server)]
        self.clear()
        self.extend(others)
