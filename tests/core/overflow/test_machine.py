"""The machine of a cluster against an independent model, under any order of valid events.

The model knows only what went in and what came out. It is never told what the machine holds inside,
except to compare the ledger, the queue length and P at the end of each step, and whether work goes
elsewhere first: when it does is the business of `test_health`.
"""

import math
from collections import Counter
from dataclasses import replace
from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from spillover.core.overflow import events as ev
from spillover.core.overflow.health import SLOW_START_SHARE
from spillover.core.overflow.held import UNLIMITED_BYTES, WANTED_KEPT, WANTED_PARTS
from spillover.core.overflow.machine import REST_S_MAX, REST_S_MIN, NodeMachine
from spillover.core.overflow.parting import PART_S_MAX, PART_S_MIN
from spillover.core.overflow.settings import NodeSettings
from spillover.core.pauses import REFUSED_PAUSE_S, REFUSED_PAUSE_S_MAX
from spillover.model.load import LoadNow, LoadReport
from spillover.model.request import Answer, Outcome, Refusal, Request
from spillover.policy.overflow.choosers import BY_LOAD, CHOOSERS
from spillover.policy.overflow.ramp import RAMP_S, ramp_limit
from support.few import examples

ANSWER_S = 3.0
"""Six times the longest way here: who has been asked for work has answered by then."""

EVIDENCE = {Outcome.DONE, Outcome.FAILED, Outcome.REJECTED}
HOME_ENDS = {Outcome.UNKNOWN: "failed", Outcome.REJECTED: "failed"}
NEIGHBORS = ("b", "c", "d", "e")


loads = st.none() | st.builds(
    LoadNow,
    st.integers(1, 2),
    st.integers(1, 20),
    st.sampled_from([-2, -1, 0, 3, 9]),
    st.sampled_from([0.0, 1.0, 1.5]),
    st.booleans(),
)


class Known:
    """What the model knows of one accepted visit."""

    def __init__(self, event, now_s):
        self.event = event
        self.came_s = now_s
        self.state = "arrived"
        self.asked = []
        """Neighbors that it was handed to."""
        self.lost = False
        """A neighbor was lost with it, so that it may have run there."""
        self.cancelling = False
        self.answering = False
        """Its answer has begun: it is done, or it fails, and nothing else."""
        self.since_s = 0.0
        """When it queued, the last time."""
        self.has_waited = False
        """Before it was handed on."""
        self.looks = 0
        """How often it left since it would have been late."""

    @property
    def is_home(self):
        return self.event.origin == ev.HOME


class ClusterUnderTest(RuleBasedStateMachine):
    """Feeds events; believes no one."""

    @initialize(
        servers=st.integers(1, 3),
        queue_limit=st.sampled_from([0, 1, 2, 4, 10, 11]),
        max_hops=st.integers(0, 3),
        policy=st.sampled_from(sorted(CHOOSERS)),
        neighbor_count=st.integers(0, 3),
        gossip_period_s=st.sampled_from([0.05, 10.0]),
        delivery_s=st.sampled_from([0.0, 0.006]),
        held_limit_bytes=st.sampled_from([UNLIMITED_BYTES, 800, 80]),
        seed=st.integers(0, 9),
    )
    def build(self, *, neighbor_count, seed, **told):
        told_settings = NodeSettings(cluster="a", records_max=16, **told)
        neighbors = [(neighbor, 0.035) for neighbor in NEIGHBORS[:neighbor_count]]
        self.machine = NodeMachine(told_settings, neighbors, Random(seed), 0.0)
        self.settings = told_settings
        self.neighbors = dict(enumerate(NEIGHBORS[:neighbor_count]))
        """Who there is, by handle."""
        self.issued = neighbor_count
        self.now_s = 0.0
        self.refs = 0
        self.started_s = 0.0
        """When a service last began."""
        self.visits = {}
        self.queue = []
        self.stuck = set()
        self.given_back = set()
        self.cooling_s = []
        """Until when servers count as busy whose work has failed."""
        self.undone = 0
        self.rest_until_s = -math.inf
        self.ended = {}
        self.published = 0
        self.refused = set()
        self.newest = dict.fromkeys(self.neighbors, (0, 0))
        self.open = dict.fromkeys(self.neighbors, False)
        """Whether the newest word of a neighbor says, or may say, that it takes what we send."""
        self.parting_s = {}
        """Since when neighbors are parted from, by handle."""
        self.ramp_since_s = {}
        """Since when neighbors that joined with a ramp are known, by handle; None before."""
        self.asked_s = {}
        """When neighbors were asked for work that have not answered, by handle."""
        self.policy = told_settings.policy
        self.draining = self.told_to_drain = self.removed = False
        self.lame_until_s = -math.inf
        """When the lame duck of a drain that has begun is over; then -inf."""
        self.down = False
        self.busy_max = told_settings.servers
        self.carried = (0, 0)
        """How many were away, and here at all, when limits last changed."""
        self.moving_bytes = 0
        self.wanted_bytes = 0
        self.truncated = 0

    # --- rules --------------------------------------------------------------------------------

    @rule(
        from_neighbor=st.booleans(),
        keyed=st.booleans(),
        hops=st.integers(0, 2),
        lifetime_s=st.sampled_from([math.inf, 5.0, 1.0, 0.2, 0.0, -0.1]),
        size_bytes=st.sampled_from([0, 1, 30, 100, 700, 701]),
        load=loads,
        pulled=st.booleans(),
    )
    def a_request_arrives(
        self, *, from_neighbor, keyed, hops, lifetime_s, size_bytes, load=None, pulled=False
    ):
        origin, path = ev.HOME, ()
        if from_neighbor and self.neighbors:
            origin = list(self.neighbors)[self.refs % len(self.neighbors)]
            path = (*("x", "y")[:hops], self.neighbors[origin])
            self.hear_with(origin, load)
        told = {} if origin == ev.HOME or load is None else {"load": load, "pulled": pulled}
        if told and pulled:
            self.asked_s.pop(origin, None)
        self.refs += 1
        request = Request(f"r{self.refs}", keyed, None, path, size_bytes=size_bytes)
        self.feed(ev.Arrived(self.refs, request, self.now_s + lifetime_s, origin, **told))

    @rule(
        count=st.integers(2, 12),
        keyed=st.booleans(),
        lifetime_s=st.sampled_from([math.inf, 0.2]),
        size_bytes=st.sampled_from([0, 0, 90]),
    )
    def many_arrive(self, *, count, keyed, lifetime_s, size_bytes):
        """In turn from clients and neighbors: enough to reach the limits."""
        for number in range(count):
            self.a_request_arrives(
                from_neighbor=number % 2 == 1,
                keyed=keyed,
                hops=1,
                lifetime_s=lifetime_s,
                size_bytes=size_bytes,
            )

    @rule(count=st.sampled_from([0, 50, 640, 2000]), wanted=st.sampled_from([0, 0, 60, 701]))
    def bytes_move(self, count, wanted):
        """Bodies are being read, or not for want of room, answers come and go: told, nothing else
        happens."""
        self.moving_bytes = count
        if wanted and wanted <= self.limit_bytes(0):
            self.wanted_bytes = wanted
        assert self.feed(ev.BytesMoving(count, wanted)) == []

    @precondition(lambda self: self.running() or self.stuck)
    @rule(
        data=st.data(),
        outcome=st.sampled_from([Outcome.DONE, Outcome.FAILED, Outcome.FAILED, Outcome.REJECTED]),
        service_s=st.sampled_from([0.04, 0.001, 0.5]),
    )
    def a_server_comes_free(self, data, outcome, service_s):
        ref = data.draw(st.sampled_from(sorted({*self.running(), *self.stuck})))
        self.cool(service_s, failed=outcome is Outcome.FAILED)
        if outcome is Outcome.DONE:
            self.undone = 0
        self.feed(ev.ServiceEnded(ref, outcome, service_s))

    @precondition(lambda self: self.running() or self.stuck)
    @rule(
        data=st.data(),
        service_s=st.sampled_from([0.0, 0.01, 0.5]),
        retry_after_s=st.sampled_from([None, 0.001, 0.1, 5.0, 1e9]),
        refused=st.sampled_from([True, True, False]),
    )
    def work_is_not_done(self, data, service_s, retry_after_s, refused):
        """What runs the work has refused it, or could not begin it: nobody has done it."""
        ref = data.draw(st.sampled_from(sorted({*self.running(), *self.stuck})))
        if ref in self.visits and self.visits[ref].answering:  # it broke off
            self.cool(service_s, failed=True)
            self.feed(ev.NotStarted(ref, "not now", refused, service_s, retry_after_s))
            return
        rounds = min(self.undone // self.settings.servers, 10)
        pause_s = min(REFUSED_PAUSE_S * 2.0**rounds, REFUSED_PAUSE_S_MAX) if refused else 0.0
        self.cool(service_s, failed=refused, pause_s=pause_s)
        self.undone += refused
        if retry_after_s:
            until_s = self.now_s + min(max(retry_after_s, REST_S_MIN), REST_S_MAX)
            self.rest_until_s = max(until_s, self.rest_until_s)
        self.feed(ev.NotStarted(ref, "not now", refused, service_s, retry_after_s))

    def cool(self, service_s, *, failed, pause_s=0.0):
        rest_s = max(self.machine.servers.service_s, pause_s) - service_s
        if failed and rest_s > 0:
            self.cooling_s.append(self.now_s + rest_s)

    @precondition(lambda self: self.refs)
    @rule(data=st.data())
    def an_answer_begins(self, data):
        """Of what runs or is away, once; all else has ended, or was never begun."""
        ref = data.draw(st.integers(1, self.refs))
        visit = self.visits.get(ref)
        begins = visit is not None and visit.state in ("running", "away") and not visit.answering
        so_far = ev.SoFar(("a", "b"), 0.5, 0.25, 0.125) if ref in self.away() else None
        commands = self.feed(ev.ResponseBegan(ref, 0.01, so_far, 0.035))
        assert [type(command) for command in commands] == [ev.Began] * begins

    @precondition(lambda self: self.away())
    @rule(data=st.data(), outcome=st.sampled_from(Outcome), load=loads)
    def a_forward_is_answered(self, data, outcome, load):
        ref = data.draw(st.sampled_from(self.away()))
        self.hear_with(self.visits[ref].asked[-1], load)
        answer = Answer(outcome, ("a", "b"), load=load)
        self.feed(ev.ForwardAnswered(ref, answer, 0.035, 0.035))

    @precondition(lambda self: self.away())
    @rule(data=st.data(), event=st.sampled_from([ev.ForwardRefused, ev.ForwardLost]), load=loads)
    def a_forward_comes_to_nothing(self, data, event, load):
        ref = data.draw(st.sampled_from(self.away()))
        if event is ev.ForwardRefused:
            self.hear_with(self.visits[ref].asked[-1], load)
            self.feed(ev.ForwardRefused(ref, load))
        else:
            self.feed(event(ref))

    @precondition(lambda self: self.neighbors)
    @rule(data=st.data(), load=loads.filter(bool))
    def a_neighbor_asks_for_work(self, data, load):
        """It is given one request that waits, or told that there is none for it."""
        y = data.draw(st.sampled_from(sorted(self.neighbors)))
        self.hear_with(y, load)
        (command,) = self.feed(ev.WorkAsked(y, load))
        assert command.neighbor == y

    @precondition(lambda self: self.neighbors)
    @rule(data=st.data(), load=loads.filter(bool))
    def a_neighbor_has_no_work(self, data, load):
        """Whether it was asked or not."""
        y = data.draw(st.sampled_from(sorted(self.neighbors)))
        self.hear_with(y, load)
        self.asked_s.pop(y, None)
        self.feed(ev.NoWorkThere(y, load))

    @precondition(lambda self: self.refs)
    @rule(data=st.data(), event=st.sampled_from(["cancel", "answer", "refusal", "loss"]))
    def something_comes_that_may_be_too_late(self, data, event):
        ref = data.draw(st.integers(1, self.refs))
        if event == "cancel":
            self.feed(ev.Cancelled(ref))
            assert ref not in self.visits
        elif ref not in self.away():
            late = ev.ForwardAnswered(ref, Answer(Outcome.DONE, ()), 0.0, 0.0)
            others = {"refusal": ev.ForwardRefused(ref), "loss": ev.ForwardLost(ref)}
            assert self.feed(others.get(event, late)) == []

    @precondition(lambda self: self.refs)
    @rule(data=st.data())
    def a_cancel_is_asked_for(self, data):
        """What is away stays so and is asked for once; all else ends at once."""
        ref = data.draw(st.integers(1, self.refs))
        visit = self.visits.get(ref)
        news = visit is not None and not visit.cancelling
        if visit is not None and visit.state == "away" and not visit.answering:
            visit.cancelling = True
        kinds = {type(command) for command in self.feed(ev.CancelAsked(ref))}
        if ref in self.visits:
            assert kinds == ({ev.AskCancel} if news else set())
        elif visit is not None:
            assert self.ended[ref] == (visit.is_home, Outcome.CANCELLED)

    @precondition(lambda self: self.neighbors)
    @rule(
        data=st.data(),
        accept=st.floats(0, 1),
        near=st.floats(0, 1),
        epoch=st.integers(1, 2),
        sequence=st.integers(1, 20),
        accepting=st.booleans(),
        hears=st.sampled_from([("a",), ("x", "a"), ("x",), ()]),
        beat=st.booleans(),
        degraded=st.sampled_from([False, False, True]),
        failed_share=st.sampled_from([0.0, 0.0, 0.5, 1.0]),
        servers=st.sampled_from([2, 2, 40]),
        busy=st.sampled_from([(None, 0.0, 0.0), (-2, 0.5, 0.02), (9, 1.5, 0.02), (9, 0.0, 0.0)]),
    )
    def a_neighbor_is_heard(
        self,
        *,
        data,
        accept,
        near,
        epoch,
        sequence,
        accepting,
        hears,
        beat,
        degraded,
        failed_share,
        servers,
        busy,
    ):
        y = data.draw(st.sampled_from(sorted(self.neighbors)))
        if beat:
            self.feed(ev.ReportReceived(y, None))
            return
        opens = accepting and "a" in hears
        if (epoch, sequence) > self.newest[y]:
            self.newest[y] = (epoch, sequence)
            self.open[y] = opens
        else:
            # Old news, but after a silence another life may be believed.
            self.open[y] = self.open[y] or opens
        told = (sequence, servers, accepting, hears, degraded, failed_share, *busy)
        self.feed(ev.ReportReceived(y, LoadReport(epoch, sequence, accept, near, *told)))

    def hear_with(self, y, load):
        """What is about to be fed has brought this load, if any: the newest word, if it is of the
        life that the neighbor's report is of."""
        if load is None or y not in self.neighbors:
            return
        held = self.machine.neighbors.by_handle[y].report
        if held is None or held.epoch != load.epoch:
            return
        opens = load.accepting and "a" in held.hears
        if (load.epoch, load.sequence) > self.newest[y]:
            self.newest[y] = (load.epoch, load.sequence)
            self.open[y] = opens
        else:
            self.open[y] = self.open[y] or opens

    @precondition(lambda self: self.neighbors)
    @rule(data=st.data())
    def a_link_goes_down(self, data):
        self.go_down(data.draw(st.sampled_from(sorted(self.neighbors))))

    def go_down(self, y):
        self.asked_s.pop(y, None)
        self.feed(ev.LinkDown(y))
        self.newest[y] = (0, 0)
        self.open[y] = False

    @rule(
        cluster=st.sampled_from([*NEIGHBORS, "a"]),
        delay_s=st.sampled_from([0.0, 0.5]),
        ramp=st.booleans(),
    )
    def a_cluster_joins(self, cluster, delay_s, ramp):
        """Under a handle of its own, unless it is a neighbor already or the cluster itself. One
        that is parted from stays."""
        (parting,) = [y for y in self.parting_s if self.neighbors[y] == cluster] or [None]
        if parting is not None:
            del self.parting_s[parting]
            assert self.feed(ev.Join(cluster, delay_s, ramp)) == []
            return
        is_there = cluster == "a" or cluster in self.neighbors.values()
        (command,) = self.feed(ev.Join(cluster, delay_s, ramp))
        assert isinstance(command, ev.JoinRefused if is_there else ev.Connect)

    @precondition(lambda self: self.neighbors)
    @rule(data=st.data())
    def a_neighbor_is_parted_from(self, data):
        """Nothing is to be done about it now; whatever it is sent later is a mistake."""
        self.part_from(data.draw(st.sampled_from(sorted(self.neighbors))))

    def part_from(self, y):
        self.parting_s.setdefault(y, self.now_s)
        self.asked_s.pop(y, None)
        assert self.feed(ev.Part(y)) == []

    @precondition(lambda self: self.neighbors)
    @rule(data=st.data(), delay_s=st.sampled_from([0.0, 0.035, 0.5]))
    def a_delay_changes(self, data, delay_s):
        y = data.draw(st.sampled_from(sorted(self.neighbors)))
        assert self.feed(ev.DelayChanged(y, delay_s)) == []

    @rule(
        servers=st.sampled_from([None, None, 1, 2, 3, 5]),
        queue_limit=st.sampled_from([None, None, 0, 1, 4, 11]),
        held_limit_bytes=st.sampled_from([None, None, UNLIMITED_BYTES, 800, 80]),
        max_hops=st.sampled_from([None, None, 0, 1, 3]),
    )
    def limits_change(self, **told):
        """Nobody is sent away; more servers take what waits."""
        self.busy_max = max(self.busy(), told["servers"] or self.settings.servers)
        self.carried = (len(self.away()), len(self.visits))
        news = {name: value for name, value in told.items() if value is not None}
        self.settings = replace(self.settings, **news)
        if self.wanted_bytes > self.limit_bytes(0):
            self.wanted_bytes = 0
        *starts, publish = self.feed(ev.SettingsChanged(**told))
        assert all(isinstance(one, ev.Start | ev.Reply) for one in starts)
        assert publish.report.servers == self.settings.servers

    @precondition(lambda self: self.neighbors)
    @rule(data=st.data())
    def a_neighbor_leaves(self, data):
        """Parted from, and not heard for a minute. What is away there, and has time, stays so until
        its link has said what came of it."""
        y = data.draw(st.sampled_from(sorted(self.neighbors)))
        self.part_from(y)
        self.go_down(y)
        self.now_s += PART_S_MAX
        away = [ref for ref in self.away() if self.visits[ref].event.deadline_s > self.now_s]
        self.feed(ev.TimerFired())
        assert y not in self.neighbors or self.is_left(y, answering=True)
        assert set(away) <= set(self.away())

    @precondition(lambda self: self.issued > len(self.neighbors))
    @rule(
        data=st.data(),
        event=st.sampled_from(["report", "beat", "down", "part", "delay", "ask", "none"]),
    )
    def one_that_has_left_is_heard(self, data, event):
        """Nobody listens: nothing changes."""
        y = data.draw(st.sampled_from([h for h in range(self.issued) if h not in self.neighbors]))
        report = LoadReport(9, 9, 1.0, 1.0, 0, 2, True, ("a",))
        before = self.machine.neighbors.knowledge()
        told = {"report": ev.ReportReceived(y, report), "beat": ev.ReportReceived(y, None)}
        told |= {"down": ev.LinkDown(y), "part": ev.Part(y)}
        told |= {"delay": ev.DelayChanged(y, 0.1)}
        load = LoadNow(9, 9, -2, 0.0, True)
        told |= {"ask": ev.WorkAsked(y, load), "none": ev.NoWorkThere(y, load)}
        assert self.feed(told[event]) == []
        assert self.machine.neighbors.knowledge() is before

    @rule(
        event=st.sampled_from([ev.Drain, ev.Resume, ev.Removed, ev.Restored, ev.Restored]),
        lame_duck_s=st.sampled_from([0.0, 0.0, 0.3, 2.0]),
    )
    def it_is_to_go_or_to_stay(self, event, lame_duck_s):
        """By operators, or by the configuration."""
        begins, was_draining = event in (ev.Drain, ev.Removed), self.draining
        if event in (ev.Drain, ev.Resume):
            self.told_to_drain = begins
        else:
            self.removed = begins
        self.draining = self.told_to_drain or self.removed
        until_s = self.now_s + lame_duck_s
        if not self.draining:
            self.lame_until_s = -math.inf
        elif begins and (not was_draining or until_s < self.lame_until_s):
            self.lame_until_s = until_s
        if self.lame_until_s <= self.now_s:
            self.lame_until_s = -math.inf
        self.feed(event(lame_duck_s) if begins else event())

    @property
    def emptying(self):
        """Whether it drains and its lame duck is over: nothing that comes is kept."""
        return self.draining and self.lame_until_s == -math.inf

    @rule(event=st.sampled_from([ev.ServersDown, ev.ServersUp]))
    def the_servers_go_or_come(self, event):
        self.down = event is ev.ServersDown
        if not self.down:
            self.rest_until_s = -math.inf
        self.feed(event())

    @rule(policy=st.sampled_from(sorted(CHOOSERS)))
    def the_policy_is_set(self, policy):
        self.policy = policy
        assert self.feed(ev.PolicySet(policy)) == []
        assert self.machine.policy == policy

    @rule()
    def a_neighbor_begins_to_listen(self):
        self.feed(ev.ReportAsked())

    @rule(step_s=st.sampled_from([0.001, 0.05, 0.3, 2.0, 20.0, -0.002]))
    def time_passes(self, step_s):
        self.now_s += step_s

    @precondition(
        lambda self: self.neighbors and not self.down and not self.machine.health.degraded
    )
    @rule(
        from_neighbor=st.booleans(),
        share=st.sampled_from([0.5, 0.25, 0.125]),
        waiting=st.sampled_from([0, 9, 300]),
    )
    def some_wait_for_long(self, *, from_neighbor, share, waiting):
        """More than can run, until so much of their time is left; then neighbors accept."""
        for _ in range(self.settings.servers + 2):
            self.a_request_arrives(
                from_neighbor=from_neighbor, keyed=True, hops=0, lifetime_s=2.0, size_bytes=0
            )
        self.now_s += (1.0 - share) * 2.0
        self.all_say(accepting=True, waiting=waiting)
        self.feed(ev.TimerFired())
        self.all_say(accepting=False, waiting=waiting)

    def all_say(self, *, accepting, waiting):
        """Each neighbor reports anew, and hears us."""
        for y in sorted(self.neighbors):
            epoch, sequence = max(self.newest[y], (1, 0))
            self.newest[y] = (epoch, sequence + 1)
            self.open[y] = accepting
            told = (epoch, sequence + 1, 1.0, 1.0, waiting, 2, accepting, ("a",))
            report = LoadReport(*told, departure_s=0.02)
            self.feed(ev.ReportReceived(y, report))

    @rule(late_s=st.sampled_from([0.0, 0.0, 0.001, 0.7]))
    def the_alarm_rings(self, late_s):
        self.now_s = max(self.now_s, self.machine.next_deadline()) + late_s
        self.feed(ev.TimerFired())
        assert self.machine.next_deadline() > self.now_s
        for visit in self.visits.values():
            assert visit.event.deadline_s > self.now_s or visit.answering
        assert not (self.removed and self.machine.drained and self.neighbors)
        for y, since_s in self.parting_s.items():
            assert self.now_s < since_s + PART_S_MAX or self.is_left(y, answering=True)
            row = self.machine.neighbors.by_handle[y]
            assert self.is_left(y) or (
                row.known and (self.now_s < since_s + PART_S_MIN or not row.willing)
            )

    # --- the model ----------------------------------------------------------------------------

    def is_left(self, y, *, answering=False):
        """Whether anything is away to that neighbor, or here from there; or any such answer has
        begun."""
        visits = [v for v in self.visits.values() if v.answering or not answering]
        is_away = any(visit.state == "away" and visit.asked[-1] == y for visit in visits)
        return is_away or any(visit.event.origin == y for visit in visits)

    def forget(self, y):
        """It is no neighbor any more."""
        del self.neighbors[y]
        for told in (self.asked_s, self.parting_s, self.ramp_since_s):
            told.pop(y, None)

    def running(self):
        return [ref for ref, visit in self.visits.items() if visit.state == "running"]

    def away(self):
        return [ref for ref, visit in self.visits.items() if visit.state == "away"]

    def feed(self, event):
        """One event in; every command out is judged on its own, then the state as a whole."""
        self.asked_s = {
            y: since_s for y, since_s in self.asked_s.items() if self.now_s < since_s + ANSWER_S
        }
        if isinstance(event, ev.ServiceEnded | ev.NotStarted):
            self.stuck.discard(event.ref)
            if event.ref in self.visits:
                is_over = isinstance(event, ev.ServiceEnded)
                self.visits[event.ref].state = "served" if is_over else "arrived"
        if isinstance(event, ev.TimerFired):
            self.times_are_over()
        back = None
        if isinstance(event, ev.ForwardRefused | ev.ForwardLost) and event.ref in self.away():
            back = self.visits[event.ref]
            back.state = "arrived"
            back.lost |= isinstance(event, ev.ForwardLost)
        commands = self.machine.handle(event, self.now_s)
        for command in commands:
            judge = getattr(self, f"on_{type(command).__name__.lower()}")
            judge(command, event)
        for ref, visit in self.visits.items():
            if visit.state == "arrived":
                assert not (self.emptying and isinstance(event, ev.Arrived)), "kept"
                visit.state = "queued"
                visit.since_s = self.now_s
                if visit is back and self.has_its_place(visit):
                    self.queue.insert(0, ref)
                else:
                    self.queue.append(ref)
        self.judge_the_whole()
        return commands

    def times_are_over(self):
        self.cooling_s = [until_s for until_s in self.cooling_s if until_s > self.now_s]
        if self.rest_until_s <= self.now_s:
            self.rest_until_s = -math.inf
        if self.lame_until_s <= self.now_s:
            self.lame_until_s = -math.inf

    def on_accepted(self, command, event):
        assert command.ref == event.ref
        assert command.ref not in {*self.visits, *self.ended, *self.refused, *self.given_back}
        assert not self.draining or event.origin == ev.HOME
        visit = self.visits[command.ref] = Known(event, self.now_s)
        assert self.room_bytes(event.origin) >= 0, "more bytes than may be held"
        if not visit.is_home and event.deadline_s > self.now_s and not self.elsewhere_first():
            assert self.takes_foreign(), "taken from a neighbor beyond its share"

    def on_refuse(self, command, event):
        if command.ref in self.visits:
            self.on_give_back(command)
            return
        assert (command.ref, command.origin) == (event.ref, event.origin)
        assert command.ref not in {*self.visits, *self.ended, *self.refused}
        assert command.retry_after_s > 0.0
        fits = self.room_bytes(event.origin) >= event.request.size_bytes
        alone = self.limit_bytes(event.origin) >= event.request.size_bytes
        if not fits and alone and event.origin != ev.HOME and not self.draining:
            self.wanted_bytes = event.request.size_bytes
        limits, is_home = self.settings, event.origin == ev.HOME
        limit = limits.queue_limit if is_home else limits.foreign_limit
        assert {
            Refusal.DRAINING: self.emptying or (self.draining and not is_home),
            Refusal.NO_SERVERS: self.down or not (is_home or self.working()),
            Refusal.QUEUE_FULL: len(self.queue) >= limit
            or not (is_home or event.pulled or self.takes_more_foreign()),
            Refusal.TOO_LATE: self.may_be_too_late(event),
            Refusal.DEGRADED: self.elsewhere_first() and not is_home,
            Refusal.MEMORY_FULL: alone and not fits,
            Refusal.TOO_LARGE: not alone,
        }[command.reason]
        if self.draining and not is_home:
            assert command.reason is Refusal.DRAINING
        self.refused.add(command.ref)
        self.judge_load(command.load, tells=not is_home)

    def on_give_back(self, command):
        """A neighbor's request goes back undone: it is here, and has run nowhere."""
        visit = self.end(command)
        assert command.reason is Refusal.DEGRADED
        assert not visit.is_home
        assert command.origin == visit.event.origin
        assert not visit.lost, "it may have run"
        assert visit.state in ("queued", "arrived")
        if visit.state == "queued":
            self.queue.remove(command.ref)
        self.given_back.add(command.ref)
        self.judge_load(command.load)

    def on_start(self, command, event):
        visit = self.visits[command.ref]
        assert command.at_s < visit.event.deadline_s, "expired work started"
        assert not self.down, "started without servers"
        assert not (self.emptying and isinstance(event, ev.Arrived)), "started as all is to go"
        assert not visit.cancelling, "started although it was to be cancelled"
        assert not visit.answering, "started although its answer had begun"
        assert visit.event.request.keyed or not visit.lost, "may run twice without a key"
        if visit.state == "queued":
            assert self.queue.pop(0) == command.ref, "not the one that waited longest"
        else:
            assert visit.state == "arrived"
            assert not self.queue or event == ev.NotStarted(
                command.ref, event.problem, event.refused, event.service_s, event.retry_after_s
            )
        assert self.rest_until_s == -math.inf, "started while it rests"
        assert self.busy() < self.settings.servers, "started on a server that is to go"
        visit.state = "running"
        self.started_s = command.at_s

    def on_began(self, command, event):
        visit = self.visits[command.ref]
        assert (command.ref, command.origin) == (event.ref, visit.event.origin)
        assert visit.state in ("running", "away")
        assert not visit.answering, "began twice"
        so_far = command.so_far
        assert min(so_far.queued_s, so_far.network_s, so_far.service_s) >= 0.0
        assert so_far.path == (("a", "b") if visit.state == "away" else self.path_of(visit))
        assert visit.event.request.size_bytes == 0, "what was asked is held for nothing"
        visit.answering = True

    @staticmethod
    def path_of(visit):
        return (*visit.event.request.path, "a")

    def on_stop(self, command, _event):
        assert self.visits[command.ref].state == "running"
        self.stuck.add(command.ref)

    def on_forward(self, command, event):
        visit, y = self.visits[command.ref], command.neighbor
        assert command.pulled == isinstance(event, ev.WorkAsked)
        if command.pulled:
            assert (visit.state, y) == ("queued", event.neighbor), "not what was asked for"
            self.leave_queue(command.ref)
        elif visit.state == "queued":
            self.judge_older(visit, event)
            self.leave_queue(command.ref)
        self.judge_load(command.load)
        assert not visit.cancelling, "handed on although it was to be cancelled"
        assert not visit.answering, "handed on although its answer had begun"
        assert visit.event.request.keyed or not visit.lost, "may run twice without a key"
        assert self.policy != "isolated"
        leaving = self.emptying or self.down or self.elsewhere_first()
        again = leaving and isinstance(event, ev.ReportReceived | ev.ForwardAnswered)
        if not again and not isinstance(event, ev.TimerFired):
            assert y not in visit.asked, "asked twice"
        assert y in self.neighbors, "handed to one that has left"
        assert y not in self.parting_s, "handed to one that is parted from"
        self.judge_ramp(y)
        assert self.open[y], "handed to a neighbor that is unknown, deaf or does not accept"
        assert self.neighbors[y] not in visit.event.request.path, "sent back to where it was"
        assert command.request.path == (*visit.event.request.path, "a")
        assert len(command.request.path) <= self.settings.max_hops
        assert command.deadline_s == visit.event.deadline_s
        visit.asked.append(y)
        visit.state = "away"

    def judge_older(self, visit, event):
        """What waits leaves unasked where nothing is to wait, or in place of a client's request
        that has just come: then it is a client's, too."""
        if self.emptying or self.down or self.elsewhere_first():
            return
        assert self.policy in BY_LOAD
        if isinstance(event, ev.TimerFired):
            self.judge_look(visit)
            return
        assert isinstance(event, ev.Arrived)
        assert event.origin == ev.HOME
        assert visit.is_home

    def judge_look(self, visit):
        """It leaves unasked after a half, three quarters and so on of its time, at most four times,
        and where those that wait before it would not have begun in time."""
        left_s = visit.event.deadline_s - self.now_s
        looks_s = [(visit.event.deadline_s - visit.came_s) / 2**k for k in (1, 2, 3, 4)]
        reached = sum(left_s <= look_s + 1e-9 for look_s in looks_s)
        visit.looks += 1
        assert visit.looks <= reached, "looked at too soon, or too often"
        ref = next(ref for ref, one in self.visits.items() if one is visit)
        servers = self.machine.servers
        still_s = self.now_s - self.started_s
        departure_s = servers.departure_s
        if still_s > 8.0 * servers.service_s:
            departure_s = max(departure_s, still_s)
        wait_s = (self.queue.index(ref) + 1) * departure_s
        assert wait_s + servers.service_s >= left_s - 1e-9, "it would have been in time"

    def leave_queue(self, ref):
        self.queue.remove(ref)
        visit = self.visits[ref]
        visit.has_waited |= self.now_s > visit.since_s

    def has_its_place(self, visit):
        """Whether it stands first, since it did not leave because all were to."""
        leaving = self.emptying or self.down or self.elsewhere_first()
        return self.policy in BY_LOAD and visit.is_home and visit.has_waited and not leaving

    def judge_ramp(self, y):
        """One that joined with a ramp has room for one more."""
        if y in self.ramp_since_s:
            since_s = self.ramp_since_s[y]
            age_s = 0.0 if since_s is None else self.now_s - since_s
            servers = self.machine.neighbors.by_handle[y].servers
            there = sum(self.visits[ref].asked[-1] == y for ref in self.away())
            assert age_s >= RAMP_S or there < ramp_limit(servers, age_s), "too much at first"

    def on_recall(self, command, _event):
        visit = self.visits[command.ref]
        assert (visit.state, visit.asked[-1]) == ("away", command.neighbor)

    def on_askcancel(self, command, event):
        assert event == ev.CancelAsked(command.ref)
        visit = self.visits[command.ref]
        assert (visit.state, visit.asked[-1]) == ("away", command.neighbor)
        assert not visit.answering

    def end(self, command):
        self.wanted_bytes = self.wanted_bytes * WANTED_KEPT // WANTED_PARTS
        return self.visits.pop(command.ref)

    def on_reply(self, command, event):
        visit = self.end(command)
        outcome = command.answer.outcome
        assert command.origin == visit.event.origin
        if visit.answering:
            self.judge_end_of_answer(visit, outcome, event)
        was_here = visit.asked or isinstance(event, ev.NotStarted)
        assert outcome is not Outcome.EXPIRED or (
            isinstance(event, ev.ForwardAnswered)
            or visit.event.deadline_s <= self.now_s + self.settings.delivery_s
            or (was_here and visit.state == "arrived" and self.may_be_too_late(visit.event))
        )
        answer = command.answer
        if answer.has_not_run:
            assert outcome is Outcome.EXPIRED
            assert visit.state in {"queued", "arrived"}
            assert not visit.lost
        elif outcome is Outcome.EXPIRED and visit.state == "queued":
            assert visit.asked or isinstance(event, ev.ForwardAnswered), "it has only waited"
        assert min(answer.queued_s, answer.network_s, answer.service_s, answer.return_s) >= 0.0
        if isinstance(event, ev.ForwardLost) and not visit.answering:
            ends = [Outcome.CANCELLED] if visit.cancelling else [Outcome.EXPIRED]
            assert outcome in ends or not (visit.event.request.keyed or visit.cancelling)
        if visit.state == "queued":
            self.queue.remove(command.ref)
        self.ended[command.ref] = (visit.is_home, outcome)
        self.judge_load(answer.load, tells=not visit.is_home and outcome in EVIDENCE)

    def judge_end_of_answer(self, visit, outcome, event):
        """One that has begun ends as whoever gave it says, or nobody wanted it any more, or it
        broke off."""
        broke = ev.ForwardLost | ev.ForwardRefused | ev.NotStarted
        if isinstance(event, ev.Cancelled | ev.CancelAsked):
            assert outcome is Outcome.CANCELLED
        elif isinstance(event, broke):
            assert outcome is (Outcome.CANCELLED if visit.cancelling else Outcome.FAILED)
        elif isinstance(event, ev.ForwardAnswered):
            assert outcome is event.answer.outcome
        else:
            assert outcome is event.outcome
        if outcome is Outcome.FAILED and not isinstance(event, ev.ForwardAnswered):
            self.truncated += 1

    def on_askforwork(self, command, event):
        """Of a neighbor that is not being asked, for a server that no other question stands for."""
        assert self.policy in BY_LOAD
        assert isinstance(event, ev.ServiceEnded | ev.NoWorkThere | ev.TimerFired)
        assert command.neighbor in self.neighbors, "asked one that has left"
        assert command.neighbor not in self.parting_s, "asked one that is parted from"
        assert command.neighbor not in self.asked_s, "asked again before it could answer"
        assert not self.queue
        assert not self.draining
        assert not self.down
        self.asked_s[command.neighbor] = self.now_s
        assert len(self.asked_s) <= self.settings.servers - self.busy(), "more than could begin"
        self.judge_load(command.load)

    def on_nowork(self, command, event):
        assert isinstance(event, ev.WorkAsked)
        assert command.neighbor == event.neighbor
        self.judge_told(command.load)

    def judge_load(self, load, *, tells=True):
        """It rides on all that goes to a neighbor, numbered as the reports are, and is true."""
        assert (load is not None) == (tells and self.policy in BY_LOAD)
        if load is not None:
            self.judge_told(load)

    def judge_told(self, load):
        self.published += 1
        assert (load.epoch, load.sequence) == (self.settings.epoch, self.published)
        assert load.accepting == self.takes_foreign(self.wanted_bytes)
        self.judge_ahead(load)

    def judge_ahead(self, told):
        """How many must end before one more can begin; more while it recovers."""
        ahead = len(self.queue) + self.busy() - self.settings.servers
        share = self.machine.health.start_share
        assert told.ahead == ahead if share == 1.0 else told.ahead >= ahead
        assert told.load >= 0.0

    def on_publish(self, command, event):
        operations = ev.Drain | ev.Resume | ev.ServersDown | ev.ServersUp
        operations = operations | ev.Removed | ev.Restored | ev.SettingsChanged
        news = ev.ReportReceived | ev.LinkDown | ev.ReportAsked
        news = news | ev.ServiceEnded | ev.NotStarted | ev.ForwardAnswered  # a change of health
        assert isinstance(event, ev.TimerFired | news | operations)
        self.published += 1
        assert command.report.sequence == self.published
        assert command.report.queue_length == len(self.queue)
        self.judge_ahead(command.report)
        report = command.report
        takes = self.takes_foreign(self.wanted_bytes, report.relay_hops)
        assert report.accepting == takes
        assert report.accept_probability == self.accept_probability(report.relay_hops)
        assert set(command.report.hears) <= set(self.neighbors.values())

    def on_connect(self, command, event):
        assert command == ev.Connect(self.issued, event.cluster)
        self.neighbors[self.issued] = event.cluster
        self.newest[self.issued] = (0, 0)
        self.open[self.issued] = False
        if event.ramp:
            self.ramp_since_s[self.issued] = None
        self.issued += 1

    def on_joinrefused(self, command, event):
        assert command.cluster == event.cluster

    def on_disconnect(self, command, event):
        assert isinstance(event, ev.TimerFired)
        y = command.neighbor
        since_s = self.parting_s.get(y, math.inf)
        is_removed = self.removed and self.machine.drained
        is_given_up = self.now_s >= since_s + PART_S_MAX and not self.is_left(y, answering=True)
        assert is_removed or is_given_up or not self.is_left(y)
        self.forget(y)

    def on_heartbeat(self, _command, event):
        assert isinstance(event, ev.TimerFired)

    def busy(self):
        return len(self.running()) + len(self.stuck) + len(self.cooling_s)

    def elsewhere_first(self):
        return self.machine.admission.elsewhere_first

    def working(self):
        return max(0, self.settings.servers - len(self.stuck))

    def limit_bytes(self, origin):
        """An eighth is for answers, and of the rest a tenth for clients' requests alone."""
        limit_bytes = self.settings.held_limit_bytes
        limit_bytes -= limit_bytes // 8
        return limit_bytes if origin == ev.HOME else limit_bytes - limit_bytes // 10

    def room_bytes(self, origin):
        held_bytes = sum(visit.event.request.size_bytes for visit in self.visits.values())
        return self.limit_bytes(origin) - self.moving_bytes - held_bytes

    def takes_foreign(self, wanted_bytes=0, relay_hops=None):
        """Whether a neighbor's request may come in, as it now hands on over so many hops."""
        if self.draining or self.room_bytes(0) < wanted_bytes:
            return False
        if relay_hops is None:
            relay_hops = self.machine.admission.relay_hops
        if relay_hops or self.down or not self.working():
            return relay_hops > 0
        if self.elsewhere_first():
            return self.takes_a_probe()
        has_place = len(self.queue) < self.settings.foreign_limit and self.takes_more_foreign()
        has_place = has_place and not self.machine.admission.stalled
        return has_place or self.busy() < self.settings.servers

    def takes_a_probe(self):
        is_free = self.busy() < self.settings.servers and self.rest_until_s == -math.inf
        return self.machine.admission.invites and is_free and not self.down

    def takes_more_foreign(self):
        """Whether there is room for one more of those that wait for neighbors."""
        waiting = sum(not self.visits[ref].is_home for ref in self.queue)
        return self.policy not in BY_LOAD or waiting < 2 * self.settings.servers

    def accept_probability(self, relay_hops=None):
        """P, of the servers that are not stuck."""
        working = self.working()
        if not self.takes_foreign(self.wanted_bytes, relay_hops):
            return 0.0
        if self.down or self.elsewhere_first():
            return SLOW_START_SHARE if self.takes_a_probe() else 0.0
        return working / (len(self.queue) + working) * self.machine.health.start_share

    def may_be_too_late(self, event):
        """Never without a deadline, nor before as many wait as there are servers."""
        return event.deadline_s < math.inf and len(self.queue) >= self.settings.servers

    def judge_the_whole(self):
        self.machine.check()
        held_bytes = sum(visit.event.request.size_bytes for visit in self.visits.values())
        assert self.machine.held.request_bytes == held_bytes
        busy = self.busy()
        assert busy <= self.busy_max
        is_idle = busy < self.settings.servers and not self.down
        is_idle = is_idle and not self.machine.servers.resting
        assert not (is_idle and self.queue), "a server idles while some wait"
        assert self.machine.accept_probability == self.accept_probability()
        bound = self.settings.queue_limit + self.settings.away_limit + self.settings.servers
        assert len(self.queue) <= bound + self.carried[1]
        assert len(self.away()) <= max(self.settings.away_limit, self.carried[0])
        for y, since_s in self.ramp_since_s.items():
            if since_s is None and self.machine.neighbors.by_handle[y].known:
                self.ramp_since_s[y] = self.now_s
        assert self.machine.truncated == self.truncated
        assert self.machine.queue_length == len(self.queue)
        assert self.machine.neighbors.ids == tuple(self.neighbors.values())
        seen = self.ledger()
        assert self.machine.ledger.as_dict() == seen, (self.machine.ledger.as_dict(), seen)
        assert self.machine.drained == (self.emptying and not self.visits and not self.stuck)
        assert len(self.machine.decider.log) <= 16

    def ledger(self):
        """Both sides, counted anew from what was seen."""
        home, foreign = Counter(), Counter()
        for visit in self.visits.values():
            state = "handed_on" if visit.state == "away" and not visit.is_home else visit.state
            (home if visit.is_home else foreign)[state] += 1
        for is_home, outcome in self.ended.values():
            if is_home:
                home[HOME_ENDS.get(outcome, outcome.value)] += 1
            else:
                foreign["cancelled" if outcome is Outcome.CANCELLED else "answered"] += 1
        foreign["answered"] += len(self.given_back)
        entries = self.machine.ledger.as_dict()
        zeros = {side: dict.fromkeys(entries[side], 0) for side in ("home", "foreign")}
        return {
            "epoch": 1,
            "home": zeros["home"] | home | {"accepted": home.total()},
            "foreign": zeros["foreign"] | foreign | {"received": foreign.total()},
        }

    def teardown(self):
        """Let everything finish: each accepted request has had exactly one Reply, refused none."""
        if not hasattr(self, "visits"):
            return
        self.down = False
        self.rest_until_s = -math.inf
        self.feed(ev.ServersUp())
        self.now_s = max(self.now_s, self.rest_until_s, *self.cooling_s)
        self.feed(ev.TimerFired())
        # Each round ends what runs, so that as many rounds as there were requests are enough.
        for _ in range(self.refs):
            if not self.visits and not self.stuck:
                break
            for ref in [*self.running(), *sorted(self.stuck)]:
                self.feed(ev.ServiceEnded(ref, Outcome.DONE, 0.04))
            for ref in self.away():
                self.feed(ev.ForwardAnswered(ref, Answer(Outcome.DONE, ()), 0.0, 0.0))
        assert not self.visits
        assert not self.stuck
        assert {*self.ended, *self.refused, *self.given_back} == set(range(1, self.refs + 1))
        assert len(self.ended) + len(self.refused) + len(self.given_back) == self.refs


TestClusterUnderTest = ClusterUnderTest.TestCase
TestClusterUnderTest.settings = settings(max_examples=examples(120), stateful_step_count=60)
