"""Commands in this process, and nodes that run meanwhile: in a thread of their own."""

import asyncio
import socket
import threading
from contextlib import contextmanager

import pytest
import uvloop

from spillover.cli import main

WITHIN_S = 60.0


class Running:
    """A federation in a thread. `urls` by cluster; `ask` runs a coroutine function there."""

    def __init__(self, federation, loop):
        self.loop = loop
        self.federation = federation
        self.urls = {cluster: node.url for cluster, node in federation.nodes.items()}

    def ask(self, function, *arguments):
        coroutine = function(self.federation, *arguments)
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(WITHIN_S)


@pytest.fixture
def running(nodes):
    """For `with`: the nodes of a topology, which know of each other when that begins."""

    @contextmanager
    def run_it(topology, **options):
        ready, ended = threading.Event(), threading.Event()
        running = None
        stop = None

        async def main():
            nonlocal running, stop
            stop = asyncio.Event()
            async with nodes.Federation(topology, **options) as federation:
                running = Running(federation, asyncio.get_running_loop())
                ready.set()
                await stop.wait()

        def work():
            try:
                nodes.run(main, uvloop.new_event_loop)
            finally:
                ended.set()
                ready.set()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            assert ready.wait(WITHIN_S)
            assert not ended.is_set(), "the nodes did not start"
            yield running
        finally:
            if running is not None and not ended.is_set():
                running.loop.call_soon_threadsafe(stop.set)
            thread.join(WITHIN_S)

    return run_it


@pytest.fixture
def free_url():
    """Where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def told(capsys, monkeypatch):
    """`told(*words)`: exit status, stdout and stderr of a command, with no API token to show."""
    monkeypatch.delenv("SPILLOVER_TOKEN", raising=False)

    def run(*words):
        capsys.readouterr()
        try:
            status = main([str(word) for word in words])
        except SystemExit as ended:
            status = ended.code
        return (status, *capsys.readouterr())

    return run


@pytest.fixture
def refused(told):
    """`refused(*words)`: the one line that a command says in place of doing anything."""

    def run(*words, status=2):
        found, out, err = told(*words)
        assert (found, out, err.count("\n"), err[-1:]) == (status, "", 1, "\n"), err
        assert err.startswith("spillover: ")
        return err.removeprefix("spillover: ")

    return run
