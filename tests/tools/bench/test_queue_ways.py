"""Where probes went at producers on real sockets, and what messages take there."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack
from random import Random

import pytest

from spillover.live.http.client import HttpClient
from spillover.model.errors import RunError
from spillover.tools.bench.queue.closed import body_of_take, prepare
from spillover.tools.bench.queue.legs import EACH_MIN, LIES_S, PAUSE_S, Legs, _Watcher
from spillover.tools.bench.queue.ways import read_way
from support.loop import until
from support.queue_producers import producers
from support.scripted_server import answer, scripted


async def _way(running, first, access, probes, **more):
    """That of a probe that parks with its last hop; then there is an object."""
    clients = {one.id: HttpClient(one.url) for one in running}
    try:
        body = body_of_take("c1", "probe", probes, access, **more)
        take = asyncio.ensure_future(
            clients[first].request("POST", "/take", body=body, timeout_s=10.0)
        )
        parked = await until(lambda: [one for one in running if one.shell.machine.parked_probes])
        await clients[parked[0].id].request("POST", "/objects", body=b"one", timeout_s=10.0)
        answer = await take
        assert int(answer.headers[b"spillover-probes"]) == probes
        return await read_way(clients, "probe", first, probes)
    finally:
        for client in clients.values():
            await client.close()


def test_the_way_of_a_probe_is_known_afterwards():
    """From one to another, to where it has been, and to where it is."""

    async def ways():
        async with producers(3) as running:
            far = await _way(
                running, "p1", {"p1": 1e-9, "p2": 1.0, "p3": 1e-9}, 3, avoid_visited=True
            )
        async with producers(3) as running:
            still = await _way(running, "p1", {"p1": 1.0}, 4)
        async with producers(3) as running:
            there = await _way(running, "p1", {"p2": 1.0}, 3)
        return far, still, there

    far, still, there = asyncio.run(ways())
    assert far == ["p1", "p2", "p3"]
    assert still == ["p1", "p1", "p1", "p1"]
    assert there == ["p1", "p2", "p2"]


def test_a_producer_is_asked_once_about_a_probe_that_stays_there():
    async def main():
        async with scripted(answer(200, {"story": []})) as server:
            client = HttpClient(server.url)
            way = await read_way({"p1": client}, "probe", "p1", 4)
            await client.close()
            return way, [line for line, _ in server.seen]

    assert asyncio.run(main()) == (["p1"] * 4, ["GET /explain/probe"])


def test_a_producer_that_knows_nothing_of_a_probe_is_told():
    """There is no way to be made of what the others say."""

    async def main():
        async with producers(1) as (one,):
            clients = {"p1": HttpClient(one.url)}
            try:
                await read_way(clients, "unknown", "p1", 2)
            finally:
                await clients["p1"].close()

    with pytest.raises(RunError, match="producer p1: expected to hear of probe unknown"):
        asyncio.run(main())


def test_a_fetch_begins_when_it_is_known_where_the_object_is():
    async def main():
        found = answer(303, spillover_probes="2", spillover_grant="g", spillover_producer="p2")
        here = answer(200, b"it")
        async with scripted(found, here, found, here) as server:
            clients = {name: HttpClient(server.url) for name in ("p1", "p2")}
            told, took_s = [], []
            for _ in range(2):
                watcher = _Watcher(clients, list(clients), Random(1), Legs())
                began_s = time.monotonic()
                told.append(await watcher._take(["p1", "p2"]))
                took_s.append(time.monotonic() - began_s)
            for client in clients.values():
                await client.close()
            return told, took_s

    told, took_s = asyncio.run(main())
    for (sent, found_s, (fetched_s,)), whole_s in zip(told, took_s, strict=True):
        assert sent == 2
        assert min(found_s, fetched_s) > 0.0
        assert found_s + fetched_s < whole_s


def test_no_two_takes_of_watchers_have_one_name():
    async def main():
        here = answer(200, b"it", spillover_probes="1", spillover_grant="g")
        async with scripted(here) as server:
            client = HttpClient(server.url)
            one, other = (_Watcher({"p1": client}, ["p1"], Random(1), Legs()) for _ in range(2))
            for watcher in (one, one, other):
                await watcher._take(["p1"])
            await client.close()
            return [json.loads(body)["probe_id"] for body in server.bodies if body]

    names = asyncio.run(main())
    assert len(set(names)) == len(names) == 3


def test_a_take_goes_with_an_acknowledgement_elsewhere():
    """Of the oldest object there is; at the producer that is asked none is settled."""

    async def main():
        async with scripted(answer(204)) as server:
            asked, other = HttpClient(server.url), HttpClient(server.url)
            watcher = _Watcher({"p1": asked, "p2": other}, ["p1", "p2"], Random(1), Legs())
            watcher._in_use = [(asked, "/a"), (other, "/b"), (other, "/c")]
            for _ in range(3):
                await watcher._settle_elsewhere(asked)
            settled = [line for line, _ in server.seen]
            await watcher.settle_all()
            for client in (asked, other):
                await client.close()
            return settled, [line for line, _ in server.seen]

    settled, in_the_end = asyncio.run(main())
    assert settled == ["POST /b", "POST /c"]
    assert in_the_end == [*settled, "POST /a"]


def test_producers_that_are_watched_are_asked_as_often_as_those_in_use():
    """Of three, eight are asked while one object goes each way and one at the door, and the next
    after it; at load 50 % each of those in use is asked 2.5 times a second and more."""
    looks_per_s = 1.0 / (4 * (PAUSE_S + LIES_S))
    assert looks_per_s * (1 + 2 + 3 + 1 + 1) / 3 == pytest.approx(2.5, rel=0.1)


@pytest.mark.slow
def test_messages_are_watched_until_enough_was_seen():
    """It is over at once, and it counts from now on: a fetch for each object found elsewhere."""
    began_s = time.monotonic()

    async def watched():
        legs, over = Legs(), asyncio.Event()
        over.set()
        async with producers(3) as running:
            urls = {one.id: one.url for one in running}
            await legs.watch(urls, 1, time.monotonic(), over, named=["p1"])
            left = [one.objects.buffered + len(one.objects.granted) for one in running]
            made = sum(one.objects.produced for one in running)
        return legs, left, made

    legs, left, made = asyncio.run(watched())
    assert made == 5 * EACH_MIN, "one more where a client is at the door"
    assert left == [0, 0, 0]
    assert len(legs.at_once_s) == len(legs.next_s) == len(legs.after_s) == EACH_MIN
    assert len(legs.at_door_s) == EACH_MIN
    assert len(legs.fetched_s) == 2 * EACH_MIN
    every_s = legs.at_once_s + legs.next_s + legs.after_s + legs.fetched_s + legs.at_door_s
    assert min(every_s) > 0
    assert sum(every_s) < time.monotonic() - began_s
    assert max(legs.fetched_s) < 1.0


@pytest.mark.parametrize(
    "answers",
    [
        [answer(204)],
        [answer(303, spillover_probes="2", spillover_grant="g", spillover_producer="p2"),
         answer(404)],
    ],
)  # fmt: skip
def test_an_object_that_is_not_found_ends_it(answers):
    """At once, or where it was said to be."""

    async def main():
        async with scripted(*answers) as server:
            clients = {name: HttpClient(server.url) for name in ("p1", "p2")}
            watcher = _Watcher(clients, list(clients), Random(1), Legs())
            try:
                await watcher._take(["p1", "p2"])
            finally:
                for client in clients.values():
                    await client.close()

    with pytest.raises(RunError, match="expected the object of p2, got "):
        asyncio.run(main())


class Drawn(Random):
    """Chance that writes down which means were drawn from; all that it waits for is short."""

    def __init__(self, seed):
        super().__init__(seed)
        self.means = []

    def expovariate(self, lambd):
        self.means.append(1.0 / lambd)
        return 0.01


@pytest.mark.slow
def test_objects_lie_a_while_before_they_are_asked_for():
    """What has rested has left the caches, as at producers in use; four objects are looked at, one
    after the other, each after a pause."""

    async def looked():
        async with producers(6) as running:
            clients = {one.id: HttpClient(one.url) for one in running}
            random = Drawn(1)
            watcher = _Watcher(clients, list(clients), random, Legs())
            began_s = time.monotonic()
            await watcher.look(counts=True)
            took_s = time.monotonic() - began_s
            await watcher.settle_all()
            for client in clients.values():
                await client.close()
        return took_s, random.means

    took_s, means = asyncio.run(looked())
    assert means == pytest.approx([PAUSE_S, LIES_S] * 4)
    assert took_s >= 8 * 0.01


def test_producers_are_connected_each_with_each_before_anyone_is_timed():
    """An empty one sends a probe on to each of the others, after it was emptied."""
    names = ("p1", "p2", "p3")

    async def main():
        async with AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(scripted(answer(204))) for _ in names]
            clients = {n: HttpClient(one.url) for n, one in zip(names, servers, strict=True)}
            await prepare(clients)
            for client in clients.values():
                await client.close()
            waited_ms.extend(
                int(headers["spillover-deadline-ms"])
                for server in servers
                for _, headers in server.seen
            )
            return [[json.loads(body) for body in server.bodies] for server in servers]

    waited_ms = []
    for name, (emptied, *probes) in zip(names, asyncio.run(main()), strict=True):
        assert (emptied["max_hops"], "access" in emptied) == (1, False)
        others = [other for other in names if other != name]
        assert [probe["access"] for probe in probes] == [{other: 1.0} for other in others]
        assert {probe["max_hops"] for probe in probes} == {2}
        assert len({probe["probe_id"] for probe in probes}) == 2
        assert "avoid_visited" in probes[0]
        assert not probes[0]["avoid_visited"], "as consumers ask unless told otherwise"
    assert len(waited_ms) == 9
    assert 0 < min(waited_ms) <= max(waited_ms) < 100, "a benchmark begins soon"


@pytest.mark.slow
def test_what_does_not_count_yet_goes_into_no_leg():
    async def looked():
        legs = Legs()
        async with producers(3) as running:
            clients = {one.id: HttpClient(one.url) for one in running}
            watcher = _Watcher(clients, list(clients), Random(1), legs)
            await prepare(clients)
            await watcher.look(counts=False)
            await watcher.settle_all()
            for client in clients.values():
                await client.close()
        return legs

    assert asyncio.run(looked()) == Legs()
