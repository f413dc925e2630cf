"""The queue's clients with producers as processes: what is killed, slow, cut off, drained."""

from __future__ import annotations

import json
import signal
import socket
import sys

import pytest

from spillover.client import OutcomeUnknown, Unreachable, consume, produce
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


def test_an_object_of_a_consumer_that_dies_in_mid_transfer_goes_to_the_next(queue, ask, until):
    _, urls = queue(1)
    url = urls["p1"]
    with produce(url) as putting:
        names = [putting.put(bytes(8_000_000)), putting.put(b"second")]
    host, _, port = url.removeprefix("http://").partition(":")
    body = b'{"consumer": "dies", "probe_id": "dies-1"}'
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)  # else the kernel takes it all
        raw.connect((host, int(port)))
        head = b"POST /take HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        raw.sendall(head + body)
        assert raw.recv(1000).startswith(b"HTTP/1.1 200")
    until(lambda: state(ask, url)["buffered"] == 2)
    seen = []
    for obj in consume(url):
        with obj:
            seen.append((obj.id, len(obj.body), obj.deliveries))
        if len(seen) == 2:
            break
    assert seen == [(names[0], 8_000_000, 2), (names[1], 6, 1)]


def test_a_killed_producer_loses_nothing_that_it_has_stored(queue, ask, until, start, tmp_path):
    running, urls = queue(2, stores=tmp_path)
    with produce(urls["p1"]) as putting:
        for k in range(4):
            putting.put(b"%d" % k)
        with consume(list(urls.values()), take_s=2.0) as consumer:
            objects = iter(consumer)
            with next(objects) as first:
                assert first.body == b"0"
            held = next(objects)
            running["p1"].process.kill()
            running["p1"].process.wait(10)
            with pytest.raises((Unreachable, OutcomeUnknown)):
                putting.put(b"nobody there")
            again = start(*running["p1"].process.args)
            until(lambda: again.stdout.endswith("\n") or again.process.poll() is not None, 60)
            until(lambda: held.lost, 20)
            held.nack()
            seen = []
            for obj in objects:
                with obj:
                    seen.append(obj.body)
                if len(seen) == 3:
                    consumer.stop()
    assert seen == [b"1", b"2", b"3"]


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


def test_work_acknowledges_what_was_done_and_gives_back_what_failed(
    queue, ask, until, spillover, tmp_path
):
    _, urls = queue(2, "--deliveries-max", "2")
    (tmp_path / "jobs.py").write_text(
        "def run(payload):\n"
        "    with open('seen', 'a') as seen:\n"
        "        print(payload['n'], file=seen)\n"
        "    return 1 / payload['n']\n"
    )
    work = spillover(
        *("queue", "work", "--handler", "python:jobs:run", "--producer", urls["p2"]),
        *("--at-once", "2"), cwd=tmp_path,
    )  # fmt: skip
    with produce(urls["p1"]) as putting:
        for n in (1, 0, 2, 3):
            putting.put(json.dumps({"n": n}).encode(), content_type="application/json")
        putting.put(b"{", content_type="application/json")
    until(lambda: state(ask, urls["p1"])["acknowledged"] == 3, 30, lambda: work.stderr)
    until(lambda: state(ask, urls["p1"])["dead"] == 2, 30, lambda: work.stderr)
    assert work.end(signal.SIGTERM) == 0
    assert json.loads(work.stdout) == {"done": 3, "given_back": 4}
    assert sorted((tmp_path / "seen").read_text().split()) == ["0", "0", "1", "2", "3"]
    assert "ZeroDivisionError" in work.stderr


def test_a_signal_has_work_finish_what_it_has_and_return_what_takes_too_long(
    queue, ask, until, spillover, tmp_path
):
    _, urls = queue(1, "--visibility-ms", "600")
    (tmp_path / "jobs.py").write_text(
        "import asyncio\n\nasync def run(payload):\n    await asyncio.sleep(payload)\n"
    )
    work = spillover(
        *("queue", "work", "--handler", "python:jobs:run", "--producer", urls["p1"]),
        *("--at-once", "2", "--drain-timeout-s", "3"), cwd=tmp_path,
    )  # fmt: skip
    with produce(urls["p1"]) as putting:
        for seconds in (b"2", b"100"):
            putting.put(seconds, content_type="application/json")
    until(lambda: state(ask, urls["p1"])["granted"] == 2, 30, lambda: work.stderr)
    assert work.end(signal.SIGTERM, within_s=15) == 0
    assert json.loads(work.stdout) == {"done": 1, "given_back": 1}
    told = state(ask, urls["p1"])
    assert (told["acknowledged"], told["buffered"], told["returned"]) == (1, 1, 1)


LOOP = """
import os, signal, sys
from spillover.client import consume

objects = consume(sys.argv[1:3], take_s=1.0)
for obj in objects:
    with obj:
        if obj.body == b"last":
            objects.stop()
        elif obj.body == b"end":
            os.kill(int(sys.argv[3]), getattr(signal, sys.argv[4]))
    print(obj.body.decode(), obj.lost, flush=True)
"""

ASYNC_LOOP = """
import asyncio, os, signal, sys
from spillover.client import consume

async def main():
    objects = consume(sys.argv[1:3], take_s=1.0)
    async for obj in objects:
        async with obj:
            if obj.body == b"last":
                objects.stop()
            elif obj.body == b"end":
                os.kill(int(sys.argv[3]), getattr(signal, sys.argv[4]))
        print(obj.body.decode(), obj.lost, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize(("script", "sent"), [(LOOP, "SIGKILL"), (ASYNC_LOOP, "SIGSTOP")])
def test_a_loop_goes_on_when_a_producer_ends_between_object_and_acknowledgement(
    queue, until, start, script, sent
):
    """What is not known of the one object is told of it, in one line of the log too."""
    running, urls = queue(2, "--visibility-ms", "1500")
    with produce(urls["p1"]) as putting:
        putting.put(b"end")
    ends = running["p1"].process
    loop = start(sys.executable, "-c", script, *urls.values(), str(ends.pid), sent)
    try:
        until(lambda: loop.stdout == "end True\n" or loop.process.poll() is not None, 30)
        with produce(urls["p2"]) as putting:
            putting.put(b"more")
            putting.put(b"last")
        assert loop.process.wait(30) == 0, loop.stderr
    finally:
        ends.send_signal(signal.SIGCONT)
    assert loop.stdout.splitlines() == ["end True", "more False", "last False"]
    (line,) = loop.stderr.splitlines()
    assert line.startswith("an object may be handled twice peer=p1 problem="), line
