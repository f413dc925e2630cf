"""Topologies by name: the built-in ones, else YAML files (docs/configuration.md), read and written.

Every fault of a file becomes one InputError that names the file and the field. The fields are those
of `spillover.model.topology`, the forms of their values are in `topology_forms`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from spillover.inputs.builtin import BUILTIN_NAMES, builtin_topology
from spillover.inputs.schema import read_values
from spillover.inputs.topology_forms import FORMS
from spillover.inputs.value_limits import LIMITS, check_size
from spillover.inputs.yaml_file import mapping_of, read_mapping, shown_path
from spillover.inputs.yaml_text import dump_yaml
from spillover.model.errors import UNREADABLE, InputError
from spillover.model.nearest import nearest
from spillover.model.ranges import CLUSTERS_MAX
from spillover.model.topology import OF_PASSING, Topology

POLICY_OF_OLDER_NODES = "paper"
"""The policy of nodes that report none: they are of a version in which it was the default. Later
ones always report theirs."""

_OF_POOLS = ("classes", "types", "on_block", "discipline", "order")
"""Fields of clusters that need a list of servers beside them."""


def load_topology(name_or_path: str) -> Topology:
    """Returns the built-in topology of that name, else the one in the YAML file at that path.

    A file without `name` is called after itself. Raises InputError, always one line.
    """
    if name_or_path in BUILTIN_NAMES:
        return builtin_topology(name_or_path)
    source = shown_path(name_or_path)
    names = ", ".join(BUILTIN_NAMES)
    missing = f"expected a built-in topology ({names}) or a YAML file, found neither"
    closest = nearest(name_or_path, BUILTIN_NAMES)
    if closest is not None:
        missing += f"; did you mean {closest}?"
    document = read_mapping(name_or_path, missing=missing)
    return topology_of(document, source, Path(name_or_path).stem or "topology")


def topology_of(document: Mapping[Any, Any], source: str, name: str) -> Topology:
    """Returns the topology of the fields of a file, called so if they have no name. Raises
    InputError, naming `source`."""
    clusters = document.get("clusters")
    if isinstance(clusters, list) and len(clusters) > CLUSTERS_MAX:
        expected = f"expected at most {CLUSTERS_MAX} clusters, got {len(clusters)}"
        raise InputError(source, "clusters", expected)
    try:
        topology = read_values(Topology, {"name": name, **document}, FORMS)
        _check_joined(topology)
        return replace(topology, is_named="name" in document)
    except InputError as error:
        raise InputError(source, error.field, error.expected) from error


def read_topology(text: str, source: str, name: str) -> Topology:
    """Returns the topology of a file with this text; the rest is as in `topology_of`."""
    return topology_of(mapping_of(text, source), source, name)


def read_told(text: str, source: str, name: str) -> Topology:
    """Returns the topology that a node sent, or the store of the configuration has. Older versions
    write YAML. The rest is as in `topology_of`."""
    fields_told = _fields_of_json(text, source) if text[:1] == "{" else mapping_of(text, source)
    return topology_of({"policy": POLICY_OF_OLDER_NODES, **fields_told}, source, name)


def read_fields(document: Mapping[str, Any], source: str, name: str) -> Topology:
    """Returns the topology of fields that came as JSON; the rest is as in `topology_of`."""
    _check_size(document, source)
    return topology_of(document, source, name)


def _fields_of_json(text: str, source: str) -> dict[str, Any]:
    if text.count(",") > LIMITS.nodes:
        raise InputError(source, "", f"expected at most {LIMITS.nodes} values, got more")
    try:
        document: dict[str, Any] = msgspec.json.decode(text, type=dict)
    except UNREADABLE as error:
        raise InputError(source, "", f"expected fields in JSON, got: {error}") from None
    _check_size(document, source)
    return document


def _check_size(document: object, source: str) -> None:
    try:
        check_size(document)
    except ValueError as error:
        raise InputError(source, "", str(error)) from None


def short_text(topology: Topology) -> str:
    """Returns the text of a file with no more fields than it needs, for people to change."""
    return dump_yaml(_short_fields(topology))


_UNLIKE_IN_YAML = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that may stand in strings of JSON, but not in YAML, or that it takes for the end of a
line."""


def told_text(topology: Topology) -> str:
    """Returns the same fields as nodes send them to each other: in JSON, which takes little time to
    read, and which older nodes read as YAML. Raises InputError where they are too many to be
    read."""
    told = _short_fields(topology)
    text = msgspec.json.encode(told).decode()
    text = _UNLIKE_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    _check_size(told, "topology")
    if len(text) > LIMITS.characters:
        expected = f"expected at most {LIMITS.characters} characters as nodes tell it"
        raise InputError("topology", "", f"{expected}, got {len(text)}")
    return text


def _short_fields(topology: Topology) -> dict[str, Any]:
    """Returns the fields without defaults, and without a name that is only that of a file. The
    policy always stands there, since nodes of other versions have another default."""
    told: dict[str, Any] = _unusual(topology)
    told["policy"] = topology.policy
    if not topology.is_named:
        told.pop("name", None)
    told.pop("is_named", None)
    return told


def _unusual(value: Any) -> Any:
    """Returns the value as files have it, without the fields that have their defaults."""
    if is_dataclass(value):
        pairs = [(field, getattr(value, field.name)) for field in fields(value)]
        return {field.name: _unusual(told) for field, told in pairs if told != field.default}
    return [_unusual(part) for part in value] if isinstance(value, tuple) else value


def _check_joined(topology: Topology) -> None:
    """Raise InputError for a class that no type may join: it is nearly always one that was
    forgotten, and its servers would idle in silence."""
    for place, cluster in enumerate(topology.clusters):
        if (pool := cluster.pool) is None:
            continue
        joined = {id_ for kind in pool.types for id_ in kind.classes}
        for index, each in enumerate(pool.classes):
            if each.id not in joined:
                field = f"clusters[{place}].classes[{index}]"
                expected = f"expected every class in a type, {each.id!r} is in none"
                raise InputError("topology", field, expected)


def dump_topology(topology: Topology) -> str:
    """Returns YAML text that `load_topology` reads back as an equal topology."""
    told = _in_files(asdict(topology))
    del told["is_named"]
    if not topology.version:
        del told["version"]
    for cluster, cluster_told in zip(topology.clusters, told["clusters"], strict=True):
        if not cluster.passes:
            for name in OF_PASSING:
                cluster_told.pop(name, None)
        if cluster.nodes == 1:  # older versions do not know it
            del cluster_told["nodes"]
        for name in _OF_POOLS:
            if cluster.pool is None or not cluster_told[name]:
                del cluster_told[name]
    return dump_yaml(told)


def _in_files(value: Any) -> Any:
    """Returns the value as files have it: lists, and no fields that are not set."""
    match value:
        case dict():
            return {name: _in_files(part) for name, part in value.items() if part is not None}
        case tuple() | list():
            return [_in_files(part) for part in value]
    return value
