"""Whom work goes to where some fail it: the best that can be reached, neighbors one by one; what is
tried elsewhere again; and what counts as a failure.
"""

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.evidence import STALLED_S
from spillover.core.overflow.health import FOREIGN_PAUSE_S, HANDED_ON_PAUSE_S
from spillover.core.overflow.neighbor import TRIAL_PAUSE_S
from spillover.model.request import Answer, Outcome, Refusal
from support.failing_cluster import degrade, fail, forwards, only, refusals, reports, starts

SOON_S = 0.5
"""A failed server is free again by then, and no neighbor was silent for too long."""


def failed_by(cluster, path):
    return Answer(Outcome.FAILED, path, problem="failing", upstream_status=500)


def lose_at(node, neighbor, refs, **how):
    """Own work of a cluster that can start nothing is given to the neighbor and fails there; the
    commands of the last answer."""
    commands = []
    for ref in refs:
        assert forwards(node.arrive(ref, **how)) == [(ref, neighbor)]
        commands = node.tell(ev.ForwardAnswered(ref, failed_by("b", ("a", "b")), 0.0, 0.0))
    return commands


def test_who_fails_own_work_gets_none_of_it(story):
    """Whatever it says of itself: the other one gets it all. It is tried again after a while, with
    one request at a time."""
    node = story()
    node.tell(ev.ServersDown())
    node.hear(0)
    node.hear(1, accepting=False)
    lose_at(node, 0, range(4), keyed=False)
    node.hear(1, sequence=2)
    assert [forwards(node.arrive(ref)) for ref in (11, 12)] == [[(11, 1)], [(12, 1)]]
    assert node.machine.neighbors.view(0.0)[0].degraded
    node.hear(0, 1, now_s=TRIAL_PAUSE_S, sequence=3)
    assert node.machine.neighbors.by_handle[0].invited


def test_a_neighbor_that_found_out_by_itself_and_is_well_is_given_work_at_once(story):
    node = story()
    node.tell(ev.ServersDown())
    node.hear(0)
    node.hear(1, accepting=False)
    lose_at(node, 0, range(4), keyed=False)
    node.hear(0, sequence=2, degraded=True, failed_share=1.0)
    node.hear(0, sequence=3)
    assert not node.machine.neighbors.view(0.0)[0].degraded
    assert forwards(node.arrive(11)) == [(11, 0)]


def test_a_cluster_without_servers_has_its_work_done_by_whom_it_can_reach(story):
    """Degraded or not: never `no_servers` while somebody accepts. Of two the better one gets it."""
    node = story()
    node.tell(ev.ServersDown())
    node.hear(0, degraded=True, failed_share=0.6)
    assert forwards(node.arrive(1)) == [(1, 0)]
    node.hear(1, degraded=True, failed_share=0.2)
    assert [forwards(node.arrive(ref, away=True)) for ref in (2, 3)] == [[(2, 1)], [(3, 1)]]


def test_where_all_fail_the_best_gets_the_work(story):
    """The own cluster fails all that is tried here, b fails a third of what comes."""
    node = story(neighbors=("b",))
    degrade(node)
    node.wake(SOON_S)
    for ref in range(9):
        assert starts(node.arrive(ref, 10.0 * ref + 10.0, keyed=False)) == [ref]
        fail(node, ref)
        node.wake(node.now_s + 1.0)
    node.hear(0, degraded=True, failed_share=0.3)
    assert forwards(node.arrive(100, keyed=False)) == [(100, 0)]
    node.hear(0, sequence=2, degraded=True, failed_share=1.0)
    assert starts(node.arrive(101, keyed=False)) == [101], "no worse than here"


def test_a_degraded_cluster_hands_on_what_a_neighbor_sends_if_another_is_well(story):
    """There is no other way from b to c. If c refuses it goes back, undone."""
    node = story()
    node.hear(0, 1)
    degrade(node)
    node.hear(0, sequence=2, degraded=True, failed_share=1.0)
    assert forwards(node.arrive(1, path=("b",))) == [(1, 1)]
    assert refusals(node.tell(ev.ForwardRefused(1))) == [(1, 0, Refusal.DEGRADED)]


def test_who_is_the_way_to_the_own_cluster_is_none_of_others(story):
    """It is degraded, and would only hand back."""
    node = story()
    node.hear(0)
    node.hear(1, degraded=True, relay_hops=1, relay_by="a")
    assert node.machine.neighbors.knowledge().accepting == (True, False)
    node.hear(1, sequence=2, degraded=True, relay_hops=2, relay_by="d")
    known = node.machine.neighbors.knowledge()
    assert known.ranks == (0.0, 2.0)
    assert known.takes == (True, False), "b does it itself"
    node.hear(0, sequence=2, degraded=True)
    assert node.machine.neighbors.knowledge().takes[1], "now c is the best"


def test_of_two_ways_on_neither_is_told_to_be_the_only_one(story):
    """Else the neighbor named first could send nothing, although the other takes it."""
    node = story()
    node.hear(0, 1)
    (told,) = reports(degrade(node))
    assert (told.relay_hops, told.relay_by) == (1, "")
    assert forwards(node.arrive(1, path=("b",))) == [(1, 1)]


def test_a_neighbor_that_can_reach_a_better_place_does_not_acquit(story):
    """It fails some of what it gets, is not degraded yet, and has its own work done elsewhere."""
    node = story(neighbors=("b",))
    node.tell(ev.ServersDown())
    node.hear(0)
    lose_at(node, 0, range(2), keyed=False)
    neighbors = node.machine.neighbors
    for sequence, share in ((2, 0.0), (3, 0.6)):
        node.hear(0, sequence=sequence, failed_share=share)
        assert neighbors.usual(0.0) > 0.1, "whatever it says of itself"
    node.hear(0, sequence=4, failed_share=0.6, least_failed=0.0)
    assert neighbors.usual(0.0) == 0.0


@pytest.mark.parametrize(("next_failed", "usual"), [(0.0, 0.0), (0.6, 0.6), (None, 0.6)])
def test_a_neighbor_that_hands_on_to_this_cluster_does_not_acquit_it(story, next_failed, usual):
    """It would do without. Where all others fail as much, nobody is worse than another."""
    node = story(neighbors=("b",))
    told = {"degraded": True, "failed_share": 0.6, "least_failed": 0.0, "next_failed": next_failed}
    node.hear(0, relay_hops=1, relay_by="a", **told)
    assert node.machine.neighbors.usual(0.0) == usual


@pytest.mark.parametrize("failed_share", [0.0, 0.2])
def test_whoever_gets_all_the_work_hears_of_the_next_best_place(story, failed_share):
    node = story(neighbors=("b", "c"))
    node.hear(0)
    node.hear(1, degraded=True, failed_share=failed_share)
    told = reports(degrade(node))[-1]
    assert (told.relay_by, told.least_failed, told.next_failed) == ("b", 0.0, failed_share)


@pytest.mark.parametrize(
    ("path", "keyed", "after_s"),
    [
        (("b",), False, FOREIGN_PAUSE_S),
        (("c",), True, FOREIGN_PAUSE_S),
        (("c",), False, HANDED_ON_PAUSE_S),
        (("x", "b"), False, HANDED_ON_PAUSE_S),
    ],
)
def test_a_well_neighbors_own_client_pays_for_a_probe_before_others_do(story, path, keyed, after_s):
    """B is well, and so takes what is not tried here; c is degraded, and tries for itself."""
    node = story()
    node.hear(0)
    degrade(node)
    origin = {"b": 0, "c": 1}[path[-1]]
    for sequence, now_s in enumerate((after_s - 0.3, after_s + 0.3), 2):
        node.hear(0, now_s=now_s, sequence=sequence)
        node.hear(1, now_s=now_s, sequence=sequence, degraded=True, failed_share=1.0)
        commands = node.arrive(50 + sequence, path=path, origin=origin, keyed=keyed)
        assert (starts(commands) == [50 + sequence]) is (now_s >= after_s)


def test_a_probe_with_a_key_costs_nobody_anything(story):
    """It fails here, and is done by the neighbor; where nobody takes it, that is its answer."""
    node = story(neighbors=("b",))
    node.hear(0)
    degrade(node)
    node.wake(SOON_S)
    assert starts(node.arrive(1, SOON_S)) == [1]
    assert forwards(fail(node, 1)) == [(1, 0)]
    node.wake(10.0)
    node.hear(0, now_s=10.0, sequence=2)
    assert starts(node.arrive(2, 10.0)) == [2]
    node.tell(ev.LinkDown(0))
    (reply,) = only(fail(node, 2), ev.Reply)
    assert reply.answer.outcome is Outcome.FAILED


def test_without_a_key_it_never_runs_twice(story):
    node = story(neighbors=("b",))
    node.hear(0)
    degrade(node)
    node.wake(SOON_S)
    assert starts(node.arrive(1, SOON_S, keyed=False)) == [1]
    (reply,) = only(fail(node, 1), ev.Reply)
    assert reply.answer.outcome is Outcome.FAILED


@pytest.mark.parametrize(("statuses", "status", "counts"), [
    (None, 500, True), (None, 501, False), (None, 505, False), (None, None, True),
    ((502,), 500, False), ((502,), 502, True), ((), 500, False), ((), None, True),
])  # fmt: skip
def test_which_statuses_are_held_against_a_cluster(story, statuses, status, counts):
    """Here and at neighbors. The others are failures of the request alone."""
    node = story(neighbors=("b",), failure_statuses=statuses)
    for ref in range(8):
        if node.machine.health.degraded:
            break
        node.arrive(ref)
        node.tell(ev.ServiceEnded(ref, Outcome.FAILED, 0.25, upstream_status=status))
    assert node.machine.health.degraded == counts


def test_neighbors_may_queue_for_a_cluster_whose_neighbor_fails(story):
    """Under adaptive few of them may, else; what is turned away would fail where it came from."""
    for fails, taken in ((False, 2), (True, 5)):
        node = story(policy="adaptive", neighbors=("b",))
        node.hear(0, degraded=fails, failed_share=1.0 if fails else 0.0)
        node.arrive(1)
        for ref in range(2, 7):
            node.arrive(ref, path=("b",))
        assert node.machine.servers.waiting_foreign == taken


# --- what waits goes as a probe, too ----------------------------------------------------------


FAILS = {"degraded": True, "failed_share": 1.0, "relay_hops": 1, "relay_by": "a", "ahead": -1}
"""What a degraded neighbor says that hands on to this cluster, and has an idle server."""


def a_stuck_one(story, **settings):
    """One server that is busy for long, and two requests that wait."""
    node = story(**{"policy": "adaptive", "service_s": 0.25, **settings})
    node.fill(1, 2, 3)
    return node


def test_what_waits_finds_out_whether_a_neighbor_still_fails(story):
    """The oldest, as soon as the neighbor takes a probe, and one for each time it says so."""
    node = a_stuck_one(story)
    assert not forwards(node.hear(0, **FAILS))
    assert forwards(node.hear(0, sequence=2, invites=True, **FAILS)) == [(2, 0)]
    assert not forwards(node.hear(0, sequence=3, **FAILS))
    told = node.machine.decider.log.tell("r2")[-1]
    assert (told["event"], told["neighbor"]) == ("went_as_probe", "b")
    assert forwards(node.hear(0, sequence=4, invites=True, **FAILS)) == [(3, 0)]


@pytest.mark.parametrize("policy", ["adaptive", "paper"])
def test_where_all_servers_are_held_for_long_a_neighbor_that_fails_a_part_is_better(story, policy):
    """What waits goes there as it says that it is idle, and what comes. Nothing is taken from it
    meanwhile: else it would send back what it is given. What may run twice comes back."""
    node = a_stuck_one(story, policy=policy, neighbors=("b",))
    fails = {**FAILS, "failed_share": 0.4}
    assert not forwards(node.hear(0, now_s=STALLED_S - 0.1, **fails)), "it may be free soon"
    assert not forwards(node.hear(0, now_s=STALLED_S + 0.1, sequence=2, **fails))
    assert not reports(node.tell(ev.TimerFired(), STALLED_S + 0.2))[-1].accepting
    away = {**fails, "relay_hops": 0, "relay_by": ""}
    assert forwards(node.hear(0, sequence=3, **away)) == ([(2, 0)] if policy == "adaptive" else [])
    assert forwards(node.arrive(9, away=True)) == [(9, 0)]
    node.tell(ev.ForwardAnswered(9, failed_by("b", ("a", "b")), 0.0, 0.0))
    assert 9 in [visit.ref for visit in node.machine.servers], "it is decided again"
    node.end(1)
    assert reports(node.tell(ev.TimerFired(), STALLED_S + 1.0))[-1].accepting


@pytest.mark.parametrize(
    ("settings", "failed_share", "others"),
    [
        ({}, 1.0, ()),  # nothing is gained by that
        ({"servers": 2}, 0.4, ()),  # one is idle
        ({}, 0.4, (1,)),  # a third one is well, though it takes nothing now
    ],
)
def test_else_what_comes_waits_for_them(story, settings, failed_share, others):
    node = story(**{"policy": "adaptive", "service_s": 0.25, **settings})
    node.arrive(1)
    for sequence, now_s in enumerate((STALLED_S + 0.1, STALLED_S + 0.4), 1):
        told = {"sequence": sequence, "now_s": now_s}
        node.hear(0, degraded=True, failed_share=failed_share, ahead=-1, **told)
        node.hear(*others, accepting=False, **told)
    assert reports(node.tell(ev.TimerFired(), STALLED_S + 0.5))[-1].accepting


def test_under_the_paper_it_stays_where_it_was_put(story):
    node = a_stuck_one(story, policy="paper")
    assert not forwards(node.hear(0, invites=True, **FAILS))


def test_a_cluster_that_fails_itself_sends_no_such_probe(story):
    node = story(policy="adaptive", service_s=0.25)
    degrade(node)
    node.fill(1, 2, 3)
    assert not forwards(node.hear(0, invites=True, **FAILS))


def test_early_only_what_may_run_twice_goes(story):
    """A neighbor that says it is well, and fails own work, is tried with that first."""
    node = story(policy="adaptive", service_s=0.25)
    node.tell(ev.ServersDown())
    node.hear(0, ahead=-1)
    node.hear(1, accepting=False)
    lose_at(node, 0, range(4), keyed=False)
    node.tell(ev.ServersUp())
    for ref, keyed in ((11, False), (12, False), (13, True)):
        node.arrive(ref, keyed=keyed)
    soon_s = TRIAL_PAUSE_S / 2
    assert forwards(node.hear(0, now_s=soon_s, sequence=2, ahead=-1)) == [(13, 0)]
