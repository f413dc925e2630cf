"""The machine of a link: each forward ends exactly once, as a dumb twin says, whatever happens."""

import math
from random import Random

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spillover.core.overflow import events as ev
from spillover.core.overflow import link
from spillover.policy.backoff import backoff_s

NEIGHBOR = 3
refs = st.integers(1, 6)


class LinkUnderTest(RuleBasedStateMachine):
    """A few forwards, each of them once; what is known of each is kept in plain sets."""

    nodes = 1
    """The neighbor's nodes, which are called in turn."""

    def __init__(self):
        super().__init__()
        self.machine = link.LinkMachine(NEIGHBOR, Random(1), self.nodes)
        self.called, self.at = 0, {}
        """The node that is called, and those for which forwards have left."""
        self.next_ref = 0
        self.away, self.left, self.cancels = [], set(), {}
        self.now_s = 0.0
        self.again = {}
        """When cancels are to be sent again, by ref."""
        self.opens_s = math.inf
        """When a stream is to be opened anew."""
        self.random, self.silences = Random(1), 0
        self.has_heard = False
        self.ends = {}

    def tell(self, event, expected):
        """The commands are these, in this order."""
        assert self.machine.handle(event, self.now_s) == expected

    def end(self, ref, how):
        self.away.remove(ref)
        assert ref not in self.ends
        self.ends[ref] = how

    @rule(has_left=st.booleans())
    def hand_over(self, has_left):
        self.next_ref += 1
        self.machine.hand_over(self.next_ref, has_left=has_left)
        self.away.append(self.next_ref)
        if has_left:
            self.left.add(self.next_ref)
            self.at[self.next_ref] = self.called

    @rule(ref=refs)
    def leave(self, ref):
        """Also again, perhaps for another node: a connection that was to open takes nothing."""
        self.machine.left(ref)
        if ref in self.away:
            self.left.add(ref)
            self.at[ref] = self.called

    @rule(ref=refs)
    def answer(self, ref):
        """Also twice, or after it was recalled: that is no news."""
        assert self.machine.answered(ref) == (ref in self.away)
        if ref in self.away:
            self.end(ref, link.ANSWERED)

    @rule(ref=refs, how=st.sampled_from([link.REFUSED, link.LOST]))
    def come_back(self, ref, how):
        """As for answers."""
        event, heard = {
            link.REFUSED: (link.Refused(ref), ev.ForwardRefused(ref)),
            link.LOST: (link.Broken(ref), ev.ForwardLost(ref)),
        }[how]
        if ref in self.away:
            self.tell(event, [link.Ended(ref, how, heard)])
            self.end(ref, how)
        else:
            self.tell(event, [])

    @rule(ref=refs)
    def recall(self, ref):
        if ref in self.away:
            self.tell(link.Recalled(ref), [link.LetGo(ref), link.Ended(ref, link.RECALLED)])
            self.end(ref, link.RECALLED)
        else:
            self.tell(link.Recalled(ref), [])

    @rule(ref=refs)
    def ask_cancel(self, ref):
        """Once for each: what has not left comes back as refused, and never leaves."""
        if ref not in self.away or self.cancels.get(ref):
            self.tell(link.CancelAsked(ref), [])
        elif ref in self.left:
            self.tell(link.CancelAsked(ref), [link.SendCancel(ref)])
            self.cancels[ref] = 1
        else:
            refused = link.Ended(ref, link.RECALLED, ev.ForwardRefused(ref))
            self.tell(link.CancelAsked(ref), [link.LetGo(ref), refused])
            self.end(ref, link.RECALLED)

    @rule(ref=refs)
    def an_attempt_fails(self, ref):
        """Five are made in all, with pauses of 0.1, 0.2, 0.4 and 0.8 s between them."""
        attempts = self.cancels.get(ref, 0)
        if not attempts or ref in self.again:
            return
        self.tell(link.CancelFailed(ref), [])
        if ref in self.away and attempts < 5:
            self.again[ref] = self.now_s + 0.1 * [1, 2, 4, 8][attempts - 1]

    @rule(passed_s=st.floats(0.0, 1.0))
    def time_passes(self, passed_s):
        """Up to the next deadline at most, as shells have it."""
        due_s = min(self.opens_s, *self.again.values(), math.inf)
        assert self.machine.next_deadline() == due_s
        self.now_s = min(self.now_s + passed_s, due_s)
        due = [ref for ref, again_s in self.again.items() if again_s == self.now_s]
        expected = [link.SendCancel(ref) for ref in due if ref in self.away]
        for ref in due:
            del self.again[ref]
            self.cancels[ref] += 1
        if self.opens_s == self.now_s:
            self.opens_s = math.inf
            expected.append(link.OpenStream())
        commands = self.machine.handle(ev.TimerFired(), self.now_s)
        assert sorted(commands, key=repr) == sorted(expected, key=repr)

    @rule(speaks=st.booleans())
    def a_stream_begins(self, speaks):
        self.tell(link.StreamBegun(), [])
        if speaks:
            self.tell(link.StreamHeard(), [])
        self.has_heard = speaks

    @precondition(lambda self: self.opens_s == math.inf)
    @rule(is_there=st.booleans())
    def a_stream_ends(self, is_there):
        """One that spoke only makes the neighbor unknown; after one that did not, the next node is
        called, and unless the last one is there, what it holds is lost and what has not left is
        refused."""
        commands = self.machine.handle(link.StreamEnded(is_there), self.now_s)
        silences = 0 if self.has_heard else self.silences
        self.opens_s = self.now_s + backoff_s(silences, 0.05, 1.0, self.random.random())
        self.silences = silences + 1
        if self.has_heard:
            assert commands == [link.Tell(ev.LinkDown(NEIGHBOR))]
            return
        if self.nodes > 1:
            assert commands.pop(0) == link.CallNext()
        held = self.at.get
        there = [one for one in self.away if held(one, self.called) == self.called]
        self.give_up(commands, [] if is_there else there)
        self.called = (self.called + 1) % self.nodes

    @rule(nodes=st.integers(1, 4))
    def nodes_come_and_go(self, nodes):
        """The one that is called stays so; what is at others is given up by no silence."""
        self.machine.use_nodes(nodes)
        self.at = {ref: 0 if at == self.called else -1 for ref, at in self.at.items()}
        self.called, self.nodes = 0, nodes

    @rule()
    def the_neighbor_is_none_any_more(self):
        """As after a stream that did not speak, but nobody asks for another one."""
        self.again, self.opens_s = {}, math.inf
        self.give_up(self.machine.handle(link.Disconnected(), self.now_s), list(self.away))

    def give_up(self, commands, refs):
        """They are let go of, then they end in the order in which they were handed over."""
        expected = [link.LetGo(ref) for ref in refs]
        for ref in refs:
            how = link.LOST if ref in self.left else link.REFUSED
            event = (ev.ForwardLost if ref in self.left else ev.ForwardRefused)(ref)
            expected.append(link.Ended(ref, how, event))
            self.end(ref, how)
        assert commands == expected

    @invariant()
    def it_knows_what_is_away(self):
        self.machine.check()
        assert len(self.machine) == len(self.away)
        for ref in range(1, self.next_ref + 1):
            assert self.machine.awaits(ref) == (ref in self.away)


TestLink = LinkUnderTest.TestCase


class LinkToSeveralNodes(LinkUnderTest):
    """The same to a neighbor of two nodes."""

    nodes = 2


TestLinkToSeveralNodes = LinkToSeveralNodes.TestCase


def test_a_slow_link_may_be_silent_for_longer():
    """By the way there and back."""
    assert link.LinkMachine.silence_s(0.0) == 2.5
    assert link.LinkMachine.silence_s(0.4) == 3.3
