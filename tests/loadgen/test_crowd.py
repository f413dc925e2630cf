"""Many clients, looked at from inside: who they are, where they send and how often, and what is
made of it.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from contextlib import asynccontextmanager

import pytest

from spillover_loadgen import clients_driver
from spillover_loadgen.clients_driver import ClientsLoad, Crowd, _times, client_name, run
from support.loop import until
from support.scripted_server import answer, done, problem, scripted

SESSION = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\n\r\n"


def load_of(*urls, **fields):
    given = {
        "clients": 1, "rule": "baseline", "virtual_nodes": 1, "duration_s": 0.3,
        "change_wait_s": 0.0, "rate_per_s": 0.0, "service_ms": 7.5, "seed": 1,
    }  # fmt: skip
    return ClientsLoad(nodes=urls, **given | fields)


def session_at(*servers):
    """What a node says that is the first of these, names and urls."""
    told = [{"id": name, "url": url} for name, url in servers]
    line = {"cluster": servers[0][0], "version": 1, "servers": told}
    return SESSION + json.dumps(line).encode() + b"\n"


@asynccontextmanager
async def crowd_of(load, **more):
    crowd = Crowd(load, **more)
    try:
        yield crowd
    finally:
        await asyncio.gather(*(session.close() for session in crowd._sessions))
        for client in crowd._nodes.values():
            await client.close()


@pytest.fixture
def nobody():
    """A url at which nobody listens, held so that nobody else does."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{holder.getsockname()[1]}"


@asynccontextmanager
async def connected(elsewhere, **fields):
    """(crowd, server): one client with a session at `a`, which has told of `b` elsewhere."""
    async with scripted(answer(204)) as server:
        server.answers(session_at(("a", server.url), ("b", elsewhere)), done())
        async with crowd_of(load_of(server.url, **fields)) as crowd:
            await crowd._start_all()
            (session,) = crowd._sessions
            await until(lambda: session.in_use is not None and len(session.servers) == 2)
            yield crowd, server


def test_a_request_is_the_plainest_there_can_be():
    """With the service time that was asked for, and a name of its own, so that it runs once."""

    async def main():
        async with scripted(done()) as server, crowd_of(load_of(server.url)) as crowd:
            await crowd._send(0)
            await crowd._send(0)
            return server.seen, server.bodies, dict(crowd._requests)

    seen, bodies, requests = asyncio.run(main())
    assert [asked for asked, _ in seen] == ["POST /requests"] * 2
    assert [json.loads(body) for body in bodies] == [{"payload": {"service_ms": 7.5}}] * 2
    assert {headers["content-type"] for _, headers in seen} == {"application/json"}
    assert len({headers["idempotency-key"] for _, headers in seen}) == 2
    assert requests == {"ok": 2, "failed": 0, "unknown": 0, "retried": 0}


def test_clients_have_the_names_of_their_run():
    async def main(**fields):
        async with scripted(problem(404, "no")) as server:
            load = load_of(server.url, clients=2, **fields)
            async with crowd_of(load) as crowd:
                await crowd._start_all()
                await until(lambda: len(server.seen) >= 2)
            return {asked.partition("client=")[2].partition("&")[0] for asked, _ in server.seen}

    assert client_name("night", 1) == "loadgen-night-1"
    assert asyncio.run(main(run_id="night")) == {"loadgen-night-0", "loadgen-night-1"}
    drawn = asyncio.run(main())
    assert len(drawn) == 2
    assert not drawn & asyncio.run(main()), "each run has others"


def test_who_is_connected_sends_there_and_after_a_refusal_to_any_of_its_list(nobody):
    async def main():
        async with connected(nobody) as (crowd, server):
            assert {crowd._url(0, tries) for tries in (0, 2, 4)} == {server.url}
            asked = {crowd._url(0, tries) for tries in range(1, 99, 2)}
            assert asked == {server.url, nobody}
            assert crowd._counts() == {"a": 1, "b": 0}, "also where nobody is"

    asyncio.run(main())


def test_who_is_not_connected_sends_to_any_node():
    async def main():
        async with crowd_of(load_of("http://127.0.0.1:1", "http://127.0.0.1:2")) as crowd:
            asked = {crowd._url(0, tries) for tries in range(50)}
            assert asked == {"http://127.0.0.1:1", "http://127.0.0.1:2"}
            assert crowd._counts() == {}

    asyncio.run(main())


def test_the_more_often_it_was_refused_the_longer_a_request_waits(monkeypatch):
    monkeypatch.setattr(clients_driver, "PAUSE_S", 0.02)

    async def main():
        said = [problem(503, "no"), problem(503, "no"), problem(429, "no"), done()]
        async with scripted(*said) as server, crowd_of(load_of(server.url)) as crowd:
            began_s = time.monotonic()
            await crowd._send(0)
            assert time.monotonic() - began_s >= (2 + 3 + 4) * 0.02
            assert (crowd._requests["ok"], crowd._requests["retried"]) == (1, 3)

    asyncio.run(main())


def test_requests_come_at_the_rate_of_all_together_by_any_client():
    """A hundred in half a second, give or take four standard deviations."""

    async def main():
        async with scripted(done()) as server:
            load = load_of(server.url, clients=3, rate_per_s=200.0)
            async with crowd_of(load) as crowd:
                began_s = time.monotonic()
                await crowd._send_all(began_s + 0.5)
                took_s = time.monotonic() - began_s
                if crowd._under_way:
                    await asyncio.wait(crowd._under_way)
                await until(lambda: not crowd._under_way)
                return took_s, dict(crowd._requests)

    took_s, requests = asyncio.run(main())
    assert took_s >= 0.4, "each at its time"
    assert 60 <= requests["ok"] <= 140
    assert requests["failed"] == requests["unknown"] == 0


def test_clients_come_one_after_the_other_if_asked_to(nobody):
    async def main():
        load = load_of(nobody, clients=20, connect_over_s=0.4)
        async with crowd_of(load) as crowd:
            began_s = time.monotonic()
            starting = asyncio.create_task(crowd._start_all())
            await until(lambda: crowd._sessions[1].connects)
            assert time.monotonic() - began_s >= 0.02
            await starting
            assert 0.4 <= time.monotonic() - began_s < 5.0

    asyncio.run(main())


def test_whoever_is_told_where_to_begin_begins_there():
    """Each its own way; the nodes are for those who find nobody there."""

    async def main():
        async with scripted(problem(404, "no")) as one, scripted(problem(404, "no")) as other:
            starts = (one.url, other.url) * 4
            load = load_of("http://127.0.0.1:1", clients=8, starts=starts, run_id="r")
            async with crowd_of(load) as crowd:
                await crowd._start_all()
                await until(lambda: len(one.seen) >= 4 and len(other.seen) >= 4)
            return [[asked for asked, _ in server.seen[:4]] for server in (one, other)]

    for first, asked in enumerate(asyncio.run(main())):
        names = {f"/session?client=loadgen-r-{number}&attempt=1" for number in range(first, 8, 2)}
        assert {words.split()[1] for words in asked} == names


def test_each_client_goes_by_the_rule():
    """With the points on its circle and the patience that were asked for."""

    async def main():
        more = {"rule": "consistent-hash", "virtual_nodes": 7, "change_wait_s": 2.5, "clients": 3}
        async with crowd_of(load_of("http://127.0.0.1:1", **more)) as crowd:
            machines = [session._machine for session in crowd._sessions]
            assert {machine._chooser._rule for machine in machines} == {"consistent-hash"}
            assert {machine._chooser._virtual_nodes for machine in machines} == {7}
            assert {machine._change_wait_s for machine in machines} == {2.5}
            assert len({machine._random.random() for machine in machines}) == 3, "draws of its own"
            return [machine._random.random() for machine in machines]

    assert asyncio.run(main()) == asyncio.run(main()), "by the seed"


def test_what_reached_nobody_is_sent_again(nobody, monkeypatch):
    monkeypatch.setattr(clients_driver, "PAUSE_S", 0.0)

    async def main():
        async with crowd_of(load_of(nobody)) as crowd:
            await crowd._send(0)
            return dict(crowd._requests), list(crowd._reasons)

    requests, (reason,) = asyncio.run(main())
    assert requests == {"ok": 0, "failed": 1, "unknown": 0, "retried": 19}
    assert reason.startswith(nobody)


def test_in_the_end_all_clients_leave():
    """Those that have a session say so, those that were to come do not; nothing goes on."""

    async def main():
        async with scripted(answer(204)) as server:
            server.answers(session_at(("a", server.url)), answer(204))
            load = load_of(server.url, clients=2, connect_over_s=7200.0, duration_s=0.2)
            crowd = Crowd(load)
            result = await crowd.run(asyncio.Event())
            assert (result["clients"], result["connects"]) == ({"a": 1}, 1)
            assert [client.idle for client in crowd._nodes.values()] == [0]
            await until(lambda: not server._connections)
            sessions = [asked for asked, _ in server.seen]
            assert [asked.partition("?")[0] for asked in sessions] == [
                "GET /session",
                "DELETE /session",
            ]
            await until(lambda: not any("_start_all" in repr(t) for t in asyncio.all_tasks()))

    asyncio.run(main())


def test_a_move_is_seen_where_it_went_and_takes_no_time(nobody):
    """A loss takes as long as there is none, which is counted in ms, once."""

    async def main():
        async with connected(nobody) as (crowd, server):
            assert (crowd._at, crowd._lost_s) == (["a"], [0.0])
            crowd._at[0] = "elsewhere"
            crowd._changed(0)
            assert (crowd._at, crowd._elsewhere_ms) == (["a"], [])
            crowd._lost_s[0] = lost_s = time.monotonic() - 2.0
            crowd._changed(0)
            since_ms = (time.monotonic() - lost_s) * 1e3
            crowd._changed(0)
            assert crowd._lost_s == [0.0]
            (waited_ms,) = crowd._elsewhere_ms
            assert 2_000 <= waited_ms <= since_ms
            server.answers(problem(503, "no"))
            server.hang_up()
            await until(lambda: crowd._sessions[0].in_use is None)
            since_s = crowd._lost_s[0]
            assert 0.0 < since_s <= time.monotonic()
            crowd._changed(0)
            assert (crowd._lost_s[0], crowd._at) == (since_s, ["a"]), "since the first moment"

    asyncio.run(main())


def test_a_run_is_looked_at_all_the_time(monkeypatch):
    monkeypatch.setattr(clients_driver, "LOOK_S", 0.05)

    async def main():
        async with scripted(answer(204)) as server:
            server.answers(session_at(("a", server.url)), done())
            looks = []
            load = load_of(server.url, duration_s=0.5, rate_per_s=100.0)
            result = await run(load, asyncio.Event(), looks.append)
            return result, looks

    result, looks = asyncio.run(main())
    assert 2 <= len(looks) <= 11
    told = [{"at_s": one["at_s"], "clients": one["clients"]} for one in looks]
    assert result["timeline"] == told
    times = [one["at_s"] for one in looks]
    assert times == sorted(times)
    assert (times[0] < 0.4, times[-1] < 2.0) == (True, True)
    assert looks[-1]["clients"] == result["clients"] == {"a": 1}
    assert 0.5 <= result["duration_s"] < 5.0
    counted = {"unconnected": 0, "moved": 0, "lost": 0, "connects": 1, "put_off": 0, "lies": 0}
    assert {name: result[name] for name in counted} == counted
    assert result["requests"]["ok"] > 0
    assert result["elsewhere_ms"] == {"p50": None, "p99": None, "max": None}
    assert result["reasons"] == {}


def test_a_run_ends_when_it_is_told_to_and_waits_for_its_requests():
    async def main():
        stop = asyncio.Event()
        async with scripted(answer(204)) as server:
            server.answers(session_at(("a", server.url)), done())
            load = load_of(server.url, duration_s=3600.0, rate_per_s=300.0)
            running = asyncio.create_task(run(load, stop))
            await until(lambda: len(server.seen) > 10)
            stop.set()
            result = await running
            asked = sum(first == "POST /requests" for first, _ in server.seen)
        return result, asked

    result, asked = asyncio.run(main())
    assert result["requests"]["ok"] == asked > 0
    assert result["requests"]["unknown"] == 0


def test_why_there_is_no_session_is_told_with_why_requests_failed():
    """The ten most frequent ones."""

    async def main():
        async with (
            scripted(problem(404, "no")) as server,
            crowd_of(load_of(server.url, clients=3)) as crowd,
        ):
            await crowd._start_all()
            await until(lambda: all(session.why for session in crowd._sessions))
            plain = crowd._result(1.23456)
            whys = [session.why for session in crowd._sessions]
            crowd._reasons.update({f"r{k}": k for k in range(11, 25)})
            return plain, whys, crowd._result(1.0)

    plain, whys, full = asyncio.run(main())
    assert sum(plain["reasons"].values()) == plain["unconnected"] == 3
    assert set(plain["reasons"]) == set(whys)
    assert (plain["duration_s"], plain["rule"], plain["seed"]) == (1.235, "baseline", 1)
    assert list(full["reasons"].values()) == list(range(24, 14, -1))


def test_times_are_whole_thousandths_of_the_share_that_is_named():
    values = [float(number) for number in range(200, 0, -1)]
    assert _times(values) == {"p50": 100.0, "p99": 198.0, "max": 200.0}
    assert _times([1.00049]) == {"p50": 1.0, "p99": 1.0, "max": 1.0}


@pytest.mark.parametrize("tries", [19, 20])
def test_a_request_is_tried_twenty_times(monkeypatch, tries):
    monkeypatch.setattr(clients_driver, "PAUSE_S", 0.0)

    async def main():
        said = [*[problem(503, "no")] * tries, done()]
        async with scripted(*said) as server, crowd_of(load_of(server.url)) as crowd:
            await crowd._send(0)
            return dict(crowd._requests), dict(crowd._reasons)

    requests, reasons = asyncio.run(main())
    assert (requests["ok"], requests["failed"]) == ((1, 0) if tries == 19 else (0, 1))
    assert reasons == ({} if tries == 19 else {"status 503": 1})
