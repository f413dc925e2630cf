"""A client that reads in Redis, too, which nodes there are: real nodes, and a real Redis."""

import asyncio
import json
import logging
from dataclasses import replace

import pytest

pytest.importorskip("redis")

from spillover.client import AsyncSpillover, Retries, Unreachable
from spillover.inputs.topology_file import short_text
from support.loop import until


async def configured(federation, **fields):
    """A configuration of this federation that nodes have kept in Redis."""
    wanted = replace(federation.topology, **fields)
    body = json.dumps({"if_version": 0, "topology": short_text(wanted)}).encode()
    status, _, answer = await federation["a"].send("PUT", "/admin/config", body)
    assert status == 200, answer


def test_it_finds_nodes_when_all_that_it_was_given_have_gone(
    nodes, nowhere, redis_servers, tmp_path, caplog
):
    """And goes on with them when Redis dies, with one line about that; comes back, and hears."""
    with redis_servers.running(tmp_path) as server:

        async def main():
            topology = nodes.topology_of("a", "b")
            async with nodes.Federation(topology, config_redis=server.url) as federation:
                await configured(federation, max_hops=3)
                given = {"redis_url": server.url, "federation": topology.name}
                async with AsyncSpillover(
                    nowhere, follow=True, retries=Retries(rounds=30), **given
                ) as client:
                    assert (await client.run({})).cluster in "ab"
                    assert client.nodes.current in {node.url for node in topology.clusters} | {
                        federation[each].url for each in "ab"
                    }
                    server.kill()
                    await until(lambda: "is away" in caplog.text)
                    assert (await client.run({})).cluster in "ab"
                    await asyncio.to_thread(server.restart)
                    assert (await client.run({})).cluster in "ab"

        with caplog.at_level(logging.WARNING):
            nodes.run(main)


@pytest.mark.parametrize("kept", ["nothing", "nonsense"])
async def test_what_is_not_there_is_no_help_and_no_harm(
    nodes, nowhere, redis_server, redis_servers, kept
):
    name = redis_servers.new_name()
    if kept == "nonsense":
        key = f"{{spillover:{name}}}:configuration"
        redis_server.client.hset(key, mapping={"stamp": "9 z 9", "body": "nonsense"})
    topology = replace(nodes.topology_of("a"), name=redis_servers.new_name())
    async with nodes.Federation(topology, config_redis=redis_server.url) as federation:
        await configured(federation, max_hops=3)
        given = {"redis_url": redis_server.url, "federation": name, "follow": True}
        async with AsyncSpillover(nowhere, retries=Retries(rounds=1), **given) as lost:
            with pytest.raises(Unreachable):
                await lost.run({})
        async with AsyncSpillover(federation["a"].url, **given) as client:
            assert (await client.run({})).cluster == "a"


def test_a_client_that_has_ended_holds_no_connection_of_redis(nodes, redis_servers, tmp_path):
    with redis_servers.running(tmp_path) as server:

        def others():
            """How many are connected besides who asks."""
            return len(server.client.client_list()) - 1

        async def main():
            given = {"redis_url": server.url, "federation": "f", "follow": True}
            async with nodes.Federation(nodes.topology_of("a")) as federation:
                async with AsyncSpillover(federation["a"].url, **given) as client:
                    await client.run({})
                    await until(lambda: others() == 2, what="it reads, and listens")
                await until(lambda: others() == 0)

        nodes.run(main)
