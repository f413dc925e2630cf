"""The object of a run: counts that add up, times of what was served, shares by home."""

from __future__ import annotations

import io
import json

import pytest

from spillover.model.errors import InputError
from spillover_loadgen.api_token import read_secret
from spillover_loadgen.display import _cells, progress_bar
from spillover_loadgen.record import Outcome, Record, read_answer
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


def test_types_have_figures_of_their_own():
    """Where requests have said one: what was blocked is refused, and counted as its type's."""
    blocked = record(outcome=Outcome.REFUSED, reason="blocked", type="t2")
    result = summarized([served(10.0, type="t1"), served(20.0, type="t2"), blocked])
    assert list(result["per_type"]) == ["t1", "t2"]
    assert result["per_type"]["t2"]["outcomes"]["refused"] == 1
    assert result["per_type"]["t2"]["system_time_ms"]["mean"] == 20.0
    assert result["reasons"] == {"blocked": 1}
    assert "per_type" not in summarized([served(10.0)])


def test_a_cluster_without_requests_is_there_too():
    nothing = summarized([served(10.0)])["per_cluster"]["b"]
    assert nothing["sent"] == 0
    assert nothing["system_time_ms"]["mean"] is None
    assert nothing["forwarded_share"] is None
    assert nothing["hops"] == {}


def test_a_generator_that_lags_has_not_kept_up():
    """One request in a hundred may be late, not two."""
    late = [served(10.0, lag_s=0.5)]
    kept_up = summarized([served(10.0)] * 99 + late)
    assert kept_up["kept_up"] is True
    assert kept_up["schedule_lag_ms"] == pytest.approx({"p99": 1.0, "max": 500.0})
    assert summarized([served(10.0)] * 98 + late * 2)["kept_up"] is False


@pytest.mark.parametrize(("lag_s", "kept_up"), [(0.02, True), (0.0201, False)])
def test_so_late_a_request_may_leave_and_no_later(lag_s, kept_up):
    result = summarized([served(10.0, lag_s=lag_s)])
    assert (result["kept_up"], result["interrupted"]) == (kept_up, False)


def test_a_result_says_what_it_is_of():
    """Its seed, its length, and whether it was ended early; clusters in their order."""
    result = summarized([], cluster_ids=["b", "a"], seed=6, duration_s=2.5, interrupted=True)
    assert (result["seed"], result["duration_s"], result["interrupted"]) == (6, 2.5, True)
    assert list(result["per_cluster"]) == ["b", "a"]
    assert result["schedule_lag_ms"] == {"p99": None, "max": None}
    assert (result["reasons"], result["hops"], result["forwarded_share"]) == ({}, {}, None)


def test_the_frequent_reasons_are_counted():
    records = [record(index=n, outcome=Outcome.FAILED, reason=f"r{n}") for n in range(30)]
    records += [record(outcome=Outcome.REFUSED, reason="queue_full")] * 2
    reasons = summarized(records)["reasons"]
    assert next(iter(reasons.items())) == ("queue_full", 2)
    assert len(reasons) == 20


def test_of_what_a_node_says_the_beginning_is_kept():
    body = json.dumps({"reason": "x" * 300}).encode()
    assert read_answer(500, body) == (Outcome.FAILED, None, "x" * 200)


def test_a_row_has_what_was_sent_what_was_done_and_what_was_not():
    figures = summarized([served(10.0), served(20.0, hops=1), record(outcome=Outcome.FAILED)])
    cells = _cells(figures)
    assert (cells[:3], cells[-1]) == (["3", "2", "1"], "50.0%")


def test_a_terminal_is_told_how_many_answers_are_waited_for(monkeypatch, capfd):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as if it were one
    monkeypatch.setenv("COLUMNS", "100")
    with progress_bar() as tell:
        tell(10, 4, 20)
    said = capfd.readouterr().err
    assert "sent 10 of 20" in said
    assert "waiting 6" in said


@pytest.mark.parametrize(("characters", "is_one"), [(500, True), (501, False)])
def test_a_secret_may_be_so_long_and_no_longer(tmp_path, characters, is_one):
    file = tmp_path / "secret"
    file.write_text("x" * characters + "\n")
    if is_one:
        assert read_secret(str(file)) == "x" * characters
    else:
        with pytest.raises(InputError, match="expected at most 500 characters, got more"):
            read_secret(str(file))


def test_no_request_at_all_is_a_result_too():
    result = summarized([])
    assert result["sent"] == 0
    assert result["kept_up"] is True
    assert json.dumps(result, allow_nan=False)


def test_records_are_written_one_to_a_line():
    file = io.BytesIO()
    write_json_lines([served(10.0, path=("a", "b"), hops=1), record(index=1)], file)
    first, second = map(json.loads, file.getvalue().splitlines())
    assert first["outcome"] == "ok"
    assert first["path"] == ["a", "b"]
    assert second["index"] == 1
    assert second["system_time_ms"] is None
