"""What engines say of themselves, as pages and headers have it."""

import pytest

from spillover.live.handlers.engine_load import (
    SAMPLES_MAX,
    load_in_header,
    load_on_page,
    together,
)
from spillover.model.engine_load import EngineLoad

VLLM = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a b}c"} 7.0
vllm:num_requests_running{engine="1",model_name="m"} 5.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{reason="capacity"} 9.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75 1700000000000
vllm:time_to_first_token_seconds_bucket{le="0.001"} 3.0
"""
SGLANG = b"""\
sglang:token_usage{model_name="m"} 0.52\r
sglang:num_running_reqs{model_name="m"} 8\r
sglang:num_queue_reqs{model_name="m"} 4\r
"""


def test_pages_of_vllm_and_sglang_are_read():
    """Ranks are added, the fullest cache counts."""
    assert load_on_page(VLLM) == EngineLoad(12.0, 2.0, 0.75)
    assert load_on_page(SGLANG) == EngineLoad(8.0, 4.0, 0.52)
    assert load_on_page(b"vllm:num_requests_waiting 0\nvllm:gpu_cache_usage_perc 0.5") == (
        EngineLoad(None, 0.0, 0.5)
    )


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"<html>not here</html>",
        b"vllm:num_requests_waiting NaN",
        b"vllm:num_requests_waiting -3",
        b"vllm:num_requests_waiting 1e300",
        b"vllm:num_requests_waiting " + b"9" * 100,
        b"vllm:num_requests_waiting{",
        b"vllm:num_requests_running 5",
        b"\xff" * 1000,
    ],
)
def test_pages_that_say_nothing_are_not_believed(page):
    assert load_on_page(page) is None


def test_a_page_of_nothing_but_what_is_read_is_not_read_to_its_end():
    """A node must not stand still for it."""
    page = b"vllm:num_requests_waiting 1\n" * 30_000
    assert load_on_page(page) == EngineLoad(None, float(SAMPLES_MAX), None)


def test_a_cache_that_would_be_fuller_than_full_is_not_read():
    """As where it is told in percent."""
    assert load_on_page(b"vllm:kv_cache_usage_perc 3.5") is None
    page = b"vllm:kv_cache_usage_perc 3.5\nvllm:num_requests_waiting 0\n"
    assert load_on_page(page) == EngineLoad(None, 0.0, None)


@pytest.mark.parametrize(
    "value",
    [
        b"TEXT named_metrics.kv_cache_usage_perc=0.4, named_metrics.num_requests_waiting=2",
        b'JSON {"named_metrics": {"kv_cache_usage_perc": 0.4, "num_requests_waiting": 2.0}}',
        b'JSON {"named_metrics":{"num_requests_waiting":2,"kv_cache_usage_perc":0.4},"eps":1}',
        b"TEXT eps=x,named_metrics.num_requests_waiting=2,named_metrics.gpu_cache_usage_perc=0.4",
    ],
)
def test_headers_are_read_in_both_forms(value):
    assert load_in_header(value) == EngineLoad(None, 2.0, 0.4)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"TEXT",
        b"TEXT cpu_utilization=0.3",
        b"JSON",
        b"JSON []",
        b'JSON {"named_metrics": 3}',
        b'JSON {"named_metrics": {"num_requests_waiting": "2"}}',
        b"BIN CAESAA==",
        b"TEXT named_metrics.num_requests_waiting=nan",
        b"JSON " + b"[" * 10_000,
    ],
)
def test_headers_that_say_nothing_are_not_believed(value):
    assert load_in_header(value) is None


def test_several_engines_are_one():
    """But for what they run, where one of them does not say it."""
    one, other = EngineLoad(3.0, 0.0, 0.9), EngineLoad(4.0, 2.0, 0.4)
    assert together([one, other]) == EngineLoad(7.0, 2.0, 0.9)
    assert together([one, other._replace(running=None)]) == EngineLoad(None, 2.0, 0.9)
