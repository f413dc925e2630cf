"""Real Dask clusters of processes on loopback, and the servers of one node on them. Tests are in
files of their own, what runs there in `dask_functions_of_tests`.
"""

import asyncio
import json
import os
import subprocess
import sys
from functools import partial

import uvloop

from support import HANDLERS, handler_rig, loop, waiting

LIMIT_S = 60.0
until = partial(loop.until, limit_s=LIMIT_S)
FUNCTIONS = "dask_functions_of_tests"


def run(main):
    async def limited():
        async with asyncio.timeout(3.0 * LIMIT_S):  # clusters start meanwhile
            await main()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(limited())


class DaskCluster:
    """A scheduler and workers, of one slot each unless told, as processes; killed at the end."""

    def __init__(self, directory):
        self.directory = directory
        self.port = None
        self.workers = []
        self.starts = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in (*self.workers, self.scheduler):
            self.kill(process)

    def start(self, workers):
        self.starts += 1
        file = self.directory / f"scheduler-{self.starts}.json"
        port = ("--port", str(self.port or 0), "--scheduler-file", file)
        self.scheduler = self.spawn("scheduler", *port)
        self.wait_for(lambda: file.exists() and file.read_text())
        self.address = json.loads(file.read_text())["address"]
        self.port = int(self.address.rpartition(":")[2])
        log = self.directory / "worker.log"
        log.touch()
        joined = log.read_text().count("Registered to")
        for _ in range(workers):
            self.add_worker()
        self.wait_for(lambda: log.read_text().count("Registered to") == joined + workers)
        return self

    def wait_for(self, condition):
        def is_so():
            assert self.scheduler.poll() is None
            return condition()

        waiting.until(is_so, LIMIT_S)

    def add_worker(self, *options, path=HANDLERS):
        usual = ("--no-nanny", "--nthreads", "1", "--local-directory", self.directory)
        self.workers.append(self.spawn("worker", self.address, *usual, *options, path=path))
        return self.workers[-1]

    def spawn(self, kind, *options, path=HANDLERS):
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", "--no-dashboard"]
        with (self.directory / f"{kind}.log").open("ab") as log:
            return subprocess.Popen(
                [*command, "--host", "127.0.0.1", *options],
                stdout=log,
                stderr=log,
                cwd=self.directory,
                env={**os.environ, "PYTHONPATH": str(path), "PYTHONWARNINGS": "ignore"},
            )

    def kill(self, process):
        if process.poll() is None:
            process.kill()
        process.wait(LIMIT_S)


class Rig(handler_rig.Rig):
    """The servers of one cluster as its node drives them."""

    def __init__(self, dask, function="hold", *, servers=2):
        super().__init__(f"dask:{dask.address}:{FUNCTIONS}:{function}", servers=servers)
        self.session = self.workers._session

    async def slots(self, count):
        await until(lambda: self.session._pool.slots == count)


def runs(directory):
    file = directory / "runs"
    return file.read_text().splitlines() if file.exists() else []
