"""The name of a cluster in certificates."""

from __future__ import annotations

import re
from collections.abc import Iterable

from spillover.model.errors import InputError
from spillover.model.ids import ClusterId

NAME_LENGTH_MAX = 253
"""The length of a DNS name."""

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_ONE = re.compile(_LABEL)
_SOME = re.compile(rf"{_LABEL}(\.{_LABEL})*")


def certified_name(cluster: ClusterId | str, federation: str) -> str:
    """Returns the DNS name that a cluster's certificate is for. Names in DNS know no upper case."""
    return same_name(f"{cluster}.{federation}.spillover")


def same_name(name: str) -> str:
    """Returns what all spellings of a DNS name have in common: it knows no upper case, and a dot
    at its end says only that it is whole."""
    return name.lower().removesuffix(".")


def problem_with_federation(federation: str) -> str | None:
    """Returns what is wrong with this name of a federation in certificates; None if nothing is. It
    is one label, so that no name can be read as that of two clusters."""
    if _ONE.fullmatch(federation):
        return None
    expected = "expected a name of A-Z a-z 0-9 _ -, at most 63 long, since certificates have it"
    return f"{expected}, got {federation!r}"


def problem_with_cluster(cluster: str, federation: str) -> str | None:
    """Returns what is wrong with this cluster's id in certificates; None if nothing is."""
    if not _SOME.fullmatch(cluster):
        return f"expected an id that can be a DNS name, since certificates have it, got {cluster!r}"
    if len(certified_name(cluster, federation)) > NAME_LENGTH_MAX:
        return f"expected an id and a name of at most {NAME_LENGTH_MAX - 11} together"
    return None


def is_host(name: str) -> bool:
    """Returns whether this may be the name of a host in a certificate."""
    return len(name) <= NAME_LENGTH_MAX and _SOME.fullmatch(name) is not None


def check_names(federation: str, clusters: Iterable[str]) -> None:
    """Raise InputError, naming the field of a topology, unless each cluster has a name of its own
    in certificates."""
    problem = problem_with_federation(federation)
    if problem is not None:
        raise InputError("topology", "name", problem)
    seen: dict[str, str] = {}
    for index, cluster in enumerate(clusters):
        problem = problem_with_cluster(cluster, federation)
        other = seen.setdefault(cluster.lower(), cluster)
        if problem is None and other != cluster:
            expected = "expected ids that differ in more than case, since DNS names do"
            problem = f"{expected}, got {other!r} and {cluster!r}"
        if problem is not None:
            raise InputError("topology", f"clusters[{index}].id", problem)
