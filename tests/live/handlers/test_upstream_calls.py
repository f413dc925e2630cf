"""Where a request is tried next after what has become of it at one upstream, and what it comes to
where none is left: one by one, without a word on a connection. Over those: `test_http_handler`."""

from __future__ import annotations

import asyncio
import math
import time

import msgspec
import pytest

from spillover.core.overflow.events import NotStarted, Start
from spillover.live.handlers.calls import PROBLEM_LENGTH_MAX, Ended
from spillover.live.handlers.http.upstream_calls import UpstreamCall, UpstreamWorkers
from spillover.live.http.outgoing import LostThenRefused
from spillover.model.errors import NotDelivered, OutcomeUnknown
from spillover.model.request import Outcome, Request
from spillover.model.topology import Cluster
from spillover.model.upstream_urls import UpstreamUrl
from support.loop import until

USUAL_S = 3600.0
"""How long a success takes: whoever fails sooner counts as busy for the rest."""


class Played(UpstreamWorkers[UpstreamCall]):
    """A handler that writes down where it would send what, and lets a test say what becomes of
    it."""

    def __init__(self, urls):
        self.asked, self.let_go, self.told = [], [], []
        cluster = Cluster(id="a", servers=4, handler="sleep", service_ms=USUAL_S * 1e3)
        super().__init__(urls, cluster, self.on_end, self.told.append, None)

    def problem_with(self, payload):
        del payload

    def on_end(self, event, at_s):
        assert at_s is None
        self.told.append(event)

    def start(self, command):
        call = self._calls[command.ref] = UpstreamCall(command)
        self._send(call)
        return call

    def _send(self, call):
        call.sent_s = time.monotonic()
        upstream = self.upstreams.choose(call.tried, call.sent_s)
        if upstream is None:
            self._none_left(call)
        else:
            call.tried.append(upstream)
            self.asked.append((call.command.ref, upstream.place))

    def _let_go(self, call):
        self.let_go.append(call.command.ref)


def play(count, main):
    """With so many upstreams, which can be reached."""

    async def run():
        writers = []
        server = await asyncio.start_server(
            lambda _, writer: writers.append(writer), "127.0.0.1", 0
        )
        port = server.sockets[0].getsockname()[1]
        workers = Played([UpstreamUrl(f"http://127.0.0.1:{port}", f"/{n}") for n in range(count)])
        try:
            await until(lambda: not workers.upstreams._looking)  # the first look has found them
            server.close()  # who is lost stays so
            for one in workers.upstreams._all:
                one.client.opened_s = -math.inf  # no sign of life speaks for it
            await main(workers, workers.upstreams._all)
        finally:
            await workers.close()
            for writer in writers:
                writer.close()

    asyncio.run(run())


def start(workers, ref=1, *, keyed=False, began_s=None):
    began_s = time.monotonic() if began_s is None else began_s
    request = Request(f"r{ref}", keyed=keyed, work=msgspec.Raw(b"1"))
    return workers.start(Start(ref, request, began_s, began_s + 60.0))


def unknown(upstream, reason):
    return f"upstream {upstream.name}: {reason}; whether it did the work is not known"


def busy(retry_after_s=None):
    return Ended(problem="busy", not_run=True, retry_after_s=retry_after_s, status=503)


def test_what_was_not_delivered_goes_on_and_comes_back_where_nobody_is_left():
    """Surely not started, also with a key; the node has been told before that none is up."""

    async def main(workers, upstreams):
        call = start(workers, keyed=True)
        workers._not_delivered(call, upstreams[0], NotDelivered("refused"))
        assert (workers.asked, workers.told) == ([(1, 0), (1, 1)], [])
        assert [one.up for one in upstreams] == [False, True]
        workers._not_delivered(call, upstreams[1], NotDelivered("y" * 1_000))
        health, event = workers.told
        assert (health, workers._calls) == (False, {})
        assert isinstance(event, NotStarted)
        assert (event.ref, event.refused, event.retry_after_s) == (1, False, None)
        assert event.problem.startswith(f"none of 2 upstreams can be reached, {upstreams[0].name}")
        assert len(event.problem) <= PROBLEM_LENGTH_MAX

    play(2, main)


def test_why_nobody_can_be_reached_is_told_in_few_words():
    async def main(workers, upstreams):
        workers._not_delivered(start(workers), upstreams[0], NotDelivered("y" * 1_000))
        assert workers.told[1].problem.endswith("y")
        assert len(workers.told[1].problem) == PROBLEM_LENGTH_MAX

    play(1, main)


@pytest.mark.parametrize("keyed", [False, True])
def test_without_an_answer_only_what_has_a_key_is_tried_once_more(keyed):
    """However many are left. It counts as a failure of each."""

    async def main(workers, upstreams):
        call = start(workers, keyed=keyed)
        workers._no_answer(call, upstreams[0], OutcomeUnknown("it broke off"))
        if keyed:
            assert (workers.asked, workers.told) == ([(1, 0), (1, 1)], [])
            workers._no_answer(call, upstreams[1], OutcomeUnknown("it broke off, too"))
        (event,) = workers.told
        last, reason = (
            (upstreams[1], "it broke off, too") if keyed else (upstreams[0], "it broke off")
        )
        assert (event.outcome, event.problem) == (Outcome.FAILED, unknown(last, reason))
        assert [one.running for one in upstreams] == [1, int(keyed), 0]
        assert [one.failures > 0.0 for one in upstreams] == [True, keyed, False]
        assert workers._calls == {}

    play(3, main)


def test_what_may_have_run_and_finds_nobody_else_is_not_known():
    """Whatever the others say: one has got it."""

    async def main(workers, upstreams):
        call = start(workers, keyed=True)
        workers._no_answer(call, upstreams[0], OutcomeUnknown("it broke off"))
        workers._not_done(call, upstreams[1], busy(5.0))
        workers._not_delivered(call, upstreams[2], NotDelivered("refused"))
        (event,) = workers.told
        problem = unknown(upstreams[0], "it broke off")
        assert (event.outcome, event.problem) == (Outcome.FAILED, problem)

    play(3, main)


@pytest.mark.parametrize("keyed", [False, True])
def test_what_may_be_done_twice_is_decided_again_where_its_service_ends(keyed):
    """Once, a moment later; what may not be done twice never is, and nothing is if it is lost
    twice."""

    async def main(workers, upstreams):
        (one,) = upstreams
        call = start(workers, keyed=keyed)
        workers._no_answer(call, one, LostThenRefused("it broke off"))
        if not keyed:
            assert [event.outcome for event in workers.told] == [Outcome.FAILED]
            assert workers.asked == [(1, 0)]
            return
        assert workers.told == []
        await until(lambda: len(workers.asked) == 2)
        lost = start(workers, ref=2, keyed=True)
        workers._no_answer(lost, one, LostThenRefused("it broke off"))
        await until(lambda: len(workers.asked) == 4)
        workers._no_answer(lost, one, OutcomeUnknown("again"))
        assert [event.outcome for event in workers.told] == [Outcome.FAILED]
        workers._not_delivered(call, one, NotDelivered("refused"))
        _, health, event = workers.told
        assert (health, workers._calls) == (False, {})
        assert isinstance(event, NotStarted)
        assert event.problem == unknown(one, "it broke off")

    play(1, main)


@pytest.mark.parametrize("second_s", [7.0, None])
def test_what_nobody_wants_to_do_says_how_long_they_want_to_be_left_alone(second_s):
    """With the last word on it. As long as the first of them that can be reached; not at all where
    one has not said."""

    async def main(workers, upstreams):
        call = start(workers, began_s=time.monotonic() - 2.0)
        workers._not_done(call, upstreams[0], busy(5.0))
        assert (workers.asked, workers.told) == ([(1, 0), (1, 1)], [])
        workers._not_done(call, upstreams[1], busy(second_s))
        (event,) = workers.told
        assert isinstance(event, NotStarted)
        assert (event.problem, event.refused) == ("busy", True)
        assert event.service_s >= 2.0
        if second_s is None:
            assert event.retry_after_s is None
        else:
            assert 4.0 < event.retry_after_s <= 5.0
        assert [one.running for one in upstreams] == [1, 1]
        assert workers._calls == {}

    play(2, main)


def test_while_all_want_to_be_left_alone_nothing_is_tried():
    """The next one is not started at all, and is told for how long."""

    async def main(workers, upstreams):
        workers._not_done(start(workers), upstreams[0], busy(5.0))
        start(workers, ref=2)
        assert workers.asked == [(1, 0)]
        event = workers.told[1]
        assert isinstance(event, NotStarted)
        assert (event.ref, event.refused) == (2, False)
        assert event.problem == f"upstream {upstreams[0].name} wants to be left alone: busy"
        assert 4.0 < event.retry_after_s <= 5.0

    play(1, main)


def test_what_fails_slowly_is_not_busy_afterwards():
    """As long as a success takes, since it was sent: it counts from there."""

    async def main(workers, upstreams):
        for ref, place in ((1, 0), (2, 1)):
            call = start(workers, ref)
            call.sent_s -= 2 * USUAL_S
            if ref == 1:
                workers._no_answer(call, upstreams[place], OutcomeUnknown("it broke off"))
            else:
                workers._not_done(call, upstreams[place], busy())
        assert [one.running for one in upstreams[:2]] == [0, 0]

    play(3, main)


def test_who_stops_a_request_hears_its_end_at_once_and_once():
    """Its connection is let go of; it has taken as long as it has run."""

    async def main(workers, upstreams):
        start(workers, began_s=time.monotonic() - 2.0)
        start(workers, ref=2)
        workers.stop(1)
        workers.stop(1)
        (event,) = workers.told
        assert (event.ref, event.outcome) == (1, Outcome.CANCELLED)
        assert 2.0 <= event.service_s < 60.0
        assert (workers.let_go, list(workers._calls)) == ([1], [2])

    play(1, main)


def test_what_is_under_way_as_the_node_ends_is_let_go_of():
    """And nobody hears of it; no connection is left."""

    async def main(workers, upstreams):
        start(workers)
        start(workers, ref=2)
        assert upstreams[0].client.idle == 1
        await workers.close()
        assert (workers.let_go, workers._calls, workers.told) == ([1, 2], {}, [])
        assert upstreams[0].client.idle == 0

    play(1, main)
