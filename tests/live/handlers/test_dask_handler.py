"""The handler `dask:` on real Dask clusters of processes on loopback: what functions get, how many
run at once, what stopping does, and what happens when workers and the scheduler die and come back.
"""

from __future__ import annotations

import importlib.util
import signal
import socket
import sys
import time
from contextlib import ExitStack

import pytest

from spillover.cli import main as spillover
from spillover.core.overflow.events import NotStarted
from spillover.live.handlers.calls import RESULT_LIMIT_BYTES
from spillover.live.handlers.dask import connection as dask_connection
from spillover.live.handlers.make import make_workers
from spillover.model.errors import InputError
from spillover.model.extras import how_to_get
from spillover.model.request import Outcome
from spillover.model.topology import Cluster
from support.dask_clusters import FUNCTIONS, DaskCluster, Rig, result, run, runs, until

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def clusters(tmp_path_factory, require):
    """`clusters()`: a cluster of one's own, not yet started."""
    require(importlib.util.find_spec("distributed"), "the extra `dask`")
    with ExitStack() as stack:
        yield lambda: stack.enter_context(DaskCluster(tmp_path_factory.mktemp("dask")))


@pytest.fixture(scope="module")
def dask(clusters):
    """Two workers, for tests that leave it as it was."""
    return clusters().start(workers=2)


# --- calls ------------------------------------------------------------------------------------


def test_a_function_gets_the_payload_and_its_context(dask):
    """In another process, which has nothing of Spillover on its path."""

    async def main():
        async with Rig(dask, "tell") as rig:
            event = await rig.run({"ä": [1]}, id="r 1", type="render")
            told = result(event)
        assert told.pop("pid") in [process.pid for process in dask.workers]
        assert told == {
            "payload": {"ä": [1]},
            "id": "r 1",
            "type": "render",
            "cluster": "a",
            "in_time": True,
            "cancelled": False,
        }
        assert event.service_s > 0

    run(main)


ENDS = {
    "alone": ([7, [1], "AA==", None, None], None),
    "later": (7, None),
    "fail": (None, "LookupError: no such thing: 7"),
    "leave": (None, "SystemExit: 3"),
    "strange": (None, "the handler returned what JSON cannot hold: object"),
}


@pytest.mark.parametrize("function", ENDS)
def test_how_functions_end(dask, function):
    """Results as JSON; whatever a function raises is one line, and the worker lives on."""
    expected, problem = ENDS[function]

    async def main():
        async with Rig(dask, function) as rig:
            event = await rig.run(7)
            if problem is None:
                assert result(event) == expected
            else:
                assert event.outcome is Outcome.FAILED
                assert problem in event.problem
            assert rig.health() == []

    run(main)


@pytest.mark.parametrize("over_bytes", [0, 1])
def test_results_are_bounded_where_they_are_made(dask, over_bytes):
    """What the node would not take is refused on the worker, which alone knows its type."""
    body_bytes = RESULT_LIMIT_BYTES + over_bytes

    async def main():
        async with Rig(dask, "large") as rig:
            event = await rig.run(body_bytes)
            if not over_bytes:
                assert event.outcome is Outcome.DONE
                assert len(memoryview(event.result)) == body_bytes
            else:
                assert event.outcome is Outcome.FAILED
                limit = f"more than {RESULT_LIMIT_BYTES} bytes of JSON"
                assert event.problem == f"the handler returned {limit} (str)"

    run(main)


# --- slots ------------------------------------------------------------------------------------


def test_what_finds_no_slot_waits_for_one(dask, tmp_path, caplog):
    """It is said how many slots there are; each slot gets a request, and those left start later."""

    async def main():
        async with Rig(dask, servers=3) as rig:
            await rig.slots(2)
            refs = [rig.start({"directory": str(tmp_path)}) for _ in range(3)]
            await until(lambda: len(runs(tmp_path)) == 2)
            (tmp_path / "go").touch()
            assert [result(await rig.end(ref)) for ref in refs] == ["went"] * 3
        assert len({line.split()[0] for line in runs(tmp_path)[:2]}) == 2
        assert "slots=2 servers=3" in caplog.text
        assert "set servers: 2" in caplog.text

    run(main)


# --- stopping ---------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["hold", "hold_async"])
def test_what_runs_is_told_that_it_is_not_wanted(dask, tmp_path, function):
    """Its server is free when it has returned, as it soon does if it looks, or is a coroutine."""

    async def main():
        async with Rig(dask, function) as rig:
            ref, began_s = rig.start({"directory": str(tmp_path), "heed": True}), time.monotonic()
            await until(lambda: runs(tmp_path))
            rig.workers.stop(ref)
            event = await rig.end(ref)
            assert event.outcome is Outcome.CANCELLED
            assert 0.0 < event.service_s <= time.monotonic() - began_s + 0.01
            assert (tmp_path / "told-r1").exists()
            assert [*rig.workers._started, *rig.workers._stopped] == [], "it is forgotten"

    run(main)


def test_a_server_is_not_free_before_its_function_has_returned(dask, tmp_path):
    """Else work would pile up, unseen, on slots whose requests have ended."""

    async def main():
        async with Rig(dask) as rig:
            await rig.slots(2)
            held = [rig.start({"directory": str(tmp_path)}) for _ in range(2)]
            await until(lambda: len(runs(tmp_path)) == 2)
            waiting = rig.start({"directory": str(tmp_path)})
            for ref in held:
                rig.workers.stop(ref)
            await until(lambda: len(list(tmp_path.glob("told-*"))) == 2)
            assert rig.told == []
            rig.workers.stop(waiting)
            event = await rig.end(waiting)
            assert event.outcome is Outcome.CANCELLED
            assert not any(rig.ended(ref) for ref in held)
            (tmp_path / "go").touch()
            ended = [await rig.end(ref) for ref in held]
            assert [event.outcome for event in ended] == [Outcome.CANCELLED] * 2
        assert len(runs(tmp_path)) == 2

    run(main)


def test_what_runs_is_told_that_its_node_has_gone(dask, tmp_path):
    """The scheduler drops what nobody wants any more, and the function sees it."""

    async def main():
        async with Rig(dask) as rig:
            rig.start({"directory": str(tmp_path), "heed": True})
            await until(lambda: runs(tmp_path))
        await until((tmp_path / "told-r1").exists)

    run(main)


# --- faults -----------------------------------------------------------------------------------


def test_workers_die_and_join(clusters, tmp_path):
    """What a dead worker had ends unless it has a key: then it runs once more, elsewhere. Without
    any worker nothing can be started, until one joins."""
    dask = clusters().start(workers=2)

    async def main():
        async with Rig(dask) as rig:
            await rig.slots(2)
            refs = [rig.start({"directory": str(tmp_path)}, keyed=key) for key in (False, True)]
            await until(lambda: len(runs(tmp_path)) == 2)
            by_request = {line.split()[1]: int(line.split()[0]) for line in runs(tmp_path)}
            first = {process.pid: process for process in dask.workers}
            dask.kill(first[by_request["r1"]])
            unkeyed = await rig.end(refs[0])
            assert unkeyed.outcome is Outcome.FAILED
            assert "whether it did the work is not known" in unkeyed.problem
            dask.add_worker()
            await rig.slots(2)
            dask.kill(first[by_request["r2"]])
            await until(lambda: len(runs(tmp_path)) == 3)
            assert runs(tmp_path)[2] == f"{dask.workers[2].pid} r2"
            dask.kill(dask.workers[2])
            again = await rig.end(refs[1])
            assert again.outcome is Outcome.FAILED, "two workers died of it: no third one shall"
            await until(lambda: rig.health()[-1:] == [False])
            left = await rig.run({"directory": str(tmp_path)})
            assert isinstance(left, NotStarted)
            assert "has no workers" in left.problem
            dask.add_worker()
            await until(lambda: rig.health()[-1] is True)
            (tmp_path / "go").touch()
            assert result(await rig.run({"directory": str(tmp_path)})) == "went"

    run(main)


def test_the_scheduler_dies_and_comes_back(clusters, tmp_path, caplog):
    """What ran there is not known, what waited is decided again, and all is said."""
    caplog.set_level("INFO")
    dask = clusters().start(workers=1)

    async def main():
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

    run(main)


def test_a_scheduler_that_says_nothing_counts_as_lost(dask, monkeypatch):
    """Frozen, or cut off: connections stay open, and no answer ever comes."""
    monkeypatch.setattr(dask_connection, "LOOK_LIMIT_S", 0.5)
    monkeypatch.setattr(dask_connection, "CONNECT_S", 2.0)

    async def main():
        async with Rig(dask, "tell") as rig:
            dask.scheduler.send_signal(signal.SIGSTOP)
            try:
                await until(lambda: rig.health() == [False])
            finally:
                dask.scheduler.send_signal(signal.SIGCONT)
            await until(lambda: rig.health() == [False, True])
            assert result(await rig.run(1))["payload"] == 1

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


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("not_there:f", "cannot import 'not_there': ModuleNotFoundError"),
        ("json:not_there", "there is no function 'not_there' in its module 'json'"),
    ],
)
def test_functions_that_workers_do_not_have(dask, function, problem):
    """Found out before anything is served; the worker is named."""
    said = complaint_of(dask.address, function)
    assert said.startswith("t.yaml: cluster a: handler: Dask worker tcp://127.0.0.1:")
    assert problem in said


@pytest.fixture
def listening():
    """A port where connections are taken, and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("answers", [False, True])
def test_an_address_where_no_scheduler_is(
    answers, listening, require, monkeypatch, tmp_path, capsys
):
    """One line that says what to do, and exit status 2, from the command as well."""
    require(importlib.util.find_spec("distributed"), "the extra `dask`")
    monkeypatch.setattr(dask_connection, "CONNECT_S", 1.0)
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
    """What to install."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert complaint_of("127.0.0.1:1").endswith(f"handler: Dask needs {how_to_get('dask')}")
