"""Relays beside a real machine: what sinks get of what sources write, and when neither goes on."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.core.overflow import events as ev
from spillover.core.overflow.idempotency import IdempotencyTable
from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.settings import NodeSettings
from spillover.live.overflow import relay as relays_module
from spillover.live.overflow.home_requests import HomeRequests
from spillover.live.overflow.relay import Relays
from spillover.live.overflow.waiters import Waiters
from spillover.model.passed import PassedHead, PassedRequest
from spillover.model.request import DONE, FAILED, Outcome, Refusal, Request
from spillover.model.topology import Cluster

HEAD = PassedHead(200, b"OK", ((b"Content-Type", b"text/event-stream"),))
WORK = PassedRequest("POST", b"/v1/chat", ((b"Host", b"x"),), b"{}").encode()


class Bell:
    """Timers that ring when the test says so."""

    def __init__(self):
        self.rings = []

    def at(self, _, ring):
        self.rings.append(ring)

    def ring(self):
        rings, self.rings = self.rings, []
        for ring in rings:
            ring(0.0)


class Told:
    """A sink that writes down what it is told."""

    def __init__(self):
        self.told = []
        self.flow = None

    def begin(self, head, so_far, flow):
        self.flow = flow
        self.told.append(("begin", head, so_far.path))

    def piece(self, data):
        self.told.append(data)

    def end(self, trailers, answer):
        self.told.append(("end", trailers, answer.outcome))

    def break_off(self, answer):
        self.told.append(("broken", answer and answer.outcome))

    def settle(self, told):
        self.told.append(("settled", told))


class Script:
    """A source. One that is closed fails, as sources do."""

    def __init__(self, node, ref):
        self.node, self.ref = node, ref
        self.calls = []

    def pause(self):
        self.calls.append("pause")

    def resume(self):
        self.calls.append("resume")

    def close(self, problem):
        self.calls.append(problem)
        self.node.feed(ev.ServiceEnded(self.ref, FAILED, 1.0, problem=problem))


class Node:
    """A machine of one server that passes, its home requests and its relays. Servers are the
    test's; `at_start` is called in the midst of a Start."""

    def __init__(self, **limits):
        settings = NodeSettings(cluster="a", servers=1, policy="isolated", passes=True, **limits)
        self.machine = NodeMachine(settings, [], Random(1), 0.0)
        self.now_s = 0.0
        self.inbox, self.busy = [], False
        self.started, self.stopped = [], []
        self.at_start = lambda _: None
        self.bell, self.waiters = Bell(), Waiters()
        self.relays = Relays(self.feed, self.waiters, self.bell)
        self.names = IdempotencyTable(60.0, 100, 10**6)
        refs = iter(range(1, 10**6))
        parts = (lambda: next(refs), self.feed, self.waiters, self.relays)
        self.home = HomeRequests("a", self.names, *parts)

    def feed(self, event):
        self.inbox.append(event)
        if self.busy:
            return
        self.busy = True
        while self.inbox:
            for command in self.machine.handle(self.inbox.pop(0), self.now_s):
                self._obey(command)
            self.machine.check()
        self.busy = False

    def _obey(self, command):
        match command:
            case ev.Start():
                self.started.append(command.ref)
                self.at_start(command.ref)
            case ev.Stop():
                self.stopped.append(command.ref)
            case ev.Began():
                self.relays.began(command)
            case ev.Reply():
                self.home.answered(command.ref, command.answer)
            case ev.Refuse():
                self.home.refused(command)

    def take(self, sink, name="x", *, keyed=False, deadline_s=math.inf):
        request = Request(name, keyed=keyed, work=WORK, size_bytes=len(WORK))
        return self.home.take_passed(request, deadline_s, sink)

    def begin(self, ref, head=HEAD):
        script = Script(self, ref)
        return script, self.relays.begin(ev.ResponseBegan(ref, 0.5), script, head)

    def check_empty(self):
        """Nothing is left of anything."""
        assert (len(self.relays), self.relays.begun, len(self.waiters), len(self.home)) == (0,) * 4
        assert not self.machine.register.visits
        assert self.machine.held.request_bytes == 0


@given(st.lists(st.binary(max_size=20)), st.lists(st.tuples(st.binary(), st.binary())))
def test_what_comes_whole_is_got_whole(pieces, trailers):
    node, sink = Node(), Told()
    entry = node.take(sink)
    _, relay = node.begin(entry.ref)
    for piece in pieces:
        relay.piece(piece)
    relay.end(tuple(trailers))
    node.feed(ev.ServiceEnded(entry.ref, DONE, 1.0))
    end = ("end", tuple(trailers), DONE)
    assert sink.told == [("begin", HEAD, ("a",)), *pieces, end]
    assert entry.answer.outcome is DONE
    assert node.relays.ends == {"whole": 1, "truncated": 0, "cancelled": 0}
    node.check_empty()


def test_what_does_not_come_whole_is_never_done():
    node, sink = Node(), Told()
    entry = node.take(sink)
    _, relay = node.begin(entry.ref)
    relay.piece(b"par")
    node.feed(ev.ServiceEnded(entry.ref, FAILED, 1.0, problem="it broke"))
    assert sink.told[1:] == [b"par", ("broken", FAILED)]
    assert node.relays.ends["truncated"] == node.machine.truncated == 1
    node.check_empty()


def test_an_answer_that_begins_and_ends_while_the_machine_is_busy_passes_in_order():
    """Then the machine has not said yet that it begins."""
    node, sink = Node(), Told()

    def all_at_once(ref):
        _, relay = node.begin(ref)
        relay.piece(b"1")
        relay.piece(b"2")
        relay.end()
        node.feed(ev.ServiceEnded(ref, DONE, 1.0))

    node.at_start = all_at_once
    node.take(sink)
    assert sink.told == [("begin", HEAD, ("a",)), b"1", b"2", ("end", (), DONE)]
    node.check_empty()


@pytest.mark.parametrize("body", [b"all of it", b""])
def test_what_is_there_at_once_is_got_as_what_comes_in_pieces(body):
    """Nothing is left to pause."""
    node, sink = Node(), Told()
    entry = node.take(sink)
    node.relays.whole(ev.ResponseBegan(entry.ref, 0.5), HEAD, body, ((b"A", b"b"),))
    assert sink.flow.is_whole
    assert node.relays.begun == 0
    sink.flow.pause()
    sink.flow.resume()
    node.feed(ev.ServiceEnded(entry.ref, DONE, 0.5))
    pieces = [body] if body else []
    assert sink.told == [("begin", HEAD, ("a",)), *pieces, ("end", ((b"A", b"b"),), DONE)]
    assert node.relays.ends == {"whole": 1, "truncated": 0, "cancelled": 0}
    node.check_empty()


def test_what_has_not_begun_settles():
    node, first, second = Node(queue_limit=0), Told(), Told()
    entry = node.take(first)
    node.take(second, "y")
    [(_, refusal)] = second.told
    assert refusal.reason is Refusal.QUEUE_FULL
    node.feed(ev.ServiceEnded(entry.ref, FAILED, 1.0, problem="no upstream"))
    [(_, answer)] = first.told
    assert (answer.outcome, answer.problem) == (FAILED, "no upstream")
    assert not any(node.relays.ends.values())
    node.check_empty()


def test_a_client_that_leaves_stops_the_service_and_frees_the_server_at_its_end():
    node, sink, other = Node(), Told(), Told()
    entry = node.take(sink)
    _, relay = node.begin(entry.ref)
    node.take(other, "y")
    node.home.abandon(entry)
    assert (node.stopped, node.started) == ([1], [1])
    assert sink.told[-1] == ("broken", Outcome.CANCELLED)
    relay.piece(b"late")  # the source may not know yet
    assert sink.told[-1] == ("broken", Outcome.CANCELLED)
    node.feed(ev.ServiceEnded(1, Outcome.CANCELLED, 1.0))
    assert node.started == [1, 2]
    assert node.relays.ends == {"whole": 0, "truncated": 0, "cancelled": 1}


def test_the_deadline_bounds_the_head_and_not_the_rest():
    node, sink, late = Node(), Told(), Told()
    node.take(sink, deadline_s=2.0)
    _, relay = node.begin(1)
    node.take(late, "y", deadline_s=2.0)
    node.now_s = 3.0
    node.feed(ev.TimerFired())
    assert late.told[0][1].outcome is Outcome.EXPIRED
    relay.piece(b"on and on")
    relay.end()
    node.feed(ev.ServiceEnded(1, DONE, 3.0))
    assert sink.told[-1] == ("end", (), DONE)
    node.check_empty()


@pytest.fixture
def clock(monkeypatch):
    """The relays' clock, which the test moves."""

    class Clock:
        now_s = 100.0

        def monotonic(self):
            return self.now_s

    monkeypatch.setattr(relays_module, "time", clock := Clock())
    return clock


def test_a_stalled_answer_is_broken_off_and_a_slow_one_is_not(clock):
    node, stalled, slow = Node(), Told(), Told()
    node.take(stalled)
    script, _ = node.begin(1)
    stalled.flow.pause()
    stalled.flow.pause()
    stalled.flow.resume()
    stalled.flow.pause()
    assert script.calls == ["pause", "resume", "pause"]
    clock.now_s += 59.0
    node.bell.ring()
    assert len(script.calls) == 3
    clock.now_s += 1.0
    node.bell.ring()
    assert (script.calls[3:], node.stopped) == ([], [1])  # as if its client had left
    node.feed(ev.ServiceEnded(1, Outcome.CANCELLED, 1.0))
    assert stalled.told[-1] == ("broken", Outcome.CANCELLED)
    node.take(slow, "y")
    script, relay = node.begin(2)
    for _ in range(100):
        slow.flow.pause()
        clock.now_s += 30.0
        node.bell.ring()
        slow.flow.resume()
        relay.piece(b"x")
        node.bell.ring()
    assert set(script.calls) == {"pause", "resume"}


def test_a_silent_answer_is_broken_off_and_the_sweep_ends_with_the_last(clock):
    node, sink = Node(), Told()
    node.take(sink)
    script, relay = node.begin(1)
    clock.now_s += 200.0
    relay.piece(b"x")
    node.bell.ring()
    clock.now_s += 299.0
    node.bell.ring()
    assert script.calls == []
    clock.now_s += 1.0
    node.bell.ring()
    assert script.calls == ["nothing more of the answer came for 300 s"]
    node.check_empty()
    assert node.bell.rings == []


def test_the_limits_are_those_of_the_cluster(clock):
    """Also one for all of an answer, whatever comes of it."""
    limits = {"passed_idle_ms": 5000.0, "passed_stall_ms": 2000.0, "passed_total_ms": 9000.0}
    cluster = Cluster(id="a", servers=1, handler="proxy:http://h", **limits)

    def begun(name):
        node, sink = Node(), Told()
        node.relays.go_by(cluster)
        node.take(sink, name)
        return node, sink, *node.begin(1)

    node, sink, script, _ = begun("silent")
    for pause_s in (1.0, 4.0):
        clock.now_s += pause_s
        node.bell.ring()
        assert script.calls == []
    clock.now_s += 1.0
    node.bell.ring()
    assert script.calls == ["nothing more of the answer came for 5 s"]
    node, sink, _, _ = begun("stalled")
    sink.flow.pause()
    clock.now_s += 2.0
    node.bell.ring()
    assert node.stopped == [1]
    node, sink, script, relay = begun("long")
    for _ in range(8):
        clock.now_s += 1.0
        relay.piece(b"x")
        node.bell.ring()
    assert (script.calls, node.stopped) == ([], [])
    clock.now_s += 1.0
    relay.piece(b"x")
    node.bell.ring()
    assert (script.calls, node.stopped) == ([], [1])


def test_a_client_that_reads_slowly_is_no_silence_of_the_service(clock):
    """How long nothing has come counts from when the service could go on."""
    limits = {"passed_idle_ms": 5000.0, "passed_stall_ms": 60_000.0}
    node, sink = Node(), Told()
    node.relays.go_by(Cluster(id="a", servers=1, handler="proxy:http://h", **limits))
    node.take(sink)
    script, _ = node.begin(1)
    node.bell.ring()
    sink.flow.pause()
    for _ in range(3):
        clock.now_s += 10.0
        node.bell.ring()
    sink.flow.resume()
    node.bell.ring()
    clock.now_s += 4.0
    node.bell.ring()
    assert script.calls == ["pause", "resume"]
    clock.now_s += 1.0
    node.bell.ring()
    assert script.calls[2:] == ["nothing more of the answer came for 5 s"]


def test_a_source_that_has_written_all_is_not_paused():
    """What it read from may serve another request by now."""
    node, sink = Node(), Told()
    node.take(sink)
    script, relay = node.begin(1)
    relay.piece(b"x")
    relay.end()
    sink.flow.pause()
    sink.flow.resume()
    assert script.calls == []


def test_the_time_in_the_queue_is_none_of_the_answer(clock):
    limits = {"passed_total_ms": 9000.0}
    node = Node()
    node.relays.go_by(Cluster(id="a", servers=1, handler="proxy:http://h", **limits))
    node.take(Told())
    clock.now_s += 100.0
    node.begin(1)
    clock.now_s += 8.0
    node.bell.ring()
    assert node.stopped == []
    clock.now_s += 1.0
    node.bell.ring()
    assert node.stopped == [1]


def test_an_answer_that_is_held_is_passed_only_if_the_machine_says_so():
    said = PassedHead(429, b"Much", ())
    node, sink = Node(), Told()
    node.take(sink)
    node.relays.hold(1, PassedHead(503, b"No", ()), b"first", ())
    node.relays.hold(1, said, b"second", ((b"A", b"b"),))
    assert sink.told == []
    node.feed(ev.NotStarted(1, "it said 429", refused=True, upstream_status=429))
    assert sink.told == [("begin", said, ("a",)), b"second", ("end", ((b"A", b"b"),), FAILED)]
    assert node.relays.ends["whole"] == 1
    node.check_empty()
    # What begins takes its place.
    sink = Told()
    node.take(sink, "y")
    node.feed(ev.TimerFired())
    node.now_s += 10.0
    node.feed(ev.TimerFired())
    node.relays.hold(2, said, b"second", ((b"A", b"b"),))
    _, relay = node.begin(2)
    relay.piece(b"x")
    node.feed(ev.ServiceEnded(2, FAILED, 1.0, problem="it broke off"))
    assert sink.told == [("begin", HEAD, ("a",)), b"x", ("broken", FAILED)]
    node.check_empty()
    node.relays.hold(2, said, b"", ())  # too late for anybody
    node.check_empty()


def test_an_answer_that_has_ended_leaves_nothing_to_collect():
    """Sources hold their relays: with the source's own end both go, and its buffers with them."""
    node = Node()
    node.take(Told())
    _, relay = node.begin(1)
    relay.end()
    node.feed(ev.ServiceEnded(1, DONE, 1.0))
    assert relay.source is None
    node.check_empty()


def test_the_end_of_the_node_breaks_off_what_has_begun():
    node, begun, waiting = Node(), Told(), Told()
    node.take(begun)
    node.begin(1)
    node.take(waiting, "y")
    node.home.close()
    node.waiters.close()
    assert begun.told[-1] == ("broken", None)
    assert waiting.told == [("settled", None)]
    late = Told()
    node.take(late, "z")
    assert late.told[0][1].reason is Refusal.DRAINING
