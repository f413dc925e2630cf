"""Servers of a pool in virtual time: shared evenly, each at its speed, whatever happens to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from spillover.core.overflow import events as ev
from spillover.model.faults import ClusterFault
from spillover.model.request import Outcome, Request
from spillover.model.unlike_servers import Server, UnlikeServers
from spillover.sim.engine.clock import Clock
from spillover.sim.engine.world import World
from spillover.sim.overflow.pool_servers import PoolDoor, PoolServers

POOL = UnlikeServers.of((Server(id="slow"), Server(id="fast", rate=4.0)))
SLOW, FAST = 0, 1


@dataclass
class Play:
    """Two servers, driven by hand, and when which job has ended how."""

    ends: dict = field(default_factory=dict)

    def __post_init__(self):
        self.world = World()
        self.clock = Clock(self.world)
        servers = PoolServers(self.world, Random(1), POOL, 2.0)
        self.servers = PoolDoor(servers, self.clock, self.told)

    def told(self, event):
        if isinstance(event, ev.ServersDown):
            self.ends["down"] = event.server
            return
        outcome = event.outcome if isinstance(event, ev.ServiceEnded) else type(event).__name__
        self.ends[event.ref] = (outcome, round(self.world.now_s, 9), round(event.service_s, 9))

    def at(self, time_s, happen, *args):
        self.world.at(time_s, happen, *args)

    def start(self, time_s, ref, work_s=None, server=SLOW):
        request = Request(f"r{ref}", True, work_s)
        command = ev.Start(ref, request, time_s, float("inf"), server)
        self.at(time_s, self.servers.start, command)

    def run(self):
        self.world.run(lambda: False)
        assert not self.servers.running
        return self.ends

    def fault(self, time_s, action, server=None, **values):
        trouble, fault = self.servers.trouble(server), ClusterFault
        if action == "slow":
            self.at(time_s, setattr, trouble, "slowness", values["factor"])
        else:
            self.at(time_s, trouble.fail, fault(at_s=0, action=action, cluster="a", **values))


def done(at_s, took_s):
    return (Outcome.DONE, pytest.approx(at_s), pytest.approx(took_s))


def test_alone_and_together():
    """A job takes its work at the server's rate, and with another one half of that rate."""
    play = Play()
    play.start(0.0, 1, 1.0)
    play.start(0.5, 2, 1.0)
    play.start(0.0, 3, 2.0, FAST)
    play.start(9.0, 4, None, FAST)
    assert play.run() == {
        3: done(0.5, 0.5),
        1: done(1.5, 1.5),  # half alone, then half at half the speed
        2: done(2.0, 1.5),
        4: done(9.5, 0.5),  # the work that the cluster has for all
    }


def test_who_is_stopped_leaves_its_share():
    """And says nothing."""
    play = Play()
    play.start(0.0, 1, 1.0)
    play.start(0.0, 2, 1.0)
    play.at(1.0, play.servers.stop, 2)
    assert play.run() == {1: done(1.5, 1.5)}
    assert not play.servers.stop(1)


def test_standing_still():
    """Jobs go on where they stood; what they took is what the clock says."""
    play = Play()
    play.start(0.0, 1, 1.0)
    play.start(0.0, 2, 2.0)
    play.at(1.0, play.servers.pause)
    play.at(6.0, play.servers.resume)
    assert play.run() == {1: done(7.0, 7.0), 2: done(8.0, 8.0)}


def test_a_crash_loses_all():
    """Also of one that stands still, and what starts then is as on the first day."""
    play = Play()
    play.start(0.0, 1, 5.0)
    play.at(1.0, play.servers.pause)
    play.at(3.0, play.servers.clear)
    play.start(4.0, 2, 1.0)
    assert play.run() == {2: done(5.0, 1.0)}


def test_slow_all_and_one():
    """Factors are those of services that start from then on, and multiply."""
    play = Play()
    play.fault(0.5, "slow", factor=3.0)
    play.fault(0.5, "slow", "fast", factor=2.0)
    play.start(0.0, 1, 1.0)
    play.start(1.0, 2, 1.0)
    play.start(1.0, 3, 4.0, FAST)
    assert play.run() == {1: done(1.0, 1.0), 2: done(4.0, 3.0), 3: done(7.0, 6.0)}


def test_one_that_fails():
    """All that starts on it does, soon; on the other nothing does."""
    play = Play()
    play.fault(0.0, "failing", "fast", share=1.0, fail_ms=100.0)
    play.start(1.0, 1, 1.0)
    play.start(1.0, 2, 40.0, FAST)
    assert play.run() == {
        2: (Outcome.FAILED, pytest.approx(1.1), pytest.approx(0.1)),
        1: done(2, 1),
    }
    assert not play.servers.sound


def test_one_that_is_down():
    """What runs on it fails, what is sent to it was surely not done; the other goes on."""
    play = Play()
    play.start(0.0, 1, 9.0)
    play.start(0.0, 2, 8.0, FAST)
    play.at(1.0, play.servers.servers.down.add, SLOW)
    play.at(1.0, play.servers.lose, SLOW)
    play.start(1.5, 3, 1.0)
    play.at(3.0, play.servers.servers.down.discard, SLOW)
    play.start(4.0, 4, 1.0)
    assert play.run() == {
        1: (Outcome.FAILED, 1.0, 1.0),
        2: done(2.0, 2.0),
        "down": SLOW,
        3: ("NotStarted", 1.5, 0.0),
        4: done(5.0, 1.0),
    }


def test_a_clock_that_is_wrong():
    """How long a service took is what the cluster's clock shows."""
    play = Play()
    play.clock.set(2.0, 0.0)
    play.start(0.0, 1, 1.0)
    assert play.run() == {1: done(1.0, 2.0)}
