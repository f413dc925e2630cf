"""What requests say of their size (`policy.work`), by the part that the configuration names. One
that says nothing, or what cannot be, counts as the mean.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from spillover.live.handlers.json_fields import Body, JsonFields
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


class WorkFeatures:
    """What requests of one cluster say."""

    def __init__(self, cluster: Cluster) -> None:
        sources = [cluster.work, *(route.work for route in cluster.routes)]
        # What is read by one source is learned apart from what is read by another.
        readers: dict[WorkSource | None, _Reader] = {
            source: _Reader(source, measure)
            for measure, source in enumerate(dict.fromkeys(sources))
            if source is not None and not source.counted
        }
        self._of_cluster = readers.get(cluster.work)
        self._routes = [
            (
                *(route.path, route.methods),
                readers.get(cluster.work if route.work is None else route.work),
            )
            for route in cluster.routes
        ]
        self._reads_heads = any(
            source is not None and source.header is not None for source in sources
        ) or any(route.work is not None for route in cluster.routes)

    def note(self, request: Request) -> None:
        """Note in a request that comes its features: none at all if it is only counted, None if
        they cannot be read."""
        try:
            reader, fields, body = self._taken_apart(request.work)
        except MalformedPassed:
            request.features = None
            return
        if reader is None:
            request.features = ()
        else:
            request.features = reader.features(fields, body)
            request.measure = reader.measure

    def _taken_apart(self, work: Any) -> tuple[_Reader | None, Fields, Body]:
        """Returns what is looked for, and where: in a client's or a neighbor's request that passes
        through, or in a payload."""
        if isinstance(work, OwnRequest):
            head = work.head
            target = head.target.decode("latin-1") if self._routes else ""
            return self._reader(head.method, target), head.fields, work.body
        if isinstance(work, PassedRequest):
            target = work.target.decode("latin-1")
            return self._reader(work.method, target), work.headers, work.body
        if isinstance(work, msgspec.Raw):
            return self._of_cluster, (), work
        encoded, body = take_apart(work)
        if not self._reads_heads:
            return self._of_cluster, (), body
        lines = decode_lines(encoded)
        return self._reader(lines.method, lines.target.decode("latin-1")), lines.headers, body

    def _reader(self, method: str, target: str) -> _Reader | None:
        for path, methods, reader in self._routes:
            if target.startswith(path) and (not methods or method in methods):
                return reader
        return self._of_cluster


class _Reader:
    """What requests say by one source."""

    def __init__(self, source: WorkSource, measure: int) -> None:
        self.measure = measure
        self._source = source
        self._header = None if source.header is None else source.header.lower().encode()
        told = (source.json, source.prompt)
        self._fields = JsonFields([name for name in told if name is not None])

    def features(self, fields: Fields, body: Body) -> Features | None:
        if self._source.bytes:
            return (float(len(memoryview(body))),)
        if self._header is not None:
            told = [value for key, value in fields if key.lower() == self._header]
            return _all_known([_number(told[0]) if len(told) == 1 else None])
        return self._in_body(body)

    def _in_body(self, body: Body) -> Features | None:
        if len(memoryview(body)) > LOOKED_AT_BYTES:
            return None
        try:
            found = self._fields.of(body)
        except UNREADABLE:
            return None
        features: list[float | None] = []
        if self._source.json is not None:
            features.append(_number(found[0]))
        if self._source.prompt is not None:
            features.append(float(len(found[-1])) or None)
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
