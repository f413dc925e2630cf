"""Handlers of several upstreams send a session where it ran before, and without `affinity` to the
least busy as ever."""

import asyncio
import json

import pytest

from spillover.core.overflow.events import Start
from spillover.inputs.topology_file import topology_of
from spillover.live.engine.timers import Timers
from spillover.live.handlers.make import make_workers
from spillover.model.affinity import SessionWork
from spillover.model.errors import InputError
from spillover.model.ranges import WORK_MAX
from spillover.model.request import DONE, Outcome, Request
from spillover.model.topology import Cluster
from support.loop import until
from support.lying_service import lying_service
from support.proxy_workers import in_front_of, own

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LATE = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def counts(services):
    return [len(one.seen) for one in services]


@pytest.mark.parametrize("affinity", ["header:X-Session", "cookie:sid", "json:user"])
async def test_requests_of_a_session_go_where_the_first_one_went(affinity):
    def asked(session):
        body = b'{"user": "%d", "x": "%b"}' % (session, b"." * 2_000)
        lines = b"X-Session: %d" % session, b"Cookie: a=b; sid=%d" % session
        return own(*lines, method=b"POST", body=body)

    async with in_front_of(OK, OK, OK, affinity=affinity) as (front, *services):
        first = {}
        for session in (1, 2, 3):
            before = counts(services)
            assert (await front.ask(asked(session))).outcome is DONE
            now = counts(services)
            first[session] = next(at for at in range(3) if now[at] > before[at])
        assert set(first.values()) == {0, 1, 2}
        for session in (3, 1, 1, 2, 3, 2, 1):
            before = counts(services)[first[session]]
            await front.ask(asked(session))
            assert counts(services)[first[session]] == before + 1
        parts = [one.affinity_bytes for one in front.upstreams]
        told = sum(one["missing"] + one["reused"] for one in parts)
        assert told == pytest.approx(10 * len(asked(1).body))
        assert all(one["missing"] > 2_000 for one in parts), "the first one of each session"
        assert all(one["reused"] > 0.0 for one in parts)


async def test_what_waits_for_its_first_byte_counts_by_its_size():
    """A head is no first byte: services send it before they begin."""
    go = asyncio.Event()

    async def late(talk, head, body):
        await talk.say(LATE)
        if len(body) < 9_000:
            await talk.until_closed()
        await go.wait()
        await talk.say(b"2\r\nok\r\n")
        await talk.until_closed()

    async with in_front_of(late, late, affinity="header:X-Session") as (front, *services):
        await until(lambda: all(one.was_reached for one in front.upstreams))
        front.start(own(method=b"POST", body=b"x" * 9_000), ref=1)
        for ref in (2, 3, 4):
            front.start(own(method=b"POST", body=b"x" * 1_000), ref=ref)
        await until(lambda: len(front.told.all) == 4)
        assert sorted(counts(services)) == [1, 3], "three small ones are less than a large one"
        places = front.workers.upstreams._places
        assert sorted(places._waiting) == [1, 3]
        go.set()
        await until(lambda: sorted(places._waiting) == [0, 3])
        for ref in (1, 2, 3, 4):
            front.workers.stop(ref)
        assert places._waiting == [0, 0]
        assert places._pending == [0.0, 0.0]


async def test_a_session_whose_service_fails_or_goes_away_goes_elsewhere():
    """No request is lost to affinity, and none stays pending."""
    async with in_front_of(OK, OK, affinity="header:X-Session") as (front, *services):
        ask = lambda: front.ask(own(b"X-Session: 1"), keyed=True)  # noqa: E731
        await ask()
        at = 0 if services[0].seen else 1
        services[at].answer = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
        assert (await ask()).outcome is Outcome.FAILED
        services[at].answer = OK

        async def hang_up(talk, *_):
            talk.reset()

        services[at].answer = hang_up
        before = len(services[1 - at].seen)
        for _ in range(3):
            assert (await ask()).outcome is DONE
        assert len(services[1 - at].seen) == before + 3
        assert front.workers.upstreams._places._waiting == [0, 0]


async def test_payloads_of_an_http_handler_name_their_session():
    done = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
    async with lying_service() as one, lying_service() as other:
        one.answer = other.answer = done
        told = []
        cluster = Cluster(
            id="a", servers=4, handler=f"http:{one.url},{other.url}", affinity="prefix"
        )
        with_timers = cluster, "t", Timers(asyncio.get_running_loop())
        workers = make_workers(*with_timers, lambda event, _: told.append(event), told.append)
        for turn in range(6):
            messages = [{"role": "user", "content": "hi" * 500}, *["more"] * turn]
            work = json.dumps({"messages": messages}).encode()
            workers.start(Start(turn, Request(f"r{turn}", False, work), 0.0, 1e12))
            await until(lambda turn=turn: len(told) == turn + 1)
        assert sorted(counts((one, other))) == [0, 6]
        await workers.close()


@pytest.mark.parametrize(
    ("handler", "affinity", "told"),
    [
        ("sleep", "prefix", "expected only along with an http: or proxy: handler"),
        ("http:http://h:1", "header:X", "expected json:FIELD or prefix"),
        ("proxy:http://h:1", "header:", "expected header:NAME, cookie:NAME, json:FIELD or prefix"),
    ],
)
def test_affinity_that_cannot_be_is_refused(handler, affinity, told):
    cluster = {"id": "a", "servers": 1, "handler": handler, "affinity": affinity}
    with pytest.raises(InputError) as caught:
        topology_of({"clusters": [cluster]}, "t.yaml", "t")
    assert f"clusters[0].affinity: {told}" in str(caught.value)


async def test_a_node_can_tell_what_a_request_finds_here_and_how_its_services_are():
    """Before it decides where the request goes; and, of one that has run, where that was."""
    async with in_front_of(OK, OK, affinity="header:X-Session") as (front, *services):
        workers = front.workers
        work = own(b"X-Session: 1", method=b"POST", body=b"x" * 4_000)
        new = workers.seen(Request("r", False, work))
        assert (new.work, new.work_per_s) == (4_000, 0.0), "nothing is known yet"
        assert [one.reusable for one in new.places] == [0.0, 0.0]
        ran = (await front.ask(work)).ran
        assert (ran.taken, ran.reused) == (4_000, 0.0)
        assert len(services[ran.place].seen) == 1
        again = workers.seen(Request("r", False, work))
        assert again.session == new.session != 0
        assert again.work_per_s > 0.0
        assert again.places[ran.place].reusable == pytest.approx(4_000)
        other = own(method=b"POST", body=b"x")
        assert workers.seen(Request("r", False, other)).session == 0
        loads = workers.upstreams.loads()
        assert [one.taken for one in loads] == [4_000 * (at == ran.place) for at in (0, 1)]
        workers.upstreams.unreachable(front.upstreams[0], "gone")
        assert workers.upstreams.loads()[0].wait == WORK_MAX
        assert len(workers.seen(Request("r", False, work)).places) == 1


@pytest.mark.parametrize("status", [404, 429, 503])
async def test_nothing_is_told_of_where_a_request_was_refused(status):
    said = OK.replace(b"200", b"%d" % status)
    async with in_front_of(said, said, affinity="header:X-Session") as (front, *_):
        ended = await front.ask(own(b"X-Session: 1", method=b"POST", body=b"x"))
        assert ended.ran is None


async def test_a_request_that_came_with_its_session_is_not_read_again():
    async with in_front_of(OK, OK, affinity="json:user") as (front, *_):
        asked = SessionWork(7, 123.0, 1.0, ())
        ended = await front.ask(own(method=b"POST", body=b"no JSON"), asked=asked)
        assert ended.ran.taken == 123.0


async def test_without_affinity_nothing_is_told():
    async with in_front_of(OK, OK) as (front, *_):
        assert front.workers.upstreams.loads() == ()
        assert (await front.ask()).ran is None
