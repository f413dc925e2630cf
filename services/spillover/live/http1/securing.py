"""The further duties of a client whose url is `https`: how connections are encrypted, what they
have to prove before they count, and which of them are to end."""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Callable

from spillover.live.http1.connection import Connection, ConnectionOwner
from spillover.live.http1.trusted import TrustedCas
from spillover.live.tls.certified import PeerCertificate, certificate_of
from spillover.live.tls.unbelieved import certificate_shown

HANDSHAKES_AT_ONCE = 8
"""Others wait their turn: the other end has them to do, too."""

LOOK_AGAIN_S = 60.0
"""So long a certificate that is not believed is taken for the one that was shown last."""


class Securing:
    """The encryption of the connections of one client. The other end has to prove to be `name`.
    `first` is a path: a connection counts only once it has been asked for and answered there.
    `tell` hears of each handshake that failed, with one of `failures.REASONS`."""

    def __init__(
        self,
        context: ssl.SSLContext | TrustedCas | None,
        name: str,
        first: str | None,
        tell: Callable[[str], None] | None,
    ) -> None:
        self.context = context or TrustedCas(None)
        self.name = name.removesuffix(".")
        """Without the dot that says that it is whole: certificates and TLS write it so."""
        self.first = first
        self.tell = tell
        self.turns = asyncio.Semaphore(HANDSHAKES_AT_ONCE)
        self.unbelieved = Unbelieved(self.name)
        self.certificates: dict[Connection, PeerCertificate] = {}
        """The certificates that the other end has shown, on connections that are open."""

    def newest(self) -> ssl.SSLContext:
        """Returns what the next handshake goes by."""
        context = self.context
        return context.context() if isinstance(context, TrustedCas) else context

    def opened(self, connection: Connection, transport: asyncio.Transport) -> None:
        """A handshake has succeeded."""
        certificate = certificate_of(transport)
        if certificate is not None and connection.usable:
            self.certificates[connection] = certificate

    def failed(self, reason: str) -> None:
        """One has not."""
        if self.tell is not None:
            self.tell(reason)


class Unbelieved:
    """The words about a certificate that is not believed; it is looked at now and then."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._looked_s = -math.inf
        self._told = ""

    async def look(self, host: str, port: int) -> str:
        """Returns what to add to the reason, if it is known."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._looked_s >= LOOK_AGAIN_S:
            self._looked_s, self._told = now_s, ""
            shown = await certificate_shown(host, port, self._name)
            self._told = "" if shown is None else f"; it shows {shown}"
        return self._told


class Unproven:
    """Owns a connection until it counts: it is not to be used by others meanwhile."""

    def __init__(self, owner: ConnectionOwner) -> None:
        self.dropped, self.lost = owner.dropped, owner.lost
        self.abandoned, self.unanswered = owner.abandoned, owner.unanswered

    def released(self, connection: Connection) -> None:
        """Take a connection back, for `connection.Pool`."""


class Retired:
    """Owns connections that carry what they carry to its end, and nothing more."""

    def __init__(self, owner: ConnectionOwner) -> None:
        self.dropped, self.lost = owner.dropped, owner.lost
        self.abandoned, self.unanswered = owner.abandoned, owner.unanswered

    def released(self, connection: Connection) -> None:
        """Take a connection back, for `connection.Pool`."""
        connection.close()
