"""The HTTP clients by which a node calls other nodes.

Where their urls are `https`, each side proves which cluster it is, and a connection counts only
once it was answered on: a request surely does not leave on one whose other end does not believe
this side.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from spillover.live.engine.moving import Moving
from spillover.live.engine.write_batch import WriteBatch
from spillover.live.http1.client import HttpClient
from spillover.live.http1.connection import Connection
from spillover.live.http1.known_heads import KnownAnswer, KnownHeads
from spillover.live.http1.outgoing import Again
from spillover.live.overflow.identity import HELLO, hello_of
from spillover.live.overflow.protocol import FIRST
from spillover.live.overflow.report_streams import STREAMS_PER_NEIGHBOR_MAX
from spillover.live.overflow.shared_connection import SharedCounts
from spillover.live.overflow.wire import Caller
from spillover.model.certified_names import certified_name
from spillover.model.errors import InputError
from spillover.model.faults import GIVEN_UP_AFTER_S
from spillover.model.topology import Topology

if TYPE_CHECKING:
    from spillover.live.tls.rotation import Credentials

CANCELS_AT_ONCE_MAX = 64
"""The most cancels that await their answers at a time, each on a connection of its own. Others wait
for one of these connections."""

CONNECTIONS_SPARE = 16
"""The number of connections beyond one for each request away: for the stream of reports, and warm
ones."""

CONNECTIONS_TLS_MAX = 512
"""The most connections with TLS to one neighbor; each takes 100 KiB or more at either end. A
request beyond them is decided again."""


class PeerClients:
    """The clients of one node. `credentials` are its certificate and the CAs that it believes; they
    are not used where nothing is encrypted between nodes. Raises InputError if they are missing."""

    def __init__(
        self,
        topology: Topology,
        credentials: Credentials | None,
        writes: WriteBatch | None = None,
        moving: Moving | None = None,
    ) -> None:
        if not topology.is_secure:
            credentials = None  # the node's other doors use them
        elif credentials is None:
            expected = "expected certificates for nodes whose urls are https://"
            raise InputError("topology", "clusters", expected)
        self._federation = topology.name
        self._credentials = credentials
        self._writes = writes
        self._moving = moving
        self._heads: KnownHeads[KnownAnswer] = KnownHeads()
        self.shared = SharedCounts()
        self._clients = weakref.WeakSet[HttpClient]()
        if credentials is not None:
            credentials.on_look.append(self._retire)

    @property
    def is_secure(self) -> bool:
        """Returns whether nodes have to prove which clusters they are."""
        return self._credentials is not None

    @property
    def streams_max(self) -> int:
        """Returns how many streams of reports a neighbor may have. A neighbor that has proved its
        name has one, since nobody else can end it by asking for another."""
        return 1 if self.is_secure else STREAMS_PER_NEIGHBOR_MAX

    def can_call(self, url: str) -> bool:
        """Returns whether this url has the scheme by which all others are called."""
        return url.startswith("https:") == self.is_secure

    def of_link(self, url: str, caller: Caller, away_max: int, *, reads_small: bool) -> HttpClient:
        """Returns a client for a link over which so many requests may be away. With `reads_small`,
        answers are read in small parts."""
        told = self._writes, self._moving, self._heads
        client = self._make(
            url,
            caller,
            connections_max=self.connections_max(away_max),
            user_timeout_s=GIVEN_UP_AFTER_S,
            again=Again.NEVER,  # what surely was not read is decided again, which needs no copy
            make_connection=lambda pool: Connection(pool, *told, reads_small=reads_small),
        )
        self._clients.add(client)
        return client

    def of_question(self, url: str, caller: Caller, body_limit_bytes: int) -> HttpClient:
        return self._make(url, caller, body_limit_bytes=body_limit_bytes)

    def connections_max(self, away_max: int) -> int:
        wanted = away_max + CANCELS_AT_ONCE_MAX + CONNECTIONS_SPARE
        return min(wanted, CONNECTIONS_TLS_MAX) if self.is_secure else wanted

    def _make(self, url: str, caller: Caller, **options: Any) -> HttpClient:
        headers = [(HELLO, hello_of(caller))]
        if self._credentials is not None:
            options |= {
                "tls": self._credentials.client,
                "server_name": certified_name(caller.to or "", self._federation),
                "first": FIRST,
                "on_tls_failure": self._credentials.failed_out,
            }
        return HttpClient(url, headers=headers, **options)

    def _retire(self, credentials: Credentials, *, renewed: bool) -> None:
        """Retire connections, since certificates have ended or were renewed."""
        for client in list(self._clients):
            client.retire(credentials.is_over)
            if renewed:
                client.renew(credentials.client)
