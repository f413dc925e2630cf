"""The lines of a session, as bytes: announcements, signs of life, and a node's word that it ends.
JSON by msgspec. Fields that are not known here are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from spillover.core.membership.session_events import SERVERS_MAX, Announcement, SessionServer
from spillover.model.addresses import is_plain_url
from spillover.model.errors import UNREADABLE
from spillover.model.ranges import Cluster, MaybeCluster, Share, Whole

SESSION = "/session"

SIGN_OF_LIFE = b"{}\n"
SIGN_OF_LIFE_S = 15.0
SILENCE_S = 40.0
"""Without a line for so long, a session is lost."""

LINE_LIMIT_BYTES = 1024 * 1024

Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=3600.0)]


class MalformedLine(ValueError):
    """These bytes are no line of a session."""


class _ServerBody(msgspec.Struct):
    id: MaybeCluster
    url: str


class _Line(msgspec.Struct):
    cluster: Cluster
    version: Whole
    servers: Annotated[list[_ServerBody], msgspec.Meta(max_length=SERVERS_MAX)]
    epoch: Whole = 0
    by: MaybeCluster | None = None
    by_epoch: Whole = 0
    clients: Whole = 0
    rank: Whole = 0
    surplus: Share = 0.0


class _PartingLine(msgspec.Struct):
    within_s: Seconds
    parting: bool = True


_encode = msgspec.json.Encoder().encode
_decode_line = msgspec.json.Decoder(_Line).decode
_decode_parting = msgspec.json.Decoder(_PartingLine).decode


def encode_head(
    cluster: str, epoch: int, stamp: tuple[int, str, int], servers: Sequence[SessionServer]
) -> bytes:
    """Returns what announcements of one configuration have in common; `encode_announcement` adds
    the rest."""
    version, by, by_epoch = stamp
    told = {
        "cluster": cluster,
        "epoch": epoch,
        "version": version,
        "by": by or None,
        "by_epoch": by_epoch,
        "servers": [{"id": server.id, "url": server.url} for server in servers],
    }
    return _encode(told)[:-1]


def encode_announcement(head: bytes, clients: int, rank: int, surplus: float) -> bytes:
    """Returns a line for one client, its end included."""
    return b'%b,"clients":%d,"rank":%d,"surplus":%.4f}\n' % (head, clients, rank, surplus)


def encode_parting(within_s: float) -> bytes:
    """Returns the line that says that this node takes nothing more, its end included."""
    return _encode(_PartingLine(within_s)) + b"\n"


def decode_line(line: bytes) -> Announcement | float | None:
    """Returns what a line says: an announcement; within which time to go elsewhere; None for a
    sign of life. Raises MalformedLine."""
    if line == SIGN_OF_LIFE[:-1]:
        return None
    try:
        if line.startswith(b'{"within_s"'):
            return _decode_parting(line).within_s
        told = _decode_line(line)
    except UNREADABLE as error:  # bad JSON, bad fields, bad UTF-8; too deep
        raise MalformedLine(str(error)) from error
    for server in told.servers:
        if not is_plain_url(server.url):
            raise MalformedLine(f"expected a url of server {server.id} like http://HOST:PORT")
    return Announcement(
        told.cluster,
        told.version,
        told.by or "",
        told.by_epoch,
        tuple(SessionServer(server.id, server.url) for server in told.servers),
        told.clients,
        told.rank,
        told.surplus,
    )
