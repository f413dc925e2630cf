"""The machine of a lease member, story by story: events in, commands out, checked each time."""

from random import Random

import pytest

from spillover.core.leases import events as ev
from spillover.core.leases.machine import LeaseMember, Phase
from spillover.core.leases.records import Activation, Joined, Renewed, Standing, Survey
from spillover.core.leases.settings import MemberSettings
from support.member_story import ENTITLED_S, LEASE_S, PERIOD_S, SHUTDOWN_S, TIMES, Story


def test_joins_claims_its_share_and_runs_it():
    """Survey, challenge, wait, grab, activate, run; and no more than falls to this member."""
    story = Story().join()
    story.survey({"a": 0, "b": 0}, free=range(6))
    (challenge,) = story.given(ev.PublishChallenge)
    challenged = challenge.partitions
    assert len(challenged) == 3
    assert story.told() == ["challenged"] * 3
    story.wait(0.1)
    grabs = story.given(ev.AskGrab)
    assert [ask.partition for ask in grabs] == challenged
    story.tell(ev.Answered(grabs[0], True))
    assert story.told() == ["grabbed"]
    story.answer(ev.AskActivate, Activation(9, 0.0))
    run = story.last(ev.RunHandler)
    assert (run.partition, run.epoch) == (challenged[0], 9)
    assert run.fence_s == story.now_s + ENTITLED_S
    assert story.last(ev.StartRenewing).epoch == 9
    assert story.told() == ["acquired"]


def test_two_members_that_see_the_same_challenge_different_partitions():
    """What is free is shared out in thought, so that no two run for the same."""
    parts = {}
    for name in ("a", "b", "c"):
        machine = LeaseMember(MemberSettings(node=name, partitions=7, times=TIMES), Random(1))
        joined = machine.handle(ev.Started(), 0.0)[0]
        machine.handle(ev.Answered(joined, Joined(ok=True, other_alive_ms=0.0, era="")), 0.0)
        (ask,) = machine.handle(ev.TimerFired(), 10.0)
        standing = Standing({"a": 1, "b": 0, "c": 0}, {"a": 0, "b": 0, "c": 0}, 0)
        commands = machine.handle(ev.Answered(ask, Survey("", standing, [1, 2, 3, 4, 5, 6])), 10.0)
        (challenge,) = [c for c in commands if isinstance(c, ev.PublishChallenge)]
        parts[name] = set(challenge.partitions)
    assert {name: len(part) for name, part in parts.items()} == {"a": 2, "b": 2, "c": 2}
    assert parts["a"] | parts["b"] | parts["c"] == {1, 2, 3, 4, 5, 6}


def test_what_nobody_takes_for_long_is_challenged_by_others_too():
    """It fell to somebody who is slow, or away: the store hears for how long it has been free."""
    story = Story().join()
    counts = {"a": 1, "b": 0}
    story.survey(counts, free=[0, 1, 2, 3, 4])
    (first,) = story.given(ev.PublishChallenge)
    first_s, mine = story.now_s, set(first.partitions)
    assert len(mine) == 2
    story.wait(0.1)
    for ask in story.given(ev.AskGrab):
        assert ask.free_for_ms < 0.1e3
        story.tell(ev.Answered(ask, False))
    rest = [partition for partition in range(5) if partition not in mine]
    story.survey({"a": 3, "b": 0}, free=rest)
    (later,) = story.given(ev.PublishChallenge)
    assert len(later.partitions) == 2, "half of them, for two members"
    assert set(later.partitions) <= set(rest)
    story.wait(0.1)
    for ask in story.given(ev.AskGrab):
        assert ask.free_for_ms >= PERIOD_S * 1e3
        assert ask.free_for_ms == pytest.approx((story.now_s - 0.1 - first_s) * 1e3, abs=0.1e3)


def test_a_challenge_that_cannot_succeed_is_left_to_others():
    """At its own share a member neither challenges nor races."""
    story = Story().join().own(0, 1, 2)
    held = [(p, "b", 1e6) for p in (3, 4, 5)]
    story.survey({"a": 3, "b": 3}, held=held)
    assert story.commands == []
    story.tell(ev.Challenged(4))
    assert story.wait(1.0) == []


def test_from_the_largest_holder_within_the_budget():
    """A newcomer of three members with twelve partitions takes one in a period."""
    story = Story(partitions=12).join()
    held = [(p, "b" if p < 7 else "c", 1e6) for p in range(12)]
    story.survey({"a": 0, "b": 7, "c": 5}, held=held)
    (challenge,) = story.given(ev.PublishChallenge)
    (challenged,) = challenge.partitions
    assert challenged < 7
    story.survey({"a": 0, "b": 7, "c": 5}, held=held, lately={"a": 1})
    assert not story.given(ev.PublishChallenge)
    fresh = [(p, owner, 10.0) for p, owner, _ in held]
    story.survey({"a": 0, "b": 7, "c": 5}, held=fresh)
    assert not story.given(ev.PublishChallenge)


def test_a_holder_that_lost_stops_keeps_its_lease_and_releases():
    """Asked after its wait, told to stop; the message follows the release."""
    story = Story().join().own(2)
    story.tell(ev.Challenged(2))
    story.wait(1.0)
    story.answer(ev.AskWanted, True)
    assert story.told() == ["releasing"]
    assert story.last(ev.AskDrain).partition == 2
    stop = story.last(ev.StopHandler)
    assert stop.by_s < story.now_s + SHUTDOWN_S
    assert not story.given(ev.StopRenewing)
    story.renew([(2, 7)], "2", after_s=1.0)
    assert not story.given(ev.StopHandler)
    story.tell(ev.HandlerEnded(2, 7), after_s=1.0)
    assert story.told() == ["released"]
    assert story.given(ev.StopRenewing)
    story.answer(ev.AskRelease, True)
    assert story.given(ev.PublishAllocated)


def test_what_its_renewals_kept_while_it_was_busy_it_keeps():
    """Three lease times: they come from another process, and what they bring, or have written, is
    handed in before anything else."""
    for seen in (False, True):
        story = Story().join().own(2, 3)
        story.now_s += 3.0 * LEASE_S
        if seen:
            lasts_s = story.now_s + 0.6 * LEASE_S
            story.tell(ev.LeasesSeen([(2, 7, lasts_s), (3, 7, lasts_s)]))
        else:
            story.renew([(2, 7), (3, 7)], "11", sent_before_s=1.0)
        story.wait(0.5 * LEASE_S)
        assert not story.given(ev.FenceHandler)
        story.wait(0.5 * LEASE_S)
        assert sorted(one.partition for one in story.given(ev.FenceHandler)) == [2, 3]


def test_a_lease_that_the_store_knows_no_more_is_lost_at_once():
    """And the answer of an earlier renewal changes nothing."""
    story = Story().join().own(2)
    story.renew([(2, 7)], "0", after_s=1.0)
    assert story.told() == ["lost"]
    assert story.given(ev.FenceHandler)
    assert story.renew([(2, 7)], "1", sent_before_s=0.5) == []


def test_what_was_granted_in_an_answer_that_got_lost_is_given_back():
    """A survey tells of it; what a process of the same id had before is not touched."""
    story = Story().join()
    story.survey({"a": 0, "b": 0}, mine=[4])
    story.answer(ev.AskActivate, Activation(None, 0.0))
    story.survey({"a": 2, "b": 0}, own=[(4, 9), (5, 8)])
    (release,) = story.given(ev.AskRelease)
    assert (release.partition, release.epoch) == (4, 9)
    story.survey({"a": 1, "b": 0}, own=[(5, 8)])
    assert not story.given(ev.AskRelease)


def test_a_winner_waits_for_the_message_a_poll_or_the_shutdown_limit():
    """Whichever comes first asks again."""
    story = Story().join()
    story.survey({"a": 0, "b": 6}, mine=[1])
    story.answer(ev.AskActivate, Activation(None, 5_000.0))
    story.wait(4.9)
    assert not story.given(ev.AskActivate)
    story.wait(0.2)
    story.answer(ev.AskActivate, Activation(None, 100_000.0))
    story.tell(ev.Allocated(1), after_s=1.0)
    story.answer(ev.AskActivate, Activation(None, 100_000.0))
    story.wait(SHUTDOWN_S + 0.1)
    story.answer(ev.AskActivate, Activation(None, 0.0))
    story.tell(ev.Allocated(1))
    assert not story.given(ev.AskActivate)


def test_what_is_only_challenged_is_not_activated():
    """The message that it is free is for whoever has won it; and who leaves meanwhile stops
    racing, so that no mark keeps others away."""
    for leaves in (False, True):
        story = Story().join()
        story.survey({"a": 0, "b": 0}, free=[1])
        assert story.last(ev.PublishChallenge).partitions == [1]
        story.tell(ev.Allocated(1))
        assert not story.given(ev.AskActivate)
        if leaves:
            story.tell(ev.Drain())
        story.wait(0.2)
        assert bool(story.given(ev.AskGrab)) is not leaves


def test_what_was_won_and_never_comes_is_given_up_with_its_mark():
    """Where the store answers nothing it is not asked for on and on: others may have it by now."""
    story = Story().join()
    story.survey({"a": 0, "b": 0}, free=[1])
    story.wait(0.2)
    story.answer(ev.AskGrab, True)
    asked = len(story.given(ev.AskActivate))
    asked += sum(isinstance(one, ev.AskActivate) for one in story.wait(TIMES.grab_limit_ms / 1e3))
    assert asked > 1
    assert not [one for one in story.wait(3 * SHUTDOWN_S) if isinstance(one, ev.AskActivate)]


def test_a_store_that_is_away_for_less_than_the_lease_changes_nothing():
    """Told once that it is down and once that it is back; then it looks."""
    story = Story().join().own(2)
    story.renew([(2, 7)], "1", after_s=10.0)
    told = []
    for _ in range(2):
        story.tell(ev.RenewalFailed("connection refused", story.now_s + 39.0), after_s=40.0)
        told += story.told()
    assert story.machine.is_down
    assert story.machine.problem == "connection refused"
    story.renew([(2, 7)], "1", after_s=20.0)
    told += story.told()
    assert told == ["redis_down", "redis_up", "renewed_late"]
    story.tell(ev.RenewalFailed("old news", story.now_s - 1.0))
    assert not story.machine.is_down
    story.wait(SHUTDOWN_S)
    assert story.given(ev.AskSurvey)
    assert not story.given(ev.FenceHandler)


def test_longer_than_the_lease_fences_everything():
    """Once each; and after the store is back, what is free is claimed anew."""
    story = Story().join().own(2, 3)
    story.tell(ev.RenewalFailed("gone", story.now_s))
    story.wait(LEASE_S)
    assert sorted(c.partition for c in story.given(ev.FenceHandler)) == [2, 3]
    story.tell(ev.HandlerEnded(2, 7))
    story.survey({"a": 2, "b": 3}, own=[(2, 7), (3, 7)])
    (release,) = story.given(ev.AskRelease)
    assert release.partition == 2
    story.tell(ev.HandlerEnded(3, 7))
    story.survey({"a": 0, "b": 3}, free=[2, 3])
    assert sorted(story.last(ev.PublishChallenge).partitions) == [2, 3]


def test_a_handler_that_fails_gives_its_partition_up_and_is_not_tried_at_once():
    """Away for longer each time, within bounds; meanwhile another may have it."""
    story = Story(partitions=1).join()
    away_s = []
    for epoch in range(7, 17):
        if epoch == 7:
            story.own(0, epoch=epoch)
        story.tell(ev.HandlerEnded(0, epoch, "ValueError"), after_s=1.0)
        assert story.told() == ["released"]
        story.answer(ev.AskRelease, True)
        failed_s = story.now_s
        while not story.given(ev.PublishChallenge):
            story.survey({"a": 0}, free=[0])
        away_s.append(story.now_s - failed_s)
        story.wait(1.0)
        story.answer(ev.AskGrab, True)
        story.answer(ev.AskActivate, Activation(epoch + 1, 0.0))
    assert away_s[0] < 1.3 * PERIOD_S
    assert 0.5 * LEASE_S < away_s[-1] < LEASE_S + 1.3 * PERIOD_S


def test_a_hung_handler_loses_its_partition():
    """Given up while the lease lasts, fenced at the limit, and not served again before it ended."""
    story = Story().join().own(2)
    story.tell(ev.HandlerHung(2, 7))
    assert story.told() == ["releasing"]
    assert story.given(ev.AskDrain)
    story.wait(SHUTDOWN_S)
    assert "fenced" in story.told()
    story.survey({"a": 0, "b": 6}, mine=[2])
    assert not story.given(ev.AskActivate)
    story.tell(ev.HandlerEnded(2, 7))
    assert story.given(ev.AskActivate)


def test_a_member_whose_id_is_taken_waits_visibly_and_gives_up():
    """One maximum lease, asking again meanwhile."""
    story = Story()
    story.tell(ev.Started())
    began_s = story.now_s
    while not story.given(ev.Finished):
        ask = story.last(ev.AskJoin)
        story.tell(ev.Answered(ask, Joined(ok=False, other_alive_ms=150_000.0, era="one")))
        if not story.given(ev.Finished):
            assert story.machine.state is Phase.WAITING
            while not story.given(ev.AskJoin):
                story.wait(story.machine.next_deadline() - story.now_s)
    assert "id a is alive" in story.last(ev.Finished).problem
    assert story.now_s - began_s == pytest.approx(LEASE_S)
    assert story.tell(ev.Challenged(0)) == []


def test_a_namesake_that_is_about_to_count_as_dead_is_waited_for_a_little_longer():
    """Clocks run unlike: a fast one must not give up before the store has made up its mind."""
    story = Story()
    story.tell(ev.Started())
    began_s = story.now_s
    while story.machine.state is not Phase.MEMBER:
        waited_s = story.now_s - began_s
        alive_s = 1.05 * LEASE_S - waited_s
        ok = alive_s <= 0.0
        story.answer(ev.AskJoin, Joined(ok, max(0.0, alive_s) * 1000.0, "one"))
        while not ok and not story.given(ev.AskJoin):
            story.wait(story.machine.next_deadline() - story.now_s)
    assert story.now_s - began_s < 1.06 * LEASE_S


def test_a_namesake_is_asked_for_when_it_can_have_gone():
    """Not each millisecond until then: all that wait ask the same store."""
    story = Story()
    story.tell(ev.Started())
    story.answer(ev.AskJoin, Joined(ok=False, other_alive_ms=9_000.0, era="one"))
    story.wait(8.9)
    assert not story.given(ev.AskJoin)


def test_a_namesake_that_is_gone_at_any_moment_is_asked_for_in_moments():
    """Not over and over at the same one."""
    story = Story()
    story.tell(ev.Started())
    story.answer(ev.AskJoin, Joined(ok=False, other_alive_ms=0.0, era="one"))
    assert story.given(ev.AskJoin) == []
    assert story.machine.next_deadline() >= story.now_s + TIMES.held_delay_ms / 1000.0


def test_a_store_that_refused_a_join_is_asked_again_soon():
    """It may just have been started: nobody waits a whole period for its partitions then."""
    story = Story()
    story.tell(ev.Started())
    story.tell(ev.AskFailed(story.last(ev.AskJoin), "refused"))
    story.wait(TIMES.min_grab_ms / 1000.0)
    assert len(story.given(ev.AskJoin)) == 1


def test_it_races_for_no_more_than_its_share():
    """Also where others challenge everything at once, before any of its own races is decided."""
    story = Story().join()
    story.survey({"a": 0, "b": 3})
    for partition in range(6):
        story.tell(ev.Challenged(partition))
    story.wait(1.0)
    assert len(story.given(ev.AskGrab)) == 3


def test_an_old_answer_says_nothing_of_who_is_in_the_way_now():
    """It asked again, since none came: what is known by then is in the answer to that."""
    story = Story()
    story.tell(ev.Started())
    old = story.last(ev.AskJoin)
    story.wait(PERIOD_S)
    assert story.last(ev.AskJoin).number > old.number
    told = story.tell(ev.Answered(old, Joined(ok=False, other_alive_ms=9_000.0, era="one")))
    assert told == []
    assert story.machine.state is Phase.JOINING


def test_one_that_was_displaced_while_it_slept_stops_everything_and_waits():
    """Another process of its id came in."""
    story = Story().join().own(2)
    story.tell(ev.RenewalAnswered(story.now_s, [(2, 7)], Renewed("one", [(2, False, False)], True)))
    assert story.told() == ["lost"]
    assert story.given(ev.EndRenewals)
    assert story.given(ev.AskJoin)
    assert story.machine.state is Phase.JOINING


def test_a_release_that_is_not_answered_is_repeated_until_it_does_not_matter():
    """The lease would be over by itself then."""
    story = Story().join().own(2)
    story.tell(ev.HandlerEnded(2, 7))
    asked = len(story.given(ev.AskRelease))
    story.wait(LEASE_S * 2)
    asked += len(story.given(ev.AskRelease))
    assert 10 <= asked <= 1 + LEASE_S / SHUTDOWN_S
    assert not story.machine.holdings.releasing


def test_hints_lead_to_surveys_but_not_to_one_each():
    """A hundred messages about others' partitions, four surveys at most in the shutdown time."""
    story = Story().join()
    story.survey({"a": 0, "b": 6})
    surveys = 0
    for _ in range(100):
        story.tell(ev.Allocated(3))
        story.wait(SHUTDOWN_S / 100)
        surveys += len(story.given(ev.AskSurvey))
    assert 3 <= surveys <= 5


def test_another_era_makes_it_look_and_lose_nothing_that_was_written_anew():
    """The renewal itself has registered what is held."""
    story = Story().join().own(2)
    story.tell(ev.RenewalAnswered(story.now_s, [(2, 7)], Renewed("two", [(2, True, False)])))
    assert story.machine.era == "two"
    story.wait(SHUTDOWN_S)
    assert story.given(ev.AskSurvey)
    assert 2 in story.machine.holdings.held
