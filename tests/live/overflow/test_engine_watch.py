"""Looks at engines' pages, whatever these do."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from spillover.live.overflow.engine_watch import EngineWatch
from spillover.model.engine_load import EngineLoad
from spillover.model.upstream_urls import metrics_pages
from support.federation import run, until
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


def test_what_all_pages_say_is_heard():
    """Of two engines, once both have said something."""

    async def main():
        async with lying_service() as one, lying_service() as other:
            one.answer, other.answer = BUSY, IDLE
            async with watching(one, other) as (watch, heard):
                await until(lambda: last(heard) == EngineLoad(3.0, 1.0, 0.5))
                assert watch.ends["read"] >= 2

    run(main)


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
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "failed"),
        (b"no HTTP at all\r\n\r\n", "failed"),
        (page(b"<html>moved</html>"), "unread"),
        (page(b"vllm:num_requests_waiting -1\n"), "unread"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "unread"),
    ],
)
def test_a_page_that_lies_or_is_endless_or_silent_says_nothing(answer, end):
    """What was said before counts for a while, then nothing is known; and it is looked at again."""

    async def main():
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

    run(main)


def test_headers_of_answers_are_heard():
    async def main():
        async with watching() as (watch, heard):
            watch.heard("http://one", b"TEXT named_metrics.num_requests_waiting=2")
            watch.heard("http://other", b"TEXT named_metrics.num_requests_waiting=1")
            watch.heard("http://other", b"nonsense")
            await until(lambda: last(heard) == EngineLoad(None, 3.0, None))

    run(main)
