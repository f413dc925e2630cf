"""What tests of the clients share."""

import asyncio
import socket
import threading

import pytest
import uvloop


@pytest.fixture
def nowhere():
    """The url of a port where nobody listens; it stays bound, so that nobody else gets it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


class Bed:
    """One cluster with fifty servers, in a loop of its own."""

    def __init__(self, nodes):
        self._ready = threading.Event()
        self._failed = []
        self._thread = threading.Thread(target=self._run, args=(nodes,), name="nodes")
        self._thread.start()
        assert self._ready.wait(20.0)

    @property
    def home(self):
        return self._federation["a"].ledger.home

    def close(self):
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(20.0)
        assert self._failed == []

    def _run(self, nodes):
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve(nodes))
        except BaseException as error:  # noqa: BLE001 - told by `close`
            self._failed.append(error)

    async def _serve(self, nodes):
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        topology = nodes.topology_of("a", clusters={"a": {"servers": 50}})
        self._federation = nodes.Federation(topology)
        async with self._federation:
            self.url = self._federation["a"].url
            self._ready.set()
            await self._end.wait()


@pytest.fixture
def bed(nodes):
    bed = Bed(nodes)
    yield bed
    bed.close()
