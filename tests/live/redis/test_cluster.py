"""A Redis Cluster is not supported: whoever is given one says so in one line, by what a real one
answers. Its slots are either nobody's, or another server's."""

import asyncio
import json
import logging
from contextlib import ExitStack

import pytest

pytest.importorskip("redis")

from spillover.client import AsyncSpillover
from spillover.inputs.topology_file import short_text
from spillover.live.leases.store import RedisLeaseStore
from spillover.live.leases.streams.writer import StreamWriter
from spillover.live.membership.store import AWAY
from spillover.model.errors import StoreRefused, StoreUnreachable
from spillover.model.lease_times import LeaseTimes
from support.loop import until
from support.waiting import until as until_now

SLOTS = (0, 16383)


@pytest.fixture(scope="module", params=["CLUSTERDOWN", "MOVED"])
def cluster(request, redis_servers, tmp_path_factory):
    """What each command is answered with, and the URL of the server that answers so."""
    with ExitStack() as stack:

        def started():
            bus = ("--cluster-port", str(redis_servers.free_port()))
            options = ("--cluster-enabled", "yes", *bus)
            running = redis_servers.running(tmp_path_factory.mktemp("redis"), *options)
            return stack.enter_context(running), bus[1]

        if redis_servers.major_version() < 7:
            pytest.skip("the port of its bus cannot be chosen")
        one, _ = started()
        if request.param == "MOVED":
            other, bus = started()
            other.client.execute_command("CLUSTER", "ADDSLOTSRANGE", *SLOTS)
            one.client.execute_command("CLUSTER", "MEET", "127.0.0.1", other.port, bus)
            until_now(lambda: one.client.cluster("INFO")["cluster_state"] == "ok")
        yield request.param, one.url


def line_of(code, url):
    return f"{url} is part of a Redis Cluster ({code}), which is not supported: give a single"


def test_a_member_and_a_writer_say_so(cluster):
    code, url = cluster

    async def join():
        store = RedisLeaseStore(url, "g", 2, LeaseTimes())
        try:
            await store.join("n1", "i1")
        finally:
            await store.close()

    with pytest.raises((StoreRefused, StoreUnreachable)) as refused:
        asyncio.run(join())
    assert line_of(code, url) in str(refused.value)
    with (
        pytest.raises((StoreRefused, StoreUnreachable)) as refused,
        StreamWriter(url, "g", 1) as writer,
    ):
        writer.append("x", partition=0)
    assert line_of(code, url) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_member_ends_where_another_server_has_its_keys(cluster, spillover, tmp_path):
    """For good: it would be told so again. A cluster that is down may be on its way up."""
    code, url = cluster
    (tmp_path / "jobs.py").write_text("def serve(partition, epoch, stop_event): pass\n")
    told = ("--redis", url, "--group", "g", "--node", "n1", "--partitions", "1", "--bind", "off")
    member = spillover("lease", "run", *told, "--handler", "python:jobs:serve", cwd=tmp_path)
    until_now(lambda: line_of(code, url) in member.stdout + member.stderr)
    if code == "MOVED":
        assert member.process.wait(60) == 2
    assert member.stderr.count("Traceback") == 0


def test_a_node_says_so_once_and_it_and_its_clients_go_on(cluster, nodes, caplog):
    code, url = cluster

    async def main():
        topology = nodes.topology_of("a")
        async with nodes.Federation(topology, config_redis=url) as federation:
            node = federation["a"]
            await until(lambda: said(AWAY) == 1)
            body = json.dumps({"if_version": 0, "topology": short_text(topology)}).encode()
            status, _, answer = await node.send("PUT", "/admin/config", body)
            assert (status, answer["reason"]) == (503, "store_unreachable")
            await until(lambda: said("the configuration is not stored") == 1)
            given = {"redis_url": url, "federation": topology.name, "follow": True}
            async with AsyncSpillover(node.url, **given) as client:
                assert (await client.run({})).cluster == "a"

    def said(words):
        told = [one.getMessage() for one in caplog.records]
        return sum(words in one and line_of(code, url) in one for one in told)

    with caplog.at_level(logging.WARNING):
        nodes.run(main)
