"""What a member makes of loads: measured, told, and what falls to whom. Stories of one machine."""

from random import Random

import pytest

from spillover.core.leases import events as ev
from spillover.core.leases.machine import LeaseMember
from spillover.core.leases.records import Activation, Joined, LoadStanding, Standing, Survey
from spillover.core.leases.settings import MemberSettings
from spillover.model.errors import InputError
from spillover.model.lease_times import LeaseTimes
from spillover.policy.leases import LOAD_BAND, fair_load

TIMES = LeaseTimes()
PERIOD_S = TIMES.normal_lease_ms / 1000.0
EPOCH = 7


def standing_of(of, held, known=None):
    """In units."""
    mean = 1000.0 * fair_load(of, len(held))
    return LoadStanding(
        [1000 * load for load in of],
        {p: 1000 * load for p, load in (known or {}).items()},
        {node: 1000 * load for node, load in held.items()},
        mean,
        max(LOAD_BAND * mean, 500.0),
    )


class Story:
    """Member a of a group that goes by loads; surveys are answered when the story says so."""

    def __init__(self, partitions=6, node="a", seed=1):
        settings = MemberSettings(node=node, partitions=partitions, times=TIMES, balance="load")
        self.machine = LeaseMember(settings, Random(seed))
        self.now_s = 1000.0
        self.work = {}
        """By partition, what its handler has reported; None: nothing yet."""
        (ask,) = self.machine.handle(ev.Started(), self.now_s)
        self.tell(ev.Answered(ask, Joined(ok=True, other_alive_ms=0.0, era="one")))

    def tell(self, event):
        self.commands = self.machine.handle(event, self.now_s)
        self.machine.check()
        return self.commands

    def survey_ask(self):
        """Wait for the next poll, measure; the ask that follows. Leases are kept."""
        for _ in range(1000):
            self.now_s = max(self.now_s, self.machine.next_deadline())
            leases = [(p, EPOCH, self.now_s + 500.0) for p in self.work]
            given = self.tell(ev.LeasesSeen(leases)) + self.tell(ev.TimerFired())
            if any(isinstance(command, ev.MeasureWork) for command in given):
                work = [(p, EPOCH, total) for p, total in self.work.items()]
                (ask,) = self.tell(ev.WorkMeasured(work))
                return ask
        raise AssertionError("no survey")

    def answer(self, ask, counts, loads, **seen):
        floor = len(loads.of) // len(counts)
        above = sum(count > floor for count in counts.values())
        standing = Standing(counts, dict.fromkeys(counts, 0), above)
        return self.tell(ev.Answered(ask, Survey("one", standing, loads=loads, **seen)))

    def own(self, *partitions, known=None):
        ask = self.survey_ask()
        loads = standing_of([1] * 6, {"a": 0, "b": 0}, known)
        for activate in self.answer(ask, {"a": 0, "b": 0}, loads, mine=list(partitions)):
            self.tell(ev.Answered(activate, Activation(EPOCH, 0.0)))
        self.work |= dict.fromkeys(partitions)
        return self

    def told(self):
        """By partition, in units, at the next survey."""
        return {p: load / 1000 for p, _, load in self.survey_ask().loads}

    def challenged(self):
        found = [c for c in self.commands if isinstance(c, ev.PublishChallenge)]
        return [p for command in found for p in command.partitions]


def test_a_load_is_work_per_normal_lease_time():
    """Half a period at least; smoothed; told anew when it has changed by more than noise does."""
    story = Story().own(0, 1)
    story.work = {0: 0.0, 1: 0.0}
    rates = {0: 30.0, 1: 500.0}

    def told_after():
        """The machine polls when it has said: up to then work is done at these rates."""
        periods = (story.machine._poll_due_s - story.now_s) / PERIOD_S
        story.work = {p: done + rates[p] * periods for p, done in story.work.items()}
        return story.told()

    first = told_after()
    assert first == pytest.approx(rates, rel=0.3)
    steady = [told_after() for _ in range(8)][-1]
    assert steady == [told_after() for _ in range(3)][-1]
    assert steady == pytest.approx(rates, rel=0.26)
    rates[0] = 60.0
    told = [told_after()[0] for _ in range(12)]
    assert told[-1] == pytest.approx(60.0, rel=0.26)
    assert told == sorted(told)
    assert len(set(told)) <= 4


def test_a_handler_that_reports_nothing_counts_for_one():
    """After two periods, in which what was told before stands; a handler that idles does, too."""
    story = Story().own(0)
    assert story.told() == {}
    story.told()
    assert [story.told() for _ in range(3)][-1] == {0: 1.0}
    story.work = {0: 0.0}
    assert [story.told() for _ in range(3)][-1] == {0: 1.0}


def test_who_takes_over_begins_with_what_was_told_before():
    """So that a move changes no load."""
    story = Story().own(0, known={0: 400})
    assert story.told() == {0: 400.0}
    fallen = [story.told()[0] for _ in range(30)]
    assert fallen == sorted(fallen, reverse=True)
    assert fallen[-1] < 3.0


def test_what_is_free_is_shared_out_the_heaviest_first():
    """All members think the same: no partition is challenged twice, and the loads come out even."""
    of = [5, 30, 5, 10, 50, 20]
    parts = {}
    for node in "abc":
        story = Story(node=node)
        held = dict.fromkeys("abc", 0)
        story.answer(story.survey_ask(), held, standing_of(of, held), free=list(range(6)))
        parts[node] = sorted(of[p] for p in story.challenged())
    assert sorted(parts.values()) == [[5, 10, 20], [5, 30], [50]]


def test_idle_partitions_are_shared_out_by_number():
    """Where loads say nothing."""
    story = Story()
    held = {"a": 0, "b": 0}
    story.answer(story.survey_ask(), held, standing_of([0] * 6, held), free=list(range(6)))
    assert len(story.challenged()) == 3


def test_what_evens_out_most_is_challenged():
    """From the most loaded holder; nothing that the store would refuse."""
    of = [40, 9, 8, 1, 6, 0]
    held = [(p, "b", 1e6) for p in range(4)] + [(4, "c", 1e6), (5, "c", 1e6)]
    counts = {"a": 0, "b": 4, "c": 2}
    story = Story()
    loads = standing_of(of, {"a": 0, "b": 58, "c": 6})
    story.answer(story.survey_ask(), counts, loads, held=held)
    assert story.challenged() == [0]
    story = Story()
    loads = standing_of(of, {"a": 5, "b": 53, "c": 6})
    story.answer(story.survey_ask(), counts, loads, held=held[1:])
    assert story.challenged() == [1]
    fresh = [(p, owner, 10.0) for p, owner, _ in held]
    story = Story()
    story.answer(story.survey_ask(), counts, loads, held=fresh)
    assert story.challenged() == []
    story = Story()
    even = standing_of([10] * 6, {"a": 20, "b": 21, "c": 19})
    story.answer(story.survey_ask(), {"a": 2, "b": 2, "c": 2}, even, held=held)
    assert story.challenged() == []


def test_it_races_along_only_where_there_is_room():
    """By the last survey."""
    story = Story()
    held = {"a": 0, "b": 100}
    of = [90, 10, 1, 1, 1, 1]
    story.answer(story.survey_ask(), {"a": 0, "b": 2}, standing_of(of, held))
    for partition, races in ((0, False), (1, True), (6, False)):
        story.tell(ev.Challenged(partition))
        assert (partition in story.machine.claims.claims) is races


@pytest.mark.parametrize(("beyond", "races"), [(0.0, True), (1.0, False)])
def test_what_just_fits_is_raced_for(beyond, races):
    """The store grants it up to there: else a heavy partition would never find anybody."""
    loads = standing_of([8, 4], {"a": 0, "b": 12})
    heaviest = LoadStanding(
        loads.of, loads.known, loads.held, loads.of[0] - 1000.0 - beyond, 1000.0
    )
    story = Story(partitions=2)
    story.answer(story.survey_ask(), {"a": 0, "b": 2}, heaviest)
    story.tell(ev.Challenged(0))
    assert (0 in story.machine.claims.claims) is races


def test_a_balance_is_one_of_two():
    with pytest.raises(InputError, match="balance: expected one of count, load, got 'fair'"):
        MemberSettings(node="a", partitions=1, balance="fair")


def test_a_handler_that_was_told_to_stop_has_not_failed():
    """What watches over its lease told it, because renewals did not come: no backoff."""
    for stopped in (True, False):
        story = Story().own(0)
        (ended,) = [
            c
            for c in story.tell(ev.HandlerEnded(0, EPOCH, None, stopped))
            if isinstance(c, ev.AskRelease)
        ]
        story.work = {}
        story.tell(ev.Answered(ended, True))
        held = {"a": 0, "b": 6}
        story.answer(story.survey_ask(), held, standing_of([1] * 6, held), free=[0])
        assert bool(story.machine.holdings.failures) is not stopped
        assert story.challenged() == [0] or not stopped


def test_what_is_handed_over_makes_room():
    """It is on its way to another, and weighs no more on what this member may take."""
    of, held = [90, 10, 1, 1, 1, 1], {"a": 90, "b": 14}
    for hands_over in (False, True):
        story = Story().own(0, known={0: 90})
        story.answer(story.survey_ask(), {"a": 1, "b": 5}, standing_of(of, held))
        if hands_over:
            story.tell(ev.HandlerHung(0, EPOCH))
        story.tell(ev.Challenged(1))
        assert (1 in story.machine.claims.claims) is hands_over


def test_who_serves_much_waits_as_if_it_served_many():
    """By loads, in usual partitions: the wait of step 2 is not to grow with the unit of loads."""
    for of, weighs in (([100] * 6, 1.0), ([90, 10, 5, 5, 5, 5], 4.5), ([0] * 6, 0.0)):
        story = Story().own(0, known={0: of[0]})
        held = {"a": of[0], "b": sum(of[1:])}
        story.answer(story.survey_ask(), {"a": 1, "b": 5}, standing_of(of, held))
        assert story.machine.claims._shares.weight() == pytest.approx(weighs)


def test_no_rate_is_taken_over_a_moment():
    """Surveys may follow each other closely: a batch that ended between two is no storm."""
    story = Story().own(0)
    story.work = {0: 100.0}
    story.told()
    told = story.told()
    story.now_s += 0.3 * PERIOD_S
    (ask,) = story.tell(ev.WorkMeasured([(0, EPOCH, 200.0)]))
    assert {p: load / 1000 for p, _, load in ask.loads} == told
