"""The channels of simulated links: against the live emulated link step by step, and what only they
do.
"""

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillover.live.engine.timers import Timers
from spillover.live.overflow.emulated_link import EmulatedLink
from spillover.model.faults import LinkFault
from spillover.sim.engine.world import World
from spillover.sim.overflow.network import Channel

FAR_S = 2.0**30
"""Where the link's clock begins: beyond the real one, so that the loop itself rings nothing."""


def fault(action="link", **values):
    return LinkFault(at_s=0.0, action=action, directions=(("a", "b"),), **values)


class Sent:
    """A channel, and what came of each message by its number, with the instant."""

    def __init__(self, delay_s=0.0, seed=1):
        self.world = World()
        self.channel = Channel(self.world, seed, "link/a/b", delay_s)
        self.ended = []
        self.parcels = []

    def note(self, number, how):
        self.ended.append((number, how, self.world.now_s))

    def send(self, *, may_be_lost=True):
        number = len(self.parcels)
        parcel = self.channel.send(
            lambda: self.note(number, "delivered"),
            lambda: self.note(number, "lost"),
            may_be_lost=may_be_lost,
        )
        self.parcels.append(parcel)

    def report(self):
        number = len(self.parcels)
        self.parcels.append(None)
        self.channel.send_report(lambda: self.note(number, "delivered"))

    def until(self, time_s):
        reached = []
        self.world.at(time_s, reached.append, True)
        self.world.run(lambda: reached)

    def run(self):
        self.world.run(lambda: False)
        return self.ended


STEPS = st.lists(
    st.one_of(
        st.just(("send",)),
        st.just(("report",)),
        st.tuples(st.just("withdraw"), st.integers(0, 20)),
        st.tuples(st.just("advance"), st.integers(1, 4)),
        st.tuples(st.just("link"), st.integers(0, 3), st.sampled_from([0.0, 1.0])),
        st.just(("cut",)),
        st.just(("heal",)),
    ),
    max_size=40,
)


@given(st.integers(0, 2), STEPS)
def test_a_channel_does_what_the_live_emulated_link_does(delay_s, steps):
    """The same messages are delivered, lost and dropped, in the same order and second."""
    sent = Sent(float(delay_s))
    loop = asyncio.new_event_loop()
    timers, now_s, ended, parcels = Timers(loop), FAR_S, [], []
    live = EmulatedLink(timers, Random(1), float(delay_s), clock=lambda: now_s)

    def note(number, how):
        ended.append((number, how, now_s - FAR_S))

    try:
        for step, *values in [*steps, ("heal",), ("advance", 8)]:
            if step in {"send", "report"}:
                number = len(parcels)
                deliver = lambda number=number: note(number, "delivered")  # noqa: E731
                lose = lambda number=number: note(number, "lost")  # noqa: E731
                parcels.append(live.send(deliver, lose, waits=step == "send"))
                sent.send() if step == "send" else sent.report()
            elif step == "withdraw" and values[0] < len(parcels):
                if sent.parcels[values[0]] is not None:  # reports are not withdrawn
                    parcels[values[0]].withdraw()
                    sent.parcels[values[0]].withdraw()
            elif step == "link":
                live.set_faults(delay_s=float(values[0]), loss=values[1])
                sent.channel.change(fault(delay_ms=values[0] * 1e3, loss=values[1]))
            elif step == "cut":
                live.set_faults(cut=True)
                sent.channel.change(fault("cut"))
            elif step == "heal":
                live.set_faults(delay_s=float(delay_s), loss=0.0, cut=False)
                sent.channel.change(fault("heal"))
            for _ in range(values[0] if step == "advance" else 0):
                now_s += 1.0
                timers.run_due(now_s)
            timers.run_due(now_s)
            sent.until(now_s - FAR_S)
            assert sent.ended == ended
    finally:
        timers.close()
        loop.close()


def test_jitter_delays_and_never_reorders():
    """Up to the jitter later, differently each time, and in order."""
    sent = Sent(0.01)
    sent.channel.change(fault(jitter_ms=50))
    for number in range(300):
        sent.world.at(number * 0.004, sent.send)
    ended = sent.run()
    assert [number for number, _, _ in ended] == list(range(300))
    late_s = [at_s - number * 0.004 - 0.01 for number, _, at_s in ended]
    assert min(late_s) >= -1e-12
    assert 0.03 < max(late_s) < 0.05
    assert len({round(late, 6) for late in late_s}) > 50


def test_a_share_of_messages_is_lost_and_of_closings_none():
    """A third, and each is told."""
    sent = Sent(0.01)
    sent.channel.change(fault(loss=1 / 3))
    for _ in range(3000):
        sent.send()
    lost = sum(how == "lost" for _, how, _ in sent.run())
    assert lost == pytest.approx(1000, abs=100)
    sent.ended.clear()
    for _ in range(100):
        sent.send(may_be_lost=False)
    assert all(how == "delivered" for _, how, _ in sent.run())


def test_only_reports_come_twice_and_out_of_order():
    """All else travels on connections."""
    sent = Sent(0.01)
    sent.channel.change(fault(duplicate=0.5, reorder=0.3))
    for number in range(400):
        sent.world.at(number * 0.01, sent.send if number % 2 else sent.report)
    numbers = [number for number, _, _ in sent.run()]
    requests = [n for n in numbers if n % 2]
    reports = [n for n in numbers if not n % 2]
    assert requests == list(range(1, 400, 2))
    assert len(reports) == pytest.approx(300, abs=30)
    assert set(reports) == set(range(0, 400, 2))
    assert reports != sorted(reports)
