"""Members under the blog's rule: who does not stop is waited for, and an absent Redis is told."""

from random import Random

from spillover.core.leases import events as ev
from spillover.core.leases.settings import MemberSettings
from spillover.live.leases.blog import BlogMachine
from spillover.model.lease_times import LeaseTimes

TIMES = LeaseTimes(
    normal_lease_ms=200,
    max_lease_ms=2000,
    max_shutdown_ms=1000,
    min_grab_ms=50,
    held_delay_ms=10,
)


def test_a_handler_that_does_not_stop_keeps_its_member_for_one_shutdown_time():
    """It cannot be stopped; whoever drains a member need not wait for it any longer."""
    settings = MemberSettings(node="a", partitions=1, times=TIMES)
    machine, now_s, commands = BlogMachine(settings, Random(1)), 0.0, []
    answers = {ev.AskMarked: False, ev.AskMark: "a"}

    def tell(event):
        commands.extend(machine.handle(event, now_s))

    def go_on():
        """Answer what was asked, hear what was published, or wait for what is due."""
        nonlocal now_s
        asks = [one for one in commands if isinstance(one, ev.Ask)]
        challenges = [one for one in commands if isinstance(one, ev.PublishChallenge)]
        commands.clear()
        for ask in asks:
            tell(ev.Answered(ask, answers.get(type(ask))))
        for _ in challenges:
            tell(ev.Challenged(0))
        if not (asks or challenges):
            now_s = machine.next_deadline()
            tell(ev.TimerFired())

    tell(ev.Started())
    while not machine.held():
        go_on()
    commands.clear()
    drained_s = now_s
    tell(ev.Drain())
    while ev.Finished() not in commands:
        go_on()
    assert now_s == drained_s + TIMES.max_shutdown_ms / 1000.0


def test_that_redis_is_away_and_that_it_is_back_is_told_once():
    machine = BlogMachine(MemberSettings(node="a", partitions=1, times=TIMES), Random(1))
    asked = []

    def told(event, now_s=0.0):
        commands = machine.handle(event, now_s)
        asked.extend(one for one in commands if isinstance(one, ev.Ask))
        lines = [one.event for one in commands if isinstance(one, ev.Tell)]
        return [line for line in lines if line in {ev.REDIS_DOWN, ev.REDIS_UP}]

    def fails():
        """The last question and the next one, to which there is no answer."""
        once = told(ev.AskFailed(asked[-1], "no way"))
        told(ev.TimerFired(), machine.next_deadline())
        again = told(ev.AskFailed(asked[-1], "still none"))
        told(ev.TimerFired(), machine.next_deadline())
        return once, again, machine.problem

    assert told(ev.Started()) == []
    assert fails() == ([ev.REDIS_DOWN], [], "still none")
    assert told(ev.Answered(asked[-1], None)) == [ev.REDIS_UP]
    assert machine.problem is None
    told(ev.TimerFired(), machine.next_deadline())
    assert told(ev.Answered(asked[-1], None)) == []
    told(ev.TimerFired(), machine.next_deadline())
    assert fails() == ([ev.REDIS_DOWN], [], "still none")
