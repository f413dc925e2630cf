"""Traces are read exactly, and each bad line is told in one line with its number."""

import time

import pytest

from spillover.model.errors import InputError
from spillover.model.schedule import Arrival
from spillover.workloads import traces
from spillover.workloads.traces import read_trace

AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens\r
2023-11-16 18:17:03.9799600,4808,10\r
2023-11-16 18:17:04.0319600,3180,8\r
2023-11-16 18:17:04.0781491,110,27\r
"""


@pytest.fixture
def read(tmp_path):
    def read_text(text, **options):
        path = tmp_path / "trace.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_trace(path, **{"cluster_ids": ["a", "b"], **options})

    return read_text


def error_of(read, text, **options):
    with pytest.raises(InputError) as caught:
        read(text, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message.partition("trace.csv: ")[2] or message


def test_the_short_format_has_times_and_clusters(read):
    assert read("time_s,cluster\n0,a\n0.5,b\n0.5,a\n") == [
        Arrival(0.0, "a"),
        Arrival(0.5, "b"),
        Arrival(0.5, "a"),
    ]


def test_optional_columns_may_be_empty_and_stand_in_any_order(read):
    text = "id,cluster,time_s,type,service_ms\nx,a,1,image,12.5\n,b,2,,\n"
    assert read(text) == [
        Arrival(1.0, "a", service_ms=12.5, type="image", id="x"),
        Arrival(2.0, "b"),
    ]


def test_spaces_blank_lines_quotes_and_a_byte_order_mark_do_no_harm(read):
    text = '\ufefftime_s, cluster,id\r\n\r\n0, a ,"x,y"\r\n\r\n'
    assert read(text) == [Arrival(0.0, "a", id="x,y")]


def test_azure_times_count_from_the_first_request_to_the_last_digit(read):
    assert [arrival.time_s for arrival in read(AZURE)] == [0.0, 0.052, 0.0981891]


def test_azure_requests_may_come_to_every_cluster_at_another_time(read):
    """Each has the whole trace once, the second by half its length later, around the end."""
    staggered = read(AZURE, assign="staggered")
    times = {c: [x.time_s for x in staggered if x.cluster == c] for c in "ab"}
    assert times["a"] == [0.0, 0.0, 0.052]  # the end of the trace is its beginning
    assert times["b"] == [0.00290545, 0.04909455, 0.04909455]
    assert [x.time_s for x in staggered] == sorted(x.time_s for x in staggered)
    assert sorted(x.service_ms for x in staggered) == [837.5, 837.5, 1035.0, 1035.0, 1502.0, 1502.0]


def test_azure_timestamps_may_carry_a_zone(read):
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2024-05-10 00:00:00.009930+00:00,1,1\n"
        "2024-05-10T02:00:01Z,1,1\n"
    )
    assert read(text)[1].time_s == pytest.approx(7200.99007, abs=1e-9)


def test_azure_timestamps_without_a_zone_are_of_utc(read, monkeypatch):
    """Wherever the machine is, and beside others that say their zone."""
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:00:00,1,1\n"
        "2023-11-16 20:00:01.25+01:00,1,1\n"
    )
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert [one.time_s for one in read(text)] == [0.0, 3601.25]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_there_may_be_so_many_requests_and_no_more(read, monkeypatch):
    """Of a staggered trace over all clusters."""
    monkeypatch.setattr(traces, "REQUESTS_MAX", 6)
    plain = "time_s,cluster\n" + "1,a\n" * 6
    assert len(read(plain)) == 6
    assert error_of(read, plain + "1,a\n") == "line 8: expected at most 6 requests"
    assert len(read(AZURE, assign="staggered")) == 6
    message = error_of(read, AZURE, assign="staggered", cluster_ids=["a", "b", "c"])
    assert message == "expected at most 6 requests over all clusters"


def test_a_line_may_be_so_long_and_no_longer(read):
    """With its end; and of what is wrong the beginning is told."""
    start = "time_s,cluster,id\n0,a,"
    longest = start + (10_000 - len("0,a,\n")) * "x" + "\n"
    assert len(read(longest)) == 1
    message = error_of(read, longest.replace("x\n", "xx\n"))
    assert message == "line 2: expected at most 10000 bytes"
    message = error_of(read, "time_s,cluster\n0," + 90 * "y" + "\n")
    assert message == f"line 2: cluster: expected one of a, b, got '{60 * 'y'}'"
    message = error_of(read, "time_s,cluster," + 90 * "z" + "\n")
    assert message.endswith(f"; got '{60 * 'z'}' too")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: expected a header line, got an empty file"),
        ("time_s,cluster\n", "line 2: expected at least one request, got only a header"),
        (
            "time_s,cluster,cluster\n0,a,a\n",
            (
                "line 1: expected the columns time_s,cluster and optionally service_ms,type,id;"
                " got cluster twice"
            ),
        ),
        ("time_s,cluster\n0,a\n1\n", "line 3: expected 2 fields, got 1"),
        ("time_s,cluster\n\n0,a,b\n", "line 3: expected 2 fields, got 3"),
        (
            "time_s,cluster\nnoon,a\n",
            "line 2: time_s: expected a finite number of at least 0, got 'noon'",
        ),
        (
            "time_s,cluster\n-1,a\n",
            "line 2: time_s: expected a finite number of at least 0, got '-1'",
        ),
        (
            "time_s,cluster,service_ms\n0,a,inf\n",
            "line 2: service_ms: expected a finite number of at least 0, got 'inf'",
        ),
        (
            "time_s,cluster\n2,a\n1,a\n",
            "line 3: time_s: expected a time not before that of the line above, got '1'",
        ),
        ("time_s,cluster\n0,z\n", "line 2: cluster: expected one of a, b, got 'z'"),
        (b"time_s,cluster\n0,a\n1,\xff\n", "line 3: expected UTF-8 text"),
        ("time_s,cluster\n0," + 10_000 * "a", "line 2: expected at most 10000 bytes"),
        (
            'time_s,cluster\n0,"a\n',
            "line 2: expected comma-separated fields: unexpected end of data",
        ),
        (
            "TIMESTAMP,ContextTokens\n",
            (
                "line 1: expected the columns TIMESTAMP,ContextTokens,GeneratedTokens;"
                " GeneratedTokens is missing"
            ),
        ),
        (
            "TIMESTAMP,ContextTokens,GeneratedTokens\n12.5,1,1\n",
            (
                "line 2: TIMESTAMP: expected a timestamp such as 2023-11-16 18:17:03.9799600,"
                " got '12.5'"
            ),
        ),
        (
            AZURE + "2023-11-16 18:17:04.0781490,1,1\n",
            (
                "line 5: TIMESTAMP: expected a time not before that of the line above,"
                " got '2023-11-16 18:17:04.0781490'"
            ),
        ),
        (
            AZURE + "2023-11-16 18:17:05,many,1\n",
            "line 5: ContextTokens: expected a finite number of at least 0, got 'many'",
        ),
    ],
)
def test_a_bad_line_is_told_by_its_number(read, text, message):
    assert error_of(read, text) == message


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_a_weight_that_is_no_duration_is_told(read, weight):
    message = error_of(read, AZURE, generated_token_ms=weight)
    assert message.startswith("--generated-token-ms: expected a finite number of at least 0")


def test_a_file_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(InputError, match=r"absent\.csv: expected a readable file: No such file"):
        read_trace(tmp_path / "absent.csv", cluster_ids=["a"])
    with pytest.raises(InputError, match=r"expected a readable file: Is a directory"):
        read_trace(tmp_path, cluster_ids=["a"])
