"""A testbed that follows its federation's configuration, which nodes tell; they are scripted."""

import asyncio
import shutil
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from spillover.inputs.topology_file import dump_topology
from spillover.model.topology import Cluster, Link, Topology
from spillover.testbed import following, supervisor
from spillover.testbed.following import ConfigurationFollower
from spillover.testbed.supervisor import Testbed as Supervisor
from support.loop import until
from support.ports import free_ports, free_row
from support.scripted_nodes import scripted_nodes

pytestmark = pytest.mark.processes

TWO = Topology(
    name="two",
    clusters=(Cluster(id="a", servers=1), Cluster(id="b", servers=1)),
    links=(Link(between=("a", "b")),),
)


@pytest.fixture
def scripted(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "READY_POLL_S", 0.01)
    monkeypatch.setattr(following, "LOOK_S", 0.01)
    monkeypatch.setattr(following, "DRAINED_POLL_S", 0.01)
    return scripted_nodes(tmp_path, monkeypatch)


def state(cluster, *, version=None, by="a", **told):
    """What a node tells."""
    if version is not None:
        told["configuration"] = {"version": version, "by": by}
    return {"cluster": cluster, "draining": False, "neighbors": [], **told}


@asynccontextmanager
async def followed(**options):
    """`story(bed, said)` while the testbed follows."""
    said = []
    async with Supervisor(TWO, first_port=free_row(2), **{"drain_timeout_s": 5.0} | options) as bed:
        task = asyncio.create_task(ConfigurationFollower(bed, said.append).run())
        try:
            yield bed, said
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def tell(scripted, topology, version, *, by="a", of="a"):
    """A node has this configuration."""
    scripted.say(of, "config", {"topology": dump_topology(topology), "version": version, "by": by})
    scripted.say(of, "state", state(of, version=version, by=by))


def with_c(bed, url):
    more = Cluster(id="c", servers=1, url=url)
    return replace(bed.topology, clusters=(*bed.topology.clusters, more))


async def test_nodes_are_added_and_removed(scripted):
    """A removed one once it has drained and nobody has to do with it any more."""
    (port,) = free_ports(1)
    async with followed() as (bed, said):
        before = bed.topology
        tell(scripted, with_c(bed, f"http://127.0.0.1:{port}"), 2)
        await until(lambda: len(said) == 2)
        assert said == [
            "configuration 2 of cluster a",
            f"cluster c is added at http://127.0.0.1:{port}",
        ]
        node = bed.nodes["c"]
        busy = state("c", drained=True, clients={"connected": 1})
        scripted.say("c", "state", busy)
        await until((scripted.of / "c.told").exists)
        tell(scripted, before, 3)
        await until(lambda: said[-1] == "configuration 3 of cluster a")
        for told in (
            {**busy, "clients": None, "neighbors": [{"alive": True}]},
            {**busy, "clients": None, "drained": False},
        ):
            scripted.say("c", "state", told)
            done, _ = await asyncio.wait([asyncio.create_task(node.process.wait())], timeout=0.1)
            assert not done
        scripted.say("c", "state", {**busy, "clients": {"connected": 0}})
        await until(lambda: said[-1] == "cluster c is removed")
        assert "c" not in bed.nodes
        assert bed.topology.cluster_ids == ("a", "b")


async def test_who_does_not_drain_in_time_is_ended(scripted):
    async with followed(drain_timeout_s=0.2) as (bed, said):
        scripted.say("b", "state", state("b", drained=False))
        tell(scripted, replace(bed.topology, clusters=bed.topology.clusters[:1], links=()), 2)
        await until(lambda: said[-1:] == ["cluster b is removed"])


async def test_who_is_wanted_again_goes_on(scripted):
    async with followed() as (bed, said):
        both, node = bed.topology, bed.nodes["b"]
        scripted.say("b", "state", state("b", drained=False))
        tell(scripted, replace(both, clusters=both.clusters[:1], links=()), 2)
        await until(lambda: len(said) == 1)
        tell(scripted, both, 3)
        await until(lambda: len(said) == 2)
        scripted.say("b", "state", state("b", drained=False, version=3))
        done, _ = await asyncio.wait([asyncio.create_task(node.process.wait())], timeout=0.2)
        scripted.say("b", "state", state("b", drained=True, version=3))
        done, _ = await asyncio.wait([asyncio.create_task(node.process.wait())], timeout=0.2)
        assert not done, "it drains for another reason"
        assert bed.nodes["b"] is node
        assert said == ["configuration 2 of cluster a", "configuration 3 of cluster a"]


async def test_who_is_added_and_removed_again_while_it_ends_is_ended_once(scripted):
    """And goes on as the last configuration says: each that comes meanwhile finds it ending."""
    async with followed() as (bed, said):
        both, let_go, ended = bed.topology, bed.let_go, []
        one = replace(both, clusters=both.clusters[:1], links=())

        async def let_go_at_last(cluster):
            ended.append(cluster)
            if len(ended) == 1:
                for version, topology in enumerate((both, one, both, one), 3):
                    tell(scripted, topology, version)
                    words = f"configuration {version} of cluster a"
                    await until(lambda: said[-1] == words)  # noqa: B023
            await let_go(cluster)

        bed.let_go = let_go_at_last
        scripted.say("b", "state", state("b", drained=True))
        tell(scripted, one, 2)
        await until(lambda: said[-1:] == ["cluster b is removed"])
        tell(scripted, both, 7)
        await until(lambda: said[-1] == f"cluster b is added at {both.cluster('b').url}")
        assert ended == ["b"]
        assert sorted(bed.nodes) == ["a", "b"]


async def test_who_is_started_again_is_not_started_twice_by_a_configuration_that_comes_meanwhile(
    scripted,
):
    async with followed() as (bed, said):
        both, let_go, add, added = bed.topology, bed.let_go, bed.add, []

        async def let_go_at_last(cluster):
            tell(scripted, both, 3)
            await until(lambda: said[-1] == "configuration 3 of cluster a")
            await let_go(cluster)

        async def add_at_last(cluster):
            added.append(cluster)
            if len(added) == 1:
                tell(scripted, both, 4)
                await until(lambda: said[-1] == "configuration 4 of cluster a")
            await add(cluster)

        bed.let_go, bed.add = let_go_at_last, add_at_last
        scripted.say("b", "state", state("b", drained=True))
        tell(scripted, replace(both, clusters=both.clusters[:1], links=()), 2)
        await until(lambda: said[-1:] == [f"cluster b is added at {both.cluster('b').url}"])
        assert added == ["b"]


async def test_only_what_is_newer_is_followed(scripted):
    """By its number, then by who made it; not what is newer already, nor what is none."""
    async with followed() as (bed, said):
        tell(scripted, bed.topology, 5, by="b")
        await until(lambda: said == ["configuration 5 of cluster b"])
        for version, by in ((4, "z"), (5, "a"), (5, "b"), ("6", "b")):
            tell(scripted, bed.topology, version, by=by)
            await looked_at(scripted, bed)
        scripted.say(
            "a", "config", {"topology": dump_topology(bed.topology), "version": 8, "by": "b"}
        )
        scripted.say("a", "state", state("a", version=7))
        await looked_at(scripted, bed)
        scripted.say("a", "config", {"topology": "no topology", "version": 9, "by": "b"})
        scripted.say("a", "state", state("a", version=9))
        await looked_at(scripted, bed)
        scripted.say("a", "state", {**state("a"), "configuration": 3})
        await looked_at(scripted, bed)
        assert len(said) == 1
        tell(scripted, bed.topology, 5, by="c")
        await until(lambda: said[1:] == ["configuration 5 of cluster c"])


async def looked_at(scripted, bed):
    """Until all nodes have been looked at since, and more."""
    before = len(scripted.asked("a"))
    await until(lambda: len(scripted.asked("a")) >= before + 4)


async def test_a_new_cluster_that_cannot_be_started_is_told(scripted, tmp_path):
    async with followed() as (bed, said):
        tell(scripted, with_c(bed, None), 2)
        await until(lambda: len(said) == 2)
        assert said[1] == "cluster c is not started: the configuration has no url of it"
        (scripted.of / "python").rename(tmp_path / "away")
        tell(scripted, bed_with_url(bed), 3)
        await until(lambda: len(said) == 4)
        assert said[3] == "cluster c cannot be started: No such file or directory"
        assert set(bed.nodes) == {"a", "b"}
        shutil.move(tmp_path / "away", scripted.of / "python")


def bed_with_url(bed):
    *others, last = bed.topology.clusters
    return replace(bed.topology, clusters=(*others, replace(last, url="http://127.0.0.1:1")))


async def test_a_service_that_does_not_answer_is_told_once(scripted):
    async with followed() as (bed, said):
        log = bed.nodes["b"].log
        told = [
            f"the service behind cluster b {does} (log {log})"
            for does in ("does not answer", "answers again", "does not answer")
        ]
        for down, count in ((True, 1), (False, 2), (True, 3)):
            scripted.say("b", "state", state("b", down=down))
            await until(lambda count=count: len(said) == count)
        await looked_at(scripted, bed)
        scripted.say("b", "state", state("b"))
        await looked_at(scripted, bed)
        assert said == told


async def test_the_living_are_asked_in_turn(scripted):
    async with followed() as (bed, said):
        bed.nodes["a"].process.kill()
        await bed.nodes["a"].process.wait()
        before = len(scripted.asked("b"))
        await until(lambda: len(scripted.asked("b")) >= before + 5)
        bed.nodes["b"].process.kill()
        await bed.nodes["b"].process.wait()
        assert said == []
