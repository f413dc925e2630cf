"""Whom an idle cluster asks for work: how many at once, how often again, and what it forgets."""

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from spillover.core.overflow.pulling import ANSWER_S_MIN, Pulling
from spillover.model.load import LoadNow, LoadReport
from spillover.policy.overflow.pull import DOUBLINGS_MAX, ahead
from support.loads import neighbors_of

DEPARTURE_S = 0.008
WAY_S = 0.035


def report(ahead, sequence=1, hears=("a",)):
    told = {"ahead": ahead, "departure_s": DEPARTURE_S}
    return LoadReport(1, sequence, 1.0, 1.0, max(0, ahead or 0), 5, True, hears, **told)


class Idle:
    """Cluster a, all of whose servers are idle, and what its neighbors tell of those ahead."""

    def __init__(self, *ahead, period_s=0.05, delay_s=WAY_S):
        names = "bcdefghij"[: len(ahead)]
        self.table = neighbors_of(names, delay_s, period_s=period_s)
        self.pulling = Pulling(self.table, period_s, Random(3))
        for y, told in enumerate(ahead):
            self.table.heard(y, report(told), 0.0)

    def ask(self, now_s=0.0, idle=5, servers=5):
        """Whom it asks at this instant, one after the other."""
        asked = []
        told = (idle, servers, DEPARTURE_S, now_s)
        while (y := self.pulling.next_to_ask(*told)) is not None:
            asked.append(y)
            self.pulling.check()
        return asked

    def had_nothing(self, y, now_s=0.0):
        self.pulling.had_nothing(y, DEPARTURE_S, now_s)
        self.pulling.check()


def test_the_longest_queues_are_asked_first_and_each_once():
    cluster = Idle(6, 20, -5, 9)
    assert cluster.ask() == [1, 3, 0]
    assert cluster.ask() == []


def test_there_are_no_more_questions_than_idle_servers():
    cluster = Idle(9, 9, 9, 9, delay_s=0.0)
    assert cluster.ask(idle=2) == [0, 1]
    assert cluster.ask(idle=3) == [2]
    cluster.pulling.came(0, pulled=True)
    assert cluster.ask(idle=2) == []
    assert cluster.ask(idle=3) == [0], "what came has shown that there is work"


def test_a_busy_cluster_asks_for_what_it_will_have_done_by_the_time_of_an_answer():
    """There and back take 70 ms, in which nine of 8 ms are done; if none waits, all nine are
    missing, and where four wait, five. A question that is under way counts as one that comes."""
    assert ahead(WAY_S, DEPARTURE_S, 5) == 9
    queues = [99] * 9
    assert len(Idle(*queues).ask(idle=0)) == 9
    assert len(Idle(*queues).ask(idle=-4)) == 5
    assert Idle(*queues).ask(idle=-9) == []
    cluster = Idle(*queues)
    assert len(cluster.ask(idle=-6)) == 3
    assert len(cluster.ask(idle=-2)) == 4


def test_it_asks_ahead_for_two_a_server_at_most():
    assert ahead(WAY_S, DEPARTURE_S, 2) == 4
    assert len(Idle(*[99] * 9).ask(idle=0, servers=2)) == 4


def test_it_asks_ahead_only_where_the_way_is_long():
    cluster = Idle(99, 99, delay_s=0.0)
    assert cluster.ask(idle=0) == []


def test_a_queue_that_is_not_worth_the_way_is_not_asked():
    """The way is 35 ms: four of 8 ms with what chance may add are, an idle cluster is not."""
    assert Idle(4).ask() == [0]
    assert Idle(-5).ask() == []


def test_one_that_does_not_tell_or_does_not_hear_us_is_not_asked():
    cluster = Idle(None, 20)
    cluster.table.heard(1, report(20, 2, hears=()), 0.0)
    assert cluster.ask() == []


def pauses_of(cluster, rounds, now_s=0.0):
    """For how many departures neighbor 0, which has been asked, is left alone after each time that
    it has nothing; it is asked again at once when it may be."""
    pauses = []
    for _ in range(rounds):
        cluster.had_nothing(0, now_s)
        since_s = now_s
        while not cluster.ask(now_s):
            now_s += DEPARTURE_S / 64.0
        pauses.append((now_s - since_s) / DEPARTURE_S)
    return pauses


def test_who_has_nothing_is_left_alone_longer_each_time():
    """One departure, two, four ... 64, each spread by half."""
    cluster = Idle(20)
    assert cluster.ask() == [0]
    for row, pause in enumerate(pauses_of(cluster, 12)):
        usual = 2.0 ** min(row, DOUBLINGS_MAX)
        assert 0.5 * usual <= pause <= 1.5 * usual + 0.1


@pytest.mark.parametrize("pulled", [True, False])
def test_any_request_from_it_sets_that_back(pulled):
    """It has work: the next pause is a short one again."""
    cluster = Idle(20)
    assert cluster.ask() == [0]
    assert pauses_of(cluster, 6)[-1] > 10.0
    cluster.pulling.came(0, pulled=pulled)
    assert cluster.ask(10.0) == ([0] if pulled else []), "the question is answered, or is not"
    assert pauses_of(cluster, 1, 10.0)[0] < 1.6


@pytest.mark.parametrize(("delay_s", "answer_s"), [(WAY_S, ANSWER_S_MIN), (0.5, 3.0)])
def test_no_answer_counts_as_nothing(delay_s, answer_s):
    """After 1 s, over long links after six ways; the neighbor is left alone then."""
    cluster = Idle(900, delay_s=delay_s)
    assert cluster.ask() == [0]
    assert cluster.ask(answer_s - 0.01) == []
    assert cluster.pulling.coming == 1
    assert cluster.ask(answer_s) == []
    assert cluster.pulling.coming == 0
    assert cluster.ask(answer_s + 1.6 * DEPARTURE_S) == [0]


@pytest.mark.parametrize(("period_s", "most"), [(0.05, 0), (10.0, 20.0 / 0.33)])
def test_where_all_are_idle_hardly_anybody_asks(period_s, most):
    """For 20 s, asking whenever it may: not at all with a report each 50 ms; with one each 10 s,
    once in the time after which five idle servers there are not sure any more, 2 m S less what the
    way takes. Each answer tells them anew."""
    cluster, number, questions = Idle(-5, period_s=period_s), 1, 0
    for step in range(1, 4001):
        now_s = step * 0.005
        number += 1
        if step % round(period_s / 0.005) == 0:
            cluster.table.heard(0, report(-5, number), now_s)
        elif step % 50 == 0:
            cluster.table.heard(0, None, now_s)
        for y in cluster.ask(now_s):
            questions += 1
            load = LoadNow(1, number, -5, 0.0, accepting=True)
            cluster.table.heard_load(y, load, now_s)
            cluster.had_nothing(y, now_s)
    assert questions <= most
    assert bool(questions) == bool(most)


class AnyOrder(RuleBasedStateMachine):
    """Questions, answers, losses in any order, against a model that knows who is being asked."""

    def __init__(self):
        super().__init__()
        self.idle = Idle(9, 20, -5, 0)
        self.now_s = 0.0
        self.numbers = 1
        self.asked_s = {}

    neighbors = st.integers(0, 3)

    @rule(idle=st.integers(0, 5), step_s=st.sampled_from([0.0, 0.004, 0.05, 1.0, -0.002]))
    def it_is_idle(self, idle, step_s):
        self.now_s += step_s
        asked = self.idle.ask(self.now_s, idle)
        late = [y for y, at_s in self.asked_s.items() if self.now_s >= at_s + ANSWER_S_MIN]
        for y in late:
            del self.asked_s[y]
        assert not set(asked) & set(self.asked_s), "asked again before it could answer"
        self.asked_s |= dict.fromkeys(asked, self.now_s)
        could_begin = idle + ahead(WAY_S, DEPARTURE_S, 5)
        assert not asked or len(self.asked_s) <= could_begin, "more than could begin"

    @rule(y=neighbors)
    def one_has_nothing(self, y):
        self.idle.had_nothing(y, self.now_s)
        if self.asked_s.pop(y, None) is not None:
            self.now_s += 0.49 * DEPARTURE_S
            asked = self.idle.ask(self.now_s, 0)
            assert y not in asked
            self.asked_s |= dict.fromkeys(asked, self.now_s)

    @rule(y=neighbors, pulled=st.booleans())
    def one_sends_a_request(self, y, pulled):
        self.idle.pulling.came(y, pulled=pulled)
        if pulled:
            self.asked_s.pop(y, None)

    @rule(y=neighbors)
    def a_link_goes_down(self, y):
        self.idle.pulling.forget(y)
        self.idle.table.lost(y)
        self.asked_s.pop(y, None)

    @rule(y=neighbors, ahead=st.sampled_from([-5, 0, 9, 40]))
    def one_reports(self, y, ahead):
        self.numbers += 1
        self.idle.table.heard(y, report(ahead, self.numbers), self.now_s)

    @invariant()
    def as_many_are_under_way_as_were_asked(self):
        self.idle.pulling.check()
        assert self.idle.pulling.coming == len(self.asked_s)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(stateful_step_count=40)
