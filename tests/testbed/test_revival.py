"""Nodes that die again and again: when they are started, and when no more."""

from __future__ import annotations

import asyncio
import shutil
from itertools import pairwise

import pytest

from spillover.model.topology import Cluster, Topology
from spillover.testbed import revival
from spillover.testbed.revival import DELAYS_S, WELL_AFTER_S, Revival
from spillover.testbed.supervisor import Testbed as Supervisor

HANDLER = """
import pathlib, os

def work(payload):
    return payload

if pathlib.Path("broken").exists():
    os._exit(7)
"""


def test_each_start_waits_longer_and_one_is_the_last():
    """So that nothing runs hot, and an end comes."""
    dying = Revival()
    waits = [dying.delay_s(0.5) for _ in range(len(DELAYS_S) + 2)]
    assert waits == [*DELAYS_S, None, None]
    assert all(0 < one < other for one, other in pairwise(DELAYS_S))


def test_who_was_well_begins_anew():
    """As does who is asked for."""
    dying = Revival()
    assert [dying.delay_s(1.0), dying.delay_s(1.0)] == [*DELAYS_S[:2]]
    assert dying.delay_s(WELL_AFTER_S) == DELAYS_S[0]
    assert dying.delay_s(1.0) == DELAYS_S[1]
    dying.forget()
    assert dying.delay_s(1.0) == DELAYS_S[0]


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """A file that keeps nodes of the topology `one` from starting while it is there."""
    (tmp_path / "flaky.py").write_text(HANDLER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(revival, "DELAYS_S", (0.01, 0.02))
    return tmp_path / "broken"


@pytest.mark.processes
def test_a_node_that_fails_at_every_start_is_given_up(broken):
    """After as many starts as there are delays; who asks for it has it back once it is mended."""
    cluster = Cluster(id="a", servers=1, handler="python:flaky:work")
    told = []

    async def story():
        back = asyncio.Event()
        bed = Supervisor(
            Topology(name="one", clusters=(cluster,)),
            restart=True,
            on_death=lambda node: told.append((node.end_of_life(), node.starts_again_in_s)),
            on_return=lambda _: back.set(),
            drain_timeout_s=0.0,
            first_port=8950,  # where no test beside this one takes the port of a dead node
        )
        async with bed:
            url = bed.urls["a"]
            broken.touch()
            bed.nodes["a"].process.kill()
            async with asyncio.timeout(60):
                await bed.all_dead()
            assert told == [
                ("killed by SIGKILL", 0.01),
                ("exit status 7", 0.02),
                ("exit status 7", None),
            ]
            broken.unlink()
            assert bed.revive() == ["a"]
            async with asyncio.timeout(60):
                await back.wait()
            assert bed.urls["a"] == bed.nodes["a"].url == url
            assert bed.revive() == []
            pid = bed.nodes["a"].process.pid
        assert bed.nodes["a"].process.pid == pid
        assert bed.nodes["a"].process.returncode == 0
        assert bed.keeps_logs
        assert bed.directory is not None
        logs = sorted(path.name for path in bed.directory.iterdir())
        assert logs == ["0-a.log", "topology.yaml"]
        shutil.rmtree(bed.directory)

    asyncio.run(story())


@pytest.mark.processes
def test_where_none_can_be_started_it_is_told(broken):
    """Somebody has removed the directory: no traceback, and no end of the other nodes."""
    cluster = Cluster(id="a", servers=1)
    told = []

    async def story():
        bed = Supervisor(
            Topology(name="one", clusters=(cluster,)),
            restart=True,
            on_death=lambda node: told.append(f"{node.end_of_life()}: {node.last_words()}"),
            drain_timeout_s=0.0,
        )
        async with bed:
            directory = bed.directory
            directory.rename(broken)
            bed.nodes["a"].process.kill()
            async with asyncio.timeout(60):
                await bed.all_dead()
            broken.rename(directory)

    asyncio.run(story())
    problem = "no other one can be started: No such file or directory: it said nothing"
    assert told[1:] == [problem, problem]
