"""Whatever happens to a pool, it is as in one made of lists; no token is lost or doubled."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from support.few import examples
from support.pool_of_lists import PoolOfLists
from support.unlike_pools import DrivenPool, pool_of

SERVERS = "pqrs"
CLASSES = "ABCD"
TYPES = "xyz"


@st.composite
def pools(draw):
    """Few servers, of which classes and types share some."""
    servers = {
        each: draw(st.sampled_from([1, 2, 4])) for each in SERVERS[: draw(st.integers(1, 4))]
    }
    some = st.lists(st.sampled_from(sorted(servers)), min_size=1, max_size=2, unique=True)
    classes = {
        each: (" ".join(draw(some)), draw(st.integers(1, 4)))
        for each in CLASSES[: draw(st.integers(1, 4))]
    }
    used = {server for of, _ in classes.values() for server in of.split()}
    kept = {each: rate for each, rate in servers.items() if each in used}
    joins = st.lists(st.sampled_from(sorted(classes)), min_size=1, unique=True)
    types = {each: " ".join(draw(joins)) for each in TYPES}
    return pool_of(kept, classes, types, discipline=draw(st.sampled_from(["ps", "fcfs"])))


class History(RuleBasedStateMachine):
    """All that clients, handlers, operators and time do to a pool."""

    @initialize(pool=pools())
    def begin(self, pool):
        self.pool = DrivenPool(pool)
        self.twin = PoolOfLists(pool)
        self.ids = [each.id for each in pool.servers]
        self.classes = [each.id for each in pool.classes]
        self.expired = set()
        self.cooling = []
        self.out, self.down = set(), set()
        self.ref = 0
        self.now_s = 0.0

    def servers_settle(self):
        """What the pool closes by itself, and opens again, is its own."""
        for server in self.pool.servers.servers:
            self.twin.settle(server.id, server.state != "up")

    def serves(self, started):
        assert sorted(started) == sorted(self.twin.serve(self.expired))

    @rule(
        type_=st.sampled_from([*TYPES, "nobody's"]),
        is_home=st.booleans(),
        expires=st.integers(0, 5),
    )
    def arrive(self, type_, is_home, expires):
        self.ref += 1
        assert self.pool.arrive(self.ref, type_, is_home) == self.twin.arrive(self.ref, type_)
        if not expires:
            self.expired.add(self.ref)
            self.pool.visits[self.ref].expired = True

    def running(self):
        return sorted(self.pool.servers.jobs_by_ref)

    @precondition(lambda self: self.running())
    @rule(
        data=st.data(), how=st.sampled_from(["done", "done", "done", "failed", "stopped", "cools"])
    )
    def end(self, data, how):
        ref = data.draw(st.sampled_from(self.running()))
        server = self.twin.jobs[ref][1]
        until_s = self.now_s + 2.0
        if how == "done":
            self.twin.grew(server)
        started = self.pool.end(ref, how, 1.0, until_s)
        self.servers_settle()
        if how == "cools":
            self.cooling.append((until_s, ref))
        else:
            self.twin.freed(ref, served=how == "done")
        self.serves(started)

    @precondition(lambda self: self.running())
    @rule(data=st.data(), rests_s=st.sampled_from([None, None, 0.5, 3.0]))
    def refuse(self, data, rests_s):
        """It surely was not done, and goes to other servers first."""
        ref = data.draw(st.sampled_from(self.running()))
        self.expired.discard(ref)
        self.pool.visits[ref].expired = False
        server = self.twin.jobs[ref][1]
        until_s = None if rests_s is None else self.now_s + rests_s
        started = self.pool.end(ref, "refused", rests_until_s=until_s)
        if self.pool.servers.servers[self.ids.index(server)].health.degraded:
            self.servers_settle()
        self.twin.freed(ref, served=False)
        self.servers_settle()
        told = self.twin.refuse(ref, server)
        at_once = [] if told in {"blocked", "seat"} else [ref]
        assert sorted(started) == sorted([*at_once, *self.twin.serve(self.expired)])

    @precondition(lambda self: self.pool.servers.waiting)
    @rule(data=st.data())
    def leave(self, data):
        ref = data.draw(st.sampled_from(sorted(visit.ref for visit in self.pool.servers)))
        started = self.pool.leave(ref)
        self.twin.leave(ref)
        self.serves(started)

    @precondition(lambda self: self.pool.servers.waiting)
    @rule()
    def drain(self):
        """All that wait go elsewhere."""
        for visit in list(self.pool.servers):
            self.pool.servers.leave(visit)
            self.twin.leave(visit.ref)
        self.serves(self.pool.serve())
        assert self.pool.servers.waiting == 0

    @rule(data=st.data(), limit=st.integers(1, 5))
    def limit(self, data, limit):
        class_id = data.draw(st.sampled_from(self.classes))
        self.twin.set_limit(class_id, limit)
        self.twin.seat()
        self.serves(self.pool.limit(**{class_id: limit}))

    @rule(data=st.data())
    def operator(self, data):
        server = data.draw(st.sampled_from(self.ids))
        self.out ^= {server}
        started = self.pool.put(**{server: server not in self.out})
        self.servers_settle()
        self.serves(started)

    @rule(data=st.data())
    def handler(self, data):
        server = data.draw(st.sampled_from(self.ids))
        self.down ^= {server}
        started = self.pool.change(server, server not in self.down)
        self.servers_settle()
        self.serves(started)

    @rule()
    def halt(self):
        servers = self.pool.servers
        self.twin.halted = servers.down = not servers.down
        self.serves(self.pool.serve())

    @rule()
    def end_rest(self):
        self.pool.servers.end_rest()
        self.servers_settle()
        self.serves(self.pool.serve())

    @rule(later_s=st.sampled_from([0.1, 1.0, 3.0]))
    def wake(self, later_s):
        self.now_s += later_s
        started = self.pool.wake(self.now_s)
        for until_s, ref in [one for one in self.cooling if one[0] <= self.now_s]:
            self.cooling.remove((until_s, ref))
            self.twin.freed(ref, served=False)
        self.servers_settle()
        self.serves(started)

    @invariant()
    def they_agree(self):
        pool, twin = self.pool.servers, self.twin
        numbered = [
            (token.number, class_id)
            for kind, class_id in enumerate(pool.class_ids)
            for token in pool.bucket.tokens(kind)
        ]
        assert [class_id for _, class_id in sorted(numbered)] == twin.bucket
        assert {one: self.pool.counts(one)["out"] for one in self.classes} == twin.out
        cooled = [job for _, _, job in pool.cooled]
        jobs = [*pool.jobs_by_ref.values(), *cooled]
        there = {job.ref: (pool.class_ids[job.token.kind], self.ids[job.server]) for job in jobs}
        assert there == twin.jobs
        assert [visit.ref for visit in pool.blocked] == twin.blocked
        lines = {each.id: [visit.ref for visit in each.line.values()] for each in pool.servers}
        assert lines == {each: [ref for ref, _ in line] for each, line in twin.line.items()}
        states = {each.state for each in pool.servers}
        assert pool.resting is ("resting" in states and "up" not in states)
        told = pool.told()
        assert told["unaccounted"] == 0
        assert pool.waiting == len(twin.blocked) + sum(len(line) for line in twin.line.values())


@pytest.mark.slow
def test_any_history_is_that_of_lists():
    run_state_machine_as_test(
        History, settings=settings(max_examples=examples(120), stateful_step_count=60)
    )
