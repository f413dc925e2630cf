"""A process that ends with its standard input, which whoever started it holds open."""

import asyncio
import os
import threading

import pytest

from spillover.live.process import stdin_end
from spillover.live.process.own_threads import start_own
from spillover.live.process.stdin_end import on_stdin_end
from spillover.model.errors import RunError
from support.loop import turn, until


def threads():
    return [one for one in threading.enumerate() if one.name == "stdin"]


@pytest.fixture
def pipe(monkeypatch):
    """What stands for standard input, and the end that somebody else holds."""
    reading, writing = os.pipe()
    monkeypatch.setattr(stdin_end, "STDIN", reading)
    yield reading, writing
    for one in threads():
        one.join(20.0)
    os.close(reading)


async def test_it_is_told_once_nobody_holds_it_open_any_more(pipe):
    """Whatever is said there until then."""
    end = asyncio.Event()
    on_stdin_end(end)
    (thread,) = threads()
    assert thread.daemon, "it must not keep the process"
    for said in (b"a line\n", b"x" * 10_000):
        os.write(pipe[1], said)
    await turn(0.02)
    assert not end.is_set()
    os.close(pipe[1])
    await until(end.is_set)


async def test_a_standard_input_that_is_none_has_ended(monkeypatch):
    monkeypatch.setattr(stdin_end, "STDIN", -1)

    end = asyncio.Event()
    on_stdin_end(end)
    await until(end.is_set)


async def test_a_loop_that_has_ended_before_is_not_told(pipe):
    on_stdin_end(asyncio.Event())
    os.close(pipe[1])
    for one in threads():
        one.join(20.0)
    assert threads() == []


def test_a_thread_that_cannot_be_started_is_told_in_one_line(monkeypatch):
    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(RunError) as error:
        start_own(threading.Thread(name="lines"))
    assert str(error.value) == (
        "the thread 'lines' cannot be started: expected room for more threads"
        " (ulimit -u, pids.max, memory)"
    )
