"""What a run's records come to: the object that `spillover-loadgen run --json` prints.

Pure functions of records, and the writing of records as JSON lines. How the fields look in a
terminal is in `display`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

import msgspec

from spillover.model.ids import ClusterId
from spillover.model.statistics import summarize
from spillover.model.unlike_servers import DEFAULT_TYPE
from spillover_loadgen.record import Outcome, Record

KEPT_UP_LAG_MS = 20.0
"""A generator that sends 1 % of the requests later than this has not offered the load asked for."""
REASONS_MAX = 20


def summary(
    records: Sequence[Record],
    *,
    cluster_ids: Iterable[ClusterId],
    seed: int,
    duration_s: float,
    interrupted: bool = False,
) -> dict[str, Any]:
    """Returns the result of a run; `per_cluster` is by home and has every cluster in `cluster_ids`,
    `per_type` is there where requests have said a type.

    Times in milliseconds from the intended instant, of requests with the outcome `ok` only.
    Summaries and shares of nothing are None. `reasons` counts the most frequent of what the
    nodes, or the client, said of requests that are not ok.
    """
    lag_ms = summarize([record.sent_lag_s * 1000 for record in records])
    reasons = Counter(record.reason for record in records if record.reason is not None)
    return {
        **_figures(records),
        "per_cluster": {
            cluster: _figures([record for record in records if record.cluster == cluster])
            for cluster in cluster_ids
        },
        **_per_type(records),
        "reasons": dict(reasons.most_common(REASONS_MAX)),
        "schedule_lag_ms": {"p99": lag_ms["p99"], "max": lag_ms["max"]},
        "kept_up": lag_ms["p99"] is None or lag_ms["p99"] <= KEPT_UP_LAG_MS,
        "seed": seed,
        "duration_s": duration_s,
        "interrupted": interrupted,
    }


def write_json_lines(records: Iterable[Record], file: BinaryIO) -> None:
    """One line for each record, with the record's fields."""
    encode = msgspec.json.Encoder().encode
    for record in records:
        file.write(encode(record))
        file.write(b"\n")


def _per_type(records: Sequence[Record]) -> dict[str, Any]:
    by_type: dict[str, list[Record]] = {}
    for record in records:
        by_type.setdefault(record.type, []).append(record)
    if by_type.keys() <= {DEFAULT_TYPE}:
        return {}
    return {"per_type": {kind: _figures(by_type[kind]) for kind in sorted(by_type)}}


def _figures(records: Sequence[Record]) -> dict[str, Any]:
    outcomes = Counter(record.outcome for record in records)
    answered = [record for record in records if record.outcome is Outcome.OK]
    hops = Counter(record.hops for record in answered if record.hops is not None)
    forwarded = sum(count for hop_count, count in hops.items() if hop_count > 0)
    return {
        "sent": len(records),
        "outcomes": {outcome.value: outcomes[outcome] for outcome in Outcome},
        "system_time_ms": summarize(_present(record.system_time_ms for record in answered)),
        "response_time_ms": summarize(_present(record.response_time_ms for record in answered)),
        "forwarded_share": forwarded / len(answered) if answered else None,
        "hops": {str(hop_count): hops[hop_count] for hop_count in sorted(hops)},
    }


def _present(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
