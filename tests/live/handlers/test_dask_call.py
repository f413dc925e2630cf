"""What a worker makes of a function and its result, without a worker."""

from __future__ import annotations

import json
import math
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from spillover.live.handlers.dask import call


@dataclass
class Point:
    """What JSON has no form for."""

    x: int
    y: float


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ({"a": math.nan, "b": [math.inf]}, '{"a": null, "b": [null]}'),
        ([{"c": (1.5, -math.inf)}], '[{"c": [1.5, null]}]'),
        ({"é": 7}, '{"é": 7}'),
        (bytearray(b"\0"), '"AA=="'),
        ({3}, "[3]"),
        (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00+00:00"'),
        (Point(1, math.nan), '{"x": 1, "y": NaN}'),
    ],
)
def test_results_are_json_in_the_form_that_users_expect(result, told):
    kind, body, details = call._ended(result, 10_000)
    assert (kind, body.decode(), details) == (call.DONE, told, "")


def test_a_result_may_be_as_long_as_was_said():
    assert call._ended("xy", 4)[0] == call.DONE
    kind, problem, _ = call._ended("xyz", 4)
    assert kind == call.FAILED
    assert problem == "the handler returned more than 4 bytes of JSON (str)"


@pytest.mark.parametrize(
    ("function", "takes"),
    [
        (lambda payload: payload, False),
        (lambda payload, other: (payload, other), True),
        (lambda payload, other=1: (payload, other), False),
        (lambda payload, ctx=None: (payload, ctx), True),
        (lambda payload, context=None: (payload, context), True),
        (lambda payload, *, ctx=None: (payload, ctx), False),
        (lambda *payload: payload, False),
        (max, False),
    ],
)
def test_who_gets_a_context(function, takes):
    """Who cannot be called without a second argument, or names it so."""
    assert call._takes_context(function) is takes


class Fault(Exception):
    """With what a handler may say of its failure."""

    def __init__(self, **said):
        super().__init__("no")
        self.__dict__.update(said)


@pytest.mark.parametrize(
    ("said", "kind", "value"),
    [
        ({}, call.FAILED, "Fault: no"),
        ({"not_run": True}, call.NOT_RUN, ("Fault: no", None)),
        ({"not_run": True, "retry_after_s": 2.5}, call.NOT_RUN, ("Fault: no", 2.5)),
        ({"not_run": True, "retry_after_s": "2"}, call.NOT_RUN, ("Fault: no", None)),
        ({"not_run": True, "retry_after_s": True}, call.NOT_RUN, ("Fault: no", None)),
        ({"not_run": 1}, call.FAILED, "Fault: no"),
        ({"rejected": True}, call.REJECTED, ("Fault: no", None, None)),
        ({"rejected": True, "status": 418, "body": [1]}, call.REJECTED, ("Fault: no", 418, b"[1]")),
        ({"rejected": True, "status": "418"}, call.REJECTED, ("Fault: no", None, None)),
        ({"rejected": True, "body": object()}, call.REJECTED, ("Fault: no", None, None)),
    ],
)
def test_what_a_fault_says_of_itself(said, kind, value):
    """Only failures of the code come with a traceback."""
    told_kind, told, details = call._failed(Fault(**said))
    shown = told.replace(Fault.__module__ + ".", "") if kind == call.FAILED else told
    if kind != call.FAILED:
        shown = (told[0].replace(Fault.__module__ + ".", ""), *told[1:])
    assert (told_kind, shown) == (kind, value)
    assert ("Fault: no" in details) is (kind == call.FAILED)


@pytest.mark.parametrize("over_bytes", [0, 1])
def test_what_a_rejection_says_at_length_is_cut(over_bytes):
    body = "x" * (call.SAID_BYTES_MAX - 2 + over_bytes)
    said = json.loads(call._said(body))
    assert said == (body if not over_bytes else '"' + body[: call.SAID_BYTES_MAX - 1])


def test_who_runs_is_told_that_its_result_is_not_wanted():
    """That one alone; of what does not run, or on a worker that was never greeted, it is said."""
    running = {"one": threading.Event(), "other": threading.Event()}
    worker = SimpleNamespace(spillover_running=running)
    assert call.stop("one", dask_worker=worker)
    assert {key: told.is_set() for key, told in running.items()} == {"one": True, "other": False}
    assert not call.stop("third", dask_worker=worker)
    assert not call.stop("one", dask_worker=SimpleNamespace())
