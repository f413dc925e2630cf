"""What a worker makes of a function and its result, without a worker."""

from __future__ import annotations

import asyncio
import json
import math
import sys
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
        ({"é": math.nan}, '{"é": null}'),
        (bytearray(b"\0"), '"AA=="'),
        ({3}, "[3]"),
        (datetime(2026, 1, 2, tzinfo=UTC), '"2026-01-02T00:00:00+00:00"'),
        (Point(1, math.nan), '{"x": 1, "y": NaN}'),
    ],
)
def test_results_are_json_in_the_form_that_users_expect(result, told):
    kind, body, details = call._ended(result, 10_000)
    assert (kind, body.decode(), details) == (call.DONE, told, "")


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


# --- on a worker ------------------------------------------------------------------------------

LIMIT_BYTES = 1_000
FACTS = {"id": "r1", "type": "render", "cluster": "a", "remaining_ms": 5.0}


class There:
    """A worker as functions find it, its module of functions, and what it makes of a call."""

    def __init__(self, monkeypatch, **functions):
        self.seen = []
        self.worker = SimpleNamespace(state=SimpleNamespace(tasks={"k": SimpleNamespace()}))
        self.task.state = "executing"
        fake = SimpleNamespace(get_worker=lambda: self.worker)
        monkeypatch.setitem(sys.modules, "distributed", fake)
        monkeypatch.setitem(sys.modules, "functions_there", SimpleNamespace(**functions))

    @property
    def task(self):
        return self.worker.state.tasks["k"]

    def run(self, function, payload=b"[1]", of=None):
        token, problem = call.greet("functions_there", function, dask_worker=self.worker)
        assert problem == ""
        names = ("functions_there", function)
        return call.run(of or token, "k", names, payload, FACTS, LIMIT_BYTES)

    def stop(self):
        return call.stop("k", dask_worker=self.worker)


def test_why_a_worker_cannot_run_a_function(monkeypatch):
    """It is known all the same; whatever a module does as it is imported."""
    there = There(monkeypatch, f=7)
    for name in ("f", "g"):
        told = f"there is no function {name!r} in its module 'functions_there'"
        assert call.greet("functions_there", name, there.worker)[1] == told
    token, problem = call.greet("functions_nowhere", "f", there.worker)
    assert token == there.worker.spillover_token
    assert problem.startswith("cannot import 'functions_nowhere': ModuleNotFoundError: ")


def test_what_runs_is_known_while_it_runs_and_no_longer(monkeypatch):
    """So long it can be stopped, and sees that it was, however often it looks."""

    def f(payload, ctx):
        before = ctx.cancelled
        assert there.stop()
        return [payload, before, ctx.cancelled, ctx.id, ctx.type, ctx.cluster, ctx.remaining_ms]

    there = There(monkeypatch, f=f)
    kind, body, details = there.run("f")
    assert (kind, details) == (call.DONE, "")
    assert json.loads(body) == [[1], False, True, "r1", "render", "a", 5.0]
    assert not there.stop()
    assert there.worker.spillover_running == {}


@pytest.mark.parametrize("how", ["cancelled", "forgotten"])
def test_what_the_scheduler_has_dropped_is_not_wanted(monkeypatch, how):
    """As it does when the node has died. What has begun sees it, what has not does not begin."""

    def drop():
        if how == "cancelled":
            there.task.state = "cancelled"
        else:
            del there.worker.state.tasks["k"]

    def f(payload, ctx):
        seen.append(ctx.cancelled)
        drop()
        return ctx.cancelled

    seen = []
    there = There(monkeypatch, f=f)
    assert there.run("f") == (call.DONE, b"true", "")
    assert there.run("f") == (call.NOT_BEGUN, "", "")
    assert seen == [False]
    assert there.worker.spillover_running == {}


def test_another_process_than_the_one_that_was_greeted_begins_nothing(monkeypatch):
    there = There(monkeypatch, f=there_is_no_call)
    assert there.run("f", of="another one") == (call.NOT_BEGUN, "", "")
    del there.worker.spillover_token
    names = ("functions_there", "f")
    assert call.run("t", "k", names, b"1", FACTS, LIMIT_BYTES)[0] == call.NOT_BEGUN


def there_is_no_call(payload):
    raise AssertionError(payload)


def test_whatever_a_function_raises_ends_its_call_alone(monkeypatch):
    def f(payload):
        raise SystemExit(payload)

    there = There(monkeypatch, f=f)
    kind, problem, details = there.run("f", b"3")
    assert (kind, problem) == (call.FAILED, "SystemExit: 3")
    assert details.startswith("Traceback")
    assert there.run("f", b"{")[0] == call.FAILED
    assert there.worker.spillover_running == {}


def test_results_are_bounded_where_they_are_made(monkeypatch):
    there = There(monkeypatch, f=lambda payload: "x" * payload)
    assert there.run("f", b"998")[0] == call.DONE
    assert there.run("f", b"999")[:2] == (
        call.FAILED,
        "the handler returned more than 1000 bytes of JSON (str)",
    )


def test_a_coroutine_runs_to_its_end_or_is_cancelled(monkeypatch):
    """As soon as nobody wants it; one that heeds nothing goes on, and is told again."""

    async def heeds(payload, ctx):
        seen.append(ctx.cancelled)
        there.stop()
        await asyncio.Event().wait()

    async def goes_on(payload, ctx):
        there.stop()
        for _ in range(2):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("told")
        return payload

    async def is_well(payload):
        return payload

    seen = []
    there = There(monkeypatch, heeds=heeds, goes_on=goes_on, is_well=is_well)
    assert there.run("is_well") == (call.DONE, b"[1]", "")
    kind, problem, _ = there.run("heeds")
    assert (kind, problem.split(":")[0]) == (call.FAILED, "asyncio.exceptions.CancelledError")
    assert there.run("goes_on") == (call.DONE, b"[1]", "")
    assert seen == [False, "told", "told"]


class Hostile(Exception):
    """Whose attributes do anything."""

    @property
    def not_run(self):
        raise SystemExit


def test_what_json_cannot_hold_is_a_failure(monkeypatch):
    """Told by its type; so is a fault that cannot even be asked."""
    there = There(monkeypatch, f=lambda payload: {1: {payload[0]: object()}})
    words = "TypeError: the handler returned what JSON cannot hold: object"
    assert there.run("f")[:2] == (call.FAILED, words)
    kind, problem, details = call._failed(Hostile("no"))
    assert (kind, problem) == (call.FAILED, f"{Hostile.__module__}.Hostile: no")
    assert "Hostile: no" in details
    assert call._said("é") == '"é"'.encode()
