"""Stories of clusters that join with a ramp: they are given little at first."""

import pytest

from spillover.core.overflow import events as ev
from spillover.model.load import LoadNow
from spillover.model.request import Answer, Outcome
from spillover.policy.overflow.ramp import RAMP_S, ramp_limit

D = 0
MANY = 1000
MANY_S = 100.0


class Ramp:
    """Cluster a, whose server never comes free, and d, which joins with ten servers at 5.0 s and is
    first heard at 9.0 s."""

    def __init__(self, story, *, ramp=True, **settings):
        self.node = story(neighbors=(), **settings)
        self.node.arrive(1, deadline_s=MANY_S)
        self.node.arrive(2, deadline_s=MANY_S)
        self.node.tell(ev.Join("d", 0.0, ramp=ramp), 5.0)
        self.ref, self.sequence = 2, 0
        self.hear(9.0)

    def hear(self, now_s):
        self.sequence += 1
        report = self.node.report(self.sequence, servers=10)
        return self.node.tell(ev.ReportReceived(D, report), now_s)

    def give(self, count):
        """How many of these are handed on to d."""
        given = 0
        for _ in range(count):
            self.ref += 1
            commands = self.node.arrive(self.ref, away=True, deadline_s=MANY_S)
            given += any(isinstance(one, ev.Forward) for one in commands)
        return given


@pytest.mark.parametrize("age_s", [0.0, 0.9, 1.0, 1.9, 2.0, 7.5, 9.9])
def test_what_it_is_given_at_a_time_grows(story, age_s):
    """From one to its servers, counted from when it was first heard."""
    ramp = Ramp(story)
    ramp.hear(9.0 + age_s)
    assert ramp.give(20) == max(1, int(10 * age_s / RAMP_S)) == ramp_limit(10, age_s)


def test_there_is_no_limit_after_the_ramp_nor_without_one(story):
    """It is a neighbor like any other, and nothing is watched of it."""
    ramp = Ramp(story)
    ramp.give(5)
    ramp.hear(9.0 + RAMP_S)
    assert ramp.give(20) == 20
    assert ramp.node.machine.neighbors.by_handle[D].ramp_since_s is None
    assert Ramp(story, ramp=False).give(20) == 20


@pytest.mark.parametrize("how", ["answered", "refused", "lost", "recalled"])
def test_what_has_ended_makes_room(story, how):
    """However it has ended: one more is given, not two."""
    ramp = Ramp(story)
    assert ramp.give(3) == 1
    event = {
        "answered": ev.ForwardAnswered(3, Answer(Outcome.DONE, ("a", "d")), 0.0, 0.0),
        "refused": ev.ForwardRefused(3, LoadNow(1, 9, 0, 0.0, True)),
        "lost": ev.ForwardLost(3),
        "recalled": ev.Cancelled(3),
    }[how]
    ramp.node.tell(event)
    assert ramp.give(3) == 1


def test_what_waits_leaves_at_the_pace_of_the_ramp(story):
    """At a drain: one at a time at first, and more with each sign of life."""
    ramp = Ramp(story)
    for ref in range(3, 9):
        ramp.node.arrive(ref, deadline_s=MANY_S)

    def forwarded(commands):
        return sum(isinstance(one, ev.Forward) for one in commands)

    ramp.node.draws.coming.extend([0.99] * 50)
    assert forwarded(ramp.node.tell(ev.Drain())) == 1
    assert forwarded(ramp.hear(9.5)) == 0
    assert forwarded(ramp.hear(9.0 + 4.0)) == 3


def test_one_that_asks_for_work_gets_no_more_than_its_ramp_allows(story):
    """It is told that there is none."""
    ramp = Ramp(story, policy="adaptive")
    for ref in range(3, 40):
        ramp.node.arrive(ref, deadline_s=MANY_S)
    away = ramp.node.machine.register.away
    asked = [ramp.node.tell(ev.WorkAsked(D, LoadNow(1, MANY + n, -9, 0.0, True))) for n in range(3)]
    given = [type(commands[0]) for commands in asked]
    assert given == [ev.Forward, ev.NoWork, ev.NoWork][away:] + [ev.NoWork] * away
