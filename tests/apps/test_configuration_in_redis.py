"""Nodes that share a configuration over Redis too: real nodes, and a real Redis."""

import asyncio
import json
from dataclasses import replace

from spillover.inputs.topology_file import short_text


async def put(node, topology, if_version):
    body = json.dumps({"if_version": if_version, "topology": short_text(topology)}).encode()
    status, _, answer = await node.send("PUT", "/admin/config", body)
    return status, answer


def version(node):
    return node.shell.neighborhood.configured.stamp.version


async def test_one_of_two_that_are_set_at_once_is_taken(nodes, redis_server, redis_servers):
    """Also by nodes that have no link: they hear of it by Redis alone."""
    topology = replace(nodes.topology_of("a", "b", links=[]), name=redis_servers.new_name())
    async with nodes.Federation(topology, config_redis=redis_server.url) as federation:
        a, b = federation["a"], federation["b"]
        wanted = [replace(federation.topology, max_hops=count) for count in (3, 4)]
        answers = await asyncio.gather(put(a, wanted[0], 0), put(b, wanted[1], 0))
        assert sorted(status for status, _ in answers) == [200, 409]
        won = answers[0][0] == 409
        (reason,) = [answer["reason"] for status, answer in answers if status == 409]
        assert reason == "version_conflict"
        await nodes.until(lambda: version(a) == version(b) == 1)
        assert [node.machine.settings.max_hops for node in (a, b)] == [3 + won] * 2
