"""Topologies by name: the built-in ones, else YAML files of contract section 2, read and written.

Every fault of a file becomes one InputError that names the file and the field. The fields are those
of `spillover.model.topology`, the forms of their values are in `topology_forms`.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

from spillover.inputs.builtin import BUILTIN_NAMES, builtin_topology
from spillover.inputs.schema import read_values
from spillover.inputs.topology_forms import FORMS, LATER_FIELDS
from spillover.inputs.yaml_file import read_mapping, shown_path
from spillover.inputs.yaml_text import dump_yaml
from spillover.model.errors import InputError
from spillover.model.nearest import nearest
from spillover.model.topology import NOT_RUN_STATUSES, Topology

_LATER_NAMES = ("comte8", "comte11")


def load_topology(name_or_path: str) -> Topology:
    """Returns the built-in topology of that name, else the one in the YAML file at that path.

    A file without `name` is called after itself. Raises InputError, always one line.
    """
    if name_or_path in BUILTIN_NAMES:
        return builtin_topology(name_or_path)
    source = shown_path(name_or_path)
    if name_or_path in _LATER_NAMES:
        raise InputError(source, "", "this built-in topology is not available in this version")
    names = ", ".join(BUILTIN_NAMES)
    missing = f"expected a built-in topology ({names}) or a YAML file, found neither"
    closest = nearest(name_or_path, BUILTIN_NAMES)
    if closest is not None:
        missing += f"; did you mean {closest}?"
    document = read_mapping(name_or_path, missing=missing)
    try:
        named = {"name": Path(name_or_path).stem or "topology", **document}
        topology = read_values(Topology, named, FORMS, LATER_FIELDS)
        return replace(topology, is_named="name" in document)
    except InputError as error:
        raise InputError(source, error.field, error.expected) from error


def dump_topology(topology: Topology) -> str:
    """YAML text that `load_topology` reads back as an equal topology."""
    fields = asdict(topology)
    del fields["is_named"]
    if fields["shadow"] is None:
        del fields["shadow"]
    for cluster in fields["clusters"]:
        for name in [name for name, value in cluster.items() if value is None]:
            del cluster[name]
        cluster["not_run_statuses"] = list(cluster["not_run_statuses"])
        if cluster["not_run_statuses"] == list(NOT_RUN_STATUSES):
            del cluster["not_run_statuses"]  # only along with an http: handler
    for link in fields["links"]:
        link["between"] = list(link["between"])
    fields["clusters"], fields["links"] = list(fields["clusters"]), list(fields["links"])
    return dump_yaml(fields)
