"""The machine of a lease member against an independent model, under any order of events.

The model knows only what went in and what came out: which handlers run, until when they may act by
the renewals that came back, and what was asked. Answers come in any order, twice, late or never,
and say whatever a store could say.
"""

import math
import re
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from spillover.core.leases import events as ev
from spillover.core.leases.machine import LeaseMember
from spillover.core.leases.records import Activation, Joined, Renewed, Standing, Survey
from spillover.core.leases.settings import MemberSettings
from spillover.model.lease_times import LeaseTimes
from support.few import examples

TIMES = LeaseTimes()
LEASE_S = TIMES.max_lease_ms / 1000.0
SHUTDOWN_S = TIMES.max_shutdown_ms / 1000.0
PARTITIONS = 4
SOME = st.lists(st.integers(0, PARTITIONS - 1), unique=True, max_size=PARTITIONS)
ENDS = {ev.RELEASED, ev.FENCED, ev.LOST}


def snake(command):
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(command).__name__).lower()


class Handler:
    """What the model knows of one handler that has been started and has not ended."""

    def __init__(self, command, lease_s):
        self.epoch = command.epoch
        self.lease_s = lease_s
        self.stop_by_s = math.inf
        self.fenced = False

    @property
    def fence_s(self):
        return min(self.lease_s, self.stop_by_s)


class MemberUnderTest(RuleBasedStateMachine):
    """Feeds events; believes no one."""

    @initialize(seed=st.integers(0, 5), served=st.sampled_from([None, [], [1], [0, 1, 2, 3]]))
    def build(self, seed, served):
        """New, or a member that serves some partitions already."""
        settings = MemberSettings(node="a", partitions=PARTITIONS, times=TIMES)
        self.machine = LeaseMember(settings, Random(seed))
        self.now_s = 0.0
        self.asks = []
        self.handlers = {}
        self.renewing = {}
        self.begun = False
        self.epochs = {}
        self.granted = {}
        """(partition, epoch) to when the ask was commanded, of activations that were answered."""
        self.story = {}
        self.publishable = 0
        self.drained = False
        self.finished = False
        self.clock = 1
        (join,) = self.feed(ev.Started())
        if served is None:
            return
        self.tell_answer(join, Joined(ok=True, other_alive_ms=0.0, era="one"))
        self.now_s = self.machine.next_deadline()
        (survey,) = self.feed(ev.TimerFired())
        standing = Standing({"a": 0, "b": 0}, {"a": 0, "b": 0}, 0)
        for ask in self.tell_answer(survey, Survey("one", standing, mine=served)):
            self.clock += 1
            self.granted[ask.partition, self.clock] = ask.sent_s
            self.tell_answer(ask, Activation(self.clock, 0.0))

    def tell_answer(self, ask, answer):
        self.asks.remove(ask)
        return self.feed(ev.Answered(ask, answer))

    # --- rules --------------------------------------------------------------------------------

    @rule(
        seconds=st.sampled_from([0.0, 0.05, 1.0, 9.0, 30.0, 60.0, 170.0, 400.0]),
        awake=st.booleans(),
    )
    def time_passes(self, seconds, *, awake):
        """Awake, it is woken whenever it asked for it; else it sleeps through."""
        end_s = self.now_s + seconds
        while awake and self.machine.next_deadline() <= end_s:
            self.now_s = max(self.now_s, self.machine.next_deadline())
            self.feed(ev.TimerFired())
            assert self.machine.next_deadline() > self.now_s
        self.now_s = end_s
        self.feed(ev.TimerFired())

    @precondition(lambda self: self.asks)
    @rule(data=st.data(), again=st.booleans(), yes=st.booleans())
    def the_store_answers(self, data, *, again, yes):
        ask = data.draw(st.sampled_from(self.asks))
        if not again:
            self.asks.remove(ask)
        answer = getattr(self, f"answer_{snake(ask)}", lambda *_: yes)(ask, data, yes)
        if isinstance(ask, ev.AskActivate) and answer.epoch is not None:
            self.granted.setdefault((ask.partition, answer.epoch), ask.sent_s)
        if isinstance(ask, ev.AskRelease) and yes:
            self.publishable += 1
        self.feed(ev.Answered(ask, answer))

    @precondition(lambda self: self.begun)
    @rule(seconds=st.sampled_from([9.0, 170.0, 400.0]), seen=st.booleans())
    def it_is_too_busy_and_its_renewals_are_not(self, seconds, *, seen):
        """They come from another process, and are handed in first, or what they have written."""
        self.now_s += seconds
        if seen:
            leases = [(p, one.epoch, self.now_s + 100.0) for p, one in self.handlers.items()]
            for handler in self.handlers.values():
                handler.lease_s = max(handler.lease_s, self.now_s + 100.0)
            self.feed(ev.LeasesSeen(leases))
        else:
            self.renew(self.now_s - 1.0, {}, "one", displaced=False)

    @precondition(lambda self: self.begun)
    @rule(seconds=st.sampled_from([20.0, 59.0]))
    def a_while_goes_well(self, seconds):
        """Renewed, and each poll answered by nothing new."""
        for ask in [ask for ask in self.asks if isinstance(ask, ev.AskSurvey)]:
            standing = Standing({"a": 2, "b": 2}, {"a": 0, "b": 0}, 0)
            self.tell_answer(ask, Survey("one", standing))
        self.time_passes(seconds, awake=True)
        self.renew(self.now_s, {}, "one", displaced=False)

    @precondition(lambda self: self.asks)
    @rule(data=st.data())
    def the_store_does_not_answer(self, data):
        ask = data.draw(st.sampled_from(self.asks))
        self.asks.remove(ask)
        self.feed(ev.AskFailed(ask, "no answer"))

    @precondition(lambda self: self.begun)
    @rule(
        data=st.data(),
        age_s=st.sampled_from([0.0, 1.0, 70.0, 200.0]),
        era=st.sampled_from(["one", "one", "two"]),
        displaced=st.sampled_from([False, False, False, False, True]),
    )
    def a_renewal_comes_back(self, data, age_s, era, *, displaced):
        """It may have been sent long ago, with what was held then."""
        sent_s = max(0.0, self.now_s - age_s)
        flags = {p: data.draw(st.sampled_from(["kept", "wanted", "lost"])) for p in self.renewing}
        self.renew(sent_s, flags, era, displaced=displaced)

    def renew(self, sent_s, flags, era, *, displaced):
        """Flags by partition; kept unless said otherwise."""
        pairs = sorted(self.renewing.items())
        answers = [
            (
                partition,
                not displaced and flags.get(partition) != "lost",
                flags.get(partition) == "wanted",
            )
            for partition, _ in pairs
        ]
        for (partition, epoch), (_, kept, _) in zip(pairs, answers, strict=True):
            handler = self.handlers[partition]
            if kept and handler.epoch == epoch and not handler.fenced:
                handler.lease_s = max(handler.lease_s, sent_s + 0.9 * LEASE_S)
        self.feed(ev.RenewalAnswered(sent_s, pairs, Renewed(era, answers, displaced)))

    @rule(
        partition=st.integers(-1, PARTITIONS),
        kind=st.sampled_from([ev.Challenged, ev.Allocated]),
    )
    def a_hint_comes(self, partition, kind):
        self.feed(kind(partition))

    @rule(event=st.sampled_from([ev.Resubscribed(), ev.RenewalsEnded()]))
    def something_else_comes(self, event):
        self.feed(event)

    @rule(ago_s=st.sampled_from([0.0, 5.0]))
    def a_renewal_fails(self, ago_s):
        self.feed(ev.RenewalFailed("gone", self.now_s - ago_s))

    @precondition(lambda self: self.handlers)
    @rule(data=st.data(), problem=st.sampled_from([None, "ValueError"]))
    def a_handler_ends(self, data, problem):
        """Told to or by itself."""
        partition = data.draw(st.sampled_from(sorted(self.handlers)))
        self.feed(ev.HandlerEnded(partition, self.end(partition), problem))

    @precondition(lambda self: self.handlers)
    @rule(data=st.data())
    def a_handler_hangs(self, data):
        partition = data.draw(st.sampled_from(sorted(self.handlers)))
        self.feed(ev.HandlerHung(partition, self.handlers[partition].epoch))

    @rule(when=st.integers(0, 9))
    def a_drain(self, when):
        """Rarely."""
        if when == 0:
            self.drained = True
            self.feed(ev.Drain())

    # --- what the store could say ---------------------------------------------------------------

    def answer_ask_join(self, ask, data, yes):
        del ask
        alive_ms = data.draw(st.sampled_from([0.0, 5_000.0, 180_000.0]))
        return Joined(yes, 0.0 if yes else alive_ms, "one")

    def answer_ask_activate(self, ask, data, yes):
        if not yes:
            free_in_ms = data.draw(st.sampled_from([0.0, 3_000.0, 100_000.0]))
            return Activation(None, free_in_ms)
        earlier = [
            e
            for (p, e), sent_s in self.granted.items()
            if (p, sent_s) == (ask.partition, ask.sent_s)
        ]
        if earlier:
            return Activation(earlier[0], 0.0)
        self.clock += 1
        return Activation(self.clock, 0.0)

    def answer_ask_survey(self, ask, data, yes):
        del ask
        others = {"a": data.draw(st.integers(0, 2)), "b": data.draw(st.integers(0, 4))}
        members = others if yes else {"b": others["b"]}
        floor = PARTITIONS // len(members)
        above = sum(count > floor for count in members.values())
        standing = Standing(members, dict.fromkeys(members, 0), above)
        free, mine, held = data.draw(SOME), data.draw(SOME), data.draw(SOME)
        own = [(p, self.clock) for p in data.draw(SOME)] if data.draw(st.booleans()) else []
        elsewhere = [(p, "b", 1e6) for p in held if p not in {*free, *mine}]
        return Survey("one", standing, free=free, mine=mine, own=own, held=elsewhere)

    # --- the model ------------------------------------------------------------------------------

    def end(self, partition):
        handler = self.handlers.pop(partition)
        return handler.epoch

    def feed(self, event):
        commands = self.machine.handle(event, self.now_s)
        assert not (self.finished and commands), "commands after the end"
        for command in commands:
            if isinstance(command, ev.Ask):
                assert command.sent_s <= self.now_s
                self.asks.append(command)
            getattr(self, f"on_{snake(command)}", lambda _: None)(command)
        self.machine.check()
        for partition, handler in self.handlers.items():
            if not handler.fenced and not self.finished:
                assert self.now_s < handler.fence_s, "works beyond its lease"
                assert self.renewing.get(partition) == handler.epoch
        assert self.machine.next_deadline() > self.now_s
        return commands

    def on_begin_renewals(self, _):
        self.begun = True

    def on_end_renewals(self, _):
        self.begun = False

    def on_start_renewing(self, command):
        assert self.begun
        assert command.partition not in self.renewing
        self.renewing[command.partition] = command.epoch

    def on_stop_renewing(self, command):
        assert self.renewing.pop(command.partition) == command.epoch

    def on_run_handler(self, command):
        partition, epoch = command.partition, command.epoch
        assert partition not in self.handlers, "two handlers of one partition"
        assert epoch > self.epochs.get(partition, 0), "epochs must grow"
        assert not self.drained
        lease_s = self.granted[partition, epoch] + 0.9 * LEASE_S
        assert command.fence_s == lease_s > self.now_s
        self.epochs[partition] = epoch
        self.handlers[partition] = Handler(command, lease_s)

    def on_stop_handler(self, command):
        handler = self.handlers[command.partition]
        assert handler.epoch == command.epoch
        assert not handler.fenced
        assert handler.stop_by_s == math.inf, "told to stop twice"
        handler.stop_by_s = command.by_s
        assert command.by_s <= min(handler.lease_s, self.now_s + SHUTDOWN_S)
        # It may be renewed while it stops, up to the limit.
        handler.stop_by_s = self.now_s + 0.9 * SHUTDOWN_S

    def on_fence_handler(self, command):
        handler = self.handlers.get(command.partition)
        if handler is not None and handler.epoch == command.epoch:
            assert not handler.fenced
            handler.fenced = True

    def on_leases_extended(self, command):
        for partition, epoch, fence_s in command.leases:
            handler = self.handlers[partition]
            assert handler.epoch == epoch
            assert fence_s == handler.fence_s

    def on_ask_grab(self, command):
        assert not self.drained
        assert command.partition not in self.handlers
        assert command.free_for_ms >= 0.0

    def on_ask_release(self, command):
        partition, epoch = command.partition, command.epoch
        assert partition not in self.handlers or self.handlers[partition].epoch != epoch

    def on_publish_allocated(self, _):
        self.publishable -= 1
        assert self.publishable >= 0, "nothing was released"

    def on_tell(self, command):
        """Each tenure: acquired, perhaps releasing, and one end."""
        if command.epoch is None:
            return
        told = self.story.setdefault((command.partition, command.epoch), [])
        told.append(command.event)
        assert told[0] == ev.ACQUIRED
        assert told.count(ev.RELEASING) <= 1
        assert sum(event in ENDS for event in told) == (told[-1] in ENDS)
        assert len(told) <= 3

    def on_finished(self, command):
        self.finished = True
        assert (command.problem is None) == self.drained

    def teardown(self):
        """Drained, it ends in time, whatever its handlers and the store do."""
        if hasattr(self, "machine") and not self.finished:
            self.drained = True
            end_s = self.now_s + 2.2 * SHUTDOWN_S
            self.feed(ev.Drain())
            while not self.finished and self.machine.next_deadline() <= end_s:
                self.now_s = self.machine.next_deadline()
                self.feed(ev.TimerFired())
            assert self.finished


TestMemberUnderTest = MemberUnderTest.TestCase
TestMemberUnderTest.settings = settings(max_examples=examples(120))
