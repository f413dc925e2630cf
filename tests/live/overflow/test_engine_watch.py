"""Looks at engines' pages, whatever these do."""

import asyncio
import contextlib
import time

import pytest

from spillover.live.overflow.engine_watch import EngineWatch
from spillover.model.engine_load import EngineLoad
from spillover.model.upstream_urls import metrics_pages
from support.federation import until
from support.lying_service import lying_service


def page(body):
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


BUSY = page(b"vllm:num_requests_running 3\nvllm:num_requests_waiting 1\n")
IDLE = page(b"sglang:num_running_reqs 0\nsglang:num_queue_reqs 0\nsglang:token_usage 0.5\n")


@contextlib.asynccontextmanager
async def watching(*services, kept_s=60.0):
    """A watch of their pages: it, and what the machine has heard."""
    heard = []
    pages = metrics_pages(",".join(f"{one.url}/metrics" for one in services) or None)
    watch = EngineWatch(pages, heard.append, period_s=0.01, kept_s=kept_s, timeout_s=0.2)
    async with asyncio.TaskGroup() as group:
        watch.start(group)
        yield watch, heard
        watch.stop()
    await watch.close()


def last(heard):
    return heard[-1].load if heard else None


async def test_what_all_pages_say_is_heard():
    """Of two engines, once both have said something."""
    async with lying_service() as one, lying_service() as other:
        one.answer, other.answer = BUSY, IDLE
        async with watching(one, other) as (watch, heard):
            await until(lambda: last(heard) == EngineLoad(3.0, 1.0, 0.5))
            assert watch.ends["read"] >= 2


async def _endless(talk, *_):
    await talk.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        await talk.say(b"10000\r\n%b\r\n" % (b"x" * 0x10000))


async def _silent(talk, *_):
    await talk.until_closed()


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (_endless, "failed"),
        (_silent, "failed"),
        (page(b"<html>moved</html>"), "unread"),
        (page(b"vllm:num_requests_waiting -1\n"), "unread"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "unread"),
    ],
)
async def test_a_page_that_lies_or_is_endless_or_silent_says_nothing(answer, end):
    """What was said before counts for a while, then nothing is known; and it is looked at again."""
    async with lying_service() as service:
        service.answer = BUSY
        async with watching(service, kept_s=0.3) as (watch, heard):
            await until(lambda: last(heard) == EngineLoad(3.0, 1.0, None))
            service.answer = answer
            service.hang_up()
            await until(lambda: watch.ends[end] and last(heard) is None)
            service.answer = BUSY
            service.hang_up()
            await until(lambda: last(heard) == EngineLoad(3.0, 1.0, None))


async def test_what_a_page_has_said_once_is_told_once():
    """One look at a request that waits is no two looks in a row, however long the page fails."""

    async def once(talk, *_):
        if len(service.seen) > 1:
            await talk.say(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
        else:
            await talk.say(BUSY)
        return True

    async with lying_service() as service:
        service.answer = once
        async with watching(service) as (watch, heard):
            await until(lambda: watch.ends["unread"] > 2 and heard)
            watch.tell(time.monotonic() + 61.0)
            assert [said.load for said in heard] == [EngineLoad(3.0, 1.0, None), None]


def waits(count):
    return b"TEXT named_metrics.num_requests_waiting=%d" % count


def test_an_engine_that_has_grown_silent_holds_nothing_more_back():
    """What it said last is no reason to give it less each time that others speak."""
    heard = []
    watch = EngineWatch((), heard.append)

    def tell(**said):
        for name, count in said.items():
            watch.heard(name, waits(count))
        watch.tell(time.monotonic())
        return len(heard)

    assert tell() == 0
    assert tell(one=3, other=0) == 1
    assert tell() == tell(other=0) == tell(other=0) == 1
    assert tell(one=2, other=0) == 2
    assert tell(one=0) == 3
    assert tell(other=0) == 4


async def test_an_engine_that_speaks_on_its_page_and_in_headers_counts_once():
    async with lying_service() as service:
        service.answer = BUSY
        async with watching(service, kept_s=0.3) as (watch, heard):
            watch.heard("http://one", waits(1))
            await until(lambda: last(heard) == EngineLoad(3.0, 1.0, None))
            service.answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"

            def header_counts():
                watch.heard("http://one", waits(2))
                return last(heard) == EngineLoad(None, 2.0, None)

            await until(header_counts)
        assert EngineLoad(3.0, 2.0, None) not in [said.load for said in heard]


async def test_headers_of_answers_are_heard():
    async with watching() as (watch, heard):
        watch.heard("http://one", b"TEXT named_metrics.num_requests_waiting=2")
        watch.heard("http://other", b"TEXT named_metrics.num_requests_waiting=1")
        watch.heard("http://other", b"nonsense")
        await until(lambda: last(heard) == EngineLoad(None, 3.0, None))


def test_an_engine_without_answers_still_runs_what_it_runs():
    """Headers come with answers: where none has come for long, the others' sum is too small."""
    heard = []
    watch = EngineWatch((), heard.append, kept_s=0.0)
    said = b"TEXT named_metrics.num_requests_running=8,named_metrics.num_requests_waiting=0"
    for name in ("one", "other"):
        watch.heard(name, said)
    watch.tell(0.0)
    time_s = time.monotonic()
    watch.heard("other", said)
    watch.tell(time_s)
    assert [one.load for one in heard] == [
        EngineLoad(16.0, 0.0, None),
        EngineLoad(None, 0.0, None),
    ]
