"""Reader of request traces: Spillover's own CSV, and the one of Azure's LLM inference service.
Every line is checked, and an error has its number. docs/configuration.md has the formats. Drawing
schedules is in `generated`.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path

from spillover.model.errors import InputError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Arrival, Schedule
from spillover.workloads.generated import REQUESTS_MAX

ROUND_ROBIN = "round-robin"
STAGGERED = "staggered"
LINE_LIMIT_BYTES = 10_000

_REQUIRED = ("time_s", "cluster")
_OPTIONAL = ("service_ms", "type", "id")
_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

# Azure's timestamps have seven fractional digits, one more than `datetime` holds.
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII
)


def read_trace(
    path: str | Path,
    *,
    cluster_ids: Sequence[ClusterId],
    context_token_ms: float = 0.25,
    generated_token_ms: float = 30.0,
    assign: str = ROUND_ROBIN,
) -> Schedule:
    """Returns the schedule in a CSV file; its header tells which of the two formats it has.

    `time_s,cluster[,service_ms,type,id]` is taken as it stands. For
    `TIMESTAMP,ContextTokens,GeneratedTokens` time 0 is the first request, the service time is
    the two token counts weighted by the milliseconds given, and `assign` is the cluster that
    gets everything, or `round-robin` over `cluster_ids`, or `staggered`: all of it for each of
    them, the next one later by an equal share of its length, and what is past the end at the
    beginning. So sites in different time zones have the same day.

    Raises InputError naming the file, the line and what was expected there.
    """
    source = str(path)
    _check_weight("--context-token-ms", context_token_ms)
    _check_weight("--generated-token-ms", generated_token_ms)
    rows = _rows(source)
    header = next(rows, None)
    if header is None:
        raise InputError(source, "line 1", "expected a header line, got an empty file")
    columns = [name.strip() for name in header[1]]
    arrival_of: Callable[[_TraceLine], Arrival]
    if _AZURE[0] in columns:
        _check_columns(source, header[0], columns, required=_AZURE)
        homes = _homes(assign, cluster_ids)
        arrival_of = _AzureFormat(context_token_ms, generated_token_ms, homes).arrival
        if assign == STAGGERED:
            schedule = _read_lines(source, columns, rows, arrival_of)
            return _staggered(source, schedule, cluster_ids)
    else:
        _check_columns(source, header[0], columns, required=_REQUIRED, optional=_OPTIONAL)
        arrival_of = _PlainFormat(frozenset(cluster_ids)).arrival
    return _read_lines(source, columns, rows, arrival_of)


@dataclass(frozen=True, slots=True)
class _TraceLine:
    """One data line with its fields by column."""

    source: str
    number: int
    fields: dict[str, str]

    def wrong(self, column: str, expected: str) -> InputError:
        got = self.fields[column][:60]
        return InputError(
            self.source, f"line {self.number}", f"{column}: expected {expected}, got {got!r}"
        )

    def amount(self, column: str) -> float:
        """Returns the column's finite number of at least 0."""
        expected = "a finite number of at least 0"
        try:
            value = float(self.fields[column])
        except ValueError:
            raise self.wrong(column, expected) from None
        if not math.isfinite(value) or value < 0:
            raise self.wrong(column, expected)
        return value


class _PlainFormat:
    """`time_s,cluster` and optionally `service_ms,type,id`; an empty optional field is absent."""

    def __init__(self, clusters: frozenset[ClusterId]) -> None:
        self._clusters = clusters

    def arrival(self, line: _TraceLine) -> Arrival:
        fields = line.fields
        cluster = ClusterId(fields["cluster"])
        if cluster not in self._clusters:
            raise line.wrong("cluster", f"one of {', '.join(sorted(self._clusters))}")
        return Arrival(
            time_s=line.amount("time_s"),
            cluster=cluster,
            service_ms=line.amount("service_ms") if fields.get("service_ms") else None,
            type=fields.get("type") or "default",
            id=fields.get("id") or None,
        )


class _AzureFormat:
    """`TIMESTAMP,ContextTokens,GeneratedTokens`; time counts from the first line read."""

    def __init__(
        self, context_token_ms: float, generated_token_ms: float, homes: Iterator[ClusterId]
    ) -> None:
        self._context_token_ms = context_token_ms
        self._generated_token_ms = generated_token_ms
        self._homes = homes
        self._first_ns: int | None = None

    def arrival(self, line: _TraceLine) -> Arrival:
        now_ns = _timestamp_ns(line)
        if self._first_ns is None:
            self._first_ns = now_ns
        context_ms = line.amount("ContextTokens") * self._context_token_ms
        generated_ms = line.amount("GeneratedTokens") * self._generated_token_ms
        return Arrival(
            time_s=(now_ns - self._first_ns) / 1e9,
            cluster=next(self._homes),
            service_ms=context_ms + generated_ms,
        )


def _timestamp_ns(line: _TraceLine) -> int:
    """Returns nanoseconds since 1970; a timestamp without a zone is taken as UTC."""
    expected = "a timestamp such as 2023-11-16 18:17:03.9799600"
    match = _TIMESTAMP.fullmatch(line.fields["TIMESTAMP"])
    if match is None:
        raise line.wrong("TIMESTAMP", expected)
    whole, fraction, zone = match.groups(default="")
    try:
        moment = datetime.fromisoformat(whole + zone)
    except ValueError:
        raise line.wrong("TIMESTAMP", expected) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000_000 + int(fraction.ljust(9, "0"))


def _check_weight(option: str, weight_ms: float) -> None:
    if not math.isfinite(weight_ms) or weight_ms < 0:
        expected = f"expected a finite number of at least 0, got {weight_ms:g}"
        raise InputError(option, "", expected)


def _homes(assign: str, cluster_ids: Sequence[ClusterId]) -> Iterator[ClusterId]:
    if assign == ROUND_ROBIN:
        return itertools.cycle(cluster_ids)
    if assign == STAGGERED:
        return itertools.repeat(cluster_ids[0])
    if assign in cluster_ids:
        return itertools.repeat(ClusterId(assign))
    known = ", ".join((ROUND_ROBIN, STAGGERED, *cluster_ids))
    raise InputError("--assign", "", f"expected one of {known}; got {assign!r}")


def _staggered(source: str, schedule: Schedule, cluster_ids: Sequence[ClusterId]) -> Schedule:
    if len(schedule) * len(cluster_ids) > REQUESTS_MAX:
        expected = f"expected at most {REQUESTS_MAX} requests over all clusters"
        raise InputError(source, "", expected)
    length_s = schedule[-1].time_s or 1.0
    shift_s = length_s / len(cluster_ids)
    moved = [
        replace(
            arrival, cluster=cluster, time_s=round((arrival.time_s + k * shift_s) % length_s, 9)
        )
        for k, cluster in enumerate(cluster_ids)
        for arrival in schedule
    ]
    return sorted(moved, key=attrgetter("time_s"))


def _check_columns(
    source: str,
    number: int,
    columns: list[str],
    *,
    required: tuple[str, ...],
    optional: tuple[str, ...] = (),
) -> None:
    expected = f"expected the columns {','.join(required)}"
    if optional:
        expected += f" and optionally {','.join(optional)}"
    for name in required:
        if name not in columns:
            raise InputError(source, f"line {number}", f"{expected}; {name} is missing")
    for name in columns:
        if name not in (*required, *optional):
            raise InputError(source, f"line {number}", f"{expected}; got {name[:60]!r} too")
        if columns.count(name) > 1:
            raise InputError(source, f"line {number}", f"{expected}; got {name} twice")


def _read_lines(
    source: str,
    columns: list[str],
    rows: Iterator[tuple[int, list[str]]],
    arrival_of: Callable[[_TraceLine], Arrival],
) -> Schedule:
    schedule: Schedule = []
    for number, row in rows:
        where = f"line {number}"
        if len(row) != len(columns):
            raise InputError(source, where, f"expected {len(columns)} fields, got {len(row)}")
        line = _TraceLine(source, number, dict(zip(columns, map(str.strip, row), strict=True)))
        arrival = arrival_of(line)
        if schedule and arrival.time_s < schedule[-1].time_s:
            raise line.wrong(columns[0], "a time not before that of the line above")
        if len(schedule) == REQUESTS_MAX:
            raise InputError(source, where, f"expected at most {REQUESTS_MAX} requests")
        schedule.append(arrival)
    if not schedule:
        raise InputError(source, "line 2", "expected at least one request, got only a header")
    return schedule


def _rows(source: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines that are not blank, split at commas, with their numbers from 1."""
    reader = csv.reader(_text_lines(source), strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        where = f"line {reader.line_num}"
        raise InputError(source, where, f"expected comma-separated fields: {error}") from None


def _text_lines(source: str) -> Iterator[str]:
    """Yield the lines of the file, decoded one by one, so that an error has the line of a bad
    byte."""
    try:
        with Path(source).open("rb") as file:
            for number in itertools.count(1):
                line = file.readline(LINE_LIMIT_BYTES + 1)
                if not line:
                    return
                if len(line) > LINE_LIMIT_BYTES:
                    expected = f"expected at most {LINE_LIMIT_BYTES} bytes"
                    raise InputError(source, f"line {number}", expected)
                try:
                    yield line.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError:
                    raise InputError(source, f"line {number}", "expected UTF-8 text") from None
    except OSError as error:
        raise InputError(source, "", f"expected a readable file: {error.strerror}") from None
