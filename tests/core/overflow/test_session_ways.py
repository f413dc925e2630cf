"""Clients' requests of a cluster with affinity: which leave for a place at a neighbor although a
server is free here, and what becomes of what was expected of them.
"""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.core.overflow import events as ev
from spillover.core.overflow.decisions import describe
from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.settings import NodeSettings
from spillover.model.affinity import OwnPlace, PlaceLoad, RanAt, SessionWork
from spillover.model.load import LoadReport
from spillover.model.request import DONE, FAILED, Answer, Request
from support.copies import copy_of
from support.few import examples

FREE = PlaceLoad(0.0, 0.0, 1_000.0, 0.0)
BUSY = PlaceLoad(5_000.0, 0.0, 1_000.0, 0.0)


def asked(session=7, wait_s=0.0, work=1_000.0):
    """What comes from a client whose session has not run here, where all wait so long."""
    return SessionWork(session, work, 1_000.0, (OwnPlace(wait_s, 0.0, 0.0),))


def kinds(commands):
    return [type(one) for one in commands]


@pytest.fixture
def sites(story):
    """Cluster a with ten servers, of which all are free, and b and c, a tenth of a second away."""

    def made(*, places=(FREE,), **told):
        one = story(servers=10, delay_s=0.1, affinity=True, **told)
        one.hear(0, 1, places=tuple(places), ahead=-9)
        return one

    return made


def answer(cluster="b", ran=None, outcome=DONE):
    told = Answer(outcome, ("a", cluster))
    told.ran = ran
    return ev.ForwardAnswered(1, told, 0.1, 0.1)


def goes(story, ref, now_s, **told):
    """Whom a request is handed to; None where it starts here."""
    commands = story.arrive(ref, now_s, asked=asked(**told))
    forwards = [one.neighbor for one in commands if isinstance(one, ev.Forward)]
    assert forwards or ev.Start in kinds(commands)
    return forwards[0] if forwards else None


def test_a_request_leaves_for_a_place_that_costs_less_though_a_server_is_free(sites):
    one = sites()
    assert goes(one, 1, 0.0, wait_s=0.1) is None
    assert goes(one, 2, 0.0, wait_s=0.3) == 0
    assert goes(one, 3, 0.0, session=8, wait_s=0.3) == 1, "the next one waits behind it at b"
    told = describe(one.machine.decider.log.last)
    assert (told["policy"], told["outcome"], told["neighbor"]) == ("affinity", "forwarded", "c")


def test_a_session_comes_back_to_where_it_was_sent_and_no_other_does(sites):
    one = sites()
    assert goes(one, 1, 0.0, wait_s=0.5) == 0
    one.hear(0, 1, now_s=1.0, sequence=9, places=(FREE,), ahead=-9)
    assert goes(one, 2, 1.0) == 0
    assert goes(one, 3, 1.0, session=8) is None
    one.tell(answer(ran=RanAt(0, 1_000.0, 0.0)))
    assert goes(one, 4, 1.0) == 0, "the answer bears it out"


@pytest.mark.parametrize(
    "event",
    [
        ev.ForwardRefused(1),
        ev.ForwardLost(1),
        answer(outcome=FAILED),
        answer(),
        answer("d", RanAt(0, 1.0, 1.0)),
        ev.Cancelled(1),
    ],
)
def test_a_session_that_did_not_run_where_it_was_sent_is_not_expected_there(sites, event):
    """Refused, lost, failed, given up, by a node without affinity, or handed on by b to others."""
    one = sites()
    assert goes(one, 1, 0.0, wait_s=0.5) == 0
    one.hear(0, 1, now_s=1.0, sequence=9, places=(FREE,), ahead=-9)
    one.tell(event)
    assert goes(one, 2, 1.0) is None


def test_where_the_policy_sent_a_session_is_remembered_too(sites):
    one = sites(places=(BUSY,), queue_limit=0)
    for ref in range(11, 21):
        one.arrive(ref)
    one.arrive(1, asked=asked(wait_s=2.0))
    assert one.machine.register.visits[1].target.handle == 0
    assert one.machine.decider.log.last.policy == "paper"
    one.tell(answer(ran=RanAt(0, 0.0, 0.0)))
    for ref in range(11, 21):
        one.end(ref)
    one.hear(0, 1, now_s=1.0, sequence=9, places=(FREE,), ahead=-9)
    assert goes(one, 2, 1.0) == 0


def test_the_wait_for_a_server_counts_on_both_sides(sites):
    """A service takes one second by what is believed: ten servers are a tenth a departure."""
    one = sites(service_s=1.0)
    for ref in range(11, 21):
        one.arrive(ref)
    one.hear(0, 1, sequence=5, places=(FREE,), ahead=3, departure_s=0.1)
    assert ev.Forward not in kinds(one.arrive(21, asked=asked()))
    one.hear(0, sequence=9, places=(FREE,), ahead=-2, departure_s=0.1)
    commands = one.arrive(22, asked=asked(wait_s=0.3))
    assert [c.neighbor for c in commands if isinstance(c, ev.Forward)] == [0]


@pytest.mark.parametrize(
    "told",
    [
        {"accepting": False},
        {"hears": ()},
        {"degraded": True},
        {"places": ()},
    ],
)
def test_a_neighbor_that_takes_nothing_or_tells_nothing_gets_nothing(sites, told):
    one = sites()
    one.hear(0, 1, sequence=9, **{"places": (FREE,), "ahead": -9, **told})
    assert goes(one, 1, 0.0, wait_s=9.0) is None


@pytest.mark.parametrize("told", [{"max_hops": 0}, {"policy": "isolated"}])
def test_a_cluster_that_hands_nothing_on_keeps_all(sites, told):
    assert goes(sites(**told), 1, 0.0, wait_s=9.0) is None


def test_neighbors_requests_and_those_without_affinity_stay(sites):
    one = sites()
    assert ev.Start in kinds(one.arrive(1, path=("b",), asked=asked(wait_s=9.0)))
    assert ev.Start in kinds(one.arrive(2))


SECONDS = st.integers(0, 4).map(lambda n: n / 4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.integers(0, 3), SECONDS, st.integers(1, 2_000)),
        st.tuples(st.just("hear"), st.integers(0, 1), st.integers(0, 3), st.integers(0, 5_000)),
        st.tuples(st.sampled_from(["answer", "refuse", "lose", "end"]), st.integers(0, 4),
                  st.integers(0, 3), st.integers(0, 2_000)),
        st.tuples(st.sampled_from(["down", "part"]), st.integers(0, 1), st.just(0), st.just(0)),
    ),
    max_size=40,
)  # fmt: skip


def event_of(machine, step, ref, now_s):
    """One event of a random story; None where nothing is under way that it could be about."""
    kind, which, number, work = step
    if kind == "come":
        own = tuple(OwnPlace(number, number / 8, min(work, 500)) for _ in range(2))
        told = SessionWork(which, float(work), 1_000.0, own)
        return ev.Arrived(ref, Request(f"r{ref}", True, None, asked=told), now_s + 100.0)
    if kind == "hear":
        places = (PlaceLoad(float(work), number / 4, 1_000.0, float(ref)),) * number
        told = {"ahead": number - 2, "departure_s": 0.1, "places": places}
        return ev.ReportReceived(which, LoadReport(1, ref, 1.0, 1.0, 0, 2, True, ("a",), **told))
    if kind in {"down", "part"}:
        return ev.LinkDown(which) if kind == "down" else ev.Part(which)
    state = "running" if kind == "end" else "away"
    there = [one for one in machine.register.visits.values() if one.state == state]
    return end_of(kind, there[which % len(there)], number, work) if there else None


def end_of(kind, visit, place, work):
    """What ends a visit here or at a neighbor."""
    if kind != "answer":
        ends = {"refuse": ev.ForwardRefused, "lose": ev.ForwardLost}
        return ends[kind](visit.ref) if kind in ends else ev.ServiceEnded(visit.ref, DONE, 0.25)
    told = Answer(DONE, ("a", str(visit.target.id)))
    told.ran = RanAt(place, float(work), min(work, 100.0))
    return ev.ForwardAnswered(visit.ref, told, 0.1, 0.1)


@settings(max_examples=examples(60))
@given(STEPS, st.integers(0, 9))
def test_whatever_happens_the_books_balance_and_a_replay_commands_the_same(steps, seed):
    told = NodeSettings(cluster="a", servers=2, policy="adaptive", affinity=True)
    ways = [("b", 0.05), ("c", 0.1)]
    machine = NodeMachine(told, ways, Random(seed), 0.0)
    log, commands, came = [], [], 0
    for ref, step in enumerate(steps, 1):
        event, now_s = event_of(machine, step, ref, ref / 8), ref / 8
        if event is None:
            continue
        came += isinstance(event, ev.Arrived)
        log.append((copy_of(event), now_s))
        commands.append(copy_of(machine.handle(event, now_s)))
        machine.check()
    replies = sum(isinstance(one, ev.Reply | ev.Refuse) for told in commands for one in told)
    assert replies + len(machine.register.visits) == came
    again = NodeMachine(told, ways, Random(seed), 0.0)
    assert [again.handle(event, now_s) for event, now_s in log] == commands
