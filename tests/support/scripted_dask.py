"""A Dask cluster in the place of a real one, in this process: its scheduler answers at once, and
what becomes of requests there is what a test says. Functions travel to it as to a real one, and
greet and stop on objects that stand for its workers. Real ones are in `dask_clusters`.
"""

import asyncio
import pickle
import platform
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

from support.dask_clusters import Rig
from support.loop import turn, until

TURNS = 20
"""In which the session has done whatever it does without being told anything."""


class ScriptedWorker:
    """What a function that runs on it finds there."""

    def __init__(self, address, slots=1, python=None):
        self.address, self.slots = address, slots
        self.python = python or platform.python_version()
        self.state = SimpleNamespace(tasks={})
        self.broken = None
        """What whoever asks it gets instead of an answer."""
        self.answers = None
        """An event: it says nothing before that is set."""


class Sent:
    """One request that was sent to a worker."""

    def __init__(self, loop, function, given, options):
        self._loop = loop
        self.function, self.given, self.options = function, given, options
        (self.address,) = options["workers"]
        self.key = options["key"]
        self.id = given[4]["id"]
        self.future = loop.create_future()

    def answer(self, kind, value, details=""):
        self._loop.call_soon_threadsafe(self.future.set_result, (kind, value, details))

    def fail(self, error):
        self._loop.call_soon_threadsafe(self.future.set_exception, error)


class ScriptedDask:
    """What a test may say of it, and what has come to it."""

    address = "tcp://127.0.0.1:8786"

    def __init__(self, *workers):
        self.workers = {worker.address: worker for worker in workers}
        self.sent = []
        self.cancelled = []
        self.clients = []
        self.away = None
        """What connecting raises."""
        self.lost = None
        """What asking for the workers raises."""
        self.looks = 0
        self.is_silent = self.is_stuck = False
        """It never says which workers there are; its clients never close."""

    def module(self):
        """To be imported as `distributed`."""
        made = ModuleType("distributed")
        made.__spec__ = ModuleSpec("distributed", None)
        made.Client = lambda address, **options: _Client(self, address, options)
        return made

    def do(self, function, *args):
        """Where the session runs."""
        self.clients[-1].loop.call_soon_threadsafe(function, *args)

    async def settled(self):
        """The session has done what there was to do."""
        done = asyncio.run_coroutine_threadsafe(_turns(), self.clients[-1].loop)
        await asyncio.wrap_future(done)

    def tell(self, event):
        """What the scheduler tells all who listen."""
        self.do(self.clients[-1].hear, (0.0, event))

    def join(self, worker):
        self.workers[worker.address] = worker
        self.tell({"action": "add-worker", "worker": worker.address})

    def leave(self, address):
        del self.workers[address]
        self.tell({"action": "remove-worker", "worker": address})

    def sent_to(self, address):
        return [one.id for one in self.sent if one.address == address]


async def _turns():
    for _ in range(TURNS):
        await turn(0)


class _Client:
    """As `distributed.Client`, where it is asynchronous."""

    def __init__(self, dask, address, options):
        self.dask, self.address, self.options = dask, address, options
        self.loop = asyncio.get_running_loop()
        self.made_s = self.loop.time()
        self.status = "connecting"
        self.hear = None
        dask.clients.append(self)

    def __await__(self):
        return self._connect().__await__()

    async def _connect(self):
        if self.dask.away is not None:
            raise self.dask.away
        self.status = "running"

    def subscribe_topic(self, topic, hear):
        assert topic == "all"
        self.hear = hear

    async def nthreads(self):
        self.dask.looks += 1
        if self.dask.is_silent:
            await asyncio.Event().wait()
        if self.dask.lost is not None:
            raise self.dask.lost
        return {worker.address: worker.slots for worker in list(self.dask.workers.values())}

    async def run(self, function, *args, workers):
        answers = {}
        for address in workers:
            worker = self.dask.workers[address]
            if worker.answers is not None:
                await worker.answers.wait()
            if worker.broken is not None:
                raise worker.broken
            there = pickle.loads(pickle.dumps(function))  # noqa: S301 - made here
            if there is platform.python_version:
                answers[address] = worker.python
            else:
                answers[address] = there(*args, dask_worker=worker)
        return answers

    def submit(self, function, *given, **options):
        self.dask.sent.append(Sent(self.loop, function, given, options))
        return self.dask.sent[-1].future

    async def cancel(self, keys, **options):
        self.dask.cancelled.append((keys, options))

    async def close(self, timeout):  # noqa: ASYNC109 - as Dask has it
        assert timeout > 0.0
        if self.dask.is_stuck:
            await asyncio.Event().wait()
        self.status = "closed"


class DaskServers(Rig):
    """The servers of one cluster as its node drives them, on a scripted cluster."""

    def __init__(self, dask, *args, **options):
        self.dask = dask
        super().__init__(dask, *args, **options)

    async def sent(self, count):
        """So many requests were sent: the last one of them."""
        await until(lambda: len(self.dask.sent) == count)
        return self.dask.sent[-1]
