"""What requests say of their size (`policy.work`), by the part that the configuration names. One
that says nothing, or what cannot be, counts as the mean.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import msgspec

from spillover.live.handlers.proxy.sent_heads import OwnRequest
from spillover.model.errors import UNREADABLE
from spillover.model.passed import Fields, MalformedPassed, PassedRequest, decode_lines, take_apart
from spillover.model.request import Request
from spillover.model.topology import Cluster
from spillover.model.work_source import WorkSource
from spillover.policy.work import Features

NUMBER_LENGTH_MAX = 32

NUMBER_MAX = 1e12
"""Larger numbers are no sizes."""

LOOKED_AT_BYTES = 1 << 20
"""Larger bodies are not read: that would take longer than a decision may."""

Body: TypeAlias = bytes | memoryview | msgspec.Raw

_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class WorkFeatures:
    """What requests of one cluster say."""

    def __init__(self, cluster: Cluster) -> None:
        self._of_cluster = cluster.work
        self._routes = [
            (route.path, route.methods, route.work or cluster.work) for route in cluster.routes
        ]
        sources = [cluster.work, *(route.work for route in cluster.routes)]
        self._reads_heads = any(
            source is not None and source.header is not None for source in sources
        ) or any(route.work is not None for route in cluster.routes)

    def of(self, request: Request) -> Features | None:
        """Returns the features of a request that comes; None if it says none."""
        try:
            source, fields, body = self._taken_apart(request.work)
        except MalformedPassed:
            return None
        return None if source is None else _features(source, fields, body)

    def _taken_apart(self, work: Any) -> tuple[WorkSource | None, Fields, Body]:
        """Returns what is looked for, and where: in a client's or a neighbor's request that passes
        through, or in a payload."""
        if isinstance(work, OwnRequest):
            head = work.head
            target = head.target.decode("latin-1") if self._routes else ""
            return self._source(head.method, target), head.fields, work.body
        if isinstance(work, PassedRequest):
            target = work.target.decode("latin-1")
            return self._source(work.method, target), work.headers, work.body
        if isinstance(work, msgspec.Raw):
            return self._of_cluster, (), work
        encoded, body = take_apart(work)
        if not self._reads_heads:
            return self._of_cluster, (), body
        lines = decode_lines(encoded)
        return self._source(lines.method, lines.target.decode("latin-1")), lines.headers, body

    def _source(self, method: str, target: str) -> WorkSource | None:
        for path, methods, source in self._routes:
            if target.startswith(path) and (not methods or method in methods):
                return source
        return self._of_cluster


def _features(source: WorkSource, fields: Fields, body: Body) -> Features | None:
    if source.bytes:
        return (float(len(memoryview(body))),)
    if source.header is not None:
        name = source.header.lower().encode()
        told = [value for key, value in fields if key.lower() == name]
        return _all_known([_number(told[0]) if len(told) == 1 else None])
    return _in_body(source, body)


def _in_body(source: WorkSource, body: Body) -> Features | None:
    if len(memoryview(body)) > LOOKED_AT_BYTES:
        return None
    try:
        found = _decode(body)
    except UNREADABLE:
        return None
    features: list[float | None] = []
    if source.json is not None:
        features.append(_number(bytes(found.get(source.json, b""))))
    if source.prompt is not None:
        features.append(float(len(bytes(found.get(source.prompt, b"")))) or None)
    return _all_known(features)


def _all_known(features: list[float | None]) -> Features | None:
    known = tuple([one for one in features if one is not None])
    return known if len(known) == len(features) else None


def _number(told: bytes) -> float | None:
    """Returns a number that can be a size."""
    if not told or len(told) > NUMBER_LENGTH_MAX:
        return None
    try:
        number = float(told)
    except ValueError:
        return None
    return number if math.isfinite(number) and 0.0 <= number <= NUMBER_MAX else None
