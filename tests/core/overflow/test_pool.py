"""The machine over another pool than servers alike with a FIFO: it asks for no more than
`core.overflow.pool` says."""

from __future__ import annotations

import math
from random import Random

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.settings import NodeSettings
from spillover.model.load import LoadReport
from spillover.model.request import Outcome, Request
from spillover.model.unlike_servers import OVERFLOW
from support import loads
from support.few import all_in_soak

FITS = {"large": ("model", "render"), "small": ("render",)}
"""What each server can run."""


class UnlikeServers:
    """Servers that run some types each. A request takes the one that has been idle longest of those
    that fit; a server that comes free takes the newest request that it fits."""

    def __init__(self):
        self.free = list(FITS)
        self.held = {}
        self.cool_s = {}
        self.line = []
        self.seen = {"model": [1.0], "render": [0.1]}
        self.down = self.resting = False
        self.rest_until_s = math.inf
        self.stuck = set()
        self.refusals = 0
        self.type_of = {}

    def has_turned(self):
        return False

    total = property(lambda _: len(FITS))
    busy = property(lambda self: self.total - len(self.free))
    cooling = property(lambda self: len(self.cool_s))
    working = property(lambda self: self.total - len(self.stuck))
    waiting = property(lambda self: len(self.line))
    waiting_foreign = property(lambda self: sum(not visit.is_home for visit in self.line))
    service_s = property(lambda _: 0.5)
    departure_s = property(lambda self: self.service_s / max(1, self.working))
    residual = property(lambda _: 1.0)
    ready = property(lambda self: bool(self.free) and not (self.down or self.resting))
    next_s = property(lambda self: min([self.rest_until_s, *self.cool_s.values()]))

    on_block = OVERFLOW
    is_alike = False
    counts_work = False
    has_seats = True
    lines = 1
    site_waiting = property(lambda self: self.waiting)
    site_foreign = property(lambda self: self.waiting_foreign)
    site_total = property(lambda self: self.total)
    site_busy = property(lambda self: self.busy)
    up = property(lambda _: len(FITS))
    jobs = property(lambda self: self.busy)
    idle = property(lambda self: len(self.free) if self.ready else 0)
    ahead = property(lambda self: self.waiting + self.busy - self.total)

    def fitting(self, _):
        return self

    def seats(self, _):
        return False

    def granted(self, _):
        return None

    def free_for(self, visit):
        if self.down or self.resting:
            return []
        return [server for server in self.free if visit.request.type in FITS[server]]

    def may_start(self, visit):
        return bool(self.free_for(visit))

    def occupy(self, visit):
        server = self.held[visit.ref] = self.free_for(visit)[0]
        self.type_of[visit.ref] = visit.request.type
        self.free.remove(server)

    def not_done(self, ref, *, failed):
        assert ref in self.held, failed

    def said(self, ref, how, problem):
        assert ref in self.held, (how, problem)
        return self.held[ref]

    def refused(self, _):
        return False

    def vacate(self, ref):
        self.free.append(self.held.pop(ref))

    def cool(self, ref, until_s):
        self.cool_s[self.held.pop(ref)] = until_s

    def served(self, ref, service_s):
        self.seen[self.type_of[ref]].append(service_s)

    def refused_pause_s(self):
        return 0.01

    def rest(self, _, until_s):
        was_resting, self.resting, self.rest_until_s = self.resting, True, until_s
        return not was_resting

    def rest_s(self, now_s):
        return self.rest_until_s - now_s if self.resting else 0.0

    def end_rest(self):
        self.resting, self.rest_until_s = False, math.inf

    def wake(self, now_s):
        for server in [one for one, until_s in self.cool_s.items() if until_s <= now_s]:
            del self.cool_s[server]
            self.free.append(server)
        if self.rest_until_s > now_s:
            return False
        self.end_rest()
        return True

    def __iter__(self):
        return reversed(self.line)

    def join(self, visit):
        visit.place = self
        self.line.append(visit)

    def leave(self, visit):
        visit.place = None
        self.line.remove(visit)

    def pop(self):
        visit = next((one for one in self if self.free_for(one)), None)
        if visit is not None:
            self.leave(visit)
        return visit

    def own_load(self, visit, may_keep, load, now_s, unreported):
        waiting, servers = self.like(visit)
        service_s = self.mean_s(visit.request.type)
        told = {"load": load, "now_s": now_s, "unreported": unreported}
        return loads.own_load(waiting, servers, may_keep, service_s, **told)

    def like(self, visit):
        type_ = visit.request.type
        waiting = sum(one is not visit and one.request.type == type_ for one in self.line)
        return waiting, sum(type_ in types for types in FITS.values())

    def mean_s(self, type_):
        return sum(self.seen[type_]) / len(self.seen[type_])

    def stay_s(self, visit, now_s):
        waiting, servers = self.like(visit)
        service_s = self.mean_s(visit.request.type)
        return (waiting + 1) * service_s / servers + self.rest_s(now_s)

    def retry_after_s(self, visit, now_s):
        return self.stay_s(visit, now_s)

    def check(self):
        assert len(self.free) + len(self.held) + len(self.cool_s) == self.total
        assert not any(self.free_for(visit) for visit in self.line), "could start"


class Site:
    """A cluster of them, with one neighbor."""

    def __init__(self, **settings):
        self.servers = UnlikeServers()
        told = NodeSettings(cluster="a", servers=2, policy="two-choice", **settings)
        self.machine = NodeMachine(told, [("b", 0.0)], Random(1), 0.0, self.servers)
        self.starts = []

    def feed(self, event, now_s):
        commands = self.machine.handle(event, now_s)
        self.machine.check()
        starts = [command for command in commands if isinstance(command, ev.Start)]
        for command in starts:
            server = self.servers.held[command.ref]
            assert command.request.type in FITS[server]
            self.starts.append((command.ref, server))
        return commands

    def arrive(self, ref, type_, now_s=0.0, deadline_s=60.0):
        request = Request(f"r{ref}", keyed=True, work=None, type=type_)
        return self.feed(ev.Arrived(ref, request, deadline_s), now_s)


def test_each_request_gets_a_server_that_fits():
    """A free server that does not fit is none; one that comes free takes the newest that fits."""
    site = Site()
    for ref, type_ in enumerate(["render", "render", "model", "model", "render"], 1):
        site.arrive(ref, type_)
    assert site.starts == [(1, "large"), (2, "small")]
    site.feed(ev.ServiceEnded(2, Outcome.DONE, 0.1), 0.1)
    assert site.starts[2:] == [(5, "small")]
    site.feed(ev.ServiceEnded(5, Outcome.DONE, 0.1), 0.2)
    assert site.starts[3:] == [], "of those that wait none fits the small one"
    site.arrive(6, "render", 0.2)
    site.feed(ev.ServiceEnded(1, Outcome.FAILED, 0.0), 0.3)
    site.feed(ev.TimerFired(), site.servers.next_s)
    assert site.starts[3:] == [(6, "small"), (4, "large")]


def test_what_fits_decides_who_is_handed_on_and_who_comes_too_late():
    """Five wait for the one server that fits: the neighbor is closer, or none ends it in time."""
    site = Site()
    report = LoadReport(1, 1, 1.0, 1.0, 3, 2, True, ("a",))
    site.feed(ev.ReportReceived(0, report), 0.0)
    for ref in range(1, 8):
        site.arrive(ref, "model")
    (record,) = site.machine.decider.log.of("r7")
    assert (record.outcome, record.queue_length, record.servers) == ("forwarded", 5, 1)
    site.arrive(8, "render")
    assert site.starts[-1] == (8, "small")
    site.feed(ev.LinkDown(0), 0.0)
    (refused,) = site.arrive(9, "model", deadline_s=3.0)
    assert (refused.reason, refused.retry_after_s) == ("too_late", 6.0)
    assert isinstance(site.arrive(10, "render", deadline_s=3.0)[0], ev.Accepted)


@pytest.mark.parametrize("seed", all_in_soak(range(20), 5))
def test_whatever_happens_every_request_ends_once(seed):
    """Requests of both types, services that end, fail, are refused or hang, cancels, deadlines."""
    site, random = Site(queue_limit=6), Random(seed)
    replies, refused, now_s = [], [], 0.0
    running = {}
    for ref in range(1, 300):
        now_s += random.expovariate(4.0)
        events = [
            ev.Arrived(
                ref,
                Request(f"r{ref}", keyed=True, work=None, type=random.choice(["model", "render"])),
                now_s + random.choice([0.5, 60.0]),
            ),
            ev.TimerFired(),
            ev.CancelAsked(random.randint(1, ref)),
        ]
        for other in [one for one in running if random.random() < 0.5]:
            del running[other]
            end = random.choice([Outcome.DONE, Outcome.FAILED, None])
            if end is None:
                events.append(ev.NotStarted(other, "not now", True, 0.0, random.choice([None, 1])))
            else:
                events.append(ev.ServiceEnded(other, end, random.random()))
        for event in events:
            for command in site.feed(event, now_s):
                if isinstance(command, ev.Start):
                    running[command.ref] = command
                elif isinstance(command, ev.Reply):
                    replies.append(command.ref)
                elif isinstance(command, ev.Refuse):
                    refused.append(command.ref)
    assert len(site.starts) > 100
    assert len(replies) == len(set(replies))
    assert not {*replies} & {*refused}
    assert {*replies, *refused, *site.machine.register.visits} == set(range(1, 300))
