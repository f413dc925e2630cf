"""What a member may rely on: old news of a lease never shorten it, new news of another holder end
it."""

from random import Random

import pytest

from spillover.core.leases import events as ev
from spillover.core.leases.agenda import MemberAgenda
from spillover.core.leases.holdings import Holdings
from spillover.core.leases.records import Renewed
from spillover.core.leases.settings import MemberSettings

EPOCH = 7
NOW_S = 1000.0


@pytest.fixture
def agenda():
    return MemberAgenda(MemberSettings(node="a", partitions=6), Random(1))


@pytest.fixture
def holdings(agenda):
    """Of a member that has served partition 2 since NOW_S."""
    made = Holdings(agenda)
    made.start(2, EPOCH, NOW_S, NOW_S)
    agenda.take_commands()
    return made


def renew(holdings, sent_s, now_s, *, wanted=False):
    answer = Renewed("one", [(2, True, wanted)])
    holdings.renewed([(2, EPOCH)], answer, sent_s, now_s)


def test_a_renewal_that_was_overtaken_leaves_the_lease_alone(holdings, agenda):
    """Its answer comes after that of a later one: the handler must not be fenced too soon."""
    renew(holdings, NOW_S + 20.0, NOW_S + 21.0)
    until_s = holdings.held[2].lease_s
    assert until_s == agenda.lease_to_s(NOW_S + 20.0)
    agenda.take_commands()
    renew(holdings, NOW_S + 10.0, NOW_S + 22.0)
    assert holdings.held[2].lease_s == until_s
    assert agenda.take_commands() == []
    assert holdings.renewed_s == NOW_S + 20.0


def test_what_was_seen_before_a_renewal_leaves_the_lease_alone(holdings):
    """It is read from memory that another process writes, and may be old."""
    until_s = holdings.held[2].lease_s
    holdings.seen([(2, EPOCH, until_s - 5.0)])
    assert holdings.held[2].lease_s == until_s
    holdings.seen([(2, EPOCH - 1, until_s + 5.0), (3, EPOCH, until_s + 5.0)])
    assert holdings.held[2].lease_s == until_s
    holdings.seen([(2, EPOCH, until_s + 5.0)])
    assert holdings.held[2].lease_s == until_s + 5.0


def test_a_higher_epoch_ends_the_handler_of_the_one_before(holdings, agenda):
    """The store takes the held one for over: two handlers would run on one partition."""
    holdings.start(2, EPOCH + 1, NOW_S + 1.0, NOW_S + 1.0)
    commands = agenda.take_commands()
    assert ev.FenceHandler(2, EPOCH) in commands
    assert ev.StopRenewing(2, EPOCH) in commands
    assert not [one for one in commands if isinstance(one, ev.RunHandler)]
    (release,) = [one for one in commands if isinstance(one, ev.AskRelease)]
    assert (release.partition, release.epoch) == (2, EPOCH + 1)
    assert holdings.ending == {2: EPOCH}
    assert not holdings.held


def test_news_of_an_epoch_that_is_served_change_nothing(holdings, agenda):
    for epoch in (EPOCH, EPOCH - 1):
        holdings.start(2, epoch, NOW_S + 1.0, NOW_S + 1.0)
        holdings.give_back(2, epoch, NOW_S + 1.0, NOW_S + 1.0)
    assert agenda.take_commands() == []
    assert holdings.held[2].epoch == EPOCH


def test_a_handler_that_stops_acts_no_longer_for_being_asked_twice(holdings, agenda):
    renew(holdings, NOW_S + 1.0, NOW_S + 1.0, wanted=True)
    stop_by_s = holdings.held[2].stop_by_s
    assert stop_by_s == NOW_S + 1.0 + agenda.max_shutdown_s * agenda.entitled_share
    agenda.take_commands()
    renew(holdings, NOW_S + 5.0, NOW_S + 5.0, wanted=True)
    assert holdings.held[2].stop_by_s == stop_by_s
    assert not [one for one in agenda.take_commands() if isinstance(one, ev.StopHandler)]
    assert holdings.kept == 0


def test_what_still_ends_here_is_not_begun_anew(holdings, agenda):
    """Two handlers of one partition must not run beside each other: the new epoch goes back."""
    holdings.fence(holdings.held[2], ev.LOST)
    agenda.take_commands()
    holdings.start(2, EPOCH + 1, NOW_S + 1.0, NOW_S + 1.0)
    (release,) = agenda.take_commands()
    assert isinstance(release, ev.AskRelease)
    assert (release.partition, release.epoch) == (2, EPOCH + 1)
    assert holdings.held == {}
    assert holdings.ending == {2: EPOCH}


def test_what_was_granted_too_long_ago_is_not_begun(holdings, agenda):
    """The answer took as long as the lease lasts."""
    until_s = agenda.lease_to_s(NOW_S)
    holdings.start(3, EPOCH, NOW_S, until_s)
    (release,) = agenda.take_commands()
    assert isinstance(release, ev.AskRelease)
    assert 3 not in holdings.held


def end(holdings, now_s, *, told=False):
    """The handler of partition 2 ends; by itself unless it was told to."""
    holdings.ended(2, holdings.epochs[2], now_s, told=told)


def test_a_release_under_way_is_not_begun_again_by_each_survey(holdings, agenda):
    """The store may show it as held until then: each such release would go on repeating itself."""
    end(holdings, NOW_S + 1.0, told=True)
    agenda.take_commands()
    for step in range(5):
        holdings.release_again(2, EPOCH, NOW_S + 2.0 + step / 10)
    assert agenda.take_commands() == []
    agenda.run_due(NOW_S + 1.0 + agenda.max_shutdown_s)
    (again,) = agenda.take_commands()
    assert isinstance(again, ev.AskRelease)
    holdings.released(again, True)
    agenda.take_commands()
    holdings.release_again(2, EPOCH, NOW_S + 60.0)
    (once_more,) = agenda.take_commands()
    assert isinstance(once_more, ev.AskRelease)


def test_a_release_matters_as_long_as_the_store_counts_the_lease(holdings, agenda):
    """That is longer than a holder may rely on it."""
    end(holdings, NOW_S + 1.0, told=True)
    assert holdings.releasing == {(2, EPOCH): pytest.approx(NOW_S + agenda.max_lease_s)}


def test_who_has_worked_for_a_lease_begins_anew_with_its_failures(holdings, agenda):
    """What fails at once is left alone for longer each time; what failed last week is not."""

    def away_s(began_s, ended_s):
        holdings.start(2, holdings.epochs[2] + 1, began_s, began_s)
        holdings.seen([(2, holdings.epochs[2], ended_s + 1.0)])
        end(holdings, ended_s)
        return holdings.failures[2].until_s - ended_s

    end(holdings, NOW_S + 1.0)
    at_once_s = [away_s(NOW_S + 1e5 * n, NOW_S + 1e5 * n + 1.0) for n in range(1, 9)]
    assert max(at_once_s) > 4.0 * agenda.min_grab_s
    a_while_s = NOW_S + 9e5
    assert away_s(a_while_s, a_while_s + agenda.max_lease_s - 1.0) > 4.0 * agenda.min_grab_s
    later_s = NOW_S + 1e6
    assert away_s(later_s, later_s + agenda.max_lease_s) <= agenda.min_grab_s


def test_a_holder_that_was_not_wanted_looks_again_when_challenged_again(holdings, agenda):
    """Once for all challenges of a race; the next one may be for real."""
    for race in range(2):
        now_s = NOW_S + 1.0 + race
        for _ in range(3):
            holdings.challenged(holdings.held[2], now_s)
        agenda.run_due(now_s + 0.9)
        (ask,) = agenda.take_commands()
        assert isinstance(ask, ev.AskWanted)
        holdings.looked(ask, False, now_s + 0.95)
    assert not holdings.held[2].stopping


def test_a_holder_whose_look_is_under_way_does_not_look_again(holdings, agenda):
    """Its answer is for all challenges until then: members that race ask the store enough."""
    one = holdings.held[2]
    for after_s in (0.0, 1.0, 2.0):
        holdings.challenged(one, NOW_S + after_s)
        agenda.run_due(NOW_S + after_s + 0.9)
    assert len([one for one in agenda.take_commands() if isinstance(one, ev.AskWanted)]) == 1


@pytest.mark.parametrize("released", [True, False, None])
def test_others_hear_of_what_the_store_has_released(holdings, agenda, released):
    """Not of what has another holder already."""
    end(holdings, NOW_S + 1.0, told=True)
    (ask,) = [one for one in agenda.take_commands() if isinstance(one, ev.AskRelease)]
    holdings.released(ask, released)
    assert agenda.take_commands() == ([ev.PublishAllocated(2)] if released else [])
    holdings.released(ask, released)  # the answer has come twice
    assert agenda.take_commands() == []
