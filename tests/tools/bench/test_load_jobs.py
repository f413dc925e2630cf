"""Each job of the process that asks: what is sent, how many at a time, and what is told of it."""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
from contextlib import asynccontextmanager, suppress

import pytest

from spillover.live.process.listening import bind_socket
from spillover.model.errors import NotDelivered, RunError
from spillover.model.ids import ClusterId
from spillover.model.schedule import Arrival
from spillover.tools.bench.load_process import (
    ASYNCHRONOUS,
    Closed,
    Fates,
    Held,
    LoadProcess,
    Queued,
    Replayed,
    Scheduled,
    _Worker,
)
from spillover_loadgen.record import Outcome
from support.children import in_this_loop
from support.knots import left_over
from support.loop import until
from support.scripted_server import answer, done, problem, scripted

A, B = ClusterId("a"), ClusterId("b")
BODY = b'{"payload": {"service_ms": 0}}'


def play(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 20.0))


@asynccontextmanager
async def silent():
    """A server that hears and never says anything: what each connection has sent."""
    heard, open_ones = [], set()

    async def listen(reader, writer):
        open_ones.add(writer)
        heard.append(b"")
        place = len(heard) - 1
        while data := await reader.read(65_536):
            heard[place] += data
        open_ones.discard(writer)
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard
        await until(lambda: not open_ones)
    finally:
        server.close()
        await server.wait_closed()


def test_askers_go_on_with_the_next_request_and_their_answers_count():
    """On connections that the next job uses again, with keys that never come twice."""

    async def main():
        worker, sent = _Worker(), []
        async with scripted(done()) as server:
            job = Closed(
                url=server.url,
                body=BODY,
                connections=3,
                duration_s=0.05,
                headers=(ASYNCHRONOUS,),
                keyed=True,
            )
            counts = [await worker._do(job) for _ in range(2)]
            keyed = len(server.seen)
            plain = await worker._do(Closed(url=server.url, body=BODY, connections=1, duration_s=0))
            connections = len(server._connections)
            sent = list(zip(server.seen, server.bodies, strict=True))
            await worker._clients[server.url].close()
        return counts, keyed, plain, connections, sent

    counts, keyed, plain, connections, sent = play(main())
    assert min(counts) >= 3
    assert sum(counts) == keyed
    assert (plain, connections) == (0, 3)
    keys = [headers.pop("idempotency-key") for (_, headers), _ in sent]
    assert keys == [f"bench-{number}" for number in range(keyed)]
    for (line, headers), body in sent:
        assert line == "POST /requests"
        assert body == BODY
        assert headers["content-type"] == "application/json"
        assert headers["prefer"] == "respond-async"


@pytest.mark.parametrize("status", [200, 202])
def test_only_what_a_job_expects_counts(status):
    async def main():
        worker = _Worker()
        async with scripted(answer(status, {})) as server:
            told = {"url": server.url, "body": BODY, "connections": 1, "duration_s": 0.02}
            try:
                count = await worker._do(Closed(statuses=frozenset((202, 201)), **told))
                return count, len(server.seen), server.seen[0][1]
            finally:
                await worker._clients[server.url].close()

    if status == 200:
        with pytest.raises(RunError, match=r"expected status \[201, 202\], got 200: \{\}"):
            play(main())
    else:
        count, seen, headers = play(main())
        assert count == seen >= 1
        assert "idempotency-key" not in headers
        assert "prefer" not in headers


def test_what_is_held_stays_open_each_on_a_connection_of_its_own():
    async def main():
        worker = _Worker()
        async with silent() as (url, heard):
            count = await worker._do(Held(url=url, body=BODY, requests=5))
            await until(lambda: [one.endswith(BODY) for one in heard] == [True] * 5)
            ((client, futures),) = worker._kept
            waiting = [one.done() for one in futures]
            await client.close()
            await asyncio.gather(*futures, return_exceptions=True)
            return count, heard, waiting

    count, heard, waiting = play(main())
    assert count == 5
    assert waiting == [False] * 5
    for one in heard:
        assert one.startswith(b"POST /requests HTTP/1.1\r\n")
        assert one.count(b"POST ") == 1
        assert b"content-type: application/json\r\n" in one.lower()


def test_what_is_queued_is_as_many_as_were_asked_for():
    """However many go at a time; each says that it need not be answered now."""

    async def main():
        async with scripted(answer(202, {})) as server:
            job = Queued(url=server.url, body=BODY, requests=11, connections=4)
            count = await _Worker()._do(job)
            await until(lambda: not server._connections)
            return count, server.seen, server.bodies

    count, seen, bodies = play(main())
    assert count == len(seen) == 11
    assert set(bodies) == {BODY}
    for line, headers in seen:
        assert line == "POST /requests"
        assert headers["prefer"] == "respond-async"
        assert headers["content-type"] == "application/json"


def test_what_is_done_at_once_was_not_queued():
    async def main():
        async with scripted(done()) as server:
            await _Worker()._do(Queued(url=server.url, body=BODY, requests=1))

    with pytest.raises(RunError, match=r"expected status \[202\], got 200"):
        play(main())


@pytest.mark.parametrize("brief", [False, True])
def test_a_schedule_goes_to_the_targets_of_its_clusters(brief):
    """Records, or no more than their fates; with the deadline and without a key."""

    async def main():
        async with scripted(done()) as one, scripted(problem(429, "queue_full")) as other:
            schedule = [Arrival(0.0, A, 3.0), Arrival(0.0, B, 4.0), Arrival(0.01, A, 5.0)]
            told = {"targets": {A: one.url, B: other.url}, "schedule": schedule, "seed": 1}
            found = await _Worker()._do(Replayed(**told, deadline_ms=7000.0, brief=brief))
            return found, one, other

    found, one, other = play(main())
    payloads = [json.loads(body)["payload"]["service_ms"] for body in one.bodies + other.bodies]
    assert sorted(payloads[:2]) == [3.0, 5.0]
    assert payloads[2:] == [4.0]
    for _, headers in one.seen + other.seen:
        assert float(headers["spillover-deadline-ms"]) == 7000.0
        assert "idempotency-key" not in headers
    if brief:
        assert isinstance(found, Fates)
        assert found.others == {1: (Outcome.REFUSED, "queue_full")}
        assert len(found.response_ms) == len(found.lag_ms) == 3
    else:
        assert [record.outcome for record in found] == [Outcome.OK, Outcome.REFUSED, Outcome.OK]
        assert [record.cluster for record in found] == [A, B, A]


def test_a_schedule_at_one_url_tells_how_long_each_took():
    """Without keys, in its order; all have to be answered."""

    async def main(*said):
        async with scripted(*said) as server:
            schedule = [Arrival(0.01 * n, A, service_ms=1.0) for n in range(3)]
            job = Scheduled(url=server.url, schedule=schedule, seed=1)
            return await _Worker()._do(job), server.seen

    times, seen = play(main(done()))
    assert [line for line, _ in seen] == ["POST /requests"] * 3
    assert not [headers for _, headers in seen if "idempotency-key" in headers]
    assert len(times.response_ms) == len(times.lag_ms) == 3
    assert all(0.0 <= lag < took for lag, took in zip(times.lag_ms, times.response_ms, strict=True))
    with pytest.raises(RunError, match="not every request was answered by 200"):
        play(main(done(), problem(429, "queue_full")))


def test_the_process_does_one_job_after_the_other_and_tells_what_went_wrong():
    """As it hears them; after a failure it goes on."""
    ours, there = multiprocessing.Pipe()

    async def main():
        worker = _Worker()
        working = asyncio.create_task(worker.do_jobs(there))
        told = []
        async with scripted(answer(202, {})) as server:
            for job in (
                Queued(url=server.url, body=BODY, requests=2),
                Closed(url=server.url, body=BODY, connections=1, duration_s=0.02),
                Queued(url=server.url, body=BODY, requests=3),
            ):
                ours.send(job)
                await until(ours.poll)
                told.append(ours.recv())
            await worker._clients[server.url].close()
        ours.close()
        with suppress(EOFError):
            await working
        there.close()
        return told

    first, failure, last = play(main())
    assert (first, last) == (2, 3)
    assert isinstance(failure, RunError)
    assert str(failure).startswith("expected status [200], got 202")


def nowhere():
    """A port at which nobody listens."""
    with bind_socket("127.0.0.1", 0) as taken:
        return f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_connections_are_there_before_what_is_measured_begins():
    """And one that cannot be opened is told, though no answer is waited for."""

    async def opened():
        worker = _Worker()
        async with scripted(done()) as server:
            job = Closed(url=server.url, body=BODY, connections=3, duration_s=0.0)
            count = await worker._do(job)
            await until(lambda: len(server._connections) == 3)
            await worker._clients[server.url].close()
            return count

    assert play(opened()) == 0
    url = nowhere()
    for job in (
        Closed(url=url, body=BODY, connections=2, duration_s=0.0),
        Held(url=url, body=BODY, requests=2),
    ):
        with pytest.raises(NotDelivered):
            play(_Worker()._do(job))


def test_a_schedule_of_one_request_is_one_too():
    """Its times, its record or its fate, as is asked for."""

    async def main():
        async with scripted(done()) as server:
            schedule = [Arrival(0.0, A, 3.0)]
            replayed = Replayed(
                targets={A: server.url}, schedule=schedule, seed=1, deadline_ms=None
            )
            async with in_this_loop(LoadProcess(), _Worker().do_jobs) as load:
                times = await load.times(Scheduled(url=server.url, schedule=schedule, seed=1))
                return times, await load.records(replayed), await load.fates(replayed)

    times, (record,), fates = play(main())
    assert len(times.response_ms) == len(fates.response_ms) == 1
    assert (record.outcome, fates.others) == (Outcome.OK, {})


def test_the_collector_has_nothing_to_do_while_a_schedule_is_sent():
    """It would hold requests up: what is there is looked through before, and not again."""

    async def main():
        async with scripted(done()) as server:
            job = Replayed(
                targets={A: server.url}, schedule=[Arrival(0.0, A)], seed=1, deadline_ms=None
            )
            frozen = gc.get_freeze_count()
            await _Worker()._do(job)
            return gc.get_freeze_count() - frozen

    with left_over() as garbage:
        assert play(main()) > 0
        assert garbage() is None
