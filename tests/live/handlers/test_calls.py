"""What a call of a function comes to, before anybody is told: results and their bound, payloads
that nothing is called with, and what an exception says of itself."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import traceback
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from spillover.core.overflow.events import ServiceEnded, Start
from spillover.live.handlers import calls
from spillover.live.handlers.calls import (
    RETRY_AFTER_S_MAX,
    SAID_LIMIT_BYTES,
    as_text,
    call,
    encoded,
    failed,
    pause_s,
)
from spillover.live.handlers.ends import event_of
from spillover.live.handlers.results import as_json
from spillover.model.request import Outcome, Request

START = Start(7, Request("r", keyed=False, work=msgspec.Raw(b"{}")), 0.0, 1e9)


@pytest.mark.parametrize(("with_context", "got"), [(True, [{"n": 1}, "ctx"]), (False, [{"n": 1}])])
def test_a_function_gets_what_it_asks_for(with_context, got):
    ended = call(lambda *given: given, b'{"n":1}', "ctx", with_context)
    assert (json.loads(ended.result), ended.problem) == (got, None)


def test_what_python_cannot_hold_is_refused_and_nothing_is_called():
    """The client's fault: no other cluster would do better, and none is tried."""
    was_called = []
    ended = call(was_called.append, b"1e999", None, False)
    assert not was_called
    assert (ended.rejected, ended.not_run, ended.status) == (True, False, 422)
    assert ended.problem.startswith("the handler was not called: payload: expected JSON that ")
    event = event_of(START, ended)
    assert isinstance(event, ServiceEnded)
    assert (event.ref, event.outcome, event.upstream_status) == (7, Outcome.REJECTED, 422)


@pytest.mark.parametrize(("size", "is_result"), [(98, True), (99, False)])
def test_a_result_may_be_so_long_and_no_longer(monkeypatch, size, is_result):
    """With its quotation marks it is two bytes more."""
    monkeypatch.setattr(calls, "RESULT_LIMIT_BYTES", 100)
    ended = encoded("x" * size)
    assert (ended.problem is None) == is_result
    if not is_result:
        assert ended.problem == "the handler returned more than 100 bytes of JSON (str)"


def test_what_is_no_json_is_a_failure():
    ended = encoded(object())
    assert ended.problem.startswith("the handler returned what JSON cannot hold (object): ")
    assert encoded([math.nan, math.inf]).result == b"[null,null]"


class Text(str):
    """As enumerations and frameworks have them."""

    __slots__ = ()


class Number(int):
    """The same."""


class Model:
    """As pydantic's."""

    def model_dump(self, *, mode):
        return {"mode": mode}


@dataclasses.dataclass
class Point:
    """With a value that msgspec does not know."""

    x: object


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (Text("a"), b'"a"'),
        ({Text("k"): Number(7)}, b'{"k":7}'),
        (np.int64(7), b"7"),
        ([np.float32(0.5), np.float64(math.nan)], b"[0.5,null]"),
        (np.array([[1, 2]]), b"[[1,2]]"),
        (Model(), b'{"mode":"json"}'),
        ([Point(Point(np.bool_(True)))], b'[{"x":{"x":true}}]'),
    ],
)
def test_what_may_be_returned_on_a_dask_worker_may_be_returned_here(result, told):
    assert encoded(result).result == told
    assert msgspec.json.decode(as_json(result).replace(b"NaN", b"null")) == json.loads(told)


def test_what_a_decorator_has_made_of_a_coroutine_function_is_awaited():
    async def work(payload):
        return payload

    async def hang(_):
        await asyncio.Event().wait()

    context = SimpleNamespace(cancelled=False)
    assert call(lambda payload, of=work: of(payload), b"[1]", context, False).result == b"[1]"
    context.cancelled = True
    assert (
        "CancelledError" in call(lambda payload, of=hang: of(payload), b"1", context, False).problem
    )


class Says(Exception):
    """An exception with whatever attributes."""

    def __init__(self, **told):
        super().__init__("words")
        vars(self).update(told)


def test_what_an_exception_says_of_itself():
    """That it surely has not run goes before all else."""
    ended = failed(Says(not_run=True, rejected=True, retry_after_s=3))
    assert (ended.not_run, ended.rejected, ended.retry_after_s) == (True, False, 3.0)
    ended = failed(Says(rejected=True, status=409, body={"a": 1}))
    assert (ended.not_run, ended.rejected) == (False, True)
    assert (ended.status, ended.body) == (409, b'{"a":1}')
    for told in ({}, {"not_run": 1}, {"rejected": "yes", "status": 409}):
        ended = failed(Says(**told))
        assert (ended.not_run, ended.rejected, ended.status, ended.body) == (False,) * 2 + (
            None,
        ) * 2
        assert ended.problem.endswith("Says: words")
        assert "Says" in ended.details
        assert not ended.out_of_memory
    assert failed(MemoryError()).out_of_memory


@pytest.mark.parametrize("kind", [MemoryError, ValueError])
def test_where_memory_is_missing_nothing_is_held_of_the_call(kind):
    """Else its frames tell who looks at them what was there."""

    def fails():
        held = bytearray(9)
        raise kind(str(len(held)))

    with pytest.raises(kind) as caught:
        fails()
    assert failed(caught.value).details.endswith("Error: 9\n")
    *_, last = traceback.walk_tb(caught.value.__traceback__)
    assert ("held" in last[0].f_locals) == (kind is ValueError)


@pytest.mark.parametrize(
    ("asked", "pause"),
    [
        (1, 1.0),
        (0.5, 0.5),
        (RETRY_AFTER_S_MAX + 1, 86_400.0),
        *[(one, None) for one in (0, -1, math.inf, math.nan, True, "3", None)],
    ],
)
def test_a_pause_within_reason(asked, pause):
    assert pause_s(asked) == pause


@pytest.mark.parametrize(
    "body", [b"x" * 99_999, b"\0" * 99_999, "ä€".encode() * 9_999, b"\xff" * 40_000]
)
def test_what_is_too_long_is_cut_to_what_may_be_said(body):
    text = as_text(body)
    assert 0.9 * SAID_LIMIT_BYTES < len(text) <= SAID_LIMIT_BYTES
    told = json.loads(text)
    assert told.endswith("...")
    assert body.decode(errors="replace").startswith(told.removesuffix("..."))


def test_account_of_failure_is_bounded_however_long_its_message_is():
    ended = failed(ValueError("cannot use " + 10_000_000 * "x" + " at all"))
    assert ended.problem.startswith("ValueError: cannot use x")
    assert len(ended.problem) <= calls.PROBLEM_LENGTH_MAX
    assert len(ended.details) < calls.DETAILS_LENGTH_MAX + 100
    assert ended.details.endswith("x at all\n")
