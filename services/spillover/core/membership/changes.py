"""What a change of the configuration asks of one cluster, and what no change may touch while nodes
run (decision 0040). Pure: two topologies in, what is different out.

What is FIXED stays at each node as its own file has it, also where a configuration says otherwise:
files of sites may differ in how they reach each other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from spillover.model.dask_target import is_dask_handler
from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Neighbor, Topology

CHANGEABLE: Final = (
    "policy",
    "shadow",
    "max_hops",
    "default_deadline_ms",
    "payload_limit_bytes",
    "result_ttl_s",
    "result_limit",
    "client_connects_per_s",
    "client_connects_burst",
    "client_sessions_max",
)
"""Fields of a topology that may change while nodes run, besides its clusters and links."""

CHANGEABLE_OF_CLUSTERS: Final = ("servers", "queue_limit", "held_limit_bytes")
"""The same of a cluster; `servers` only as a number. Nodes, too, may come and go."""

_ADDRESSES: Final = ("url", "peer_url", "proxy_url")

_PARTS: Final = ("clusters", "links", "version", "is_named")
"""Fields of a topology that are looked at otherwise."""

SOURCE: Final = "configuration"
"""What errors name as where they are."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What one cluster has to do. All empty: nothing."""

    joins: tuple[Neighbor, ...] = ()
    """Clusters that become neighbors."""
    parts: tuple[ClusterId, ...] = ()
    """Neighbors that are none any more."""
    delays: tuple[Neighbor, ...] = ()
    """Neighbors whose link has another delay now."""
    settings: Mapping[str, Any] | None = None
    """Fields of the topology and of the own cluster that have other values now, by name; None if
    there are none. Of those that are CHANGEABLE."""
    removed: bool = False
    """The cluster, or this node of it, is no part of the federation any more: it drains over the
    links that it has."""


def changes_at(
    before: Topology,
    after: Topology,
    cluster: ClusterId,
    linked: Collection[ClusterId],
    node: int = 1,
) -> Changes:
    """Returns what this node of `cluster`, which is in `before`, does to come from there to
    `after`, where its neighbors are those in `linked`: not all that it has been told of need have
    become some. What is fixed is not looked at."""
    if cluster not in after.cluster_ids or node > after.cluster(cluster).node_count:
        return Changes(removed=True)
    old = {neighbor.id: neighbor for neighbor in before.neighbors(cluster)}
    new = {neighbor.id: neighbor for neighbor in after.neighbors(cluster)}
    return Changes(
        joins=tuple(neighbor for name, neighbor in new.items() if name not in linked),
        parts=tuple(name for name in linked if name not in new),
        delays=tuple(
            neighbor
            for name, neighbor in new.items()
            if name in linked and (name not in old or old[name].delay_ms != neighbor.delay_ms)
        ),
        settings=_settings(before, after, cluster) or None,
    )


def _settings(before: Topology, after: Topology, cluster: ClusterId) -> dict[str, Any]:
    found = _others(CHANGEABLE, before, after)
    old, new = _own_values(before.cluster(cluster)), _own_values(after.cluster(cluster))
    return found | {name: value for name, value in new.items() if old.get(name) != value}


def _own_values(cluster: Cluster) -> dict[str, Any]:
    """What a node of the cluster goes by, as far as it is said and may change."""
    told = {name: getattr(cluster, name) for name in _told_of(cluster)}
    if "held_limit_bytes" in told:
        told["held_limit_bytes"] = cluster.held_part_bytes
    return told | {"nodes": cluster.node_count}


def _others(names: Sequence[str], old: object, new: object) -> dict[str, Any]:
    """The fields of these that have another value, and that."""
    return {name: getattr(new, name) for name in names if getattr(old, name) != getattr(new, name)}


def _told_of(cluster: Cluster) -> tuple[str, ...]:
    """What may change of a cluster, as far as it is said: how much it holds need not be."""
    return tuple(name for name in CHANGEABLE_OF_CLUSTERS if getattr(cluster, name) is not None)


def differences(before: Topology, after: Topology) -> list[str]:
    """Returns what is different, in lines for people: + is new, - is gone, ~ has changed. Also what
    is fixed."""
    lines = []
    for field in fields(Topology):
        if field.name not in _PARTS and (field.name != "name" or after.is_named):
            lines += _changed("", field.name, before, after)
    old = {cluster.id: cluster for cluster in before.clusters}
    new = {cluster.id: cluster for cluster in after.clusters}
    lines += [f"- cluster {name}" for name in old if name not in new]
    for name, cluster in new.items():
        if name not in old:
            lines.append(f"+ cluster {name} at {cluster.url or 'no url'}")
            continue
        for field in fields(Cluster):
            if not _shares(old[name], cluster) or field.name not in ("nodes", *_ADDRESSES):
                lines += _changed(f"cluster {name} ", field.name, old[name], cluster)
        if _shares(old[name], cluster):
            lines += _changed_nodes(name, old[name], cluster)
    return lines + _changed_links(before, after)


def _shares(*clusters: Cluster) -> bool:
    """Returns whether a list of nodes has the addresses of one of these."""
    return any(isinstance(one.nodes, tuple) for one in clusters)


def _changed_nodes(name: ClusterId, old: Cluster, new: Cluster) -> list[str]:
    lines = []
    for index in range(max(old.node_count, new.node_count)):
        was, becomes = (one.places[index : index + 1] for one in (old, new))
        node = f"node {index + 1} of cluster {name}"
        if not was or not becomes:
            lines.append(f"- {node}" if was else f"+ {node} at {becomes[0].url}")
            continue
        for address in _ADDRESSES:
            lines += _changed(f"{node} ", address, was[0], becomes[0])
    return lines


def unusual(before: Topology, after: Topology) -> list[str]:
    """Returns what people seldom want of a change, in lines for them: numbers that become ten times
    as large or small, clusters that lose all their links."""
    lines = [told for name in CHANGEABLE if (told := _far("", name, before, after))]
    known = {cluster.id: cluster for cluster in before.clusters}
    was_linked, is_linked = _linked(before), _linked(after)
    for cluster in after.clusters:
        if (old := known.get(cluster.id)) is None:
            continue
        of = f"cluster {cluster.id} "
        lines += [told for name in CHANGEABLE_OF_CLUSTERS if (told := _far(of, name, old, cluster))]
        if cluster.id in was_linked and cluster.id not in is_linked:
            lines.append(f"{of}has no link any more: it hands nothing on and gets nothing")
    links = {frozenset(link.between): link for link in before.links}
    for link in after.links:
        if (was := links.get(frozenset(link.between))) is not None:
            told = _far(f"link {'-'.join(link.between)} ", "delay_ms", was, link)
            lines += [told] if told else []
    return lines


def _linked(topology: Topology) -> set[ClusterId]:
    return {end for link in topology.links for end in link.between}


FAR = 10
"""So many times as large, or as small, is seldom meant."""


def _far(of: str, name: str, old: object, new: object) -> str:
    was, becomes = getattr(old, name), getattr(new, name)
    if not (isinstance(was, int | float) and isinstance(becomes, int | float)):
        return ""
    low, high = sorted((was, becomes))
    if high < FAR * low or low == high or low < 0:
        return ""
    size = "as large" if becomes == high else "as small"
    times = f" ({high / low:.3g} times {size})" if low else ""
    return f"{of}{name}: {was:g} to {becomes:g}{times}"


def _changed_links(before: Topology, after: Topology) -> list[str]:
    old = {tuple(sorted(link.between)): link.delay_ms for link in before.links}
    new = {tuple(sorted(link.between)): link.delay_ms for link in after.links}
    lines = [f"- link {'-'.join(pair)}" for pair in old if pair not in new]
    for pair, delay_ms in new.items():
        name = "-".join(pair)
        if pair not in old:
            lines.append(f"+ link {name}, {delay_ms:g} ms")
        elif old[pair] != delay_ms:
            lines.append(f"~ link {name}: {old[pair]:g} ms to {delay_ms:g} ms")
    return lines


def _changed(of: str, name: str, old: Any, new: Any) -> list[str]:
    before, after = getattr(old, name), getattr(new, name)
    if before == after:
        return []
    plain = _is_plain(before) and _is_plain(after)
    told = f"{_shown(before)} to {_shown(after)}" if plain else "another one"
    return [f"~ {of}{name}: {told}"]


def filled(before: Topology, after: Topology) -> Topology:
    """Returns `after` with what a file need not say again of clusters that there are: their urls,
    and how much they hold."""
    known = {cluster.id: cluster for cluster in before.clusters}
    return replace(
        after,
        clusters=tuple(
            _filled_of(known[cluster.id], cluster) if cluster.id in known else cluster
            for cluster in after.clusters
        ),
    )


def _filled_of(old: Cluster, new: Cluster) -> Cluster:
    names = [*_ADDRESSES, "held_limit_bytes"]
    if isinstance(new.nodes, tuple):
        names = names[-1:]
    elif isinstance(old.nodes, tuple) and new.nodes == 1 and new.url is None:
        new = replace(new, nodes=old.nodes)
    missing = {name: getattr(old, name) for name in names if getattr(new, name) is None}
    return _with(new, missing)


def _with(cluster: Cluster, values: dict[str, Any]) -> Cluster:
    """The same one where nothing differs, which has been checked."""
    other = {name: value for name, value in values.items() if getattr(cluster, name) != value}
    return replace(cluster, **other) if other else cluster


def refuse_fixed(before: Topology, after: Topology, own: ClusterId, node: int = 1) -> None:
    """Raise InputError, with the field, where `after` cannot come of `before` while nodes run, or
    leaves out the cluster whose node is asked, or that node."""
    if before.is_named and after.is_named and before.name != after.name:
        raise InputError(SOURCE, "name", f"expected federation {before.name!r}, got {after.name!r}")
    if own not in after.cluster_ids:
        expected = f"expected cluster {own}, whose node is asked: ask another one to remove it"
        raise InputError(SOURCE, "clusters", expected)
    if node > after.cluster(own).node_count:
        expected = f"expected node {node} of cluster {own}, which is asked: ask another one to"
        place = f"clusters[{after.cluster_ids.index(own)}]"
        raise InputError(SOURCE, f"{place}.nodes", f"{expected} remove it")
    for field in fields(Topology):
        if field.name not in (*CHANGEABLE, *_PARTS, "name"):
            _refuse_other(field.name, getattr(before, field.name), getattr(after, field.name))
    known = {cluster.id: cluster for cluster in before.clusters}
    for index, cluster in enumerate(after.clusters):
        place = f"clusters[{index}]"
        if cluster.id in known:
            _refuse_fixed_of(place, known[cluster.id], cluster)
        elif not cluster.places:
            name = "url" if cluster.nodes == 1 else "nodes"
            raise InputError(SOURCE, f"{place}.{name}", "expected urls, so that others reach it")
    _refuse_other_pools(before, after)


def _refuse_other_pools(before: Topology, after: Topology) -> None:
    """Which types are alike is worked out of all pools, once, by every node."""
    if not (before.type_groups.groups or after.type_groups.groups):
        return
    old, new = set(before.cluster_ids), set(after.cluster_ids)
    if old != new:
        expected = f"expected those that there are ({', '.join(sorted(old))})"
        why = "which they are is fixed while nodes run, since some have a list of servers"
        raise InputError(SOURCE, "clusters", f"{expected}; {why}")


def _refuse_fixed_of(place: str, old: Cluster, new: Cluster) -> None:
    has_nodes = _shares(old, new) or new.nodes != 1
    if has_nodes:
        _refuse_other_nodes(place, old, new)
    for field in fields(Cluster):
        name = field.name
        if has_nodes and name in ("nodes", *_ADDRESSES):
            continue
        is_number = isinstance(old.servers, int) and isinstance(new.servers, int)
        fixed_servers = name == "servers" and (not is_number or is_dask_handler(old.handler))
        if name not in CHANGEABLE_OF_CLUSTERS or fixed_servers:
            _refuse_other(f"{place}.{name}", getattr(old, name), getattr(new, name))


def _refuse_other_nodes(place: str, old: Cluster, new: Cluster) -> None:
    """A node is known by its place in the list."""
    if not new.places:
        expected = f"expected a list of urls, got {new.nodes}: nodes that run have addresses"
        raise InputError(SOURCE, f"{place}.nodes", expected)
    for index, (was, becomes) in enumerate(zip(old.places, new.places, strict=False)):
        for name in _ADDRESSES:
            told, wanted = getattr(was, name), getattr(becomes, name)
            if told != wanted:
                expected = f"expected it as it is: {_shown(told)}; nodes that run come and go at"
                field = f"{place}.nodes[{index}].{name}"
                raise InputError(SOURCE, field, f"{expected} the end of the list")


def _refuse_other(field: str, old: Any, new: Any) -> None:
    if old == new:
        return
    said = f": {_shown(old)}" if _is_plain(old) else ""
    expected = f"expected it as it is{said}; it is fixed while nodes run"
    raise InputError(SOURCE, field, expected)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, int | float | str)


def _shown(value: object) -> str:
    return "not set" if value is None else f"{value}"


def kept(before: Topology, after: Topology) -> Topology:
    """Returns `after` as a node goes by it that has come from `before`: what is fixed is as there.

    Raises InputError where the two do not fit together.
    """
    known = {cluster.id: cluster for cluster in before.clusters}
    clusters = tuple(
        _kept_of(known[cluster.id], cluster) if cluster.id in known else cluster
        for cluster in after.clusters
    )
    changeable = {name: getattr(after, name) for name in CHANGEABLE}
    return replace(
        before, version=after.version, clusters=clusters, links=after.links, **changeable
    )


def _kept_of(old: Cluster, new: Cluster) -> Cluster:
    names = _told_of(new)
    if not (isinstance(old.servers, int) and isinstance(new.servers, int)):
        names = tuple(name for name in names if name != "servers")
    values = {name: getattr(new, name) for name in names}
    if _shares(old, new):
        count = min(len(old.places), new.node_count)
        values |= {"nodes": (*old.places[:count], *new.places[count:])}
        values |= dict.fromkeys(_ADDRESSES)
    return _with(old, values)
