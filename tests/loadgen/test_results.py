"""The object of a run: counts that add up, times of what was served, shares by home."""

import io
import json

import pytest

from spillover_loadgen.record import Outcome, Record
from spillover_loadgen.results import summary, write_json_lines

OUTCOMES = ["ok", "refused", "expired", "failed", "cancelled", "unknown", "unreachable"]


def record(index=0, cluster="a", outcome=Outcome.OK, lag_s=0.001, **fields):
    return Record(
        index=index,
        cluster=cluster,
        intended_s=0.1 * index,
        sent_lag_s=lag_s,
        outcome=outcome,
        **fields,
    )


def served(system_time_ms, hops=0, **fields):
    return record(
        system_time_ms=system_time_ms, response_time_ms=system_time_ms + 1, hops=hops, **fields
    )


def summarized(records, **options):
    defaults = {"cluster_ids": ["a", "b"], "seed": 1, "duration_s": 9.0}
    return summary(records, **{**defaults, **options})


def test_sent_is_the_sum_of_all_seven_outcomes():
    records = [record(outcome=outcome) for outcome in Outcome] + [served(10.0)]
    result = summarized(records)
    assert list(result["outcomes"]) == OUTCOMES
    assert result["sent"] == sum(result["outcomes"].values()) == 8
    assert result["outcomes"]["ok"] == 2


def test_times_are_of_served_requests_only():
    refused = record(outcome=Outcome.REFUSED, response_time_ms=0.5)
    result = summarized([served(10.0), served(30.0), refused])
    times = result["system_time_ms"]
    assert list(times) == ["mean", "p50", "p99", "max", "min", "std"]
    assert list(times.values()) == [20.0, 10.0, 30.0, 30.0, 10.0, 10.0]
    assert result["response_time_ms"]["min"] == 11.0


def test_shares_and_hops_are_by_home():
    records = [
        served(10.0, cluster="a", hops=0),
        served(10.0, cluster="a", hops=2),
        served(10.0, cluster="b", hops=0),
        served(10.0, cluster="b", hops=10),
        record(cluster="b", outcome=Outcome.REFUSED),  # went nowhere
    ]
    result = summarized(records)
    assert result["forwarded_share"] == 0.5
    assert list(result["hops"].items()) == [("0", 2), ("2", 1), ("10", 1)]
    assert result["per_cluster"]["a"]["hops"] == {"0": 1, "2": 1}
    assert result["per_cluster"]["a"]["sent"] == 2


def test_a_generator_that_lags_has_not_kept_up():
    """One request in a hundred may be late, not two."""
    late = [served(10.0, lag_s=0.5)]
    kept_up = summarized([served(10.0)] * 99 + late)
    assert kept_up["kept_up"] is True
    assert kept_up["schedule_lag_ms"] == pytest.approx({"p99": 1.0, "max": 500.0})
    assert summarized([served(10.0)] * 98 + late * 2)["kept_up"] is False


def test_records_are_written_one_to_a_line():
    file = io.BytesIO()
    write_json_lines([served(10.0, path=("a", "b"), hops=1), record(index=1)], file)
    first, second = map(json.loads, file.getvalue().splitlines())
    assert first["outcome"] == "ok"
    assert first["path"] == ["a", "b"]
    assert second["index"] == 1
    assert second["system_time_ms"] is None
