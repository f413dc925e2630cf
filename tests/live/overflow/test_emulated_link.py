"""What leaves over one direction of a link: in order, late, lost, cut off, healed and withdrawn."""

import asyncio
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from spillover.live.engine.timers import Timers
from spillover.live.overflow.emulated_link import (
    WITHDRAWN_KEPT_MAX,
    EmulatedLink,
    Faults,
)

FAR_S = 1e9
"""Where driven clocks begin: beyond the real one, so that the loop itself rings nothing."""


class Driven:
    """An emulated link with real timers on a clock that is moved by hand, and what came of each
    message by its number. Whole seconds, so that sums are exact.
    """

    def __init__(self, delay_s=0.0, draws=None):
        self.loop = asyncio.new_event_loop()
        self.timers = Timers(self.loop)
        self.now_s = FAR_S
        self.emulated_link = EmulatedLink(
            self.timers, draws or Random(1), delay_s, given_up_after_s=5.0, clock=lambda: self.now_s
        )
        self.parcels = []
        self.ended = []

    def send(self, *, waits=True):
        number = len(self.parcels)
        self.parcels.append(None)
        self.parcels[number] = self.emulated_link.send(
            lambda: self.ended.append((number, "delivered")),
            lambda: self.ended.append((number, "lost")),
            waits=waits,
        )
        return self.parcels[number]

    def advance(self, seconds=0):
        for _ in range(seconds):
            self.now_s += 1.0
            self.timers.run_due(self.now_s)
        self.timers.run_due(self.now_s)

    def take(self):
        """What has ended since this was last asked."""
        ended, self.ended = self.ended, []
        return ended

    def close(self):
        self.timers.close()
        self.loop.close()


@pytest.fixture
def driven():
    made = Driven()
    yield made
    made.close()


@pytest.mark.parametrize("cut", [False, True])
def test_withdrawn_messages_take_no_memory(driven, cut):
    """Many that never leave are swept out, in line or held back."""
    driven.emulated_link.set_faults(delay_s=3.0, cut=cut)
    kept = driven.send()
    for _ in range(5 * WITHDRAWN_KEPT_MAX):
        parcel = driven.send()
        assert parcel.withdraw()
        assert not parcel.withdraw()
    assert len(driven.emulated_link) <= 2 * WITHDRAWN_KEPT_MAX + 2
    driven.advance(3)
    assert kept.waiting == cut
    driven.emulated_link.set_faults(cut=False, delay_s=0.0)
    driven.advance()
    assert driven.take() == [(0, "delivered")]
    assert len(driven.emulated_link) == 0
    assert not driven.send().waiting


def test_messages_may_be_sent_and_faults_set_from_within(driven):
    """What a message does when it arrives is its own business, cutting the link included."""
    emulated_link, arrived = driven.emulated_link, []
    emulated_link.set_faults(delay_s=1.0)

    def arrive():
        emulated_link.set_faults(cut=True, delay_s=0.0)
        driven.send()
        arrived.append(True)

    emulated_link.send(arrive, arrived.clear)
    driven.send()
    driven.advance(3)
    assert arrived
    assert driven.take() == []
    emulated_link.set_faults(cut=False)
    driven.advance()
    assert driven.take() == [(0, "delivered"), (1, "delivered")]


def test_one_that_raises_stops_no_other(driven):
    """Its error goes where those of timers go, and the rest leave."""
    told = []
    driven.loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
    driven.emulated_link.set_faults(delay_s=1.0)
    driven.emulated_link.send(lambda: 1 / 0, lambda: None)
    driven.send()
    driven.advance(1)
    assert driven.take() == [(0, "delivered")]
    assert [type(error) for error in told] == [ZeroDivisionError]


@pytest.mark.parametrize(
    "faults",
    [{"delay_s": -1.0}, {"delay_s": float("inf")}, {"delay_s": float("nan")}]
    + [{"loss": loss} for loss in (-0.1, 1.1, float("nan"))],
)
def test_faults_that_are_none_are_refused(driven, faults):
    """And change nothing."""
    with pytest.raises(ValueError, match="expected a"):
        driven.emulated_link.set_faults(cut=True, **faults)
    assert driven.emulated_link.faults == Faults(0.0, 0.0, cut=False)


class Twin(RuleBasedStateMachine):
    """The link beside a twin that looks at every message, each second anew. Losses are all or
    nothing here, so that both know them."""

    def __init__(self):
        super().__init__()
        self.driven = Driven()
        self.twin = []  # [due_s, waits, end] by number; end is None while it waits
        self.expected = []
        self.delay_s, self.loss, self.cut = 0, 0, False

    def look(self):
        now_s = self.driven.now_s
        for number, message in enumerate(self.twin):
            due_s, waits, end = message
            if end is not None or due_s > now_s:
                continue
            if self.cut and waits and now_s < due_s + 5:
                continue
            lost = self.cut or self.loss
            message[2] = "lost" if lost else "delivered"
            if lost and not waits:
                message[2] = "dropped"
            else:
                self.expected.append((number, message[2]))

    @rule(waits=st.booleans())
    def send(self, waits):
        unended = [due_s for due_s, _, end in self.twin if end in (None, "withdrawn")]
        due_s = max([self.driven.now_s + self.delay_s, *unended])
        self.twin.append([due_s, waits, None])
        self.driven.send(waits=waits)
        self.settle()

    @rule(data=st.data())
    def withdraw(self, data):
        if not self.twin:
            return
        number = data.draw(st.integers(max(0, len(self.twin) - 8), len(self.twin) - 1))
        waited = self.twin[number][2] is None
        assert self.driven.parcels[number].withdraw() == waited
        if waited:
            self.twin[number][2] = "withdrawn"

    @rule(delay_s=st.integers(0, 4))
    def slow(self, delay_s):
        self.delay_s = delay_s
        self.driven.emulated_link.set_faults(delay_s=float(delay_s))
        self.settle()

    @rule(loss=st.integers(0, 1))
    def lose(self, loss):
        self.loss = loss
        self.driven.emulated_link.set_faults(loss=float(loss))
        self.settle()

    @rule(cut=st.booleans())
    def cut_or_heal(self, cut):
        self.cut = cut
        self.driven.emulated_link.set_faults(cut=cut)
        self.settle()

    @rule(seconds=st.integers(1, 8))
    def advance(self, seconds):
        for _ in range(seconds):
            self.driven.advance(1)
            self.look()

    def settle(self):
        self.driven.advance()
        self.look()

    @invariant()
    def the_same_has_ended(self):
        assert self.driven.ended == self.expected
        for parcel, (_, _, end) in zip(self.driven.parcels, self.twin, strict=True):
            assert parcel.waiting == (end is None)

    def teardown(self):
        """Without faults, all that waits leaves, each message once."""
        self.cut_or_heal(cut=False)
        self.lose(0)
        self.advance(10)
        assert all(end is not None for _, _, end in self.twin)
        numbers = [number for number, _ in self.driven.ended]
        assert len(numbers) == len(set(numbers))
        delivered = [number for number, end in self.driven.ended if end == "delivered"]
        assert delivered == sorted(delivered)
        self.driven.close()


TestTwin = Twin.TestCase
TestTwin.settings = settings(stateful_step_count=30)
