"""The handler `proxy:` in front of services that say what they like: what the node is told of an
answer, in which order, and what becomes of the upstream."""

import asyncio

import pytest

from spillover.core.overflow.events import NotStarted
from spillover.live.handlers.proxy.handler import HELD_BACK_MAX_BYTES
from spillover.model.request import DONE, Outcome
from support.loop import until
from support.lying_service import lying_service
from support.proxy_workers import Front, Saying, in_front_of, own

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BUSY = b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy"


# --- answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 404, 429, 499])
async def test_an_answer_that_is_there_at_once_is_told_whole_and_then_its_end(status):
    said = OK.replace(b"200", b"%d" % status)
    async with in_front_of(said, service_ms=60_000.0) as (front, service):
        (upstream,) = front.upstreams
        upstream.attempt = 3
        event = await front.ask()
        assert front.told.answer == [("whole", 7, status, b"ok", ())]
        assert (event.ref, event.outcome, event.problem) == (7, DONE, None)
        assert event.said_no == (status != 200)
        assert 0.0 <= event.service_s < 60.0
        assert (upstream.running, upstream.failures, upstream.attempt) == (0, 0.0, 0)
        assert front.workers.upstreams._usual_s < 60.0, "it was faster than was said"
        assert len(service.seen) == 1
        front.workers.stop(7)
        assert front.told.event is event, "it has ended already"


@pytest.mark.parametrize("status", [500, 503, 599])
async def test_a_5xx_is_passed_on_and_is_a_failure_of_the_upstream(status):
    """Which counts as busy for as long as a success takes."""
    said = OK.replace(b"200", b"%d" % status)
    async with in_front_of(said, service_ms=60_000.0, not_run_statuses=(429,)) as (front, _):
        (upstream,) = front.upstreams
        event = await front.ask()
        assert front.told.answer == [("whole", 7, status, b"ok", ())]
        assert (event.outcome, event.upstream_status) == (Outcome.FAILED, status)
        assert event.problem == f"upstream {upstream.name} answered {status}"
        assert (upstream.running, bool(upstream.failures)) == (1, True)


async def test_an_answer_that_comes_in_pieces_is_told_as_it_comes():
    said = Saying(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"1\r\no\r\n",
        b"1\r\nk\r\n",
        b"0\r\nA: b\r\n\r\n",
    )
    async with in_front_of(said) as (front, _):
        (upstream,) = front.upstreams
        front.start()
        assert upstream.running == 1
        begun = ("begins", 7, 200)
        ends = ("ends", ((b"A", b"b"),))
        for told in ([begun], [begun, ("body", b"o")], [begun, ("body", b"ok")]):
            said.go.release()
            await until(lambda told=told: front.told.all == told)
        said.go.release()
        event = await front.end()
        assert front.told.answer == [begun, ("body", b"ok"), ends]
        assert (event.outcome, upstream.running, upstream.failures) == (DONE, 0, 0.0)


async def test_what_has_begun_and_breaks_off_is_tried_nowhere_else():
    async def breaks_off(talk, *_):
        await talk.say(OK[:-1])

    async with in_front_of(breaks_off, OK, service_ms=60_000.0) as (front, _, other):
        upstream = front.upstreams[0]
        event = await front.ask(keyed=True)
        assert front.told.answer == [("begins", 7, 200), ("body", b"o")]
        assert (event.outcome, event.upstream_status) == (Outcome.FAILED, None)
        assert event.problem == (
            f"upstream {upstream.name}: the server closed the connection before the answer"
            " was whole"
        )
        assert (upstream.running, bool(upstream.failures)) == (1, True)
        assert not other.seen


@pytest.mark.parametrize("keyed", [False, True])
async def test_what_may_have_run_is_tried_once_more_if_it_has_a_key(keyed):
    async def hang_up(talk, *_):
        talk.reset()

    async with in_front_of(hang_up, OK, service_ms=60_000.0) as (front, service, other):
        event = await front.ask(own(method=b"POST"), keyed=keyed)
        assert (len(service.seen), len(other.seen)) == (1, int(keyed))
        assert front.upstreams[0].running == 1, "it failed"
        assert front.upstreams[1].running == 0
        if keyed:
            assert front.told.answer == [("whole", 7, 200, b"ok", ())]
            assert event.outcome is DONE
        else:
            assert event.outcome is Outcome.FAILED
            assert event.problem.endswith("; whether it did the work is not known")


async def test_what_cannot_be_reached_has_surely_not_got_it():
    async with lying_service() as service:
        front = Front(["http://127.0.0.1:1", service.url])
        event = await front.ask()
        assert event.outcome is DONE
        assert [one.up for one in front.upstreams] == [False, True]
        assert [one.running for one in front.upstreams] == [0, 0]
        assert front.told.health == []
        await front.workers.close()
        front = Front(["http://127.0.0.1:1"])
        event = await front.ask()
        assert isinstance(event, NotStarted)
        assert not event.refused
        assert event.problem.startswith("upstream http://127.0.0.1:1/ cannot be reached: ")
        assert (front.told.health, front.upstreams[0].running) == ([False], 0)
        await front.workers.close()


# --- statuses by which nothing was run ------------------------------------------------------------


HELD = b"HTTP/1.1 503 No\r\nRetry-After: 7\r\nRetry-After: 9\r\nContent-Length: %d\r\n\r\n"


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("size", [2, HELD_BACK_MAX_BYTES, HELD_BACK_MAX_BYTES + 1])
async def test_what_says_not_run_is_held_back_unless_it_says_so_at_length(size, at_once):
    body = b"x" * size
    parts = [HELD % size + body] if at_once else [HELD % size, body[:-1], body[-1:]]
    said = Saying(*parts)
    fields = {"not_run_statuses": (503,), "service_ms": 60_000.0}
    async with in_front_of(said, **fields) as (front, _):
        (upstream,) = front.upstreams
        front.start()
        said.go.release()
        for come in () if at_once else (0, size - 1):
            await until(lambda come=come: front.held() == come)
            assert front.told.all == []
            said.go.release()
        event = await front.end()
        if size <= HELD_BACK_MAX_BYTES:
            assert front.told.answer == [("held", 7, 503, body, ())]
            assert isinstance(event, NotStarted)
            assert (event.ref, event.refused, event.upstream_status) == (7, True, 503)
            assert event.retry_after_s == pytest.approx(7.0, abs=2.0)
            assert event.problem == f"upstream {upstream.name} answered 503"
        else:
            assert front.told.passed == (503, body)
            assert (event.outcome, event.upstream_status) == (Outcome.FAILED, 503)
        assert upstream.failures
        assert upstream.running == 1, "as busy as with a success"


async def test_another_one_is_asked_then():
    async with in_front_of(BUSY, OK, not_run_statuses=(503,)) as (front, *services):
        event = await front.ask()
        assert front.told.answer == [
            ("held", 7, 503, b"busy", ()),
            ("whole", 7, 200, b"ok", ()),
        ]
        assert event.outcome is DONE
        assert [len(service.seen) for service in services] == [1, 1]
        await front.ask()
        assert [len(service.seen) for service in services] == [1, 2], "it is left alone"


async def test_of_what_breaks_off_behind_such_a_status_nothing_is_passed_on():
    async def breaks_off(talk, *_):
        await talk.say(BUSY[:-1])

    async with in_front_of(breaks_off, not_run_statuses=(503,)) as (front, _):
        event = await front.ask()
        assert isinstance(event, NotStarted)
        assert (event.refused, event.upstream_status) == (True, None)
        assert front.told.answer == []


async def test_what_was_held_of_one_is_not_passed_on_with_another_ones():
    """The first one breaks off in the midst of what it says, the second one says it at length."""
    long = HELD_BACK_MAX_BYTES + 1

    async def breaks_off(talk, *_):
        await talk.say(BUSY[:-1])

    said = Saying(b"HTTP/1.1 503 No\r\nContent-Length: %d\r\n\r\n" % long, b"x" * long)
    async with in_front_of(breaks_off, said, not_run_statuses=(503,)) as (front, *_):
        said.go.release()
        said.go.release()
        event = await front.ask()
        assert event.upstream_status == 503
        assert front.told.passed == (503, b"x" * long)


# --- who does not want it any more ----------------------------------------------------------------


async def test_the_source_of_an_answer_stops_goes_on_and_ends():
    said = Saying(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", b"x")
    async with in_front_of(said) as (front, _):
        (upstream,) = front.upstreams
        front.start()
        said.go.release()
        await until(lambda: front.told.sources)
        (source,) = front.told.sources
        transport = source.exchange.connection._transport
        source.pause()
        assert not transport.is_reading()
        source.resume()
        assert transport.is_reading()
        said.go.release()
        await until(lambda: front.told.all[-1] == ("body", b"x"))
        source.close("nobody reads it")
        event = front.told.event
        assert (event.outcome, event.problem) == (Outcome.FAILED, "nobody reads it")
        assert upstream.running == 0
        for late in (source.pause, source.resume, lambda: source.close("again")):
            late()
        assert front.told.event is event
        assert upstream.running == 0
        await until(lambda: said.left)


@pytest.mark.parametrize("size", [1, HELD_BACK_MAX_BYTES + 1])
async def test_who_leaves_when_its_answer_begins_gets_nothing_of_it(size):
    status = 200 if size == 1 else 503
    head = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, size + 1)
    said = Saying(head + b"x" * size)
    async with in_front_of(said, not_run_statuses=(503,)) as (front, _):
        front.told.leaves = True
        front.start()
        said.go.release()
        await until(lambda: said.left)
        assert front.told.answer == [("begins", 7, status)]
        assert front.told.event.problem == "nobody reads it"
        assert front.upstreams[0].running == 0


async def test_what_is_stopped_ends_at_once_and_with_its_connection():
    said = Saying()
    async with in_front_of(said) as (front, service):
        front.start()
        await until(lambda: service.seen)
        front.workers.stop(7)
        event = front.told.event
        assert (event.ref, event.outcome, front.told.answer) == (7, Outcome.CANCELLED, [])
        assert front.upstreams[0].running == 0
        front.workers.stop(7)
        assert front.told.event is event
        await until(lambda: said.left)


# --- connections that are no good -----------------------------------------------------------------


@pytest.mark.parametrize("method", [b"GET", b"POST"])
async def test_a_service_that_takes_connections_and_drops_them_is_down(method):
    """As whoever stands before one that is gone. What was sent it surely has not read."""
    dropping = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = dropping.sockets[0].getsockname()[1]
    front = Front([f"http://127.0.0.1:{port}"])
    event = await front.ask(own(method=method))
    assert isinstance(event, NotStarted)
    assert front.told.health[:1] == [False]
    await front.workers.close()
    dropping.close()
