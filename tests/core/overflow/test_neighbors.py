"""What is believed of neighbors: newer and older reports, signs of life, silence."""

import math
from random import Random

import pytest

from spillover.core.overflow.reporting import HEARTBEAT_S, Gossip
from spillover.model.load import LoadReport
from support.loads import neighbors_of


def report(sequence, epoch=1, accept=0.5, near=0.75, queue_length=5, accepting=True, hears=("a",)):
    return LoadReport(epoch, sequence, accept, near, queue_length, 5, accepting, hears)


@pytest.fixture
def table():
    """Of one neighbor, at no distance, heard of every 50 ms."""
    return neighbors_of("b")


@pytest.mark.parametrize("sequence", [1, 2])
def test_stragglers_and_duplicates_are_signs_of_life_only(table, sequence):
    """A report that was overtaken, or came twice, does not change what is believed."""
    table.heard(0, report(2), 0.0)
    table.heard(0, report(sequence, accept=0.0, accepting=False), 0.9)
    known = table.knowledge()
    assert (known.accept, known.accepting, known.reported_s) == ((0.5,), (True,), (0.0,))
    assert table.expire(1.0) == []


def test_a_new_epoch_replaces_the_old_one(table):
    """A restarted cluster counts from 1 again and is believed."""
    table.heard(0, report(900), 0.0)
    table.heard(0, report(1, epoch=2, accept=1.0), 0.5)
    assert table.knowledge().accept == (1.0,)


def test_a_straggler_of_an_earlier_life_is_nothing(table):
    """It changes no belief, and does not even keep the neighbor alive."""
    table.heard(0, report(1, epoch=2), 0.0)
    table.heard(0, report(900, epoch=1, accept=0.0), 0.9)
    assert table.knowledge().accept == (0.5,)
    assert table.expire(0.95) == [0]


def test_a_sender_whose_wall_clock_went_back_is_heard_after_the_silence(table):
    """Restarted with an earlier epoch: ignored while the old life seems alive, then believed."""
    table.heard(0, report(900, epoch=5), 0.0)
    for step in range(1, 25):
        table.expire(step * 0.05)
        table.heard(0, report(step, epoch=3, accept=0.125), step * 0.05)
    assert table.knowledge().accept == (0.125,)
    table.heard(0, report(901, epoch=5), 1.3)
    assert table.knowledge().accept == (0.5,)


def test_a_link_that_went_down_takes_its_reports_with_it(table):
    """Unknown at once. A beat is not enough to come back, any report is, of any epoch."""
    table.heard(0, report(9, epoch=5), 0.0)
    table.lost(0)
    assert table.knowledge().known == table.knowledge().accepting == (False,)
    table.heard(0, None, 0.1)
    assert table.knowledge().known == (False,)
    table.heard(0, report(1, epoch=4), 0.2)
    assert table.knowledge().known == (True,)
    table.check()


def test_after_a_pause_the_old_report_is_believed_again(table):
    """The sender was only paused: its next beat says that it still lives."""
    table.heard(0, report(1, accepting=False), 0.0)
    assert table.expire(5.0) == [0]
    table.heard(0, None, 6.0)
    known = table.knowledge()
    assert (known.known, known.accepting) == ((True,), (False,))
    table.check()


@pytest.mark.parametrize("delay_ms", [0, 6, 35, 100, 250, 449, 450, 451, 500])
def test_a_dead_neighbor_is_unknown_within_a_second_of_its_last_sign_of_life(delay_ms):
    """Counted from when that sign left there, whatever the link's delay up to half a second; and
    a living one never becomes unknown, though every sign takes up to 50 ms longer."""
    delay_s = delay_ms / 1e3
    table = neighbors_of("b", delay_s, beat_s=HEARTBEAT_S)
    table.heard(0, report(1), delay_s)
    random = Random(delay_ms)
    sent_s = 0.0
    for _ in range(100):
        sent_s += HEARTBEAT_S
        came_s = sent_s + delay_s + random.random() * 0.05
        assert table.next_silence_s > came_s or table.expire(came_s) == []
        table.heard(0, None, came_s)
    last_heard_s = sent_s + delay_s
    table.heard(0, None, last_heard_s)
    while table.known[0]:
        unknown_s = table.next_silence_s
        table.expire(unknown_s)
    assert unknown_s <= sent_s + 1.0 + 1e-9
    assert table.next_silence_s == math.inf


def test_a_pause_of_the_cluster_itself_is_nobodys_silence():
    """It moves the end of everybody's time, and no more: age is still age, who had not been heard
    before the pause has only the rest, and who is unknown stays so."""
    table = neighbors_of("bcd")
    table.heard(0, report(1), 0.0)
    table.heard(1, report(1), 0.5)
    table.excuse(2.0)
    assert table.next_silence_s == 2.95
    assert table.expire(2.9) == []
    assert [view.age_s for view in table.view(2.9)] == [2.9, pytest.approx(2.4), None]
    table.heard(1, None, 2.9)
    assert table.expire(2.95) == [0]
    assert table.known == [False, True, False]
    assert table.expire(3.85) == [1]
    table.excuse(2.0)
    assert table.next_silence_s == math.inf
    table.check()


def test_the_first_report_falls_on_a_random_phase():
    """Clusters started together do not speak in step; the first report is within one period."""
    phases = [Gossip(0.05, Random(seed), 100.0).next_s for seed in range(50)]
    assert len(set(phases)) == 50
    assert all(100.0 <= phase < 100.05 for phase in phases)


@pytest.mark.parametrize("period_s", [0.001, 0.05, 0.1, 0.25, 0.3, 10.0])
def test_reports_keep_their_period_and_leave_out_what_was_slept_through(period_s):
    """Woken late at random, even by many periods: one report per wake, the next one always still
    to come, within a period and on the first phase."""
    random = Random(7)
    gossip = Gossip(period_s, random, 0.0)
    phase_s = gossip._report_s
    for _ in range(3000):
        due_s = gossip._report_s
        assert abs(math.remainder(due_s - phase_s, period_s)) < 1e-7
        now_s = due_s + (random.random() * 5 * period_s if random.random() < 0.2 else 0.0)
        assert gossip.report_due(now_s)
        assert not gossip.report_due(now_s)
        gossip.beat_due(now_s)
        assert now_s < gossip.next_s <= now_s + period_s + 1e-9


def test_beats_come_only_where_reports_are_further_apart():
    """Reports each 250 ms or oftener are signs of life enough."""
    assert not Gossip(0.25, Random(1), 0.0).beat_due(100.0)
    often = Gossip(10.0, Random(1), 0.0)
    assert not often.beat_due(0.2)
    assert often.beat_due(0.25)
    assert not often.beat_due(0.49)
    assert often.beat_due(0.5)
