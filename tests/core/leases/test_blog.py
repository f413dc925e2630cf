"""The machine of the blog's rule, step by step as the document has them."""

from random import Random

import pytest

from spillover.core.leases import events as ev
from spillover.core.leases.blog import BlogMember
from spillover.core.leases.settings import MemberSettings
from spillover.model.errors import InputError
from spillover.model.lease_times import LeaseTimes

TIMES = LeaseTimes()


class Story:
    """Member a of a group of one partition."""

    def __init__(self):
        self.machine = BlogMember(MemberSettings(node="a", partitions=1, times=TIMES), Random(1))
        self.now_s = 0.0
        self.commands = []
        self.tell(ev.Started())

    def tell(self, event, after_s=0.0):
        self.now_s += after_s
        self.commands = self.machine.handle(event, self.now_s)
        self.machine.check()
        return self.commands

    def wake(self):
        return self.tell(ev.TimerFired(), self.machine.next_deadline() - self.now_s)

    def answer(self, kind, answer):
        (ask,) = [command for command in self.commands if isinstance(command, kind)]
        return self.tell(ev.Answered(ask, answer))

    def kinds(self):
        return [type(command) for command in self.commands]

    def win(self):
        """Steps 1 to 5, with nobody else there."""
        self.wake()
        self.answer(ev.AskMarked, False)
        assert ev.PublishChallenge in self.kinds()
        self.tell(ev.Challenged(0))
        self.wake()
        self.answer(ev.AskMark, "a")
        self.answer(ev.AskOwner, None)
        self.answer(ev.AskAllocate, None)
        assert ev.RunHandler in self.kinds()


def test_steps_one_to_six():
    """Challenge, wait, mark, look, allocate; the mark goes after the minimum grab time."""
    story = Story()
    story.win()
    began_s = story.now_s
    (clear,) = story.wake()
    assert (clear.allocation, clear.grab) == (False, True)
    assert story.now_s == began_s + TIMES.min_grab_ms / 1000.0


def test_a_holder_that_comes_second_stops_clears_and_says_so():
    """Step 3b: whoever was faster has it."""
    story = Story()
    story.win()
    story.tell(ev.Challenged(0), 30.0)
    assert story.machine.next_deadline() == story.now_s + 0.5 * TIMES.held_delay_ms / 1000.0
    story.wake()
    story.answer(ev.AskMark, "b")
    assert ev.StopHandler in story.kinds()
    story.tell(ev.HandlerEnded(0, 0), 1.0)
    (clear,) = [command for command in story.commands if isinstance(command, ev.AskClear)]
    assert (clear.allocation, clear.grab) == (True, False)
    assert [type(command) for command in story.tell(ev.Answered(clear))] == [ev.PublishAllocated]


def test_a_winner_starts_anyway_after_the_shutdown_time():
    """Step 4, though the other may still be at work."""
    story = Story()
    story.tell(ev.Challenged(0))
    story.wake()
    story.answer(ev.AskMark, "a")
    story.answer(ev.AskOwner, "b")
    began_s = story.now_s
    while ev.AskAllocate not in story.kinds():
        story.wake()
    assert story.now_s == began_s + TIMES.max_shutdown_ms / 1000.0


def test_a_partition_not_heard_of_for_a_lease_time_is_cleared_first():
    """Step 1, whoever stands there."""
    story = Story()
    story.wake()
    (ask,) = story.commands
    story.now_s += TIMES.max_lease_ms / 1000.0 + 1.0
    clears = [c for c in story.tell(ev.Answered(ask, True)) if isinstance(c, ev.AskClear)]
    assert [(clear.allocation, clear.grab) for clear in clears] == [(True, True)]
    assert ev.PublishChallenge in [type(command) for command in story.tell(ev.Answered(clears[0]))]


def test_a_drain_stops_all_and_ends():
    """And nothing is commanded after that."""
    story = Story()
    story.win()
    story.tell(ev.Drain())
    assert ev.StopHandler in story.kinds()
    story.tell(ev.HandlerEnded(0, 0))
    assert story.kinds()[-1] is ev.Finished
    assert story.tell(ev.Challenged(0)) == []


@pytest.mark.parametrize("told", [{"node": "a|b"}, {"partitions": 0}])
def test_settings_that_make_no_sense_are_refused(told):
    """One line."""
    with pytest.raises(InputError):
        MemberSettings(**{"node": "a", "partitions": 1, **told})
