"""The closed system of `spillover bench queue` at producers in this loop: what consumers see, and
what was chance. That virtual time sees the same is in tests/e2e/test_queue_virtual_time.py."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import socket
import time
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from spillover.live.http.client import HttpClient
from spillover.live.queue.consuming import consume
from spillover.model.errors import RunError, SpilloverError
from spillover.tools.bench.queue import closed, killed, makers, rabbitmq
from spillover.tools.bench.queue.closed import ClosedLoad, play
from spillover.tools.bench.queue.legs import Legs
from spillover.tools.bench.queue.makers import Makers, Making
from support.children import in_this_loop
from support.loop import until
from support.queue_producers import producers
from support.scripted_server import RESET, answer, scripted

RATE, PRODUCERS, CONSUMERS = 20.0, 3, 2
LOAD = ClosedLoad(
    consumers=CONSUMERS,
    production_rate=RATE,
    consumption_rate=1.5 * RATE,
    max_hops=2,
    warm_up_s=0.25,
    measured_s=1.0,
    seed=4,
)


def limited(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 30.0))


@pytest.fixture(scope="module")
def played():
    """What was seen, what went on beside, how long it took, and what was left at producers."""
    beside = []

    async def look_on(counts_s, over):
        beside.append(counts_s)
        await over.wait()
        beside.append(time.monotonic())

    async def main():
        async with producers(PRODUCERS, buffers=1) as running:
            urls = {one.id: one.url for one in running}
            async with in_this_loop(Makers(), makers._runs) as making:
                began_s = time.monotonic()
                seen = await play(urls, LOAD, making, look_on)
                took_s = time.monotonic() - began_s
            parts = [(one.objects.produced, one.objects.acknowledged) for one in running]
            return seen, began_s, took_s, parts

    return *limited(main()), beside


def test_all_that_came_is_counted_acknowledged_and_within_the_run(played):
    """Each answer is an object, here or where it is fetched."""
    seen, began_s, took_s, parts, (counts_s, over_s) = played
    assert set(seen.statuses) == {200, 303}, "some were found elsewhere"
    # Of each consumer one may be on its way in the end.
    assert seen.statuses.total() - CONSUMERS <= len(seen.came) <= seen.statuses.total()
    assert all(0.0 < came.wait_s <= came.at_s < took_s for came in seen.came)
    assert Counter(came.probes for came in seen.came).keys() == {1, 2}
    made, acknowledged = (sum(one[place] for one in parts) for place in (0, 1))
    assert len(seen.came) - CONSUMERS <= acknowledged <= seen.statuses.total()
    assert 0 <= made - acknowledged <= 2 * PRODUCERS + CONSUMERS
    assert took_s >= LOAD.ends_s
    assert began_s + LOAD.warm_up_s <= counts_s <= over_s - LOAD.measured_s + 0.05


def test_chance_is_told_as_it_went(played):
    """Instants in order, from the beginning on; where each probe went, from the first one on."""
    seen = played[0]
    instants = seen.instants
    assert len(instants.made_s) == PRODUCERS
    assert len(instants.asked_s) == len(instants.ways) == CONSUMERS
    for times in (*instants.made_s, *instants.asked_s):
        assert list(times) == sorted(times)
        assert times[-1] >= LOAD.ends_s
    for asked_s, ways in zip(instants.asked_s, instants.ways, strict=True):
        assert 0.0 < asked_s[0] < 0.2, "they begin at once, with an empty hand"
        assert len(asked_s) == len(ways)
        assert {len(way) for way in ways} <= {1, 2}
        assert {place for way in ways for place in way} <= set(range(PRODUCERS))
    lengths = Counter(len(way) for of_one in instants.ways for way in of_one)
    assert lengths[2] == sum(came.probes == 2 for came in seen.came)


async def lie(reader, writer):
    """A producer that knows where an object is, which then is not there."""
    while request := await reader.readline():
        length = 0
        while (line := (await reader.readline()).strip()) != b"":
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        body = await reader.readexactly(length)
        found = {"spillover_probes": "1", "spillover_grant": "g", "spillover_producer": "p1"}
        if request.startswith(b"POST /objects"):
            writer.write(answer(201))
        elif request.startswith(b"POST /take") and b"nobody" not in body:
            writer.write(answer(303, **found))
        else:
            writer.write(answer(404))
    writer.close()


def test_an_object_that_is_not_where_it_is_said_to_be_ends_the_run():
    """Long before its end, though nothing else goes wrong."""

    async def main():
        async with await asyncio.start_server(lie, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with in_this_loop(Makers(), makers._runs) as making:
                await play({"p1": url}, replace(LOAD, measured_s=25.0), making)

    began_s = time.monotonic()
    with pytest.raises(RunError, match="expected the object of g, got 404"):
        limited(main())
    assert time.monotonic() - began_s < 20.0


def nobody_there():
    (port,) = rabbitmq._free_ports(1)
    return {"p1": f"http://127.0.0.1:{port}"}


def test_a_producer_that_is_not_there_ends_the_run():
    """Whoever consumes is told so, and whoever watches."""

    async def use():
        await play(nobody_there(), LOAD, Makers())

    async def watch():
        await Legs().watch(nobody_there(), 1, 0.0, asyncio.Event())

    for work in (use, watch):
        with pytest.raises(RunError, match=r"^a producer: "):
            limited(work())


async def used(*answers):
    """What a consumer has done that asks at one instant only, until it was given its object."""
    async with scripted(*answers, RESET) as server:
        client = HttpClient(server.url)
        one = closed._Play({"p1": client}, replace(LOAD, consumers=1), 0.001)
        one._asked_s, one._begun_s = [[0.0]], time.monotonic()
        try:
            await one._use_objects(0)
        finally:
            await client.close()
        seen = await one.seen()
        return seen, [json.loads(body)["probe_id"] for body in server.bodies]


def test_who_has_got_an_object_asks_for_no_other_at_that_instant():
    """Who has got none in time asks once more."""
    one = answer(200, b"x", spillover_grant="g", spillover_probes="1")
    for answers, statuses in (([one], {200: 1}), ([answer(204), one], {204: 1, 200: 1})):
        seen, asked = limited(used(*answers))
        assert seen.statuses == statuses
        assert [came.probes for came in seen.came] == [1]
        assert len(asked) == len(answers)


def test_no_run_asks_by_the_names_of_another():
    """Producers would give it what they gave that one."""
    one = answer(200, b"x", spillover_grant="g", spillover_probes="1")
    (_, (first,)), (_, (second,)) = limited(used(one)), limited(used(one))
    assert first != second


def test_what_is_in_use_in_the_end_is_acknowledged():
    """It would come back to whoever plays next."""

    async def main():
        one = answer(200, b"x", spillover_grant="g", spillover_probes="1")
        async with scripted(one, answer(204)) as server:
            client = HttpClient(server.url)
            short = replace(LOAD, consumers=1, warm_up_s=0.0, measured_s=0.5)
            run = closed._Play({"p1": client}, short, 0.001)
            run._asked_s, run._made_s = [[0.0]], [[]]
            async with in_this_loop(Makers(), makers._runs) as making:
                await run.run({"p1": server.url}, making, None)
            await client.close()
            return [line for line, _ in server.seen]

    assert limited(main()) == ["POST /take", "POST /grants/g/ack"]


def test_clients_begin_to_make_at_once_and_objects_are_there_a_message_later():
    """The first takes as long as any, in the mean of 400 clients."""
    load = replace(LOAD, consumers=1)
    play_of = closed._Play(dict.fromkeys(map(str, range(400))), load, 0.25)
    assert sum(times[0] for times in play_of._made_s) / 400 == pytest.approx(1.0 / RATE, rel=0.2)
    play_of._made_s = [[1.0, 2.0]]
    assert asyncio.run(play_of.seen()).instants.made_s == [[1.25, 2.25]]


def test_makers_end_with_the_benchmark_and_not_with_a_run():
    """They are told of one run after the other, until nobody is there to tell them."""
    ours, there = multiprocessing.Pipe()
    with ours, there:
        for _ in range(2):
            ours.send(Making(urls={}, made_s=[], message_s=0.001, begins_s=0.0))
            ours.send(None)
        with socket.socket(fileno=os.dup(ours.fileno())) as ending:
            ending.shutdown(socket.SHUT_WR)
        with pytest.raises(EOFError):
            makers._work(there)
        assert [ours.recv(), ours.recv()] == [[], []]


def test_a_load_is_drawn_at_its_rates():
    """By the seed: about as many instants as the rate says, up to the end."""
    times = closed._instants(Random(1), 50.0, 40.0)
    assert times[0] == 0.0
    assert times == sorted(times)
    assert times[-2] < 40.0 <= times[-1]
    assert len(times) == pytest.approx(2000, rel=0.08)
    assert closed._in_order([[1.0, 3.0, 2.0, 4.0], []]) == [[1.0, 3.0, 3.0, 4.0], []]
    assert LOAD.ends_s == 1.25


def test_one_way_is_half_of_a_small_call():
    async def main():
        async with producers(2) as running:
            clients = {one.id: HttpClient(one.url) for one in running}
            began_s = time.monotonic()
            one_way_s = await closed._one_way_s(clients)
            took_s = time.monotonic() - began_s
            for client in clients.values():
                await client.close()
            return one_way_s, took_s

    one_way_s, took_s = limited(main())
    assert took_s / 80 * 0.8 < one_way_s <= took_s / 80


def test_producers_are_empty_and_connected_before_a_run():
    """What others have left is taken and acknowledged."""

    async def main():
        async with producers(3) as running:
            clients = {one.id: HttpClient(one.url) for one in running}
            for _ in range(3):
                await clients["p2"].request("POST", "/objects", body=b"x", timeout_s=5.0)
            await closed.prepare(clients)
            found = [(one.objects.buffered, one.objects.acknowledged) for one in running]
            for client in clients.values():
                await client.close()
            return found

    assert limited(main()) == [(0, 0), (0, 3), (0, 0)]


@pytest.mark.parametrize(("status", "why"), [(500, "expected 201 for an object, got 500")])
def test_a_producer_that_takes_no_object_ends_the_run(status, why):
    async def main():
        async with (
            scripted(answer(status, {})) as server,
            in_this_loop(Makers(), makers._runs) as making,
        ):
            told = {"message_s": 0.001, "begins_s": time.monotonic()}
            making.begin(Making(urls={"p1": server.url}, made_s=[[0.0, 0.01, 0.02]], **told))
            await making.made(10.0)

    with pytest.raises(RunError, match=f"a producer: {why}"):
        limited(main())


def test_objects_are_made_at_their_instants_until_the_word():
    """When each was is written over what was drawn; those that came while one was under way are
    made by nobody."""

    async def main():
        async with (
            scripted(answer(201, {})) as server,
            in_this_loop(Makers(), makers._runs) as making,
        ):
            begins_s = time.monotonic()
            urls, drawn = {"p1": server.url}, [[0.02, 0.2, 0.4, 1e6]]
            making.begin(Making(urls=urls, made_s=drawn, message_s=0.0, begins_s=begins_s))
            await until(lambda: server.seen and time.monotonic() > begins_s + 0.45)
            making.stop()
            (made_s,) = await making.made(10.0)
            return drawn[0], made_s, time.monotonic() - begins_s, server.seen, server.bodies

    drawn, made_s, took_s, seen, bodies = limited(main())
    written = [(at, made) for at, made in zip(drawn, made_s, strict=True) if at != made]
    assert all(at <= made < took_s for at, made in written)
    # On a machine that is late one may be passed over.
    assert 1 <= len(written) == len(seen) <= 3
    assert (written[0][0], made_s[3]) == (0.02, 1e6)
    assert {len(body) for body in bodies} == {makers.OBJECT_BYTES}
    assert {line for line, _ in seen} == {"POST /objects"}


def test_a_client_makes_the_next_object_while_the_last_is_under_way():
    """That takes a message there and one back: what was to be made before then is made by nobody,
    what was to be made since then is made as soon as the call is over."""

    async def main():
        async with (
            scripted(answer(201, {})) as server,
            in_this_loop(Makers(), makers._runs) as making,
        ):
            told = {"message_s": 1.0, "begins_s": time.monotonic() - 3.0}
            making.begin(Making(urls={"p1": server.url}, made_s=[[0.01, 0.5, 3.02, 1e6]], **told))
            await until(lambda: len(server.seen) == 2)
            making.stop()
            return await making.made(10.0)

    ((first_s, passed_s, second_s, _),) = limited(main())
    assert 3.0 <= first_s <= second_s
    assert passed_s == 0.5


@pytest.mark.slow
def test_what_clients_of_a_producer_that_is_killed_see():
    """Each object is accepted once, and given to somebody; waits are those between."""

    async def main():
        seen = killed._Seen()
        async with producers(2) as running:
            urls = [one.url for one in running]
            consumer = consume(urls, name="c0")
            tasks = [
                asyncio.create_task(killed._make(one.id, one.url, seen, Random(one.id)))
                for one in running
            ]
            using = asyncio.create_task(killed._use("c0", consumer, seen, Random(1)))
            await until(lambda: len(seen.waits) >= 3 and len(seen.given_s) >= 1)
            waiting = dict(seen.waiting)
            seen.is_ending = True
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await killed._until(lambda: not killed._missing(seen), [using], 10.0, "all")
            await until(lambda: seen.accepted <= seen.settled)
            consumer.stop()
            await using
            return seen, waiting

    began_s = time.monotonic()
    seen, waiting = limited(main())
    took_s = time.monotonic() - began_s
    assert seen.began == {"c0"}
    assert set(waiting) <= {"c0"}
    # What was under way in the end is accepted without a word, one of each at most.
    assert seen.accepted <= seen.settled
    assert len(seen.settled - seen.accepted) <= 2
    by_dead = sum(one.startswith(b"p1 ") for one in seen.settled)
    assert len(seen.waits) == len(seen.settled)
    assert len(seen.given_s) == len(seen.settled) - by_dead
    assert all(began_s < at_s for at_s, _ in seen.waits)
    assert all(wait_s >= 0.0 for _, wait_s in seen.waits)
    assert sum(wait_s for _, wait_s in seen.waits) <= took_s


def test_a_client_that_fails_ends_the_run_at_once():
    """However long the others were to go on."""

    async def fail():
        raise RunError("it failed")

    async def main():
        others = asyncio.create_task(asyncio.Event().wait())
        await killed._go_on(25.0, [others, asyncio.create_task(fail())])

    began_s = time.monotonic()
    with pytest.raises(RunError, match="it failed"):
        limited(main())
    assert time.monotonic() - began_s < 20.0


def test_what_never_comes_to_that_is_told():
    async def main():
        await killed._until(lambda: False, [asyncio.create_task(asyncio.Event().wait())], 0.1, "it")

    with pytest.raises(RunError, match="killed: expected it within 0 s"):
        limited(main())


def test_only_what_the_living_accepted_and_nobody_got_is_missing():
    seen = killed._Seen(accepted={b"p1 1", b"p2 1", b"p2 2", b"p11 1"}, settled={b"p2 1"})
    assert killed._missing(seen) == {b"p2 2", b"p11 1"}


class Slow(Random):
    """Chance of a consumer whose grants end as it begins to work."""

    def __init__(self, grants):
        super().__init__(1)
        self._grants = grants

    def expovariate(self, lambd):
        assert lambd == killed.CONSUMPTION_PER_S
        for grant in list(self._grants):
            self._grants.end(grant)
        return 0.0


@pytest.mark.parametrize(("place", "may_fail"), [(0, True), (1, False)])
def test_only_at_the_killed_producer_may_an_acknowledgement_fail(place, may_fail):
    """It goes on with what others have."""

    async def main():
        seen = killed._Seen()
        async with producers(2, probe_expiry_s=0.05) as running:
            one = running[place]
            consumer = consume([one.url], name="c0")
            client = HttpClient(one.url)
            await client.request("POST", "/objects", body=b"it", timeout_s=10.0)
            await client.close()
            using = asyncio.create_task(
                killed._use("c0", consumer, seen, Slow(one.shell.machine.grants))
            )
            await until(lambda: seen.settled or using.done())
            if using.done():
                await using
            using.cancel()
            await asyncio.wait([using])
            return seen

    if not may_fail:
        with pytest.raises(SpilloverError):
            limited(main())
        return
    seen = limited(main())
    assert seen.settled == {b"it"}
    assert seen.given_s == [], "that is of the others alone"


def test_who_still_waits_in_the_end_has_waited_since_it_began_to():
    seen = killed._Seen(waiting={"c1": 7.0, "c2": 9.0})
    killed._end(seen, 9.5)
    assert seen.left_ms == [2500.0, 500.0]
    assert seen.is_ending, "what is left is taken as fast as can be"
