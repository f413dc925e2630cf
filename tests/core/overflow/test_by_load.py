"""Stories of a cluster that goes by load: what it tells with all that it sends, what it asks for
and gives."""

import pytest

from spillover.core.overflow import events as ev
from spillover.model.load import LoadNow
from spillover.model.request import Answer, Outcome, Refusal

B, C = 0, 1
WAITS = {"ahead": 30, "departure_s": 0.04, "load": 0.9}
"""What a neighbor tells in whose queue much waits."""
IDLE = {"ahead": -1, "departure_s": 0.04}


def load(sequence=2, ahead=-1, *, accepting=True):
    """What b tells with something else than a report: it is idle."""
    return LoadNow(1, sequence, ahead, 0.0, accepting)


def of(kind, commands):
    return [command for command in commands if isinstance(command, kind)]


@pytest.fixture
def node(story):
    """Cluster a, with one server of 40 ms, and neighbors b and c at no distance. The load its own
    clients bring is not looked at."""

    def make(**settings):
        return story(**{"policy": "adaptive", **settings})

    return make


# --- what is told -----------------------------------------------------------------------------


def test_a_push_brings_the_load(node):
    """One runs, two wait, b is idle: the fourth goes there, and says how many are ahead here."""
    a = node()
    a.fill(1, 2, 3)
    a.hear(B, **IDLE)
    (forward,) = of(ev.Forward, a.arrive(4))
    told = forward.load
    assert (forward.neighbor, forward.pulled) == (B, False)
    assert (told.epoch, told.ahead, told.accepting) == (1, 2, True)
    (publish,) = of(ev.Publish, a.tell(ev.ReportAsked()))
    assert publish.report.sequence == told.sequence + 1
    assert (publish.report.ahead, publish.report.departure_s) == (2, 0.04)


def test_a_refusal_brings_the_load(node):
    """Two of the neighbors' requests wait for one server: that is all, until one starts."""
    a = node()
    a.fill(1)
    for ref in (2, 3):
        assert not of(ev.Refuse, a.arrive(ref, path=("b",), load=load(ref)))
    (refuse,) = a.arrive(4, path=("b",), load=load(4))
    assert refuse.reason is Refusal.QUEUE_FULL
    assert (refuse.load.ahead, refuse.load.accepting) == (2, False)
    a.end(1)
    assert not of(ev.Refuse, a.arrive(5, path=("b",), load=load(5)))


def test_an_answer_brings_the_load_to_a_neighbor(node):
    """With the server free that it has used. Clients are told none."""
    a = node()
    a.arrive(1, path=("b",))
    a.arrive(2)
    (reply,) = of(ev.Reply, a.end(1))
    assert (reply.answer.load.ahead, reply.answer.load.accepting) == (0, True)
    (reply,) = of(ev.Reply, a.end(2))
    assert reply.answer.load is None


def test_an_answer_that_is_passed_on_brings_the_load_of_who_passes_it(node):
    """Its own part is heard here."""
    a = node()
    a.fill(1, 2, 3)
    a.hear(B, C, **IDLE)
    (forward,) = of(ev.Forward, a.arrive(4, path=("b",)))
    assert forward.neighbor == C
    answer = Answer(Outcome.DONE, ("b", "a", "c"), load=LoadNow(1, 2, 7, 1.0, accepting=True))
    (reply,) = of(ev.Reply, a.tell(ev.ForwardAnswered(4, answer, 0.0, 0.0)))
    assert reply.answer.load.ahead == 2
    assert a.machine.neighbors.knowledge().loads.ahead == (-1, 7)


def test_a_refusal_is_heard_before_it_is_decided_again(node):
    """There thirty are ahead now: then it is the other one, and after that it stays."""
    a = node()
    a.fill(1)
    for ref in (2, 3):
        a.arrive(ref, path=("x",))
    a.hear(B, C, **IDLE)
    a.draws.coming.append(0.99)
    (forward,) = of(ev.Forward, a.arrive(4))
    other = C if forward.neighbor == B else B
    refused = ev.ForwardRefused(4, load(2, 30, accepting=False))
    (again,) = of(ev.Forward, a.tell(refused))
    assert again.neighbor == other
    assert a.machine.neighbors.knowledge().loads.ahead[forward.neighbor] == 30
    assert not of(ev.Forward, a.tell(ev.ForwardRefused(4, load(2, 30))))
    queued = {"home.queued": 1, "foreign.received": 2, "foreign.queued": 2}
    assert a.ledger == {"home.accepted": 2, "home.running": 1, **queued}


# --- work is asked for ------------------------------------------------------------------------


def test_a_server_that_comes_free_asks_the_longest_queue(node):
    a = node()
    a.hear(B, **IDLE)
    a.hear(C, sequence=1, **WAITS)
    a.fill(1)
    (ask,) = of(ev.AskForWork, a.end(1))
    assert (ask.neighbor, ask.load.ahead, ask.load.accepting) == (C, -1, True)
    assert not of(ev.AskForWork, a.wake(0.05)), "one question for one server"


def test_without_hops_there_is_nothing_to_ask_for(node):
    """Nobody may hand anything on: the answer would always be no."""
    a = node(max_hops=0)
    a.hear(B, C, **WAITS)
    a.fill(1)
    assert not of(ev.AskForWork, a.end(1))
    assert not of(ev.AskForWork, a.wake(0.05))


def test_who_has_nothing_is_asked_later_and_another_at_once(node):
    """The answer has made known that it is idle."""
    a = node()
    a.hear(B, C, **WAITS)
    a.fill(1)
    (ask,) = of(ev.AskForWork, a.end(1))
    other = C if ask.neighbor == B else B
    (again,) = of(ev.AskForWork, a.tell(ev.NoWorkThere(ask.neighbor, load())))
    assert again.neighbor == other
    assert a.machine.neighbors.knowledge().loads.ahead[ask.neighbor] == -1
    assert a.tell(ev.NoWorkThere(other, load())) == []


NOT_IDLE = {
    "draining": ev.Drain(),
    "without servers": ev.ServersDown(),
    "resting": ev.NotStarted(1, "later", refused=True, retry_after_s=5.0),
}


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("why", NOT_IDLE)
def test_nothing_is_asked_for_where_nothing_could_begin(node, why, servers):
    a = node(servers=servers)
    a.fill(1)
    if why != "resting":
        a.end(1)
    a.tell(NOT_IDLE[why])
    a.hear(B, **WAITS)
    for step in range(1, 20):
        assert not of(ev.AskForWork, a.wake(0.05 * step))


@pytest.mark.parametrize("event", [ev.LinkDown(B), ev.Part(B)])
def test_who_is_gone_owes_no_answer(node, event):
    """The other one is asked in its place."""
    a = node()
    a.hear(B, **WAITS)
    a.fill(1)
    assert of(ev.AskForWork, a.end(1))
    a.tell(event)
    a.hear(C, **WAITS)
    (ask,) = of(ev.AskForWork, a.wake(0.05))
    assert ask.neighbor == C
    assert a.machine.pulling.coming == 1


# --- work is given ----------------------------------------------------------------------------


def queue_of(a, *refs, **given):
    """The first runs, the others wait: a's neighbors are not known yet."""
    for ref in refs:
        a.arrive(ref, **given)
    a.hear(B, now_s=0.0, **IDLE)
    return a


def test_the_oldest_that_waits_is_given(node):
    a = queue_of(node(), 1, 2, 3)
    (forward,) = a.tell(ev.WorkAsked(B, load()))
    assert forward == ev.Forward(2, B, a.requests[2].onward("a"), 100.0, forward.load, pulled=True)
    assert forward.load.ahead == 1
    assert a.ledger == {
        "home.accepted": 3,
        "home.running": 1,
        "home.queued": 1,
        "home.away": 1,
    }
    events = [told["event"] for told in a.machine.decider.log.tell("r2")]
    assert events == ["decided", "pulled_by"]


def test_what_is_given_counts_as_sent(node):
    """Until b has told of it."""
    a = queue_of(node(), 1, 2, 3)
    a.tell(ev.WorkAsked(B, load()), 0.01)
    assert a.machine.neighbors.unreported() == (1, 0)


def test_only_what_waits_longer_than_the_way_and_the_queue_there_is_given(story):
    """The way takes 100 ms: that is two and a half departures, and the third that waits is the
    first to gain; with one ahead there it would be the fourth."""
    a = queue_of(story(policy="adaptive", delay_s=0.1), 1, 2, 3, 4)
    (answer,) = a.tell(ev.WorkAsked(B, load(2, 1)))
    assert isinstance(answer, ev.NoWork)
    (forward,) = a.tell(ev.WorkAsked(B, load(3, -1)))
    assert (forward.ref, forward.pulled) == (4, True)


def test_what_came_from_it_does_not_go_back(node):
    a = node()
    a.fill(1)
    a.arrive(2, path=("b",))
    a.arrive(3, path=("x",), origin=C)
    a.hear(B, now_s=0.0, **IDLE)
    (forward,) = a.tell(ev.WorkAsked(B, load()))
    assert forward.ref == 3
    (answer,) = a.tell(ev.WorkAsked(B, load(3)))
    assert isinstance(answer, ev.NoWork)


def test_what_has_no_hops_left_or_would_be_too_late_stays(story):
    a = story(policy="adaptive", delay_s=0.1, max_hops=1)
    a.fill(1)
    for ref in range(2, 6):
        a.arrive(ref, path=("x",), origin=C) if ref < 4 else a.arrive(ref, deadline_s=0.05)
    a.hear(B, now_s=0.0, **IDLE)
    (answer,) = a.tell(ev.WorkAsked(B, load()))
    assert isinstance(answer, ev.NoWork)


@pytest.mark.parametrize("why", ["unknown", "deaf", "full", "degraded", "another policy"])
def test_nothing_is_given_to_one_that_would_refuse_it(node, why):
    """It has asked all the same, and is told."""
    a = node()
    a.fill(1, 2, 3)
    if why != "unknown":
        hears = ("x",) if why == "deaf" else ("a",)
        degraded = why == "degraded"
        a.hear(B, now_s=0.0, hears=hears, degraded=degraded, **IDLE)
    if why == "another policy":
        a.tell(ev.PolicySet("paper"))
    (answer,) = a.tell(ev.WorkAsked(B, load(accepting=why != "full")))
    assert isinstance(answer, ev.NoWork)
    assert a.machine.queue_length == 2


@pytest.mark.parametrize("event", [ev.Drain(), ev.ServersDown()])
def test_what_is_to_leave_is_given_too(node, event):
    """It found no neighbor before."""
    a = node()
    a.fill(1, 2)
    a.tell(event)
    a.hear(B, now_s=0.0, accepting=False, **IDLE)
    (forward,) = of(ev.Forward, a.tell(ev.WorkAsked(B, load())))
    assert (forward.ref, forward.pulled) == (2, True)
