"""A loop in a thread of its own, for code that never awaits."""

import os
import threading

import pytest

from spillover.live.engine.loop_thread import LoopThread


@pytest.fixture
def thread():
    made = LoopThread("beside")
    yield made
    made.close()


async def where():
    return threading.current_thread().name, threading.current_thread().daemon


async def fail():
    raise LookupError("no")


def test_what_runs_there_returns_here_and_raises_here(thread):
    assert thread.run(where()) == ("beside", True)
    assert thread.begin(where()).result(20.0) == ("beside", True)
    with pytest.raises(LookupError, match="no"):
        thread.run(fail())


def test_no_thread_follows_a_fork(thread, monkeypatch):
    """To wait for it would be for ever."""
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(RuntimeError, match="beside: expected to be made anew after a fork"):
        thread.run(where())


def test_it_has_ended_once_it_is_closed():
    made = LoopThread("beside")
    assert made._thread.is_alive()
    made.close()
    assert not made._thread.is_alive()
