"""The handler `dask:` on a real Dask cluster of processes on loopback, and where none is. All else
is on a cluster that says what a test has it say: `test_dask_session`, `test_dask_workers`."""

import importlib.util
import socket
import sys

import pytest

from spillover.cli import main as spillover
from spillover.core.overflow.events import NotStarted
from spillover.live.handlers.dask import connection as dask_connection
from spillover.live.handlers.make import make_workers
from spillover.model.errors import InputError
from spillover.model.extras import how_to_get
from spillover.model.request import Outcome
from spillover.model.topology import Cluster
from support.dask_clusters import FUNCTIONS, DaskCluster, Rig, run, runs, until
from support.handler_rig import result

pytestmark = pytest.mark.processes


def test_a_real_cluster_whose_scheduler_dies_and_comes_back(tmp_path, require, caplog):
    """A function gets its payload and its context in another process, which has nothing of
    Spillover on its path. What ran as the scheduler died is not known, what waited is decided
    again, and all is said."""
    require(importlib.util.find_spec("distributed"), "the extra `dask`")
    caplog.set_level("INFO")

    async def main():
        async with Rig(dask, "tell") as rig:
            event = await rig.run({"ä": [1]}, id="r 1", type="render")
            told = result(event)
            assert event.service_s > 0
        assert told == {
            "payload": {"ä": [1]},
            "id": "r 1",
            "type": "render",
            "cluster": "a",
            "in_time": True,
            "cancelled": False,
            "pid": dask.workers[0].pid,
        }
        async with Rig(dask) as rig:
            await rig.slots(1)
            refs = [rig.start({"directory": str(tmp_path), "heed": True}) for _ in range(2)]
            await until(lambda: runs(tmp_path))
            dask.kill(dask.scheduler)
            running, waiting = [await rig.end(ref) for ref in refs]
            assert running.outcome is Outcome.FAILED
            assert f"the Dask scheduler at {dask.address} was lost" in running.problem
            assert "whether it did the work is not known" in running.problem
            assert isinstance(waiting, NotStarted)
            assert rig.told.index(False) < rig.told.index(waiting), "first that nothing can start"
            assert isinstance(await rig.run({"directory": str(tmp_path)}), NotStarted)
            dask.start(workers=1)
            await until(lambda: rig.health() == [False, True])
            (tmp_path / "go").touch()
            assert result(await rig.run({"directory": str(tmp_path)})) == "went"
        assert f"Dask scheduler lost upstream={dask.address}" in caplog.text
        assert f"Dask scheduler is back upstream={dask.address}" in caplog.text

    with DaskCluster(tmp_path) as dask:
        dask.start(workers=1)
        run(main)


# --- bad input --------------------------------------------------------------------------------


def complaint_of(address, function=f"{FUNCTIONS}:tell"):
    found = []

    async def main():
        cluster = Cluster(id="a", servers=2, handler=f"dask:{address}:{function}")
        with pytest.raises(InputError) as raised:
            make_workers(cluster, "t.yaml: cluster a", None, found.append, found.append)
        found.append(str(raised.value))

    run(main)
    return found[-1]


@pytest.fixture
def listening():
    """A port where connections are taken, and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("answers", [False, True])
def test_an_address_where_no_scheduler_is(
    answers, listening, require, monkeypatch, tmp_path, capsys
):
    require(importlib.util.find_spec("distributed"), "the extra `dask`")
    monkeypatch.setattr(dask_connection, "CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = listening if answers else closed.getsockname()[1]
        if not answers:
            closed.close()
        file = tmp_path / "t.yaml"
        file.write_text(
            "clusters: [{id: a, servers: 1, url: 'http://127.0.0.1:1', "
            f"handler: 'dask:127.0.0.1:{port}:m:f'}}]\n"
        )
        asked = ["node", "--topology", str(file), "--cluster", "a", "--bind", "127.0.0.1:0"]
        assert spillover(asked) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"handler: expected a Dask scheduler at tcp://127.0.0.1:{port}, got: " in err
    assert f"start one with `dask scheduler --port {port}`" in err


def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert complaint_of("127.0.0.1:1").endswith(f"handler: Dask needs {how_to_get('dask')}")
