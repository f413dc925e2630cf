"""The queue's clients with producers as processes: what is killed, slow, cut off, drained."""

import json
import signal
import sys

import pytest

from spillover.client import produce
from support.commands import SPILLOVER


@pytest.fixture
def queue(start, free_ports, until, ask):
    """`queue(count, *options)`: producers p1, p2, ... as processes; they and their urls, by id."""

    def start_them(count, *options, stores=None):
        ports = free_ports(count)
        urls = {f"p{k + 1}": f"http://127.0.0.1:{port}" for k, port in enumerate(ports)}
        running = {}
        for name, url in urls.items():
            peers = [f"--peer={other}={its}" for other, its in urls.items() if other != name]
            bind = url.removeprefix("http://")
            store = [f"--store={stores / name}"] if stores else []
            command = ("queue", "--id", name, "--bind", bind, *peers, *store, *options)
            running[name] = start(*SPILLOVER, *command)
        for one in running.values():
            until(lambda one=one: one.stdout.endswith("\n") or one.process.poll() is not None, 60)
            assert one.process.poll() is None, one.stderr
        return running, urls

    return start_them


def state(ask, url):
    return ask(f"{url}/state")[1]


SYNC = """
import sys, time
from spillover.client import consume

for obj in consume(sys.argv[1]):
    with obj:
        print(obj.id, flush=True)
        time.sleep(100)
"""

ASYNC = """
import asyncio, sys
from spillover.client import consume

async def main():
    async for obj in consume(sys.argv[1]):
        async with obj:
            print(obj.id, flush=True)
            await asyncio.sleep(100)

asyncio.run(main())
"""

UNCLOSED = """
import sys, time
from spillover.client import consume

objects = iter(consume(sys.argv[1]))
print(next(objects).id, flush=True)
time.sleep(100)
"""

FORGOTTEN = UNCLOSED.replace("time.sleep(100)", "sys.exit(1)")


def test_whoever_is_interrupted_gives_back_what_it_holds(queue, ask, until, start):
    """Long before the grant would end by itself; however it had asked, and whether it was told to
    end or ended by itself."""
    _, urls = queue(1)
    scripts = (SYNC, ASYNC, UNCLOSED, FORGOTTEN)
    with produce(urls["p1"]) as putting:
        for _ in scripts:
            putting.put(b"x")
    running = {script: start(sys.executable, "-c", script, urls["p1"]) for script in scripts}
    for one in running.values():
        until(lambda one=one: one.stdout.endswith("\n") or one.process.poll() is not None, 30)
        assert one.stdout.endswith("\n"), one.stderr
    for script, one in running.items():
        assert (one.process.wait(10) if script is FORGOTTEN else one.end()) != 0
    told = state(ask, urls["p1"])
    expected = (len(scripts), 0, len(scripts))
    assert (told["buffered"], told["granted"], told["returned"]) == expected


def test_a_signal_has_work_finish_what_it_has_and_return_what_takes_too_long(
    queue, ask, until, spillover, tmp_path
):
    _, urls = queue(1, "--visibility-ms", "600")
    (tmp_path / "jobs.py").write_text(
        "import asyncio\n\nasync def run(payload):\n    await asyncio.sleep(payload)\n"
    )
    work = spillover(
        *("queue", "work", "--handler", "python:jobs:run", "--producer", urls["p1"]),
        *("--at-once", "2", "--drain-timeout-s", "2"), cwd=tmp_path,
    )  # fmt: skip
    with produce(urls["p1"]) as putting:
        for seconds in (b"1", b"100"):
            putting.put(seconds, content_type="application/json")
    until(lambda: state(ask, urls["p1"])["granted"] == 2, 30, lambda: work.stderr)
    assert work.end(signal.SIGTERM, within_s=15) == 0
    assert json.loads(work.stdout) == {"done": 1, "given_back": 1}
    told = state(ask, urls["p1"])
    assert (told["acknowledged"], told["buffered"], told["returned"]) == (1, 1, 1)
