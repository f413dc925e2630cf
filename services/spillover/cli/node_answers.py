"""Checks of answers: is this one of a node, a producer or a lease member? They ask for the fields
that commands go by, and for none that older versions lack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

PRODUCER_COUNTS = ("granted", "dead", "waiting", "takes", "parked", "produced", "acknowledged")


def is_node(answer: Mapping[str, Any]) -> bool:
    """Returns whether this may be a node's `/state`."""
    return _has(
        answer,
        {"servers": int, "busy": int, "queue_length": int, "cluster": str, "ledger": dict},
    ) and _has_rows(answer, "neighbors", lambda row: "id" in row)


def is_producer(answer: Mapping[str, Any]) -> bool:
    """Returns whether this may be a producer's `/state`."""
    counts = dict.fromkeys(("buffered", "buffers", *PRODUCER_COUNTS), int)
    return _has(answer, {"producer": str, "peers": dict, **counts})


def is_node_or_producer(answer: Mapping[str, Any]) -> bool:
    """Returns whether this may be the `/state` of either, which drain alike."""
    return is_node(answer) or is_producer(answer)


def is_member(answer: Mapping[str, Any]) -> bool:
    """Returns whether this may be a lease member's `/state`."""
    fields = {"group": str, "node": str, "state": str, "partitions": int}
    return (
        _has(answer, {**fields, "redis": dict, "renewal": dict, "held": dict})
        and all(partition.isdecimal() for partition in answer["held"])
        and _has_rows(answer, "members")
        and _has_rows(answer, "allocation")
    )


def is_federation(answer: Mapping[str, Any]) -> bool:
    """Returns whether this may be a node's `/federation`."""
    return _has(answer, {"clusters": dict}) and all(
        isinstance(state, dict) and ("unreachable" in state or is_node(state))
        for state in answer["clusters"].values()
    )


def is_explanation(answer: Mapping[str, Any]) -> bool:
    """Returns whether this may be what a node tells of a request."""
    decided = {"outcome": str, "neighbors": list}
    return _has_rows(answer, "decisions", lambda row: _has(row, decided)) and _has_rows(
        {"story": [], **answer}, "story"
    )


def is_story(answer: Mapping[str, Any]) -> bool:
    """Returns whether this may be what a producer tells of an object or a probe."""
    words = {"words": str}
    return _has(answer, {"state": str}) and _has_rows(answer, "story", lambda row: _has(row, words))


def is_pool(answer: Mapping[str, Any]) -> bool:
    """Returns whether this may be a pool of unlike servers."""
    return all(
        _has_rows(answer, name, lambda row: _has(row, {"id": str}))
        for name in ("servers", "classes", "types")
    )


def is_configuration(answer: Mapping[str, Any]) -> bool:
    """Returns whether this may be a configuration with its version."""
    return _has(answer, {"version": int, "topology": str})


def is_history(answer: Mapping[str, Any]) -> bool:
    """Returns whether this may be the configurations that a node has gone by, at least one."""
    listed = answer.get("configurations")
    return bool(listed) and _has_rows(answer, "configurations", is_configuration)


def is_put_back(answer: Mapping[str, Any]) -> bool:
    """Returns whether this may be how many dead objects were put back."""
    return {"put_back", "dead"} <= answer.keys()


def _has(answer: Mapping[str, Any], fields: Mapping[str, type]) -> bool:
    return all(isinstance(answer.get(name), kind) for name, kind in fields.items())


def _has_rows(
    answer: Mapping[str, Any], name: str, is_row: Callable[[dict[str, Any]], bool] = lambda _: True
) -> bool:
    rows = answer.get(name)
    return isinstance(rows, list) and all(isinstance(row, dict) and is_row(row) for row in rows)
