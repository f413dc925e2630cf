"""What the supervisor makes of nodes that start late or not, say something, die, or do not end.
The nodes are scripted processes, which are there at once and may misbehave as no node does: whole
ones are in tests/e2e/test_up.py."""

import asyncio
import signal
import time
from dataclasses import replace

import pytest

from spillover.inputs.topology_file import load_topology
from spillover.live.overflow.ending import DRAINED, ENDING
from spillover.model.errors import InputError, RunError
from spillover.model.topology import Cluster, Link, Topology
from spillover.testbed import revival, supervisor
from spillover.testbed.supervisor import Testbed as Supervisor
from support.loop import until
from support.ports import free_ports
from support.scripted_nodes import scripted_nodes

pytestmark = pytest.mark.processes

SPARE_S = 3.0
"""Which nodes have beyond the time that is said."""
TWO = Topology(
    name="two",
    clusters=(Cluster(id="a", servers=1), Cluster(id="b", servers=1, held_limit_bytes=5_000_000)),
    links=(Link(between=("a", "b")),),
)


@pytest.fixture
def scripted(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "READY_POLL_S", 0.01)
    monkeypatch.setattr(supervisor, "BACK_POLL_S", 0.01)
    monkeypatch.setattr(supervisor, "ENDING_POLL_S", 0.02)
    return scripted_nodes(tmp_path, monkeypatch)


def bed(topology=TWO, **options):
    (first_port,) = free_ports(1)
    return Supervisor(topology, first_port=first_port, **{"drain_timeout_s": 5.0} | options)


async def test_nodes_are_started_as_was_asked_for(scripted):
    async with bed(
        seed=7, drain_timeout_s=4.5, results_timeout_s=1.25, allowed_origins=("http://x", "http://y"),
        config_redis="redis://:secret@h:1", otel=True,
    ) as one:  # fmt: skip
        ((words, environment),) = scripted.told("b")
        file = one.directory / "topology.yaml"
        assert words == [
            "-m", "spillover", "node", "--topology", str(file), "--cluster", "b", "--testbed",
            "--end-with-stdin", "--drain-timeout-s", "4.5", "--results-timeout-s", "1.25",
            "--config-redis", "--allow-origin", "http://x", "--allow-origin", "http://y",
            "--otel", "--seed", "7",
        ]  # fmt: skip
        assert environment["SPILLOVER_REDIS_URL"] == "redis://:secret@h:1"
        told = load_topology(str(file))
        assert [c.url for c in told.clusters] == list(one.urls.values())
        first, second = told.clusters
        assert second.held_limit_bytes == 5_000_000
        assert first.held_limit_bytes > 0
        directory = one.directory
        assert sorted(path.name for path in directory.glob("*.log")) == ["0-a.log", "1-b.log"]
    assert not directory.exists()
    assert not one.keeps_logs
    async with bed() as one:
        words = scripted.told("a")[-1][0]
        assert not {"--config-redis", "--otel", "--seed", "--allow-origin", "--tokens"} & set(words)
        assert "SPILLOVER_REDIS_URL" not in scripted.told("a")[-1][1]


async def test_nodes_are_waited_for_until_they_hear_each_other(scripted):
    """One after the other; who is late is named, and nothing is left."""
    deaf = {"cluster": "b", "draining": False, "neighbors": [{"alive": False}]}
    scripted.say("b", "state", deaf)
    one = bed()
    starting = asyncio.create_task(one.start())
    await until(lambda: len(one.nodes) == 2)
    done, _ = await asyncio.wait({starting}, timeout=0.2)
    assert not done
    scripted.say("b", "state", {**deaf, "neighbors": [{"alive": True}]})
    await starting
    await one.stop(0.5)
    assert [node.process.returncode for node in one.nodes.values()] == [0, 0]


async def test_who_is_not_ready_in_time_is_named(scripted, monkeypatch):
    late = "b"
    monkeypatch.setattr(supervisor, "READY_WITHIN_S", 0.3)
    scripted.say(late, "state", {"cluster": late, "draining": True, "neighbors": []})
    one = bed()
    began_s = time.monotonic()
    with pytest.raises(RunError) as error:
        async with one:
            pass
    assert time.monotonic() - began_s >= 0.3
    assert str(error.value) == f"not ready within 0 s: cluster {late}; logs in {one.directory}"
    assert one.directory.exists()
    assert all(node.process.returncode == 0 for node in one.nodes.values())


async def test_a_node_that_does_not_start_is_told_with_its_last_words(scripted):
    """What it finds wrong with the topology in the user's own names."""
    scripted.say("b", "broken", "3 spillover: no luck today")
    one = bed()
    with pytest.raises(RunError) as failed:
        await one.__aenter__()
    log = one.nodes["b"].log
    told = f"cluster b did not start (exit status 3, log {log}): no luck today"
    assert str(failed.value) == told
    assert "no luck today" in log.read_text()
    scripted.say("b", "broken", "2 spillover: cluster b: servers: expected fewer")
    one = bed(source="mine.yaml")
    with pytest.raises(InputError) as refused:
        await one.__aenter__()
    assert str(refused.value) == "mine.yaml: cluster b: servers: expected fewer"
    assert not one.keeps_logs
    assert not one.directory.exists()


async def test_a_node_that_fails_at_every_start_is_given_up(scripted, monkeypatch):
    """After as many starts as there are delays; who asks for it has it back once it is mended."""
    monkeypatch.setattr(revival, "DELAYS_S", (0.01, 0.02))
    told, back = [], []
    async with bed(
        replace(TWO, clusters=TWO.clusters[:1], links=()),
        restart=True,
        on_death=lambda node: told.append((node.end_of_life(), node.starts_again_in_s)),
        on_return=lambda node: back.append(node.cluster),
    ) as one:
        url = one.urls["a"]
        scripted.say("a", "broken", "7 no luck")
        one.nodes["a"].process.kill()
        await one.all_dead()
        assert told == [
            ("killed by SIGKILL", 0.01), ("exit status 7", 0.02), ("exit status 7", None),
        ]  # fmt: skip
        scripted.unsay("a", "broken")
        assert one.revive() == ["a"]
        await until(lambda: back == ["a"])
        assert one.urls["a"] == one.nodes["a"].url == url
        assert one.revive() == []
    assert one.keeps_logs
    assert sorted(path.name for path in one.directory.iterdir()) == ["0-a.log", "topology.yaml"]


async def test_where_none_can_be_started_it_is_told(scripted, monkeypatch, tmp_path):
    """Somebody has removed the directory: no traceback, and no end of the other nodes."""
    monkeypatch.setattr(revival, "DELAYS_S", (0.01, 0.02))
    told = []
    async with bed(
        replace(TWO, clusters=TWO.clusters[:1], links=()),
        restart=True,
        on_death=lambda node: told.append(f"{node.end_of_life()}: {node.last_words()}"),
    ) as one:
        directory = one.directory
        directory.rename(tmp_path / "away")
        one.nodes["a"].process.kill()
        await one.all_dead()
        (tmp_path / "away").rename(directory)
    problem = "no other one can be started: No such file or directory: it said nothing"
    assert told[1:] == [problem, problem]


async def test_a_node_that_crashes_comes_back_and_both_are_told(scripted, monkeypatch):
    """At the same address; its own last words, not those of the one before."""
    monkeypatch.setattr(revival, "DELAYS_S", (0.05, 0.05))
    told, back = [], []
    async with bed(
        restart=True,
        on_death=lambda node: told.append(
            (node.cluster, node.end_of_life(), node.starts_again_in_s)
        ),
        on_return=lambda node: back.append((node.cluster, node.is_returning)),
    ) as one:
        url, first = one.urls["a"], one.nodes["a"]
        assert first.words_on_ending() is None
        first.process.kill()
        await until(lambda: back)
        assert told == [("a", "killed by SIGKILL", 0.05)]
        assert one.nodes["a"] is not first
        assert one.nodes["a"].url == url
        await until(lambda: not one.nodes["a"].is_returning)
        assert not one.keeps_logs, "it died as somebody meant it to"
        assert one.revive() == []
    assert back == [("a", True)]
    assert len(scripted.told("a")) == 2
    assert len(scripted.told("b")) == 1


async def test_a_node_that_was_drained_is_not_started_again_unless_asked(scripted, monkeypatch):
    monkeypatch.setattr(revival, "DELAYS_S", (0.01,))
    told, back = [], []
    for cluster in ("a", "b"):
        scripted.say(cluster, "ending", f"12:00:00 {ENDING}{DRAINED}")
    async with bed(
        restart=True,
        on_death=lambda node: told.append((node.cluster, node.starts_again_in_s)),
        on_return=lambda node: back.append(node.cluster),
    ) as one:
        for cluster in ("a", "b"):
            one.nodes[cluster].process.terminate()
        await one.all_dead()
        assert sorted(told) == [("a", None), ("b", None)]
        assert one.keeps_logs, "it ended by itself"
        assert sorted(one.revive()) == ["a", "b"]
        await until(lambda: len(back) == 2)


async def test_a_node_that_ends_unasked_is_started_again_whatever_its_status(scripted, monkeypatch):
    """Users' code may end it with status 0, or send it a signal."""
    monkeypatch.setattr(revival, "DELAYS_S", (0.01,))
    told, back = [], []
    async with bed(
        restart=True,
        on_death=lambda node: told.append((node.end_of_life(), node.starts_again_in_s)),
        on_return=lambda node: back.append(node.cluster),
    ) as one:
        one.nodes["a"].process.terminate()
        await until(lambda: back == ["a"])
        assert told == [("exit status 0", 0.01)]


async def test_without_restarts_the_dead_are_counted(scripted):
    async with bed() as one:
        dead = asyncio.create_task(one.all_dead())
        one.nodes["a"].process.kill()
        await one.nodes["a"].process.wait()
        done, _ = await asyncio.wait({dead}, timeout=0.1)
        assert not done
        one.nodes["b"].process.kill()
        await dead


async def test_a_hangup_goes_to_nodes_that_are_up(scripted):
    async with bed() as one:
        one.nodes["b"].is_returning = True
        one.reread()
        await until(lambda: "heard a hangup" in one.nodes["a"].log.read_text())
        one.nodes["b"].is_returning = False
        assert "heard" not in one.nodes["b"].log.read_text()


async def test_a_cluster_is_added_and_let_go(scripted):
    """For good: nobody starts it again; the others do not notice."""
    told = []
    async with bed(restart=True, on_death=lambda node: told.append(node.cluster)) as one:
        (port,) = free_ports(1)
        more = Cluster(id="c", servers=1, url=f"http://127.0.0.1:{port}")
        one.use(replace(one.topology, clusters=(*one.topology.clusters, more)))
        await one.add("c")
        file = scripted.of / "c.told"
        await until(lambda: file.exists() and scripted.told("c"), what="it has begun")
        log = one.nodes["c"].log
        assert log.name == "2-c.log"
        scripted.say("c", "state", {"cluster": "c"})
        node = one.nodes["c"]
        await one.let_go("c")
        assert "c" not in one.nodes
        assert node.process.returncode is not None
        assert one.revive() == []
        assert set(one.nodes) == {"a", "b"}
        assert told == []
        scripted.unsay("c", "state")
        await one.add("c")
        await until(lambda: len(scripted.told("c")) == 2)
        one.nodes["c"].process.kill()
        await until(lambda: told == ["c"], what="it is looked after again")


async def test_who_is_let_go_and_does_not_end_is_killed(scripted):
    scripted.say("a", "deaf")
    async with bed(drain_timeout_s=0.1 - SPARE_S) as one:
        node = one.nodes["a"]
        await one.let_go("a")
        assert node.process.returncode == -signal.SIGKILL


async def test_who_is_let_go_while_it_is_dead_comes_back_but_once(scripted, monkeypatch):
    """Nobody looks after the one before when a cluster of the same name is added."""
    monkeypatch.setattr(revival, "DELAYS_S", (60.0,))
    told = []

    def lookers():
        return [task for task in asyncio.all_tasks() if task.get_name() == "watch a"]

    async with bed(restart=True, on_death=lambda node: told.append(node.cluster)) as one:
        (looker,) = lookers()
        one.nodes["a"].process.kill()
        await until(lambda: told == ["a"])
        await one.let_go("a")
        await until(lambda: looker.done() and not lookers())
        await one.add("a")
        await until(lambda: len(scripted.told("a")) == 2)
        assert one.nodes["a"].process.returncode is None
