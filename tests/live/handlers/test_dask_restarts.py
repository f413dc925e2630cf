"""Workers of real Dask clusters that die and come back at their old address at once: what the old
process had, what the new one gets, and that nothing runs twice by itself (decision 0027).
"""

from __future__ import annotations

import asyncio
import importlib.util
from contextlib import asynccontextmanager

import pytest

from spillover.live.handlers.dask import connection as dask_connection
from spillover.model.request import Outcome
from support.dask_clusters import DaskCluster, Rig, result, run, runs, until

pytestmark = pytest.mark.processes


@pytest.fixture
def dask(tmp_path, require, monkeypatch):
    """No workers yet. The node looks for them when there is a reason to, and never by the clock."""
    require(importlib.util.find_spec("distributed"), "the extra `dask`")
    monkeypatch.setattr(dask_connection, "LOOK_EVERY_S", 3600.0)
    with DaskCluster(tmp_path) as cluster:
        yield cluster.start(workers=0)


@asynccontextmanager
async def without_looks(session):
    """The session goes on waiting for a reason to look, and is given none."""
    connection = session._connection
    waited_for, connection._look_now = connection._look_now, asyncio.Event()
    yield
    connection._look_now = waited_for


class Restarting:
    """A worker of three slots, to which all goes that is less than three, and one of one slot."""

    def __init__(self, dask, rig):
        self.dask = dask
        self.rig = rig

    async def start(self):
        pool = self.rig.session._pool
        self.process = self.dask.add_worker("--nthreads", "3")
        await self.rig.slots(3)
        self.address = next(iter(pool.addresses))
        self.other = self.dask.add_worker()
        await self.rig.slots(4)
        return self

    def known(self):
        return self.rig.session._pool._workers.get(self.address)

    async def restart(self):
        """Until it is known that it did."""
        before = self.known()
        self.dask.kill(self.process)
        await self.come_back(before)

    async def come_back(self, before=None):
        port = self.address.rpartition(":")[2]
        self.process = self.dask.add_worker("--nthreads", "3", "--worker-port", port)
        await until(lambda: self.known() not in (None, before))


@pytest.mark.parametrize("told", [True, False])
def test_what_the_old_process_had_is_not_known(dask, tmp_path, told):
    """Without a key it ends, with one it runs once more; what comes later runs on the new process.
    That is so, too, where only the answers of the new process tell that it is another one."""

    async def main():
        async with Rig(dask, servers=4) as rig:
            worker = await Restarting(dask, rig).start()
            if not told:
                rig.session._there(rig.session._connection.client.unsubscribe_topic, "all")
            old = worker.process.pid
            refs = [rig.start({"directory": str(tmp_path)}, keyed=key) for key in (False, True)]
            await until(lambda: len(runs(tmp_path)) == 2)
            assert sorted(runs(tmp_path)) == [f"{old} r1", f"{old} r2"]
            await worker.restart()
            unkeyed = await rig.end(refs[0])
            assert unkeyed.outcome is Outcome.FAILED
            assert "whether it did the work is not known" in unkeyed.problem
            await until(lambda: len(runs(tmp_path)) == 3)
            assert runs(tmp_path)[2] == f"{worker.other.pid} r2"
            (tmp_path / "go").touch()
            assert result(await rig.end(refs[1])) == "went"
            for number in range(3, 8):
                assert result(await rig.run({"directory": str(tmp_path)})) == "went"
                assert runs(tmp_path)[number:] == [f"{worker.process.pid} r{number}"]
            assert rig.session._requests == {}
            assert rig.session._sent == 8, "each was sent once, but for the one with a key"

    run(main)


def test_a_worker_that_restarts_while_idle_costs_no_request(dask, tmp_path):
    """Nothing was there: nothing is unknown. The scheduler tells of the loss, though no look ever
    finds the address empty."""

    async def main():
        (tmp_path / "go").touch()
        async with Rig(dask, servers=4) as rig:
            worker = await Restarting(dask, rig).start()
            assert result(await rig.run({"directory": str(tmp_path)})) == "went"
            old = worker.process.pid
            async with without_looks(rig.session):
                dask.kill(worker.process)
                await rig.slots(1)
            await worker.come_back()
            refs = [rig.start({"directory": str(tmp_path)}) for _ in range(4)]
            assert [result(await rig.end(ref)) for ref in refs] == ["went"] * 4
        by_request = {line.split()[1]: int(line.split()[0]) for line in runs(tmp_path)}
        assert len(runs(tmp_path)) == 5
        assert by_request.pop("r1") == old
        assert set(by_request.values()) == {worker.process.pid, worker.other.pid}

    run(main)


def test_a_worker_that_comes_back_with_the_function_is_used(dask, tmp_path):
    """Why it could not be used was of the process before it."""

    async def main():
        async with Rig(dask) as rig:
            without = dask.add_worker(path=tmp_path)
            await until(lambda: rig.session._unfit)
            address = next(iter(rig.session._unfit))
            assert "cannot import" in rig.session._unfit[address]
            async with without_looks(rig.session):
                dask.kill(without)
                await until(lambda: rig.session._unfit == {})
            dask.add_worker("--worker-port", address.rpartition(":")[2])
            await rig.slots(1)
            (tmp_path / "go").touch()
            assert result(await rig.run({"directory": str(tmp_path)})) == "went"

    run(main)
