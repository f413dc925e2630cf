"""A cluster whose work fails, and its neighbors: who gets what, who takes it back, what is told.

The rule by which a cluster is degraded: `test_health`. With time, links and both sides of a
federation: `tests/sim/overflow/test_failing.py`.
"""

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.health import PROBE_PAUSE_S, SLOW_START_SHARE
from spillover.core.overflow.machine import OFFERS_MAX, REST_S_MAX
from spillover.core.pauses import REFUSED_PAUSE_S_MAX
from spillover.model.request import Outcome, Refusal
from support.failing_cluster import (
    busy,
    degrade,
    fail,
    forwards,
    not_run,
    only,
    refusals,
    reports,
    starts,
)

HOUR_S = 3600.0

BACK = {"foreign.received": 1, "foreign.answered": 1}
"""What the ledger has of a neighbor's request that went back."""

SOON_S = 0.5
"""A failed server is free again by then, and no neighbor was silent for too long."""


# --- a server whose work has failed is not free at once ---------------------------------------


@pytest.mark.parametrize("took_s", [0.0, 0.01, 0.1])
def test_a_failure_occupies_its_server_for_as_long_as_a_success(story, took_s):
    """And not at all where it took longer than that."""
    node = story(service_s=0.25)
    node.arrive(1)
    fail(node, 1, took_s, took_s)
    assert (busy(node), node.machine.servers.cooling) == (1, 1)
    assert node.machine.next_deadline() <= 0.25
    assert not starts(node.arrive(2, 0.2))
    assert starts(node.wake(0.25)) == [2]
    fail(node, 2, 0.25 + 9.0, 9.0)
    assert busy(node) == 0


def test_successes_and_rejections_free_it_at_once(story):
    """A request that is at fault says nothing against the cluster, however many there are."""
    node = story(service_s=0.25)
    for ref in range(50):
        assert starts(node.arrive(ref)) == [ref]
        node.end(ref, outcome=Outcome.REJECTED, service_s=0.001)
    assert busy(node) == 0
    assert node.machine.health.state == "well"
    assert node.machine.health.failed_share(0.0) == 0.0
    assert node.machine.servers.service_s == 0.25, "nor does it say how long a service takes"
    assert node.ledger == {"home.accepted": 50, "home.failed": 50}


@pytest.mark.parametrize("service_s", [0.1, 1.0, 30.0, 600.0])
def test_however_long_services_take_four_failures_in_a_row_are_enough(story, service_s):
    """They come as far apart as successes would: each occupies the one server for as long."""
    node = story(neighbors=(), service_s=service_s)
    node.arrive(1, deadline_s=1e9)
    node.end(1, 0.0)
    node.machine.servers.service_s = service_s
    now_s = 0.0
    for ref in range(2, 7):
        assert starts(node.arrive(ref, now_s, deadline_s=1e9)) == [ref]
        fail(node, ref, now_s, 0.0)
        now_s += service_s
        node.wake(now_s)
    assert node.machine.health.degraded


# --- what surely was not run ------------------------------------------------------------------


def test_own_work_that_was_not_run_goes_to_a_neighbor(story):
    node = story()
    node.hear(0, 1)
    node.arrive(1)
    assert forwards(not_run(node, 1)) == [(1, 0)]
    assert node.ledger == {"home.accepted": 1, "home.away": 1}


@pytest.mark.parametrize("servers", [1, 2, 50])
@pytest.mark.parametrize("service_s", [0.0, 0.0001, 0.04])
def test_however_fast_services_are_one_request_is_not_tried_in_a_loop(story, servers, service_s):
    """Pauses double with each round of the servers, and begin anew once something has run."""
    node = story(neighbors=(), service_s=service_s, servers=servers)
    node.arrive(1)
    now_s, attempts, under_way = 0.0, 0, [1]
    while now_s < 10.0:
        for ref in under_way:
            attempts += 1
            under_way = starts(not_run(node, ref, now_s, service_s=0.0))
        if not under_way:
            now_s = node.machine.servers.next_s
            under_way = starts(node.wake(now_s))
    assert attempts <= servers * (7 + 10.0 / REFUSED_PAUSE_S_MAX)
    while not under_way:
        under_way = starts(node.wake(node.machine.servers.next_s))
    node.end(1, service_s=0.0)
    assert node.machine.servers.refusals == 0


def test_work_that_neighbors_sent_goes_back_to_them(story):
    """As a refusal: they decide again. The books say that they have their answer."""
    node = story(neighbors=("b",))
    node.hear(0)
    node.arrive(1, path=("b",), size_bytes=100)
    assert refusals(not_run(node, 1)) == [(1, 0, Refusal.DEGRADED)]
    assert not node.machine.register.visits
    assert node.ledger == BACK
    assert node.machine.held.request_bytes == 0


# --- rest: left alone until Retry-After -------------------------------------------------------


@pytest.mark.parametrize(("asked_s", "rests_s"), [(0.5, 0.5), (5.0, 5.0), (HOUR_S, REST_S_MAX)])
def test_nothing_starts_until_retry_after(story, asked_s, rests_s):
    """At most for a minute. Neighbors hear of it at once, both ways; what waits starts then."""
    node = story(neighbors=())
    node.arrive(1, deadline_s=HOUR_S)
    node.arrive(2, deadline_s=HOUR_S)
    told = reports(not_run(node, 1, 0.0, retry_after_s=asked_s))
    assert told
    assert not told[-1].accepting
    assert node.machine.queue_length == 2
    node.wake(rests_s - 0.01)
    assert starts(node.arrive(3, rests_s - 0.01, deadline_s=HOUR_S)) == []
    commands = node.tell(ev.TimerFired(), rests_s)
    assert len(starts(commands)) == 1
    assert reports(commands)
    assert not node.machine.servers.resting


def test_while_it_rests_neighbors_get_what_waits_and_what_they_sent(story):
    node = story(neighbors=("b",), servers=1)
    node.arrive(1)
    node.arrive(2)
    node.arrive(3, path=("b",))
    commands = not_run(node, 1, retry_after_s=5.0)
    assert refusals(commands) == [(3, 0, Refusal.DEGRADED)]
    assert node.machine.queue_length == 2
    assert sorted(forwards(node.hear(0))) == [(1, 0), (2, 0)]
    (refused,) = refusals(node.arrive(4, path=("b",)))
    assert refused == (4, 0, Refusal.DEGRADED)
    assert node.ledger == {"home.accepted": 2, "home.away": 2, **BACK}


def test_refusals_say_when_the_rest_is_over(story):
    node = story(neighbors=("b",), service_s=1.0)
    node.arrive(1)
    not_run(node, 1, 0.0, retry_after_s=30.0)
    (refused,) = only(node.arrive(2, 10.0, path=("b",)), ev.Refuse)
    assert 20.0 <= refused.retry_after_s <= 25.0


# --- degraded: own work to neighbors, theirs back ---------------------------------------------


def test_neighbors_hear_of_it_at_once(story):
    """In the very event, not with the next report."""
    node = story()
    node.hear(0, 1)
    (told,) = reports(degrade(node))
    assert (told.degraded, told.accept_probability) == (True, 0.0)
    assert (told.relay_hops, told.relay_by, told.invites) == (1, "", False), "by b or c"
    assert told.failed_share > 0.0
    assert told.least_failed == 0.0, "at b"


def test_the_queue_of_a_cluster_that_becomes_degraded(story):
    """Own clients' work is offered to neighbors, theirs goes back."""
    node = story(neighbors=("b",), servers=2)
    node.arrive(1)
    node.arrive(2)
    node.fill(3, 4)
    node.arrive(5, path=("b",))
    assert node.machine.queue_length == 3
    fail(node, 1)
    node.hear(0)
    commands = fail(node, 2)
    assert node.machine.health.degraded
    assert forwards(commands) == [(4, 0)]
    assert refusals(commands) == [(5, 0, Refusal.DEGRADED)]
    ends = {"home.away": 1, "home.running": 1, "home.failed": 2}
    assert node.ledger == {"home.accepted": 4, **ends, **BACK}


def test_what_no_neighbor_takes_runs_here(story):
    """Better tried than left to wait."""
    node = story(neighbors=("b",))
    node.hear(0)
    degrade(node)
    node.wake(SOON_S)
    assert forwards(node.arrive(1, 0.1)) == [(1, 0)]
    assert starts(node.tell(ev.ForwardRefused(1), SOON_S)) == [1]


def test_probes_are_own_work_after_a_pause(story):
    """One, then two, ...; the others go to the neighbor meanwhile."""
    node = story(neighbors=("b",), servers=8)
    node.hear(0)
    degrade(node)
    node.wake(SOON_S)
    now_s = max(SOON_S, PROBE_PAUSE_S)
    assert starts(node.arrive(1, now_s)) == [1]
    assert forwards(node.arrive(2, now_s)) == [(2, 0)]
    node.end(1)
    assert [starts(node.arrive(ref, now_s)) for ref in (3, 4, 5)] == [[3], [4], []]
    fail(node, 3)
    assert starts(node.arrive(6, now_s)) == [], "a pause after a failure"


def test_a_run_of_successes_and_a_small_p_at_first(story):
    node = story(neighbors=("b",), servers=8)
    node.hear(0)
    degrade(node)
    node.wake(SOON_S)
    told = []
    for ref in range(node.machine.health.here.run_needed):
        assert starts(node.arrive(ref, SOON_S)) == [ref]
        told = reports(node.end(ref))
    (report,) = told
    assert (report.degraded, report.accepting) == (False, True)
    assert report.accept_probability == pytest.approx(SLOW_START_SHARE)
    assert node.machine.health.state == "recovering"
    assert starts(node.arrive(900_000, SOON_S)) == [900_000]


def test_where_all_are_degraded_that_is_ignored(story):
    """All work starts here again, theirs too, and overflow is handed on."""
    node = story(neighbors=("b",))
    node.hear(0)
    degrade(node)
    node.hear(0, sequence=2, degraded=True)
    node.wake(SOON_S)
    assert starts(node.arrive(1, path=("b",))) == [1]
    assert refusals(node.arrive(2, path=("b",))) == []
    assert forwards(node.arrive(3, away=True)) == [(3, 0)]
    assert forwards(node.arrive(4, away=True)) == [(4, 0)]


def test_a_degraded_neighbor_gets_nothing_but_invited_probes(story):
    """One for each of its reports; one that is well but full counts for nothing."""
    node = story(neighbors=("b",))
    node.fill(1, 2)
    node.hear(0, degraded=True, accepting=False)
    assert forwards(node.arrive(3, away=True)) == []
    node.hear(0, sequence=2, degraded=True)
    assert forwards(node.arrive(4, away=True)) == [(4, 0)]
    assert forwards(node.arrive(5, away=True)) == []
    node.hear(0, sequence=2, degraded=True)
    assert forwards(node.arrive(6, away=True)) == [], "a repeated report invites nobody"
    node.hear(0, sequence=3, degraded=True)
    assert forwards(node.arrive(7, away=True)) == [(7, 0)]
    node.hear(0, sequence=4)
    assert [forwards(node.arrive(r, away=True)) for r in (8, 9)] == [[(8, 0)], [(9, 0)]]


def test_work_of_a_neighbor_whose_work_fails_everywhere_is_no_evidence(story):
    """It said that all its clients' work fails."""
    node = story(neighbors=("b",), servers=2)
    node.hear(0, failed_share=1.0)
    for ref in range(30):
        node.arrive(ref, path=("b",))
        fail(node, ref)
    assert node.machine.health.state == "well"


# --- nothing is stranded, nothing goes in circles ---------------------------------------------


def test_a_neighbor_that_refuses_is_not_asked_again_and_again(story):
    """What came back is tried here; no forward follows from a refusal alone."""
    node = story(neighbors=("b",), servers=1, service_s=0.25)
    node.hear(0)
    degrade(node)
    node.wake(SOON_S)
    sent = len(forwards(node.arrive(1, SOON_S))) + len(forwards(node.arrive(2, SOON_S)))
    for _ in range(20):
        for ref in (1, 2):
            sent += len(forwards(node.tell(ev.ForwardRefused(ref))))
    assert sent <= 2


def test_offers_of_what_waits_are_bounded_for_each_report(story):
    node = story(neighbors=("b",), queue_limit=1000)
    node.arrive(0)
    for ref in range(1, 200):
        node.arrive(ref)
    not_run(node, 0, retry_after_s=5.0)
    assert len(forwards(node.hear(0))) == OFFERS_MAX
