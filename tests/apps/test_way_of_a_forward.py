"""How long the way of a forwarded request is through the house: calls of our own functions at both
nodes, and files that they stand in. It only ever gets shorter; ARCHITECTURE tells the figures."""

from __future__ import annotations

import asyncio
import json

from support.counted_calls import counted_calls
from support.federation import Federation, run, topology_of, until

FORWARDS = 100
CALLS_MAX = 191
FILES_MAX = 50
BODY = json.dumps({"payload": {"service_ms": 1.0}}).encode()
HEAD = b"POST /requests HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(BODY)


def way_of(counts):
    """Calls of a forward: what happens at each of them. Reports are none of it."""
    return {where: round(n / FORWARDS) for where, n in counts.items() if n >= FORWARDS // 2}


class Asker(asyncio.Protocol):
    """A client without any code of ours: it asks again once all of an answer has come."""

    def connection_made(self, transport):
        self.transport = transport

    def ask(self, times):
        self.left = times
        self.bodies = []
        self.done = asyncio.get_running_loop().create_future()
        self.transport.write(HEAD + BODY)
        return self.done

    def data_received(self, data):
        head, _, body = data.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), data
        assert b"content-length: %d" % len(body) in head, data  # it came in one piece
        self.bodies.append(json.loads(body))
        self.left -= 1
        if self.left:
            self.transport.write(HEAD + BODY)
        else:
            self.done.set_result(self.bodies)


def test_the_way_of_a_forward_is_short():
    async def story():
        busy = {"servers": 1, "queue_limit": 0, "service_ms": 0.0}
        clusters = {"a": busy, "b": busy | {"servers": 8}}
        rules = {"policy": "paper", "gossip_period_ms": 1000.0}  # reports are none of this
        topology = topology_of("a", "b", clusters=clusters, **rules)
        async with Federation(topology) as nodes:
            a = nodes["a"]
            held = asyncio.ensure_future(a.post({"service_ms": 60_000.0}))
            await until(lambda: a.machine.servers.busy == 1)
            await until(lambda: a.may_send_to("b"))
            port = int(a.url.rpartition(":")[2])
            loop = asyncio.get_running_loop()
            transport, asker = await loop.create_connection(Asker, "127.0.0.1", port)
            await asker.ask(FORWARDS)
            with counted_calls() as counts:
                answers = await asker.ask(FORWARDS)
            assert all(answer["path"] == ["a", "b"] for answer in answers)
            transport.close()
            held.cancel()
            way.update(way_of(counts))

    way = {}
    run(story)
    told = "\n".join(f"{n:3} {file} {name}" for (file, name), n in way.items())
    calls, files = sum(way.values()), len({file for file, _ in way})
    assert calls <= CALLS_MAX, f"{calls} calls:\n{told}"
    assert files <= FILES_MAX, f"{files} files:\n{told}"
