"""Which of several upstreams a request goes to: who is busy, who asks to be left alone, and who
fails more than others. By a clock that is moved by hand."""

import asyncio
import logging
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from spillover.live.engine.timers import Timers
from spillover.live.handlers.calls import CallResult
from spillover.live.handlers.http import upstreams as upstreams_module
from spillover.live.handlers.http.upstreams import ALONE_S_MAX, CONNECTIONS_SPARE, Upstreams
from spillover.live.handlers.make import make_workers
from spillover.model.errors import NotDelivered
from spillover.model.topology import Cluster
from spillover.model.unlike_servers import TOKENS_MAX
from spillover.model.upstream_urls import UpstreamUrl
from support.loop import until

FAR_S = 1e9


class Clock:
    """Moved by hand."""

    def __init__(self):
        self.now_s = FAR_S

    def monotonic(self):
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(upstreams_module, "time", SimpleNamespace(monotonic=made.monotonic))
    return made


@pytest.fixture
def told(caplog, monkeypatch):
    """What the log has said so far: words, whom it is about, and what else."""
    # The filter holds back what it has let through within a second, for another test as well.
    monkeypatch.setattr(upstreams_module._log, "filters", [])
    caplog.set_level(logging.INFO)

    def lines():
        said = [one.msg for one in caplog.records if one.name == upstreams_module.__name__]
        return [(one.words, *one.fields.values()) for one in said]

    return lines


@asynccontextmanager
async def with_upstreams(count, usual_s=0.0, *, stays=True):
    """So many, all of which can be reached, at first or as long as this runs, and what the node has
    heard of them."""
    writers = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    urls = [UpstreamUrl(f"http://127.0.0.1:{port}", f"/{n}") for n in range(count)]
    health = []
    upstreams = Upstreams(urls, 4, usual_s, health.append)
    try:
        await until(lambda: not upstreams._looking)  # the first look has found them
        if not stays:
            server.close()
        yield upstreams, health
    finally:
        await upstreams.close()
        server.close()
        for writer in writers:
            writer.close()


def places(upstreams, times, tried=(), now_s=FAR_S):
    """Where these would go, one after another."""
    chosen = (upstreams.choose(tried, now_s) for _ in range(times))
    return [None if one is None else one.place for one in chosen]


async def test_the_least_busy_comes_first_and_ties_go_round(clock):
    async with with_upstreams(3) as (upstreams, _):
        first, second, third = upstreams._all
        assert places(upstreams, 4) == [0, 1, 2, 0]
        second.running = 1
        assert places(upstreams, 3) == [2, 0, 2]
        assert places(upstreams, 1, tried=[first, third]) == [1]
        assert places(upstreams, 1, tried=[first, second, third]) == [None]
        third.up = False
        assert places(upstreams, 2, tried=[first]) == [1, 1]


async def test_who_asks_to_be_left_alone_is_so_long_but_not_for_ever(clock, told):
    async with with_upstreams(2) as (upstreams, _):
        first, second = upstreams._all
        assert upstreams.rest_s(FAR_S) is None
        upstreams.leave_alone(first, CallResult(problem="busy", retry_after_s=5.0))
        assert places(upstreams, 2) == [1, 1]
        assert upstreams.rest_s(FAR_S) is None
        upstreams.leave_alone(second, CallResult(problem="full", retry_after_s=1e6))
        assert places(upstreams, 1) == [None]
        assert upstreams.rest_s(FAR_S) == 5.0
        assert upstreams.rest_s(FAR_S + 3.0) == 2.0
        assert upstreams.problem() == f"upstream {first.name} wants to be left alone: busy"
        assert places(upstreams, 2, now_s=FAR_S + 5.0) == [0, 0]
        assert upstreams.rest_s(FAR_S + 5.0) is None
        assert places(upstreams, 2, tried=[first], now_s=FAR_S + ALONE_S_MAX) == [1, 1]
        upstreams.leave_alone(first, CallResult(problem="no"))
        assert places(upstreams, 1, now_s=FAR_S + 5.0) == [0], "it has not said how long"
        words = "upstream is left alone"
        assert told() == [(words, first.name, 5.0), (words, second.name, ALONE_S_MAX)]


def fail_until_passed_over(upstreams, upstream, clock):
    """How long it is passed over then."""
    for _ in range(1000):
        if upstream.passed_over_until_s > clock.now_s:
            return upstream.passed_over_until_s - clock.now_s
        upstreams.failed(upstream, 1.0)
    raise AssertionError(upstream.failures)


async def test_who_fails_more_than_others_comes_last_for_longer_and_longer(clock, told):
    async with with_upstreams(2) as (upstreams, _):
        first, second = upstreams._all
        pauses = []
        for _ in range(7):
            pauses.append(fail_until_passed_over(upstreams, first, clock))
            assert places(upstreams, 2, now_s=clock.now_s) == [1, 1]
            second.running = 3
            assert places(upstreams, 1, now_s=clock.now_s) == [1], "though it is busy"
            assert places(upstreams, 1, tried=[second], now_s=clock.now_s) == [0]
            clock.now_s += pauses[-1]
            assert places(upstreams, 1, now_s=clock.now_s) == [0]
            second.running = 0
        assert pauses == pytest.approx([1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0])
        assert {line[:2] for line in told()} == {("upstream is passed over", first.name)}
        assert [line[2] for line in told()] == pytest.approx(pauses)
        upstreams.worked(first, 1.0)
        assert fail_until_passed_over(upstreams, first, clock) == pytest.approx(1.0)


async def test_the_only_one_is_passed_over_for_nobody(clock):
    async with with_upstreams(1) as (upstreams, _):
        (only,) = upstreams._all
        for _ in range(100):
            upstreams.failed(only, 1.0)
        assert only.passed_over_until_s <= clock.now_s
        assert places(upstreams, 1) == [0]


async def test_a_failure_that_comes_at_once_does_not_make_it_the_least_busy(clock):
    """It counts as busy for as long as a success usually takes."""
    async with with_upstreams(2) as (upstreams, _):
        first, second = upstreams._all
        upstreams.failed(first, 100.0)
        assert first.running == 0, "it took as long as a success"
        upstreams.worked(second, 16.0)  # a sixteenth of that counts: 1 s by now
        upstreams.worked(second, None)
        upstreams.failed(first, 0.95)
        assert first.running == 1
        assert places(upstreams, 2) == [1, 1]
        await until(lambda: first.running == 0)


@pytest.mark.parametrize(
    ("servers", "connections"), [(1, 2 * TOKENS_MAX), (TOKENS_MAX + 1, 2 * (TOKENS_MAX + 1))]
)
async def test_connections_suffice_for_all_servers_there_may_ever_be(servers, connections):
    """Twice, with some to spare: those of stopped requests are gone only a moment later. Their
    number is changed while nodes run."""
    timers = Timers(asyncio.get_running_loop())
    cluster = Cluster(id="a", servers=servers, handler="http:http://127.0.0.1:9,http://[::1]:9")
    workers = make_workers(cluster, "test", timers, lambda *_: None, lambda _: None)
    for upstream in workers.upstreams._all:
        assert upstream.client.connections_max == connections + CONNECTIONS_SPARE
    await workers.close()
    timers.close()


async def test_the_node_hears_of_the_last_one_that_goes(clock, told):
    async with with_upstreams(2) as (upstreams, health):
        first, second = upstreams._all
        assert (first.client.idle, second.client.idle) == (1, 1), "the first look has left them"
        upstreams.unreachable(first, "refused")
        upstreams.unreachable(first, "refused again")
        assert health == []
        assert upstreams.problem().startswith("none of 2 upstreams can be reached, ")
        assert upstreams.problem().endswith(f"{first.name} among them: refused again")
        upstreams.unreachable(second, "refused")
        assert health == [False]
        assert places(upstreams, 1) == [None]
        assert upstreams.rest_s(FAR_S) is None, "it is not they who asked for that"
        await until(lambda: first.up and second.up)  # they were there all the time
        assert health == [False, True]
        assert (first.client.idle, second.client.idle) == (2, 2), "another one could be made"
        words = "upstream cannot be reached"
        gone = [(words, one.name, "refused") for one in (first, second)]
        assert told()[:2] == gone
        words = "upstream can be reached again"
        assert sorted(told()[2:]) == [(words, one.name) for one in (first, second)]


async def test_the_node_hears_of_one_that_is_back_while_the_others_want_to_be_left_alone(clock):
    async with with_upstreams(2) as (upstreams, health):
        first, second = upstreams._all
        upstreams.unreachable(first, "refused")
        await until(lambda: first.up and not upstreams._looking)
        assert health == []
        upstreams.leave_alone(second, CallResult(problem="busy", retry_after_s=5.0))
        upstreams.unreachable(first, "refused")
        await until(lambda: first.up and not upstreams._looking)
        assert health == [True]
        second.alone_until_s = clock.now_s
        upstreams.unreachable(first, "refused")
        await until(lambda: first.up and not upstreams._looking)
        assert health == [True], "it need not be left alone any more"


async def test_who_is_looked_for_is_so_again_and_again(clock):
    async with with_upstreams(1, stays=False) as (upstreams, health):
        (only,) = upstreams._all
        upstreams.unreachable(only, "gone")
        assert upstreams.problem() == f"upstream {only.name} cannot be reached: gone"
        await until(lambda: only.attempt >= 2)
        assert not only.up
        await until(lambda: only.reason != "gone")
        assert health == [False]
        assert len(upstreams._looking) == 1


async def test_a_success_speaks_for_an_upstream_and_one_that_is_passed_over_is_so_once(clock, told):
    async with with_upstreams(2) as (upstreams, _):
        first = upstreams._all[0]
        upstreams.failed(first, 1.0)
        once = first.failures
        assert once > 0.0
        upstreams.worked(first, 1.0)
        assert 0.0 <= first.failures < once
        pause_s = fail_until_passed_over(upstreams, first, clock)
        until_s = first.passed_over_until_s
        for _ in range(100):
            upstreams.failed(first, 1.0)
        assert (first.passed_over_until_s, first.pause_s) == (until_s, 2 * pause_s)
        assert len(told()) == 1


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("http://h:1/run?key=secret: refused: by nobody", "refused: by nobody"),
        ("it broke off", "it broke off"),
        ("http://h: two\n lines", "two lines"),
    ],
)
def test_why_something_failed_is_told_without_its_url(said, told):
    """Whose query may hold what opens a service."""
    assert upstreams_module.reason_of(NotDelivered(said)) == told
