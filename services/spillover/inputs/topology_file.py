"""Topologies by name: the built-in ones, else YAML files of contract section 2, read and written.

Every fault of a file becomes one InputError that names the file and the field. The fields are those
of `spillover.model.topology`, the forms of their values are in `topology_forms`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from spillover.inputs.builtin import BUILTIN_NAMES, builtin_topology
from spillover.inputs.schema import read_values
from spillover.inputs.topology_forms import FORMS
from spillover.inputs.yaml_file import mapping_of, read_mapping, shown_path
from spillover.inputs.yaml_text import dump_yaml
from spillover.model.errors import InputError
from spillover.model.nearest import nearest
from spillover.model.topology import OF_PASSING, Topology

POLICY_OF_OLDER_NODES = "paper"
"""What nodes mean that leave their policy out of what they tell: they are of a version in which it
was the default. Later ones always tell it."""

_OF_POOLS = ("classes", "types", "on_block", "discipline", "order")
"""Fields of clusters that are only along with a list of servers."""


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
    """Returns the topology of the fields of a file, called so if they do not say. Raises
    InputError, naming `source`."""
    try:
        topology = read_values(Topology, {"name": name, **document}, FORMS)
        _check_joined(topology)
        return replace(topology, is_named="name" in document)
    except InputError as error:
        raise InputError(source, error.field, error.expected) from error


def read_topology(text: str, source: str, name: str) -> Topology:
    """Returns the topology of a file with this text; else as `topology_of`."""
    return topology_of(mapping_of(text, source), source, name)


def read_told(text: str, source: str, name: str) -> Topology:
    """Returns the topology that a node, or the store of the configuration, has told, which may be
    of an older version; else as `topology_of`."""
    document = {"policy": POLICY_OF_OLDER_NODES, **mapping_of(text, source)}
    return topology_of(document, source, name)


def short_text(topology: Topology) -> str:
    """Returns the text of a file that says no more than it has to, for people to change: what is as
    it would be anyway is left out, and a name that is only that of a file. The policy always
    stands there, since nodes of other versions have another default."""
    told = _unusual(topology)
    told["policy"] = topology.policy
    if not topology.is_named:
        told.pop("name", None)
    told.pop("is_named", None)
    return dump_yaml(told)


def _unusual(value: Any) -> Any:
    """The value as files have it, without the fields that have their defaults."""
    if is_dataclass(value):
        pairs = [(field, getattr(value, field.name)) for field in fields(value)]
        return {field.name: _unusual(told) for field, told in pairs if told != field.default}
    return [_unusual(part) for part in value] if isinstance(value, tuple) else value


def _check_joined(topology: Topology) -> None:
    """A class that no type may join is nearly always one that was forgotten, and its servers would
    idle in silence."""
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
    """YAML text that `load_topology` reads back as an equal topology."""
    told = _in_files(asdict(topology))
    del told["is_named"]
    if not topology.version:
        del told["version"]
    for cluster, cluster_told in zip(topology.clusters, told["clusters"], strict=True):
        if not cluster.passes:
            for name in OF_PASSING:
                cluster_told.pop(name, None)
        for name in _OF_POOLS:
            if cluster.pool is None or not cluster_told[name]:
                del cluster_told[name]
    return dump_yaml(told)


def _in_files(value: Any) -> Any:
    """The value as files have it: lists, and no fields that are not set."""
    match value:
        case dict():
            return {name: _in_files(part) for name, part in value.items() if part is not None}
        case tuple() | list():
            return [_in_files(part) for part in value]
    return value
