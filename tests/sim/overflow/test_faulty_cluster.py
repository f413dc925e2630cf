"""Crashes, pauses, slowness, clocks, cuts: what a cluster goes through, and what others see."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from spillover.core.overflow import events as ev
from spillover.model.faults import GIVEN_UP_AFTER_S, FaultSchedule, LinkFault
from spillover.model.request import Outcome
from spillover.model.topology import Cluster, Link, Topology
from spillover.sim.engine.world import World
from spillover.sim.overflow.faults import Faults, build_faulty_federation
from spillover.sim.overflow.federation import request_of

SERVICE_S = 0.04
DELAY_S = 0.01


@dataclass
class End:
    """What a client was told, and when."""

    outcome: str | None = None
    at_s: float = -1.0
    answer: object = None


@dataclass
class Play:
    """A line of clusters with one server each, driven by hand; and all events of each."""

    count: int = 2
    fields: dict = field(default_factory=dict)
    cluster_fields: dict = field(default_factory=dict)

    def __post_init__(self):
        ids = "abcd"[: self.count]
        given = {"servers": 1, "service_ms": SERVICE_S * 1e3}
        topology = Topology(
            name="line",
            clusters=tuple(Cluster(id=i, **given | self.cluster_fields.get(i, {})) for i in ids),
            links=tuple(Link(between=pair, delay_ms=DELAY_S * 1e3) for pair in pairwise(ids)),
            **{"policy": "two-choice"} | self.fields,
        )
        self.world = World()
        self.events = []
        self.clusters, self.channels = build_faulty_federation(topology, self.world, 1, self)
        self.sent = 0

    def __getitem__(self, cluster):
        return self.clusters[cluster]

    def before(self, cluster, event, now_s):
        self.events.append((cluster.id, type(event), self.world.now_s, now_s))

    def after(self, cluster, *_):
        cluster.machine.check()

    def times_s(self, cluster, kind):
        return [at_s for c, k, at_s, _ in self.events if (c, k) == (cluster, kind)]

    def at(self, time_s, happen, *args):
        self.world.at(time_s, happen, *args)

    def link(self, time_s, action, *directions, **values):
        schedule = LinkFault(at_s=time_s, action=action, directions=directions, **values)
        Faults(FaultSchedule("f", (schedule,)), self.world, self.clusters, self.channels)

    def send(self, time_s, cluster="a", *, work_s=None, keyed=True, deadline_s=60.0):
        self.sent += 1
        end, request = End(), request_of(self.sent, None, work_s, "default", keyed=keyed)

        def told(outcome, answer=None):
            assert end.outcome is None, "told twice"
            end.outcome, end.at_s, end.answer = outcome, self.world.now_s, answer

        self.world.at(
            time_s,
            lambda: self[cluster].submit(
                request,
                time_s + deadline_s,
                lambda answer: told(answer.outcome, answer),
                told,
                lambda: told("lost"),
            ),
        )
        return end

    def until(self, time_s):
        reached = []
        self.world.at(time_s, reached.append, True)
        self.world.run(lambda: reached)
        return self


def test_a_crash_loses_all_and_neighbors_find_out():
    """Its clients hear nothing more; what it had handed on is cancelled where it is."""
    play = Play(3, cluster_fields={"b": {"queue_limit": 0}})
    at_home = play.send(0.5, "b", work_s=9.0)
    handed_on = play.send(0.6, "b", work_s=9.0)
    play.until(0.9)
    (holder,) = (play[x] for x in "ac" if play[x].foreign_requests)
    play.at(1.0, play["b"].crash)
    play.until(1.0 + DELAY_S / 2)
    assert (at_home.outcome, handed_on.outcome) == ("lost", "lost")
    assert (at_home.at_s, handed_on.at_s) == (1.0, 1.0)
    assert holder.machine.servers.busy == 1
    play.until(1.0 + 1.5 * DELAY_S)
    assert holder.machine.servers.busy == 0
    assert not holder.foreign_requests
    assert play.times_s("a", ev.LinkDown) == play.times_s("c", ev.LinkDown) == [1.0 + DELAY_S]


def test_a_forward_to_one_that_dies_behind_a_cut():
    """Nobody can say so; the own kernel gives the connection up when it has heard nothing for as
    long as it waits, whatever else is heard from then on."""
    play = Play(fields={"policy": "paper"}, cluster_fields={"a": {"queue_limit": 0}})
    play.send(0.5, work_s=2.0)
    handed_on = play.send(0.6, work_s=1.0, keyed=False)
    play.link(0.999, "cut", ("b", "a"))
    play.at(1.0, play["b"].crash)
    play.at(1.2, play["b"].restart)
    given_up_s = 1.0 + DELAY_S + GIVEN_UP_AFTER_S
    play.until(given_up_s + 1e-6)
    assert play.times_s("a", ev.ForwardLost) == [pytest.approx(given_up_s)]
    assert handed_on.outcome == Outcome.UNKNOWN


def test_a_restart_is_another_life():
    """A new epoch, an empty ledger; neighbors hear of it within their pause, and forward again."""
    play = Play(cluster_fields={"a": {"queue_limit": 0}})
    first = play["b"].machine
    play.send(0.5, "b", work_s=9.0)
    play.at(1.0, play["b"].crash)
    play.at(2.0, play["b"].restart)
    play.until(2.0)
    assert not play["a"].machine.neighbors.known[0]
    play.until(3.2)
    second = play["b"].machine
    assert second is not first
    assert second.settings.epoch > first.settings.epoch
    assert second.ledger.home["accepted"] == 0
    assert play["a"].machine.neighbors.accepting == [True]
    assert second.neighbors.accepting == [True]
    taken = [play.send(3.3) for _ in range(2)]
    play.until(4.0)
    assert sorted(len(end.answer.path) for end in taken) == [1, 2]


def test_a_pause_stops_services_and_time_goes_on():
    """A service of 40 ms that is stopped for 0.3 s takes 340 ms; one that comes meanwhile waits
    until it is read, and its client counts that too."""
    play = Play(1)
    running = play.send(1.0)
    play.at(1.01, play["a"].pause)
    waiting = play.send(1.1)
    play.at(1.31, play["a"].resume)
    play.until(3.0)
    assert running.answer.service_s == pytest.approx(0.34)
    assert running.at_s == pytest.approx(1.34)
    assert waiting.at_s == pytest.approx(1.38)
    assert waiting.answer.total_s == pytest.approx(0.28)


def test_a_neighbor_that_stands_still_is_given_up():
    """Unknown within a second, its stream broken off after 2.5 s and two delays, and what it holds
    lost as long after the next one was opened (decision 0008)."""
    play = Play(cluster_fields={"a": {"queue_limit": 0}})
    play.send(0.5, work_s=9.0)
    handed_on = play.send(0.8, work_s=30.0, keyed=False)
    play.at(1.0, play["b"].pause)
    play.until(2.0)
    assert not play["a"].machine.neighbors.known[0]
    play.until(10.0)
    (down_s,) = play.times_s("a", ev.LinkDown)
    (lost_s,) = play.times_s("a", ev.ForwardLost)
    assert down_s == pytest.approx(1.0 + 2.5 + 2 * DELAY_S, abs=0.06)
    assert lost_s == pytest.approx(down_s + 2.5 + 2 * DELAY_S, abs=0.06)
    assert handed_on.outcome == Outcome.UNKNOWN
    play.at(10.0, play["b"].resume)
    play.until(12.0)
    assert not play["b"].machine.register.visits
    assert play["a"].machine.neighbors.accepting == [True]


def test_a_slow_cluster_takes_a_factor_longer():
    """From the next service on; its estimate of services follows."""
    play = Play(1)
    ends = [play.send(time_s) for time_s in (1.0, 2.0, 3.0)]
    play.at(1.01, setattr, play["a"].servers.trouble(), "slowness", 3.0)
    play.at(2.5, setattr, play["a"].servers.trouble(), "slowness", 1.0)
    play.until(4.0)
    took_s = [end.answer.service_s for end in ends]
    assert took_s == pytest.approx([SERVICE_S, 3 * SERVICE_S, SERVICE_S])


def test_a_clock_that_runs_fast():
    """Durations are told by it, deadlines fall due by it, and nothing is heard too often or not
    at all; a forward takes along what remains, not an instant."""
    play = Play(cluster_fields={"b": {"queue_limit": 0}})
    play.at(0.5, play["b"].set_clock, 2.0, 0.0)
    timed = play.send(1.0, "b")
    expired = play.send(2.0, "b", work_s=5.0, deadline_s=1.0)
    play.until(2.6)
    assert timed.answer.service_s == pytest.approx(2 * SERVICE_S)
    assert timed.at_s == pytest.approx(1.0 + SERVICE_S)
    assert (expired.outcome, expired.at_s) == (Outcome.EXPIRED, pytest.approx(2.5))
    play.send(3.0, "b", work_s=9.0)
    away = play.send(3.1, "b", work_s=9.0, deadline_s=2.0)
    play.until(3.2)
    (leg,) = play["a"].foreign_requests
    deadline_s = play["a"].machine.register.visits[leg.there].deadline_s
    assert deadline_s == pytest.approx(5.1 + DELAY_S * (1 - 2), abs=1e-6)
    play.until(6.0)
    assert (away.outcome, away.at_s) == (Outcome.EXPIRED, pytest.approx(4.1))
    woke_s = [at_s for at_s in play.times_s("b", ev.TimerFired) if 4.2 < at_s < 5.2]
    assert len(woke_s) == pytest.approx(1.0 / 0.025, abs=2)


def test_a_link_cut_one_way():
    """Messages of a do not arrive: b no longer hears it and says so, and a sends nothing any more;
    what had left is lost after 5 s. The other direction works."""
    play = Play(cluster_fields={"a": {"queue_limit": 0}})
    play.send(0.5, work_s=20.0)
    play.link(0.9, "cut", ("a", "b"))
    sent_s = [0.95, *(1.0 + k / 10 for k in range(1, 40))]
    ends = [play.send(time_s) for time_s in sent_s]
    play.until(2.2)
    assert play["a"].machine.neighbors.known == [True]
    assert play["a"].machine.neighbors.accepting == [False]
    assert play["b"].machine.neighbors.known == [False]
    play.until(9.0)
    lost_s = play.times_s("a", ev.ForwardLost)
    assert lost_s[0] == pytest.approx(0.95 + DELAY_S + 5.0)
    refused = [end for end in ends if end.outcome not in (None, Outcome.DONE)]
    assert len(refused) > 20
    play.link(9.0, "heal", ("a", "b"))
    play.until(11.0)
    assert play["a"].machine.neighbors.accepting == [True]
