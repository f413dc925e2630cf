"""The error that Redis answers shows the kind of server that answers. Renewals use this without the
library."""

from __future__ import annotations

_OF_A_CLUSTER = {
    "MovedError": "MOVED",
    "AskError": "ASK",
    "ClusterCrossSlotError": "CROSSSLOT",
    "ClusterDownError": "CLUSTERDOWN",
    "TryAgainError": "TRYAGAIN",
}
"""Codes of answers of a Redis Cluster alone, by what the library makes of them."""


def of_no_single_server(said: str, kind: str = "") -> str | None:
    """Returns what to tell of an error which says that a cluster answers, or a server that runs no
    scripts; None of any other. `kind` is the library's name of it. What was sent is not told: some
    servers say it back, with a password."""
    first = said.partition(" ")[0]
    code = first if first in _OF_A_CLUSTER.values() else _OF_A_CLUSTER.get(kind)
    if code is not None:
        return f"is part of a Redis Cluster ({code}), which is not supported: give a single primary"
    if said.removeprefix("ERR ").lower().startswith("unknown command"):
        return "does not know a command of Redis: expected the primary, no Sentinel and no proxy"
    return None
