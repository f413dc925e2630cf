"""What the functions of users are: awaited or not, and with a context or not."""

import asyncio
import json
import operator
import sys
import time
from functools import partial

import msgspec
import pytest

from spillover.core.overflow.events import Start
from spillover.live.handlers.python.functions import (
    import_function,
    is_async,
    load_function,
    takes_context,
)
from spillover.live.handlers.python.handler import AsyncWorkers
from spillover.model.errors import InputError
from spillover.model.request import Outcome, Request
from spillover.model.topology import HANDLERS_KNOWN
from support.loop import until


async def awaited(payload):
    return payload


def plain(payload):
    return payload


class Awaited:
    """An object that is called as a coroutine."""

    async def __call__(self, payload, ctx):
        return payload, ctx


class Plain:
    """One that is called as a function."""

    def __call__(self, payload, other=None):
        return payload, other


@pytest.mark.parametrize(
    ("function", "expected"),
    [(awaited, True), (Awaited(), True), (plain, False), (Plain(), False), (len, False)],
)
def test_who_is_awaited(function, expected):
    assert is_async(function) is expected


@pytest.mark.parametrize(
    ("function", "takes"),
    [
        (plain, False),
        (awaited, False),
        (lambda payload, anything: (payload, anything), True),
        (lambda payload, ctx=None: (payload, ctx), True),
        (lambda payload, context=None: (payload, context), True),
        (lambda payload, other=None: (payload, other), False),
        (lambda payload, *, ctx=None: (payload, ctx), False),
        (lambda *payload: payload, False),
        (Awaited(), True),
        (Plain(), False),
        (partial(lambda ctx, payload: (ctx, payload), None), False),
        (len, False),
        (max, False),
    ],
)
def test_who_gets_a_context(function, takes):
    """Who cannot be called without a second argument, or names it so. Some of CPython's own
    functions do not tell what they take."""
    assert takes_context(function) is takes


@pytest.mark.parametrize(
    ("named", "function"),
    [
        ("json:dumps", json.dumps),
        ("operator:add", operator.add),
        ("operator:neg", operator.neg),
        ("functools:partial", partial),
        ("builtins:max", max),
    ],
)
def test_a_function_is_found_by_its_name(named, function):
    assert load_function(f"python:{named}", "t.yaml: cluster a") is function


@pytest.mark.parametrize(
    ("handler", "told"),
    [
        ("python:operator:setitem", "expected setitem(payload) or setitem(payload, ctx)"),
        ("python:operator:not_there", "expected a function 'not_there' in module 'operator'"),
        ("python:math:pi", "expected a function 'pi' in module 'math'"),
        ("python:nowhere:f", "cannot import 'nowhere': ModuleNotFoundError: "),
        ("ruby:operator:add", f"expected {HANDLERS_KNOWN}, got 'ruby:operator:add'"),
        ("python:operator", f"expected {HANDLERS_KNOWN}, got 'python:operator'"),
        ("python:operator:", f"expected {HANDLERS_KNOWN}, got 'python:operator:'"),
        ("python::add", f"expected {HANDLERS_KNOWN}, got 'python::add'"),
    ],
)
def test_what_cannot_be_called_is_told_with_its_place(handler, told):
    with pytest.raises(InputError) as error:
        load_function(handler, "t.yaml: cluster a")
    assert str(error.value).startswith(f"t.yaml: cluster a: handler: {told}")


def test_the_working_directory_is_importable(tmp_path, monkeypatch):
    (tmp_path / "functions_here.py").write_text("def f(payload):\n    return payload\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = [*sys.path]
    for _ in range(2):
        assert import_function("python:functions_here:f", "it")(7) == 7
    assert sys.path == [str(tmp_path), *before]


async def test_what_is_cancelled_on_the_loop_has_taken_the_time_up_to_then():
    async def handle(payload):
        await asyncio.Event().wait()

    ends = []
    workers = AsyncWorkers(handle, "a", lambda event, _: ends.append(event))
    began_s = time.monotonic() - 5.0
    request = Request("r", keyed=False, work=msgspec.Raw(b"{}"))
    workers.start(Start(7, request, began_s, began_s + 60.0))
    workers.stop(7)
    await until(lambda: ends)
    (event,) = ends
    assert (event.ref, event.outcome) == (7, Outcome.CANCELLED)
    assert 5.0 <= event.service_s <= time.monotonic() - began_s
