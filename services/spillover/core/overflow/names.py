"""The node of a site to which a request belongs by its name: rendezvous hashing (Thaler and
Ravishankar, 1998), so that only the names of a node that comes or goes move."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b


def owner_of(name: str, nodes: Iterable[int]) -> int:
    """Returns the one of these nodes to which the name belongs."""
    return max(nodes, key=lambda node: (_weight(name, node), node))


def _weight(name: str, node: int) -> bytes:
    return blake2b(f"{node}/{name}".encode(), digest_size=8).digest()
