"""Fault schedules by name: YAML files, and random ones as `random:SEED`.

    faults:
      - {at_s: 1.0, action: crash, cluster: a}          # loses all that it holds
      - {at_s: 3.0, action: restart, cluster: a}        # begins a new epoch
      - {at_s: 3.5, action: pause, cluster: b}          # stands still, until: resume
      - {at_s: 4.0, action: resume, cluster: b}
      - {at_s: 4.0, action: slow, cluster: c, factor: 3}     # services take 3 times as long
      - {at_s: 4.0, action: clock, cluster: c, rate: 1.01, offset_ms: -250}
      - {at_s: 4.5, action: failing, cluster: c, share: 0.4, fail_ms: 2, status: 503}
      - {at_s: 4.9, action: failing, cluster: c, share: 0}   # well again
      - {at_s: 4.9, action: swallows, cluster: c, share: 1}  # requests of neighbors, on the way
      - {at_s: 4.9, action: late, cluster: c, late_ms: 4000} # answers to neighbors
      - {at_s: 4.9, action: hangs, cluster: c, share: 0.5}   # what it has of neighbors
      - {at_s: 4.9, action: down, cluster: d, server: s1}    # one of unlike servers, until: up
      - {at_s: 4.9, action: tokens, cluster: d, classes: {c1: 4}, servers: {s2: out}}   # or: in
      - {at_s: 4.9, action: crash, node: e/2}           # one node of a cluster of several
      - {at_s: 4.9, action: drain, node: e/1}           # by an operator, until: undrain
      - {at_s: 4.9, action: cut, between: [f/1, f/2]}   # nodes that do not hear each other
      - {at_s: 5.0, action: link, between: [a, b], delay_ms: 80, jitter_ms: 20, loss: 0.05}
      - {at_s: 5.0, action: link, from: a, to: b, duplicate: 0.1, reorder: 0.1}   # one way
      - {at_s: 6.0, action: cut, from: a, to: b}        # or between, for both ways
      - {at_s: 9.0, action: heal, between: [a, b]}      # all as in the topology

Every fault of a file becomes one InputError that names the file and the field. What the values
mean, and what fits a topology, is in `spillover.model.faults`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spillover.inputs.random_faults import random_faults
from spillover.inputs.value_limits import LIMITS
from spillover.inputs.yaml_file import (
    EXACT_INTEGER_LIMIT,
    describe,
    describe_as_number,
    read_mapping,
    shown_path,
)
from spillover.inputs.yaml_text import as_written
from spillover.model.errors import InputError
from spillover.model.faults import (
    FAULT_ACTIONS,
    IN,
    LINK_ACTIONS,
    OUT,
    TOKEN_ACTIONS,
    ClusterFault,
    Direction,
    Fault,
    FaultSchedule,
    LinkFault,
    TokensFault,
    node_of,
)
from spillover.model.ids import ClusterId
from spillover.model.nearest import nearest
from spillover.model.topology import Topology

RANDOM = "random:"
"""The name of a random schedule begins with this; its seed follows."""

FAULTS_MAX = 10_000

_LIMITS = LIMITS._replace(characters=16 * 1024 * 1024, nodes=500_000, entries=100_000)
"""The limits of a file. Why: faults are many, and only simulations read them."""

NUMBERS_BY_ACTION = {
    "slow": ("factor",),
    "clock": ("rate", "offset_ms"),
    "failing": ("share", "fail_ms", "status", "retry_after_ms"),
    "swallows": ("share",),
    "late": ("late_ms",),
    "hangs": ("share",),
    "link": ("delay_ms", "jitter_ms", "loss", "duplicate", "reorder"),
}
"""The numbers that an action takes. `slow` and `failing` need the first, the others at least one of
theirs."""
_OF_SERVERS = ("slow", "failing", "down", "up")
"""Actions that may be for one server, by `server`."""

_KNOWN = (
    *("at_s", "action", "cluster", "node", "server", "classes", "servers", "between", "from", "to"),
    *(number for numbers in NUMBERS_BY_ACTION.values() for number in numbers),
)


def load_faults(name_or_path: str, topology: Topology, duration_s: float) -> FaultSchedule:
    """Returns the random schedule `random:SEED`, else the one in the YAML file at that path, for
    runs of this topology that last about `duration_s` (of random ones only: all is healed by then).

    Raises InputError, always one line.
    """
    if name_or_path.startswith(RANDOM):
        return random_faults(topology, _seed_of(name_or_path), duration_s)
    source = shown_path(name_or_path)
    missing = "expected a YAML file of faults or random:SEED, found no such file"
    document = read_mapping(
        name_or_path,
        missing=missing,
        wanted="a mapping with the field faults",
        limits=_LIMITS,
    )
    schedule = FaultSchedule(source, _read_faults(source, document))
    schedule.check(topology)
    return schedule


def _seed_of(name: str) -> int:
    digits = name.removeprefix(RANDOM)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 16):
        raise InputError(name, "", "expected random:SEED with a whole number as the seed")
    return int(digits)


def _read_faults(source: str, document: Mapping[Any, Any]) -> tuple[Fault, ...]:
    if set(document) != {"faults"}:
        wrong = next((str(name) for name in document if name != "faults"), "faults")
        problem = "expected a list, the field is missing" if wrong == "faults" else "unknown field"
        raise InputError(source, wrong[:60], f"{problem}, expected faults and nothing else")
    entries = document["faults"]
    if not isinstance(entries, list):
        raise InputError(source, "faults", f"expected a list, got {describe(entries)}")
    if len(entries) > FAULTS_MAX:
        raise InputError(source, "faults", f"expected at most {FAULTS_MAX}, got {len(entries)}")
    return tuple(_fault(source, f"faults[{k}]", entry) for k, entry in enumerate(entries))


def _fault(source: str, field: str, entry: object) -> Fault:
    if not isinstance(entry, dict):
        raise InputError(source, field, f"expected a mapping of fields, got {describe(entry)}")
    try:
        return _read_entry(entry)
    except InputError as error:
        raise InputError(source, f"{field}.{error.field}", error.expected) from error


def _read_entry(entry: Mapping[Any, Any]) -> Fault:
    if "action" not in entry:  # most likely under another name
        _check_names(entry, _KNOWN, "unknown field")
    action = _text(entry, "action")
    if action not in FAULT_ACTIONS:
        raise _wrong("action", f"expected one of {', '.join(FAULT_ACTIONS)}, got {action!r}")
    numbers = NUMBERS_BY_ACTION.get(action, ())
    known = ("at_s", "action", *places_of(action), *numbers)
    _check_names(entry, known, f"not a field of {action}")
    needed = numbers[:1] if action == "failing" else numbers
    if needed and not any(name in entry for name in needed):
        raise _wrong(numbers[0], f"expected with {action}, the field is missing")
    given = {name: _number_of(entry, name) for name in numbers if name in entry}
    at_s = _number_of(entry, "at_s")
    if action in LINK_ACTIONS:
        return LinkFault(at_s=at_s, action=action, directions=_directions(entry), **given)
    cluster, node = _place(entry)
    if action in TOKEN_ACTIONS:
        classes, servers = _limits(entry), _out_and_in(entry)
        return TokensFault(
            at_s=at_s, action=action, cluster=cluster, classes=classes, servers=servers
        )
    server = _text(entry, "server") if "server" in entry else None
    return ClusterFault(
        at_s=at_s, action=action, cluster=cluster, server=server, node=node, **given
    )


def _place(entry: Mapping[Any, Any]) -> tuple[ClusterId, int | None]:
    """Returns the cluster at which it happens, and the node, if it is one's."""
    if "node" not in entry:
        return ClusterId(_text(entry, "cluster")), None
    if "cluster" in entry:
        raise _wrong("node", "expected either cluster or node")
    name = _text(entry, "node")
    if (named := node_of(name)) is None:
        raise _wrong("node", f"expected the name of a node as a/2, got {name!r}")
    return named


def places_of(action: str) -> tuple[str, ...]:
    """Returns the fields that say where an action happens, and to what."""
    if action in LINK_ACTIONS:
        return ("between", "from", "to")
    if action in TOKEN_ACTIONS:
        return ("cluster", "classes", "servers")
    return ("cluster", "node", "server") if action in _OF_SERVERS else ("cluster", "node")


def _limits(entry: Mapping[Any, Any]) -> tuple[tuple[str, int], ...]:
    """Returns limits by class, as PUT /admin/tokens has them."""
    limits = _mapping(entry, "classes")
    for name, tokens in limits.items():
        if isinstance(tokens, bool) or not isinstance(tokens, int):
            expected = f"expected a whole number for {name}, got {describe_as_number(tokens)}"
            raise _wrong("classes", expected)
    return tuple((name, int(tokens)) for name, tokens in limits.items())


def _out_and_in(entry: Mapping[Any, Any]) -> tuple[tuple[str, str], ...]:
    """Returns `out` or `in` by server."""
    servers = _mapping(entry, "servers")
    for name, said in servers.items():
        if said not in (OUT, IN):
            expected = f"expected {OUT} or {IN} for {name}, got {describe(said)}"
            raise _wrong("servers", expected)
    return tuple(servers.items())


def _mapping(entry: Mapping[Any, Any], name: str) -> dict[str, Any]:
    value = entry.get(name, {})
    by_id = {as_written(key): each for key, each in value.items()} if type(value) is dict else None
    if by_id is None or None in by_id:
        raise _wrong(name, f"expected a mapping by id, got {describe(value)}")
    return by_id  # type: ignore[return-value]


def _directions(entry: Mapping[Any, Any]) -> tuple[Direction, ...]:
    if "between" in entry:
        if "from" in entry or "to" in entry:
            raise _wrong("between", "expected either between, or from and to")
        given = entry["between"]
        pair = [as_written(each) for each in given] if isinstance(given, list) else []
        if len(pair) != 2 or pair[0] is None or pair[1] is None:
            raise _wrong("between", f"expected two cluster ids, got {describe(given)}")
        a, b = ClusterId(pair[0]), ClusterId(pair[1])
        return ((a, b), (b, a))
    if "from" not in entry and "to" not in entry:
        raise _wrong("between", "expected between, or from and to, the fields are missing")
    return ((ClusterId(_text(entry, "from")), ClusterId(_text(entry, "to"))),)


def _text(entry: Mapping[Any, Any], name: str) -> str:
    value = _value_of(entry, name)
    text = as_written(value)
    if text is None:
        raise _wrong(name, f"expected text, got {describe(value)}")
    return text


def _number_of(entry: Mapping[Any, Any], name: str) -> float:
    """Returns the field's number, finite or not."""
    value = _value_of(entry, name)
    too_large = isinstance(value, int) and abs(value) > EXACT_INTEGER_LIMIT
    if isinstance(value, bool) or not isinstance(value, int | float) or too_large:
        raise _wrong(name, f"expected a number, got {describe_as_number(value)}")
    return float(value)


def _value_of(entry: Mapping[Any, Any], name: str) -> object:
    if name not in entry:
        raise _wrong(name, "expected a value, the field is missing")
    return entry[name]


def _check_names(entry: Mapping[Any, Any], known: Sequence[str], problem: str) -> None:
    """Refuse a field that is none of `known`, and name the closest of them if one is close."""
    for name in entry:
        if name not in known:
            closest = nearest(str(name), known)
            hint = f"did you mean {closest}?" if closest else f"expected {', '.join(known)}"
            shown = "".join(char for char in str(name)[:60] if char.isprintable())
            raise _wrong(shown, f"{problem}, {hint}")


def _wrong(field: str, expected: str) -> InputError:
    """Returns the error of the field, to be raised; callers put the file and the entry in front."""
    return InputError("", field, expected)
