"""Requests between nodes on loopback: handed on, refused, lost, recalled; and what it all took."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from spillover.live.overflow import wire
from spillover.live.overflow.protocol import SHARED, SPOKEN
from support.ports import free_ports


def busy(node, service_ms=2000.0):
    """Occupy the one server of a node for a while."""
    return node.post({"service_ms": service_ms})


def pair(nodes, delay_ms=0.0, **fields):
    """Clusters a and b; a has no queue, so that what finds its server busy goes to b."""
    return nodes.topology_of(
        "a", "b", delay_ms=delay_ms, clusters={"a": {"queue_limit": 0}}, **fields
    )


async def heard_by_all(nodes, node):
    """Until its neighbors have told that they hear it, which they may not in their first report."""
    await nodes.until(lambda: all(node.machine.neighbors.accepting))


async def occupy(nodes, node, service_ms=2000.0):
    await heard_by_all(nodes, node)
    future = busy(node, service_ms)
    await nodes.until(lambda: node.machine.servers.busy == 1)
    return future


def answer_of(response):
    assert response.status == 200, response.body
    return json.loads(response.body)


async def timed(asked):
    """The answer, and how long it took as its client saw it, in ms."""
    began_s = time.monotonic()
    answer = answer_of(await asked)
    return answer, (time.monotonic() - began_s) * 1e3


def check_timing(timing, took_ms, *, network_ms, return_ms):
    """No part is shorter than the delays on it, and together they are no longer than what passed,
    by clocks of milliseconds: what was counted twice is too much, however busy the machine is."""
    parts = timing["queued"] + timing["network"] + timing["service"]
    assert timing["total"] == pytest.approx(parts, abs=0.01)
    assert timing["network"] >= network_ms
    assert timing["return"] >= return_ms
    assert timing["total"] + timing["return"] <= took_ms + 5.0


def test_overflow_is_handed_on_and_answered(nodes):
    """What finds the server busy runs at the idle neighbor, and all durations add up."""

    async def main():
        async with nodes.Federation(pair(nodes, delay_ms=15.0)) as federation:
            a, b = federation["a"], federation["b"]
            held = await occupy(nodes, a)
            answer, took_ms = await timed(a.post({"service_ms": 30}, id="one"))
            assert answer["id"] == "one"
            assert (answer["cluster"], answer["path"], answer["hops"]) == ("b", ["a", "b"], 1)
            assert answer["result"] == {"service_ms": 30.0}
            assert answer["timing_ms"]["service"] == 30.0
            check_timing(answer["timing_ms"], took_ms, network_ms=15.0, return_ms=15.0)
            assert b.ledger.foreign["answered"] == 1
            held.cancel()

    nodes.run(main)


@pytest.mark.parametrize("keyed", [True, False])
def test_a_draining_neighbor_refuses_and_the_request_is_decided_again(nodes, keyed):
    """Refused is surely not run: keyed or not, it is kept and done at home."""

    async def main():
        topology = pair(nodes, delay_ms=1.0, gossip_period_ms=200.0)
        async with nodes.Federation(topology) as federation:
            a, b = federation["a"], federation["b"]
            held = await occupy(nodes, a, 150.0)
            b.machine.admission.draining = True  # before its neighbor could hear of it
            name = {"id": "one"} if keyed else {}
            for future in (held, a.post({"service_ms": 1}, **name)):
                assert answer_of(await future)["path"] == ["a"]
            assert a.shell.metrics._forwards["b", "refused"] == 1
            assert a.ledger.home["done"] == 2
            b.machine.admission.draining = False

    nodes.run(main)


def test_a_neighbor_with_another_handler_refuses_what_it_cannot_run(nodes):
    """A payload that only the home understands comes back and is done there."""

    async def main():
        topology = nodes.topology_of(
            "a", "b", clusters={"a": {"handler": "python:builtins:repr", "queue_limit": 0}}
        )
        async with nodes.Federation(topology) as federation:
            a = federation["a"]
            await heard_by_all(nodes, a)
            answers = await asyncio.gather(*(a.post({"service_ms": "soon"}) for _ in range(2)))
            assert {answer_of(answer)["cluster"] for answer in answers} == {"a"}
            assert a.shell.metrics._forwards["b", "refused"] == 1

    nodes.run(main)


class Rogue:
    """Stands in for a neighbor: reports an idle cluster, and treats forwards as it is told to."""

    def __init__(self, on_forward):
        self.on_forward = on_forward
        self.forwards = 0
        self.writers = []

    async def serve(self, listening):
        self.server = await asyncio.start_server(self.converse, sock=listening)

    async def converse(self, reader, writer):
        self.writers.append(writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # one of the connections that are opened ahead of need
        if b"reports" in head:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            line = (
                b'{"epoch":1,"sequence":1,"accept_probability":1.0,"queue_length":0,"servers":1,'
                b'"neighborhood_accept_probability":1.0,"accepting":true,'
                b'"hears":["a"]}\n'
            )
            line = b"not a report\n" + line + b'{"epoch":"x"}\n'
            writer.write(b"%x\r\n%b\r\n" % (len(line), line))
            return
        if SHARED.encode() in head:  # it shares no connections
            writer.write(b"HTTP/1.1 404 X\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            return
        self.forwards += 1
        await self.on_forward(reader, writer)

    async def close(self):
        self.server.close()
        for writer in self.writers:
            writer.transport.abort()


async def reset(reader, writer):
    await reader.read(1)
    writer.transport.abort()


def answering(status, body):
    async def answer(reader, writer):
        head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)

    return answer


LOSSES = {
    "reset": reset,
    "500": answering(500, b"{}"),
    "502": answering(502, b"{}"),
    "a gateway's 504": answering(504, b"{}"),
    "malformed": answering(200, b'{"outcome":"done"}'),
    "unknown-outcome": answering(200, b'{"outcome":"later","path":["b"],"held_ms":1}'),
    "no-path": answering(200, b'{"outcome":"done","path":[],"held_ms":1}'),
    "garbage": answering(200, b"\xff\xfe"),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_lost_forward_runs_again_only_if_it_has_a_key(nodes, loss):
    """The neighbor breaks off in the middle: keyed it is done here, unkeyed it ends as unknown."""

    async def main():
        topology = pair(nodes, gossip_period_ms=200.0)
        federation = nodes.Federation(topology, absent=("b",))
        async with federation:
            a = federation["a"]
            port = int(federation.topology.cluster("b").url.rpartition(":")[2])
            rogue = Rogue(loss)
            await rogue.serve(nodes.bind_socket("127.0.0.1", port))
            await nodes.until(lambda: a.knows("b"))
            held = await occupy(nodes, a, 200.0)
            queued = a.post({"service_ms": 1}, id="keyed")
            assert answer_of(await queued)["path"] == ["a"]
            assert rogue.forwards == 1
            await held
            await nodes.until(lambda: a.knows("b"))
            held = await occupy(nodes, a, 200.0)
            response = await a.post({"service_ms": 1})
            problem = json.loads(response.body)
            assert (response.status, problem["reason"]) == (502, "outcome_unknown")
            assert rogue.forwards == 2
            await held
            assert a.ledger.home["failed"] == 1
            await rogue.close()

    nodes.run(main)


@pytest.mark.parametrize("status", [400, 403, 404, 405, 408, 413, 422, 429, 503])
def test_a_refusal_of_any_kind_is_decided_again(nodes, status):
    """Surely not accepted, 408 of a forward that was not read in time among them: without a key,
    it is done at home all the same."""

    async def main():
        federation = nodes.Federation(pair(nodes, gossip_period_ms=200.0), absent=("b",))
        async with federation:
            a = federation["a"]
            port = int(federation.topology.cluster("b").url.rpartition(":")[2])
            rogue = Rogue(answering(status, b"{}"))
            await rogue.serve(nodes.bind_socket("127.0.0.1", port))
            await nodes.until(lambda: a.knows("b"))
            held = await occupy(nodes, a, 200.0)
            assert answer_of(await a.post({"service_ms": 1}))["path"] == ["a"]
            assert rogue.forwards == 1
            await held
            await rogue.close()

    nodes.run(main)


def test_a_connection_that_is_refused_does_not_keep_the_request_away(nodes):
    """Although reports still come over an older one: it is decided again at once, without a key as
    well."""

    async def main():
        async with nodes.Federation(pair(nodes)) as federation:
            a = federation["a"]
            held = await occupy(nodes, a, 200.0)
            link = a.shell.neighborhood.links[0]
            nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
            before = link._client
            caller = link._agreement.caller
            link._client = link._clients.of_link(nobody, caller, 1, reads_small=False)
            (line,) = link.shared.lines
            line.retire()
            link.shared._client = link._client
            assert answer_of(await a.post({"service_ms": 1}))["path"] == ["a"]
            assert a.shell.metrics._forwards["b", "refused"] == 1
            assert a.machine.neighbors.accepting == [True]
            await link._client.close()
            link._client = link.shared._client = before
            await held

    nodes.run(main)


@pytest.mark.parametrize("delay_ms", [0.0, 200.0])
def test_a_recalled_forward_is_cancelled_at_the_neighbor(nodes, delay_ms):
    """The client goes away: what has not left never leaves, what has is cancelled there."""

    async def main():
        topology = pair(nodes, delay_ms=delay_ms)
        async with nodes.Federation(topology) as federation:
            a, b = federation["a"], federation["b"]
            held = await occupy(nodes, a)
            sent = a.post({"service_ms": 5000})
            await nodes.until(lambda: a.ledger.home["away"] == 1)
            if not delay_ms:
                await nodes.until(lambda: b.ledger.foreign["running"] == 1)
            sent.cancel()
            await nodes.until(lambda: a.ledger.home["cancelled"] == 1)
            await nodes.until(lambda: b.machine.servers.busy == 0)
            assert b.ledger.foreign["cancelled"] == (0 if delay_ms else 1)
            assert a.shell.metrics._forwards["b", "recalled"] == 1
            held.cancel()

    nodes.run(main)


def test_only_neighbors_may_hand_requests_on(nodes):
    """A forward from a cluster without a link is 403, one that makes no sense 422."""

    async def main():
        async with nodes.Federation(nodes.topology_of("a", "b")) as federation:
            b = federation["b"]
            body = b'{"sender":"z","id":"x","path":["z"],"remaining_ms":1000,"payload":null}'
            status, headers, problem = await b.send("POST", SPOKEN[0].forward, body)
            assert (status, problem["reason"]) == (403, "not_a_neighbor")
            for bad in (b"", b"{}", b"\xff", b"[" * 100_000, b'{"sender":"a"}'):
                status, headers, problem = await b.send("POST", SPOKEN[0].forward, bad)
                assert (status, problem["reason"]) == (422, "invalid")
                assert headers[b"content-type"] == b"application/problem+json"
            assert b.ledger.foreign["received"] == 0

    nodes.run(main)


def request(nodes, name):
    from spillover.model.request import Request

    return Request(name, keyed=True, work=wire.NOTHING, path=("a",))
