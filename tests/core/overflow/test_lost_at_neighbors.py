"""What comes back of forwards is evidence about a neighbor, beside what that reports."""

from itertools import count

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.neighbor import FREE_TRIAL_PAUSE_S, TRIAL_PAUSE_S
from spillover.model.request import DONE, Answer, Outcome
from support.failing_cluster import forwards, only

SERVICE_S = 0.1
NUMBERS = count(900)
"""Of requests that home keeps."""

LATE_S = 3.0
"""Beyond what a neighbor promises that has nothing to do."""


@pytest.fixture
def busy(story):
    """A cluster whose only server is busy, with one request that waits: with `away` the next goes
    to the last neighbor that is eligible."""

    def make(**told):
        node = story(**{"service_s": SERVICE_S, **told})
        node.arrive(next(NUMBERS), deadline_s=1e9)
        node.arrive(next(NUMBERS), deadline_s=1e9)
        return node

    return make


def report(node, now_s, neighbors=(0, 1), **told):
    """Signs of life of these, and what comes of them."""
    report.sequence = getattr(report, "sequence", 0) + 1
    told = {"ahead": -20, "departure_s": SERVICE_S, **told}
    return node.hear(*neighbors, now_s=now_s, sequence=report.sequence, **told)


def forward(node, ref, now_s, **told):
    """One more request that is to go; to whom it went, None if it was kept."""
    sent = forwards(node.arrive(ref, now_s, away=True, **told))
    return sent[0][1] if sent else None


def avoided(node, handle=1):
    return node.machine.neighbors.by_handle[handle].there.degraded


def live(node, from_s, until_s, neighbors=(0, 1), *, works=True, **told):
    """Time passes, in which these neighbors say that they live, and home works; the commands."""
    now_s, commands = from_s, []
    while now_s < until_s - 1e-9:
        now_s += 0.25
        if works:
            (running,) = [
                one for one in node.machine.register.visits.values() if one.state == "running"
            ]
            node.end(running.ref, now_s, service_s=SERVICE_S)
            node.arrive(next(NUMBERS), now_s, deadline_s=1e9)
        commands += report(node, now_s, neighbors, **told) + node.wake(now_s)
    return commands


@pytest.mark.parametrize("keyed", [False, True])
def test_what_does_not_come_back_is_found_before_anything_does(busy, keyed):
    """Without a deadline. What may run twice is done elsewhere, and the rest waits."""
    node = busy()
    report(node, 0.0)
    for ref in range(5):
        assert forward(node, ref, 0.0, keyed=keyed, deadline_s=1e9) == 1
    commands = live(node, 0.0, LATE_S)
    assert avoided(node)
    assert not avoided(node, 0)
    recalled = [command.ref for command in only(commands, ev.Recall)]
    assert recalled == (list(range(5)) if keyed else [])
    assert node.machine.neighbors.by_handle[1].away.missed == 5
    assert forward(node, 99, LATE_S) == 0


def test_one_that_says_nothing_is_given_no_more_before_it_is_judged(busy):
    """Nothing has come back of three in a row; a word of one, and it is given more."""
    node = busy()
    report(node, 0.0)
    for ref in range(3):
        assert forward(node, ref, 0.0) == 1
    live(node, 0.0, 1.25)
    assert not avoided(node)
    assert forward(node, 10, 1.25) == 0
    node.tell(ev.ForwardAnswered(0, Answer(DONE, ("a", "c"), 1), 0.0, 0.0), 1.25)
    assert forward(node, 11, 1.25) == 1
    live(node, 1.25, 1.75)
    assert forward(node, 12, 1.75) == 1


def test_one_that_was_given_no_more_may_answer_when_it_is_no_neighbor_any_more(busy):
    """Found by random events: its answer ended the node."""
    node = busy()
    report(node, 0.0)
    for ref in range(3):
        assert forward(node, ref, 0.0, keyed=False, deadline_s=1e9) == 1
    live(node, 0.0, 1.25)
    node.part_from(1)
    answer = Answer(DONE, ("a", "c"), 1)
    assert len(only(node.tell(ev.ForwardAnswered(0, answer, 0.0, 0.0)), ev.Reply)) == 1


def test_an_answer_that_begins_is_a_word_of_a_neighbor(busy):
    node = busy(passes=True)
    report(node, 0.0, passes=True)
    for ref in range(4):
        assert forward(node, ref, 0.0, keyed=False) == 1
    live(node, 0.0, 1.0, passes=True)
    assert forward(node, 10, 1.0) == 0
    node.tell(ev.ResponseBegan(3, 0.0, ev.SoFar(("a", "c"), 0.0, 0.0, 0.0), 0.0), 1.0)
    assert forward(node, 11, 1.0) == 1


def test_what_stands_still_for_a_moment_is_not_mute(busy):
    """Services take a millisecond, and by that measure all answers of a moment are late."""
    node = busy(service_s=1e-3)
    report(node, 0.0, departure_s=1e-3)
    for ref in range(12):
        assert forward(node, ref, 0.0) == 1
    report(node, 0.1, departure_s=1e-3)
    assert forward(node, 20, 0.1) == 1
    report(node, 0.6, departure_s=1e-3)
    assert forward(node, 21, 0.6) == 0


def test_lost_ones_count_and_so_do_answers_that_are_late(busy):
    node = busy()
    report(node, 0.0)
    for ref in range(4):
        assert forward(node, ref, 0.0, keyed=False) == 1
        node.tell(ev.ForwardLost(ref))
    assert avoided(node)
    node = busy()
    report(node, 0.0)
    for ref in range(4):
        assert forward(node, ref, 0.0, keyed=False) == 1
    for ref in range(4):
        node.tell(ev.ForwardAnswered(ref, Answer(DONE, ("a", "c"), 1), 0.0, 0.0), LATE_S - 2.2)
        node.tell(ev.ForwardAnswered(ref, Answer(DONE, ("a", "c"), 1), 0.0, 0.0), LATE_S)
    assert not avoided(node), "they came in time"


@pytest.mark.parametrize(
    ("outcome", "deadline_s", "ahead", "is_lost"),
    [
        ("unknown", 60.0, -20, True),
        ("unknown", 60.0, 1, False),  # it may have been lost at a third cluster
        ("expired", 60.0, -20, True),
        ("expired", 0.1, -20, False),  # it could not be done
        ("cancelled", 60.0, -20, False),  # somebody may have asked for that there
    ],
)
def test_what_it_says_it_has_not_done_counts_as_lost(busy, outcome, deadline_s, ahead, is_lost):
    """At once, where it had an idle server, and the time."""
    node = busy()
    for ref in range(4):
        report(node, 0.0, ahead=ahead)
        assert forward(node, ref, 0.0, keyed=False, deadline_s=deadline_s) == 1
        answer = Answer(Outcome(outcome), ("a", "c"))
        node.tell(ev.ForwardAnswered(ref, answer, 0.0, 0.0))
    assert avoided(node) is is_lost


def trade(node, took_s, way_s, numbers, **told):
    """One request after the other is answered, until their neighbor is avoided. Each comes back
    after `took_s`, of which it was on its ways for twice `way_s`."""
    now_s, size_bytes = 0.0, told.pop("size_bytes", 0)
    answer_bytes = told.pop("answer_bytes", 0)
    report(node, now_s, **told)
    for ref in numbers:
        sent = {"keyed": False, "deadline_s": 1e9, "size_bytes": size_bytes}
        assert forward(node, ref, now_s, **sent) == 1
        live(node, now_s, now_s + took_s, **told)
        now_s += took_s
        answer = Answer(DONE, ("a", "c"), 1)
        node.tell(ev.ForwardAnswered(ref, answer, way_s, way_s, 0.0, answer_bytes), now_s)
        if avoided(node):
            return


@pytest.mark.parametrize("ahead", [-20, 0, 1])
def test_one_that_answers_late_is_not_excused_by_a_long_way(busy, ahead):
    """It says that it had each request for a moment: so it was measured to be two seconds away.
    Whether something waits there changes nothing."""
    node = busy()
    trade(node, 4.0, 2.0, range(10), ahead=ahead)
    assert avoided(node)


@pytest.mark.parametrize("way_s", [0.035, 0.45, 1.0])
def test_a_link_that_is_longer_than_was_told_is_not_late(busy, way_s):
    node = busy()
    trade(node, 2.0 * way_s + SERVICE_S, way_s, range(20))
    assert not avoided(node)


def test_a_large_upload_or_answer_is_not_late(busy):
    """Of 60 MB over a link of 2 MB/s, before the way is known and after it, with small ones in
    between."""
    node = busy()
    trade(node, 30.0, 15.0, range(5), size_bytes=60_000_000)
    trade(node, 0.25, 0.001, range(5, 10))
    trade(node, 30.0, 15.0, range(10, 15), size_bytes=60_000_000)
    trade(node, 30.0, 15.0, range(15, 20), answer_bytes=60_000_000)
    assert node.machine.neighbors.by_handle[1].away.missed == 0


@pytest.mark.parametrize(("deadline_s", "found"), [(0.11, False), (0.6, True)])
def test_a_deadline_says_as_much_as_it_leaves_time(busy, deadline_s, found):
    """What many services would not have kept says nothing."""
    node = busy()
    for ref in range(5):
        report(node, ref * 1.0)
        assert forward(node, ref, ref * 1.0, keyed=False, deadline_s=ref + deadline_s) == 1
        live(node, ref + 0.0, ref + 1.0)
    assert avoided(node) is found


def test_silence_is_not_lateness(busy):
    """A process stood still for three seconds: it answers all that it has, and is used again."""
    node = busy()
    report(node, 0.0)
    for ref in range(6):
        assert forward(node, ref, 0.0) == 1
    live(node, 0.0, LATE_S, neighbors=(0,))
    assert not node.machine.neighbors.by_handle[1].known
    report(node, LATE_S)
    for ref in range(6):
        node.tell(ev.ForwardAnswered(ref, Answer(DONE, ("a", "c"), 1), 0.0, 0.0), LATE_S + 0.1)
    assert not avoided(node)
    assert forward(node, 99, LATE_S + 0.2) == 1


def test_an_answer_that_has_begun_takes_as_long_as_it_takes(busy):
    """Only the time to its first byte counts."""
    node = busy(passes=True)
    report(node, 0.0, passes=True)
    for ref in range(6):
        assert forward(node, ref, 0.0, keyed=False) == 1
        node.tell(ev.ResponseBegan(ref, 0.0, ev.SoFar(("a", "c"), 0.0, 0.0, 0.0), 0.0), 0.2)
    live(node, 0.2, 60.2, passes=True)
    for ref in range(6):
        node.tell(ev.ForwardAnswered(ref, Answer(DONE, ("a", "c"), 1), 0.0, 0.0))
    assert not avoided(node)


def test_what_takes_long_here_too_is_nobodys_fault(busy):
    """After a history of short ones the own server has one that takes a minute."""
    node = busy()
    node.wake(30.0)
    report(node, 30.0)
    for ref in range(8):
        assert forward(node, ref, 30.0, deadline_s=1e9) == 1
    live(node, 30.0, 36.0, works=False)
    assert not avoided(node)


def test_it_is_tried_with_what_may_run_twice_first_and_comes_back(busy):
    node = busy()
    report(node, 0.0)
    for ref in range(4):
        forward(node, ref, 0.0, keyed=False)
        node.tell(ev.ForwardLost(ref))
    live(node, 0.0, FREE_TRIAL_PAUSE_S - 0.25)
    assert forward(node, 10, FREE_TRIAL_PAUSE_S - 0.1) == 0
    live(node, FREE_TRIAL_PAUSE_S - 0.25, FREE_TRIAL_PAUSE_S + 0.25)
    assert forward(node, 11, FREE_TRIAL_PAUSE_S + 0.3, keyed=False) == 0
    assert forward(node, 12, FREE_TRIAL_PAUSE_S + 0.3) == 1
    node.tell(ev.ForwardLost(12))
    assert 12 in node.machine.register.visits, "decided again"
    now_s = FREE_TRIAL_PAUSE_S + 0.25
    live(node, now_s, now_s + TRIAL_PAUSE_S + 0.25)
    now_s += TRIAL_PAUSE_S + 0.25
    for ref in range(20, 40):
        if not avoided(node):
            break
        now_s += 0.25
        report(node, now_s)
        assert forward(node, ref, now_s, keyed=False) == 1
        node.tell(ev.ForwardAnswered(ref, Answer(DONE, ("a", "c"), 1), 0.0, 0.0))
    assert not avoided(node)


@pytest.mark.parametrize("says", [True, False])
def test_what_is_lost_at_one_neighbor_does_not_keep_others_from_their_work(busy, says):
    """It is away till a deadline that is far: one that still speaks, and one that is cut off."""
    node = busy(queue_limit=6)
    report(node, 0.0)
    for ref in range(6):
        assert forward(node, ref, 0.0, keyed=False, deadline_s=1e9) == 1
    live(node, 0.0, LATE_S, neighbors=(0, 1) if says else (0,))
    for ref in range(10, 16):
        assert forward(node, ref, LATE_S, keyed=False, deadline_s=1e9) == 0
    assert forward(node, 16, LATE_S, keyed=False, deadline_s=1e9) is None, "within limits"
    assert node.machine.register.away == 12


def test_a_link_that_was_opened_anew_acquits_nobody_but_is_tried(busy):
    """The same process is at its other end; another one starts afresh."""
    node = busy()
    report(node, 0.0)
    for ref in range(4):
        forward(node, ref, 0.0, keyed=False)
        node.tell(ev.ForwardLost(ref))
    node.tell(ev.LinkDown(1), 1.0)
    report(node, 1.0)
    assert avoided(node)
    assert forward(node, 10, 1.0, keyed=False) == 1
    assert forward(node, 11, 1.0, keyed=False) == 0
    node.tell(ev.LinkDown(1), 1.0)
    report(node, 1.1, epoch=2)
    assert not avoided(node)


def test_a_neighbor_that_died_with_work_is_given_as_much_in_its_next_life(busy):
    """What died with it says nothing of the next life, not of its size either, and no loss that is
    noticed only then does."""
    node = busy()
    report(node, 0.0)
    for ref in range(12):
        assert forward(node, ref, 0.0, keyed=False, size_bytes=1000) == 1
    for ref in range(6):
        node.tell(ev.ForwardLost(ref))
    node.tell(ev.LinkDown(1), 0.1)
    report(node, 1.0, epoch=2)
    for ref in range(6, 12):
        node.tell(ev.ForwardLost(ref), 1.1)
    assert not avoided(node)
    assert [forward(node, ref, 1.1, size_bytes=1000) for ref in (20, 21)] == [1, 1]


def test_outcome_of_a_hung_one_is_told_once(busy):
    """It is late, then lost: one failure. Three that never come back do not keep it from being
    given more, and judged."""
    node = busy()
    report(node, 0.0)
    for ref in range(3):
        assert forward(node, ref, 0.0, keyed=False, deadline_s=1e9) == 1
    live(node, 0.0, LATE_S)
    node.tell(ev.ForwardLost(0), LATE_S)
    assert not avoided(node)
    assert node.machine.neighbors.by_handle[1].away.missed == 3
    for ref in range(3, 5):
        assert forward(node, ref, LATE_S, keyed=False, deadline_s=1e9) == 1
    live(node, LATE_S, 2.0 * LATE_S)
    assert avoided(node)


def test_what_swallows_large_ones_is_given_small_ones(busy):
    """One in four is large, and lost: within ten of them none is sent there any more. After ten
    seconds one is, and once all come back large ones go there as before."""
    node = busy()
    numbers, now_s, lost = count(), 0.0, 0

    def send(size_bytes, *, swallows=True):
        nonlocal lost
        ref = next(numbers)
        report(node, now_s)
        to = forward(node, ref, now_s, keyed=False, size_bytes=size_bytes, deadline_s=now_s + 3.0)
        if to == 1 and swallows and size_bytes > 1400:
            lost += 1
            node.tell(ev.ForwardLost(ref))
        else:
            node.tell(ev.ForwardAnswered(ref, Answer(DONE, ("a", "c"), 1), 0.0, 0.0))
        return to

    for _ in range(20):
        now_s += 0.25
        assert [send(size) for size in (200, 1000, 300)] == [1, 1, 1]
        send(3000)
    assert lost == 4
    assert not avoided(node)
    live(node, now_s, now_s + TRIAL_PAUSE_S)
    now_s += TRIAL_PAUSE_S
    assert [send(2000), send(2000), lost] == [1, 0, 5]
    live(node, now_s, now_s + TRIAL_PAUSE_S)
    now_s += TRIAL_PAUSE_S
    assert {send(3000, swallows=False) for _ in range(20)} == {1}
