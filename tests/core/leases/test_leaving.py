"""How a lease member leaves: in which order, in how little time, and what it takes along."""

from spillover.core.leases import events as ev
from spillover.core.leases.machine import LEAVE_SHARE, Phase
from spillover.core.leases.records import Activation
from support.member_story import SHUTDOWN_S, Story


def test_a_drain_leaves_first_then_hands_over_then_ends():
    """So that others count without it when they hear what has come free."""
    story = Story().join().own(2, 3)
    story.tell(ev.Drain())
    assert story.given(ev.EndRenewals)
    assert not story.given(ev.StopHandler)
    story.tell(ev.RenewalsEnded())
    story.answer(ev.AskLeave)
    assert len(story.given(ev.StopHandler)) == 2
    for partition in (2, 3):
        story.tell(ev.HandlerEnded(partition, 7), after_s=0.5)
        story.answer(ev.AskRelease, True)
        assert story.given(ev.PublishAllocated)
    assert story.last(ev.Finished).problem is None
    assert story.machine.state is Phase.FINISHED


def test_a_drain_takes_and_gives_back_what_it_has_won():
    """So that the mark of the win keeps nobody away."""
    story = Story().join()
    story.survey({"a": 0, "b": 6}, mine=[1])
    ask = story.last(ev.AskActivate)
    story.tell(ev.Drain())
    story.tell(ev.RenewalsEnded())
    story.answer(ev.AskLeave)
    story.tell(ev.Answered(ask, Activation(9, 0.0)))
    assert not story.given(ev.RunHandler)
    story.answer(ev.AskRelease, True)
    assert story.given(ev.PublishAllocated)
    assert story.given(ev.Finished)


def test_a_drain_waits_little_for_its_renewals_and_for_the_store():
    """Neither tells: handlers have nearly all of the shutdown time left."""
    story = Story().join().own(2, 3)
    story.tell(ev.Drain())
    told = story.wait(LEAVE_SHARE * SHUTDOWN_S)
    assert [type(one) for one in told if isinstance(one, ev.AskLeave)] == [ev.AskLeave]
    assert not story.given(ev.StopHandler)
    story.wait(LEAVE_SHARE * SHUTDOWN_S)
    assert len(story.given(ev.StopHandler)) == 2


def test_a_drain_waits_for_what_it_has_won_no_longer_than_for_a_handler():
    """Its holder may keep it for longer; whoever stops the member does not wait for that."""
    story = Story().join()
    story.survey({"a": 0, "b": 6}, mine=[1])
    story.tell(ev.Drain())
    story.tell(ev.RenewalsEnded())
    story.answer(ev.AskLeave)
    assert not story.given(ev.Finished)
    story.wait(SHUTDOWN_S)
    assert story.given(ev.Finished)


def test_a_drain_does_not_wait_for_a_race():
    """Its grab is under way: the store may take long to say who has won, and a win counts for
    nothing once the member has left."""
    story = Story().join()
    story.survey({"a": 0, "b": 0}, free=[1])
    story.wait(0.1)
    (grab,) = story.given(ev.AskGrab)
    story.tell(ev.Drain())
    story.tell(ev.RenewalsEnded())
    leave = story.last(ev.AskLeave)
    assert story.tell(ev.Answered(grab, True)) == []
    story.tell(ev.Answered(leave, None))
    assert story.given(ev.Finished)


def test_a_store_that_is_away_is_told_as_away_while_a_member_leaves():
    """Also where only its renewals have noticed so far; and as back once it answers."""
    story = Story().join().own(2)
    story.tell(ev.RenewalFailed("nobody there", story.now_s))
    assert story.told() == ["redis_down"]
    story.tell(ev.Drain())
    assert story.machine.problem == "nobody there"
    story.tell(ev.RenewalsEnded())
    story.answer(ev.AskLeave)
    assert "redis_up" in story.told()
    assert not story.machine.is_down


def test_a_member_leaves_once():
    """Its renewals have ended, and the time that they had is over too."""
    story = Story().join().own(2)
    story.tell(ev.Drain())
    asked = [one for one in story.tell(ev.RenewalsEnded()) if isinstance(one, ev.AskLeave)]
    story.wait(SHUTDOWN_S)
    assert len(asked + story.given(ev.AskLeave)) == 1
