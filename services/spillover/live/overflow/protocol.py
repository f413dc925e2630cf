"""Which versions of the protocol between nodes this node speaks, and where the calls of each lie.

A node speaks two versions: its own, and the one before. So a federation can be upgraded node by
node, and back, while all of them work. Messages are in `wire`; who sends them is in `identity`.

To change the protocol:

* *A field more*, in a message or in the question for reports, needs no new version. Give it a
  default that means what nodes meant before they knew it. Whoever does not know it ignores it, so
  it must not change what the other fields mean. An enumeration is no such field: a value that the
  other side does not know makes its whole message unreadable.
* *A line more* on the stream of reports needs none either, if it goes only to those whose reports
  say that they know it: questions for work go to those that tell `ahead`.
* *A call more* needs none, if only those are asked who say that they know it: the configuration is
  asked of those who tell its stamp (CONFIGURATION), and what passes through is handed (PASS) to
  those who tell that they pass.
* *A kind of frame more*, or longer frames, need another name in UPGRADE: between nodes of two names
  nothing is shared, and requests go by POST, as with who passes no upgrade on.
* *Anything else* (a field that must be there, or goes, or means something else; another value of an
  enumeration; another call) is a new version. Raise VERSION by one. Where messages are written,
  write what the version before expects if the neighbor speaks that (`Calls.version`), and read
  both. In the same change delete what was there for the version before that one.
* *Never* change what nodes of all versions need to refuse each other in words: that a call's path
  is /peer/vN/..., that another version is answered with 400 and the header of TOLD, and the header
  by which a node says who it is (`identity.HELLO`).

`tests/realtime/test_mixed_versions.py` runs the last release beside this tree, and what this tree
would be with other versions. Say in `services/docs/operations.md` what an upgrade asks of
operators.

Since version 2 a connection says once who calls. In version 3 requests that are handed over share
connections: `GET` of SHARED asks for one, and frames follow (`frames`). Where something on the way
passes no such connection on, each has one of its own, as in version 2.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

VERSION = 3

PEER_PREFIX = "/peer/"

CONFIGURATION = f"{PEER_PREFIX}v2/configuration"
"""The path of a node's configuration. Any node of the federation that has seen the stamp of a
node's configuration may ask that node for it."""

FIRST = f"{PEER_PREFIX}v2/hello"
"""The path with which a connection with TLS begins, so that each side knows that the other one
believes it. Any answer will do."""
PASS = f"{PEER_PREFIX}v2/pass"
"""The path to which a request that passes through is handed. Only nodes whose reports say `passes`
get it."""

SHARED = f"{PEER_PREFIX}v3/shared"
"""The path that asks for a shared connection, with `Upgrade: UPGRADE`: the connection is shared
from then on."""
UPGRADE = b"spillover/3.2"
"""The name of the frames that follow. An end with another name, such as spillover/3.1, shares
nothing, and requests go by POST."""

SIBLINGS = f"{PEER_PREFIX}v2/siblings"
"""The path of the stream of what a node tells another node of its own cluster. No other node asks
for it."""

AT_SIBLING = f"{PEER_PREFIX}v2/site"
"""The prefix of the path of a client's request that a node passes on to one of its own cluster."""

STREAM = b"application/spillover-stream"
"""The content type of an answer to a passed request, once it has begun: frames (`passed_wire`)."""

PROBLEM = b"application/problem+json"
"""The content type of all refusals of a node. They also have a `reason`, unlike refusals that are
made on the way to the node."""

WRONG_VERSION = 400
"""The status for calls of a version that is not spoken here. A node that hands a request on takes
it to mean that the request was surely not accepted."""

TOLD = b"spillover-protocol"
"""The header of that answer with the versions that are spoken here, newest first."""

TOLD_MAX = 8
"""The most versions that are read of a node's list."""

_OF_PATH = re.compile(rf"{PEER_PREFIX}v([0-9]{{1,9}})(?:/|\Z)")


class Calls(NamedTuple):
    """One version: its number, and the paths of its calls."""

    version: int
    forward: str
    cancel: str
    reports: str
    federation: str

    @classmethod
    def of(cls, version: int) -> Calls:
        names = ("forward", "cancel", "reports", "federation")
        return cls(version, *(f"{PEER_PREFIX}v{version}/{name}" for name in names))


SPOKEN = (Calls.of(VERSION), Calls.of(VERSION - 1))
"""The calls of the versions that are spoken here, the newest first."""

VERSIONS = tuple(calls.version for calls in SPOKEN)

TELLING = " ".join(map(str, VERSIONS))


def is_of_another_version(path: str) -> bool:
    """Returns whether this is the path of a call of a version that is not spoken here."""
    found = _OF_PATH.match(path)
    return found is not None and int(found[1]) not in VERSIONS


def read_versions(told: str) -> tuple[int, ...]:
    """Returns the versions in a node's list; none where it is no such list."""
    words = told.split(" ", TOLD_MAX)[:TOLD_MAX]
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        return ()
    return tuple(map(int, words))


def difference(there: Sequence[int]) -> str:
    """Returns words for versions at the other end of which none is spoken here."""
    told = " or ".join(map(str, there))
    own = " or ".join(map(str, VERSIONS))
    return f"protocol: version {own} here, {told or 'another'} there"
