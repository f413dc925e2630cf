"""Lookups that hang, and whom they do not hold up."""

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager

import pytest

from spillover.live.hosts import blocking, dialing
from spillover.live.hosts.lookups import Hosts, is_literal
from support.loop import turn, until

LIMIT_S = 20.0


class Resolver:
    """Stands for `getaddrinfo`: all names lead to this machine, those with `hangs` in them once
    told to, those with `nowhere` never."""

    def __init__(self):
        self.goes_on = threading.Event()
        self.asked = Counter()

    def __call__(self, name, *_, **__):
        self.asked[name] += 1
        if "hangs" in name:
            assert self.goes_on.wait(LIMIT_S)
        if "nowhere" in name:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]


@contextmanager
def listening():
    """Its port; the system takes the connections."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield server.getsockname()[1]


@pytest.fixture
def resolver():
    resolver = Resolver()
    yield resolver
    resolver.goes_on.set()


async def connect(host, port, hosts):
    transport, _ = await dialing.connect(asyncio.Protocol, host, port, 1.0, hosts)
    transport.abort()
    await turn(0)


def test_all_who_ask_for_a_name_wait_for_one_lookup_and_others_do_not(run, resolver):
    """In loops and in threads; whoever gives up gives up its own wait."""
    hosts, opened = Hosts(resolver), []

    async def main(port):
        tasks = [asyncio.create_task(connect("hangs.test", port, hosts)) for _ in range(50)]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await connect("hangs.test", port, hosts)
        await connect("well.test", port, hosts)
        assert not any(task.done() for task in tasks)
        tasks.pop().cancel()
        resolver.goes_on.set()
        await asyncio.gather(*tasks)

    with listening() as port:
        threads = [
            threading.Thread(
                target=lambda: opened.append(
                    blocking.connect("hangs.test", port, LIMIT_S, hosts).close()
                )
            )
            for _ in range(5)
        ]
        for thread in threads:
            thread.start()
        run(main(port))
        for thread in threads:
            thread.join(LIMIT_S)
    assert len(opened) == 5
    assert resolver.asked == {"hangs.test": 1, "well.test": 1}
    assert not any(hosts._waiting.values())


async def test_whoever_gives_up_leaves_nothing_behind(resolver):
    """However often it is tried: one thread, and nobody who waits."""
    hosts = Hosts(resolver)

    before = threading.active_count()
    for _ in range(20):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await connect("hangs.test", 1, hosts)
    assert threading.active_count() <= before + 1
    assert hosts._waiting == {"hangs.test": []}


def test_a_thread_waits_no_longer_than_it_wants_to(resolver):
    began_s = time.monotonic()
    with pytest.raises(TimeoutError, match=r"hangs\.test is still being"):
        blocking.connect("hangs.test", 1, 0.1, Hosts(resolver))
    assert time.monotonic() - began_s < LIMIT_S / 2


def test_a_name_that_hangs_leads_where_it_did(run, resolver):
    """Connections wait a moment for what comes of a new lookup, and no longer."""
    now_s, hangs = [0.0], []
    hosts = Hosts(lambda *_, **__: resolver("".join(hangs)), lambda: now_s[0])

    async def main(port):
        await connect("moves.test", port, hosts)
        hangs.append("hangs")
        now_s[0] = 100.0
        waits = asyncio.create_task(connect("moves.test", port, hosts))
        await until(lambda: resolver.asked["hangs"])
        assert not waits.done()
        now_s[0] = 100.3
        await waits
        await connect("moves.test", port, hosts)
        assert resolver.asked == {"": 1, "hangs": 1}

    with listening() as port:
        run(main(port))


@pytest.mark.parametrize("name", ["nowhere.test", "a..b", "x" * 70 + ".test"])
async def test_a_name_that_is_none_is_told(resolver, name):
    """And so it is to the next one, without a lookup."""
    hosts = Hosts(resolver if "nowhere" in name else socket.getaddrinfo)
    for _ in range(2):
        with pytest.raises(OSError, match=r"not known|label"):
            await connect(name, 1, hosts)
    with pytest.raises(OSError, match=r"not known|label"):
        blocking.connect(name, 1, 1.0, hosts)
    assert resolver.asked["nowhere.test"] == ("nowhere" in name)


@pytest.mark.parametrize(
    ("host", "literal"),
    [("127.0.0.1", True), ("::1", True), ("fe80::1%lo", True), ("localhost", False),
     ("1.2.3", False), ("a.b", False), ("", False), ("é", False)],
)  # fmt: skip
def test_addresses_need_no_lookup(run, host, literal):
    assert is_literal(host) is literal


def test_a_system_without_room_for_a_thread_says_so(monkeypatch, resolver):
    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(OSError, match="no room for a thread"):
        blocking.connect("well.test", 1, 1.0, Hosts(resolver))


ENDS = """
import asyncio, threading
import uvloop
from spillover.live.hosts import dialing
from spillover.live.hosts.lookups import Hosts

hosts = Hosts(lambda *_, **__: threading.Event().wait(600))

async def main():
    try:
        async with asyncio.timeout(0.05):
            await dialing.connect(asyncio.Protocol, "hangs", 1, 1.0, hosts)
    except TimeoutError:
        print("given up")

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(main())
"""

FORKS = """
import os, socket, threading
from spillover.live.hosts import blocking
from spillover.live.hosts.lookups import HOSTS

HOSTS._resolve = lambda *_, **__: threading.Event().wait(600)
try:
    blocking.connect("h", 1, 0.05)
except TimeoutError:
    pass
with socket.create_server(("127.0.0.1", 0)) as server:
    if os.fork() == 0:
        HOSTS._resolve = lambda *_, **__: [(socket.AF_INET, 1, 6, "", ("127.0.0.1", 0))]
        blocking.connect("h", server.getsockname()[1], 10.0).close()
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("script", "said"),
    [(ENDS, "given up"), (FORKS, "7")],
    ids=["uvloop", "fork"],
)
def test_a_process_ends_and_forks_while_a_lookup_hangs(script, said):
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, said, "")
