"""A lease member's machine as in a story: events in, time passes, the store answers when told to.

No rule of the member lives here; what a story shows is for the tests to say.
"""

from random import Random

from spillover.core.leases import events as ev
from spillover.core.leases.machine import LeaseMember
from spillover.core.leases.records import Activation, Joined, Renewed, Standing, Survey
from spillover.core.leases.settings import MemberSettings
from spillover.model.lease_times import LeaseTimes

TIMES = LeaseTimes()
PERIOD_S = TIMES.normal_lease_ms / 1000.0
LEASE_S = TIMES.max_lease_ms / 1000.0
SHUTDOWN_S = TIMES.max_shutdown_ms / 1000.0
ENTITLED_S = LEASE_S * 0.9


class Story:
    """Member a of a group of six partitions; its store answers when the story says so."""

    def __init__(self, partitions=6, seed=1):
        settings = MemberSettings(node="a", partitions=partitions, times=TIMES)
        self.machine = LeaseMember(settings, Random(seed))
        self.now_s = 1000.0
        self.commands = []

    def tell(self, event, after_s=0.0):
        """Hand an event in so much later; the commands."""
        self.now_s += after_s
        self.commands = self.machine.handle(event, self.now_s)
        self.machine.check()
        return self.commands

    def wait(self, seconds):
        """Let time pass, waking the machine when it wants; all commands of that time."""
        end_s, given = self.now_s + seconds, []
        while self.machine.next_deadline() <= end_s:
            self.now_s = max(self.now_s, self.machine.next_deadline())
            given += self.tell(ev.TimerFired())
        self.now_s = end_s
        self.commands = given
        return given

    def answer(self, kind, answer=None):
        """Answer the last ask of that kind."""
        return self.tell(ev.Answered(self.last(kind), answer))

    def last(self, kind):
        found = [command for command in self.commands if isinstance(command, kind)]
        assert found, (kind, self.commands)
        return found[-1]

    def given(self, kind):
        return [command for command in self.commands if isinstance(command, kind)]

    def told(self):
        return [command.event for command in self.commands if isinstance(command, ev.Tell)]

    def join(self):
        self.tell(ev.Started())
        self.answer(ev.AskJoin, Joined(ok=True, other_alive_ms=0.0, era="one"))
        assert self.given(ev.BeginRenewals)
        return self

    def survey(self, counts, **seen):
        """Wait for the next survey and answer it."""
        self.wait(1.2 * PERIOD_S)
        return self.answer(ev.AskSurvey, self.seen(counts, **seen))

    def seen(self, counts, free=(), mine=(), held=(), lately=None, own=()):
        floor = self.machine.settings.partitions // len(counts)
        above = sum(count > floor for count in counts.values())
        standing = Standing(dict(counts), {**dict.fromkeys(counts, 0), **(lately or {})}, above)
        return Survey("one", standing, free=list(free), mine=list(mine), held=list(held), own=own)

    def own(self, *partitions, epoch=7):
        """Serve these."""
        self.survey({"a": 0, "b": 0}, mine=partitions)
        asks = self.given(ev.AskActivate)
        started = []
        for ask in asks:
            started += self.tell(ev.Answered(ask, Activation(epoch, 0.0)))
        self.commands = started
        return self

    def renew(self, pairs, flags, after_s=0.0, sent_before_s=0.0):
        self.now_s += after_s
        answers = [(p, f != "0", f == "2") for (p, _), f in zip(pairs, flags, strict=True)]
        sent_s = self.now_s - sent_before_s
        return self.tell(ev.RenewalAnswered(sent_s, pairs, Renewed("one", answers)))
