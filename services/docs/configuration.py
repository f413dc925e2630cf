"""The page `configuration.md`: every field of every file, and every option that configures a node,
a testbed of nodes, or a lease member.

What is said about a field comes from where it is declared; only the words around it stand here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, replace
from functools import partial
from typing import Any, Final

from docs.accepted import FileProbe, in_short, refusal
from docs.declared import Entry, Undocumented, docstrings, entry_of, paragraphs, shown
from docs.options import options_of
from spillover.inputs.builtin import BUILTIN_NAMES, RINGS
from spillover.inputs.builtin_pools import BUILTIN_POOLS
from spillover.inputs.fault_file import NUMBERS_BY_ACTION, places_of
from spillover.inputs.pool_file import pool_of
from spillover.inputs.schema import file_fields
from spillover.inputs.topology_file import topology_of
from spillover.inputs.value_limits import LIMITS
from spillover.model.engine_load import EngineSource
from spillover.model.faults import (
    CLUSTER_ACTIONS,
    FAULT_ACTIONS,
    LINK_ACTIONS,
    TOKEN_ACTIONS,
    ClusterFault,
    LinkFault,
    TokensFault,
)
from spillover.model.lease_times import LeaseTimes
from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType
from spillover.model.ranges import CLUSTERS_MAX
from spillover.model.routes import Route
from spillover.model.server_bounds import ServerBounds
from spillover.model.topology import Cluster, Link, Topology
from spillover.model.unlike_servers import JobType, Server, ServerClass

HEAD = """\
# Configuration

This page is generated from the code: do not edit it, run `make reference`.

Fields and options carry their unit last in their names: `_ms`, `_s`, `_bytes`. A wrong value ends a
command with status 2 and one line that names the file, the field and what was expected. Unknown
fields are refused as well, with the closest known name.
"""

TOPOLOGY = f"""\
## Topology file

A YAML file that describes a federation. All nodes of a federation read the same file. These names
work instead of a file: {", ".join(f"`{name}`" for name in BUILTIN_NAMES)}.

- {", ".join(f"`{name}`" for name in RINGS)} are the federations of the paper, of 5, 10 or 20
  clusters, with its `policy: paper`: in a `ring` each is linked to the next one, in a `chord` to
  the next two.
- {", ".join(f"`{name}`" for name in BUILTIN_POOLS)} are the [pools](#pool-file) of that name, as
  one cluster each. A request takes 1 s on a server of rate 1; one that finds no token is refused.

Ids are read as they are written: `no`, `010` and `1e3` are ids like others, with or without
quotes. A number that YAML 1.1 and YAML 1.2 read differently is refused: `010` is 8 or 10, `1:30`
is 90 or text.

A file has at most {LIMITS.characters:,} characters and {CLUSTERS_MAX:,} clusters;
{LIMITS.nodes:,} names and values, those that aliases (`*x`) stand for included;
{LIMITS.entries:,} entries in a list, {LIMITS.fields:,} fields in a mapping, and
{LIMITS.depth} of both within each other. Merge keys (`<<`) and tags of other types are refused.

```yaml
name: two-sites
clusters:
  - {{id: paris, servers: 4, handler: "http:http://127.0.0.1:9000/count", url: "http://paris.example:8101"}}
  - {{id: tokyo, servers: 4, handler: "http:http://127.0.0.1:9000/count", url: "http://tokyo.example:8101"}}
links:
  - {{between: [paris, tokyo]}}
```

Where servers differ, `servers` is a list. Here a large GPU holds a language model, a small one does
not, and both make thumbnails. A request with `"type": "llm"` runs in Paris only.

```yaml
name: gpus
clusters:
  - id: paris
    servers:
      - {{id: large, rate: 4, handler: "http:http://large:9000/run"}}
      - {{id: small, handler: "http:http://small:9000/run"}}
    classes:
      - {{id: on-large, servers: [large], tokens: 6}}
      - {{id: on-small, servers: [small], tokens: 2}}
    types:
      - {{id: llm, classes: [on-large]}}
      - {{id: thumbnail, classes: [on-large, on-small]}}
  - id: tokyo
    servers: [{{id: small, handler: "http:http://small.tokyo:9000/run"}}]
    types: [{{id: thumbnail, classes: [small]}}]
links:
  - {{between: [paris, tokyo]}}
```
"""

HANDLERS = """\
Handlers:

- `sleep` waits for `service_ms`, and `spin` computes for so long. They stand in for real work.
- `http:URL[,URL...]` posts the payload as JSON to a service, to the least busy one of several.
- `proxy:URL[,URL...]` passes requests of any method and path, and the answers as they come. Such a
  cluster has a second address for its clients, `proxy_url`.
- `python:MODULE:FUNCTION` calls a function with the payload. The working directory is importable.
- `dask:ADDRESS:MODULE:FUNCTION` runs a function on a Dask cluster (extra `dask`).
"""

FAULTS = """\
## Fault file

What goes wrong in a simulation: `spillover sim overflow --faults FILE`. `--faults random:SEED`
draws faults instead, and heals all of them. The file has one field, `faults`: a list of mappings.

```yaml
faults:
  - {at_s: 12.3, action: crash, cluster: c}
  - {at_s: 20, action: link, between: [a, b], delay_ms: 80, loss: 0.05}
  - {at_s: 25, action: restart, cluster: c}
```
"""

POOL = f"""\
## Pool file

A pool of unlike servers for `spillover sim tokens` and `spillover exact tokens`. These names work
instead of a file: {", ".join(f"`{name}`" for name in BUILTIN_POOLS)}.

```yaml
servers: [{{id: s1, rate: 1.0}}, {{id: s2, rate: 4.0}}]
classes: [{{id: c1, servers: [s1, s2], tokens: 6}}]
types: [{{id: t1, rate: 3.0, classes: [c1]}}]
```
"""

LEASES = """\
All members of a group take the same `--partitions`, `--rule`, `--balance` and times.
`--max-lease-ms` must be at least three times `--normal-lease-ms`, and `--max-shutdown-ms` less than
`--max-lease-ms`. `--min-grab-ms` must be less than `--normal-lease-ms`, and `--held-delay-ms` less
than `--min-grab-ms`.
"""

TWO_CLUSTERS: Final[dict[str, Any]] = {
    "name": "probe",
    "clusters": [{"id": "a", "servers": 1}, {"id": "b", "servers": 1}],
    "links": [{"between": ["a", "b"]}],
}
IN_PROCESSES: Final[dict[str, Any]] = {
    **TWO_CLUSTERS,
    "clusters": [
        {"id": "a", "servers": 1, "workers": "process", "handler": "python:module:function"},
        {"id": "b", "servers": 1},
    ],
}
BEHIND_HTTP: Final[dict[str, Any]] = {
    **TWO_CLUSTERS,
    "clusters": [
        {"id": "a", "servers": 1, "handler": "http:http://127.0.0.1:9000"},
        {"id": "b", "servers": 1},
    ],
}
PASSING: Final[dict[str, Any]] = {
    **TWO_CLUSTERS,
    "clusters": [
        {
            "id": "a",
            "servers": 1,
            "handler": "proxy:http://127.0.0.1:9000",
            "routes": [{"path": "/health"}],
        },
        {"id": "b", "servers": 1},
    ],
}
LEARNED_SERVERS: Final[dict[str, Any]] = {
    **BEHIND_HTTP,
    "clusters": [
        {
            **BEHIND_HTTP["clusters"][0],
            "servers": {"min": 1, "max": 64},
            "servers_from": {"metrics": "http://127.0.0.1:9000/metrics"},
        }
    ],
    "links": [],
}

UNLIKE_SERVERS: Final[dict[str, Any]] = {
    **TWO_CLUSTERS,
    "clusters": [
        {
            "id": "a",
            "servers": [{"id": "s1"}],
            "classes": [{"id": "c1", "servers": ["s1"], "tokens": 1}],
            "types": [{"id": "t1", "classes": ["c1"]}],
        },
        {"id": "b", "servers": 1},
    ],
}
ONE_SERVER: Final[dict[str, Any]] = {
    "servers": [{"id": "s1", "rate": 1.0}],
    "classes": [{"id": "c1", "servers": ["s1"], "tokens": 1}],
    "types": [{"id": "t1", "rate": 1.0, "classes": ["c1"]}],
}

IN_TOPOLOGY = "in the docstring below the field in model/topology.py or unlike_servers.py"

OPTION = "in the option's help (cli/), or for the reason in services/docs/option_reasons.py"

COMMANDS_SHOWN = ("node", "up", "lease run", "queue")

FILE_NAME = "the name of the file"

NUMBERS_TRIED = (-1.0, 0.0, 0.001, 1e12)
NO_NUMBERS = ("action", "cluster", "server", "classes", "servers", "directions")
"""Of a fault."""


def configuration_page() -> str:
    """Returns the whole page. Raises Undocumented, with a line for each thing that is not
    explained.
    """
    sections: list[tuple[str, list[Entry], str]] = [
        (TOPOLOGY, _topology_fields(), IN_TOPOLOGY),
        (FAULTS + "\n" + _actions(), _fault_fields(), "in the docstring in model/faults.py"),
        (POOL, _pool_fields(), "in the docstring below the field in model/pool.py"),
        *((_heading(one), options_of(one, _lease_times()), OPTION) for one in COMMANDS_SHOWN),
    ]
    gaps = [gap for _, entries, where in sections for one in entries for gap in one.gaps(where)]
    if gaps:
        raise Undocumented("\n".join(gaps))
    parts = [HEAD, _contents(head for head, _, _ in sections)]
    for head, entries, _ in sections:
        parts += [head, *(entry.text() for entry in entries)]
    return "\n".join(parts)


def _topology_fields() -> list[Entry]:
    documents = TWO_CLUSTERS, IN_PROCESSES, BEHIND_HTTP, UNLIKE_SERVERS, PASSING
    read = partial(topology_of, source="probe", name="probe")
    probe = FileProbe(read, documents)
    found = _file_fields(probe, Topology, (), "")
    # Fields that have fields come last.
    found.sort(key=lambda entry: entry.name in ("clusters", "links"))
    found += _file_fields(probe, Cluster, ("clusters", 0), "clusters[].")
    unlike = FileProbe(read, (UNLIKE_SERVERS,))
    for part, owner in (
        ("servers", Server),
        ("classes", ServerClass),
        ("types", JobType),
    ):
        place = ("clusters", 0, part, 0)
        found += _file_fields(unlike, owner, place, f"clusters[].{part}[].")
    learned = FileProbe(read, (LEARNED_SERVERS,))
    bounds = ("clusters", 0, "servers")
    found += _file_fields(learned, ServerBounds, bounds, "clusters[].servers.")
    engines = ("clusters", 0, "servers_from")
    found += _file_fields(learned, EngineSource, engines, "clusters[].servers_from.")
    passing = FileProbe(read, (PASSING,))
    found += _file_fields(passing, Route, ("clusters", 0, "routes", 0), "clusters[].routes[].")
    found += _file_fields(probe, Link, ("links", 0), "links[].")
    return [
        replace(one, says=f"{one.says}\n\n{HANDLERS.strip()}")
        if one.name == "clusters[].handler"
        else one
        for one in found
    ]


def _pool_fields() -> list[Entry]:
    probe = FileProbe(partial(pool_of, source="probe", name="probe"), (ONE_SERVER,))
    found = _file_fields(probe, Pool, (), "")
    found += _file_fields(probe, PoolServer, ("servers", 0), "servers[].")
    found += _file_fields(probe, PoolClass, ("classes", 0), "classes[].")
    found += _file_fields(probe, PoolType, ("types", 0), "types[].")
    return found


def _file_fields(
    probe: FileProbe, owner: type, place: tuple[str | int, ...], prefix: str
) -> list[Entry]:
    """The fields that a file may have, by the class of the values that they become."""
    told = docstrings(owner)
    found = []
    for field in file_fields(owner):
        name = field.name
        default = None if field.default is MISSING else shown(field.default)
        if (prefix, name) == ("", "name"):
            default = FILE_NAME
        entry = entry_of(name, told.get(name, ""), default, probe.accepts((*place, name)))
        found.append(replace(entry, name=f"{prefix}{name}"))
    return found


def _fault_fields() -> list[Entry]:
    found: dict[str, Entry] = {}
    for owner, action, more in (
        (ClusterFault, CLUSTER_ACTIONS[0], {"cluster": "a"}),
        (TokensFault, TOKEN_ACTIONS[0], {"cluster": "a"}),
        (LinkFault, LINK_ACTIONS[0], {"directions": (("a", "b"),)}),
    ):
        told = docstrings(owner)
        given: dict[str, Any] = {"at_s": 0.0, "action": action, **more}
        for field in fields(owner):
            if field.name in found:
                continue
            is_number = field.name not in NO_NUMBERS
            accepts = _numbers_of(owner, given, field.name) if is_number else ()
            default = None if field.default is MISSING else shown(field.default)
            entry = entry_of(field.name, told.get(field.name, ""), default, accepts)
            found[field.name] = replace(entry, name=_in_files(field.name))
    return list(found.values())


def _in_files(name: str) -> str:
    return "between" if name == "directions" else name


def _actions() -> str:
    """What each action takes besides its time, and what it does, in the words of the code."""
    lines = ["| action | takes |", "|---|---|"]
    for action in FAULT_ACTIONS:
        places = (f"`{name}`" for name in places_of(action))
        where = "`between`, or `from` and `to`" if action in LINK_ACTIONS else ", ".join(places)
        numbers = "".join(f", `{name}`" for name in NUMBERS_BY_ACTION.get(action, ()))
        lines.append(f"| `{action}` | {where}{numbers} |")
    said = [paragraphs(owner.__doc__ or "") for owner in (ClusterFault, TokensFault, LinkFault)]
    return "\n".join(["\n\n".join(said), "", *lines]) + "\n"


def _lease_times() -> dict[str, Entry]:
    told = docstrings(LeaseTimes)
    found = {}
    for field in fields(LeaseTimes):
        accepts = _numbers_of(LeaseTimes, {}, field.name, NUMBERS_TRIED[1:3])
        found[field.name] = entry_of(field.name, told.get(field.name, ""), None, accepts)
    return found


def _numbers_of(
    owner: type, given: Mapping[str, Any], name: str, tried: Iterable[float] = NUMBERS_TRIED
) -> tuple[str, ...]:
    """What a number of these values must be, by what they refuse."""
    return in_short(refusal(partial(owner, **{**given, name: value}), name) for value in tried)


def _heading(command: str) -> str:
    heading = f"## `spillover {command}`\n"
    return f"{heading}\n{LEASES}" if command == "lease run" else heading


def _contents(heads: Iterable[str]) -> str:
    lines = []
    for head in heads:
        title = head.partition("\n")[0].removeprefix("## ")
        anchor = re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
        lines.append(f"- [{title}](#{anchor})")
    return "\n".join(lines) + "\n"
