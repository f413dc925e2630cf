"""The health of a cluster: how it is lost, what is tried meanwhile, and the way back."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from spillover.core.overflow.health import (
    DEGRADED,
    FOREIGN_PAUSE_S,
    FOREIGN_RUN,
    PAID_PAUSE_S,
    PAID_PAUSE_S_MAX,
    PROBE_PAUSE_S,
    PROBE_PAUSE_S_MAX,
    RECOVERING,
    RELAPSE_S,
    SHARE_STEP,
    SLOW_START_S,
    SLOW_START_SHARE,
    WELL,
    Health,
)
from spillover.core.overflow.standing import FAILS_EVERYWHERE
from spillover.core.share import SHARE_FORGET_S, Share
from spillover.policy.overflow.degradation import RUN_MIN


def ended(health, now_s, failed, **how):
    """Work has ended, where elsewhere none fails, unless told otherwise."""
    return health.ended(now_s, failed=failed, **{"usual": 0.0, **how})


def proven(now_s=0.0):
    """A cluster that has worked for a while."""
    health = Health()
    for _ in range(10):
        ended(health, now_s, False)
    return health


def degraded(now_s=0.0, **how):
    """A cluster that has just become degraded."""
    health = proven(now_s)
    for _ in range(4):
        ended(health, now_s, True, **how)
    assert health.degraded
    return health


def recover(health, now_s):
    """How many successes in a row that takes."""
    count = 0
    while health.degraded:
        ended(health, now_s, False)
        count += 1
    return count


# --- becoming degraded ------------------------------------------------------------------------


def test_two_failures_at_the_start_and_four_later():
    """A cluster that has never worked is not trusted as one that has."""
    fresh, old = Health(), proven()
    assert [ended(fresh, 0.0, True) for _ in range(3)] == [False, True, False]
    assert [ended(old, 0.0, True) for _ in range(5)] == [False, False, False, True, False]
    assert (fresh.state, old.state) == (DEGRADED, DEGRADED)
    assert fresh.changes == old.changes == 1


def test_nothing_is_forgotten_while_nothing_is_tried():
    """What runs the work has asked to be left alone for a minute, and after it for another one."""
    health = proven()
    assert not ended(health, 0.0, True, rest_s=60.0)
    assert ended(health, 60.0, True, rest_s=60.0)
    other = proven()
    assert not ended(other, 0.0, True, rest_s=1.0)
    assert not ended(other, 60.0, True, rest_s=60.0)


def test_what_asks_to_be_left_alone_says_more_than_one_failure():
    health = proven()
    assert not ended(health, 0.0, True, rest_s=1.0)
    assert ended(health, 0.0, True)


@pytest.mark.parametrize(("service_s", "falls"), [(0.1, False), (10.0, True)])
def test_failures_of_slow_work_add_up_over_a_longer_time(service_s, falls):
    """They come a minute apart, since each occupies its server for as long."""
    health = proven()
    changed = [ended(health, 60.0 * k, True, service_s=service_s) for k in range(6)]
    assert any(changed) == falls


# --- what is tried meanwhile ------------------------------------------------------------------


def test_probes_begin_after_a_pause_and_one_more_with_each_success():
    """Never more under way than successes in a row, and one."""
    health = degraded()
    assert not health.may_probe(PROBE_PAUSE_S - 0.01, is_home=True)
    now_s = PROBE_PAUSE_S
    for run in range(5):
        taken = 0
        while health.may_probe(now_s, is_home=True):
            health.probe(100 * run + taken)
            taken += 1
        assert taken == run + 1
        for ref in range(taken):
            health.forget(100 * run + ref)
        ended(health, now_s, False)


def pauses_s(health, begun_s, count, *, is_free):
    """How long after each failure the next such probe may start."""
    pauses, now_s = [], begun_s
    for _ in range(count):
        ended(health, now_s, True, is_free=is_free)
        failed_s = now_s
        while not health.may_probe(now_s, is_home=True, is_free=is_free):
            now_s += PROBE_PAUSE_S / 8
        pauses.append(now_s - failed_s)
    return pauses


def test_what_costs_nothing_is_tried_every_second():
    """Pauses double while probes fail, and begin anew with the next degradation."""
    pauses = pauses_s(degraded(), PROBE_PAUSE_S, 5, is_free=True)
    assert pauses == [0.25, 0.5, PROBE_PAUSE_S_MAX, PROBE_PAUSE_S_MAX, PROBE_PAUSE_S_MAX]


def test_what_costs_an_answer_is_tried_the_more_rarely_the_longer_it_fails():
    """At most once in ten seconds, in the end, and not at all where others find out for nothing."""
    pauses = pauses_s(degraded(), PROBE_PAUSE_S, 14, is_free=False)
    assert pauses == sorted(pauses)
    assert pauses[0] == PAID_PAUSE_S
    assert pauses[-1] == PAID_PAUSE_S_MAX
    assert sum(pauses[:8]) < 11.0, "a short failure is found to be over soon"
    health = degraded()
    for step in range(40):
        now_s = PROBE_PAUSE_S_MAX * (1 + step)
        ended(health, now_s, True, is_free=True)
        assert not health.may_probe(now_s + PROBE_PAUSE_S_MAX, is_home=True)


def test_where_the_service_can_be_asked_no_client_pays():
    """Nothing is tried before it says that it is well; then something is at once."""
    health = Health(asks=True)
    assert not health.wants_to_ask(0.0)
    while not health.degraded:
        ended(health, 0.0, True)
    for step in range(1, 30):
        now_s = float(step)
        assert health.wants_to_ask(now_s)
        assert not health.wants_to_ask(now_s), "one question at a time"
        assert not health.may_probe(now_s, is_home=True)
        health.asked(now_s, is_well=False)
    assert health.wants_to_ask(31.0)
    health.asked(31.0, is_well=True)
    assert not health.wants_to_ask(31.0)
    assert health.may_probe(31.0, is_home=True)
    ended(health, 31.0, True)
    assert not health.may_probe(60.0, is_home=True), "it has lied: it is asked again"
    assert health.wants_to_ask(60.0)


def test_neighbors_are_asked_for_probes_only_after_a_run_or_without_own_work():
    """FOREIGN_RUN successes, or FOREIGN_PAUSE_S without a request of an own client."""
    health = degraded()
    assert not health.invites(FOREIGN_PAUSE_S - 0.01)
    assert health.invites(FOREIGN_PAUSE_S)
    health.came(FOREIGN_PAUSE_S)
    assert not health.invites(2 * FOREIGN_PAUSE_S - 0.01)
    for _ in range(FOREIGN_RUN - 1):
        ended(health, FOREIGN_PAUSE_S, False)
    assert not health.invites(FOREIGN_PAUSE_S)
    ended(health, FOREIGN_PAUSE_S, False)
    assert health.invites(FOREIGN_PAUSE_S)
    assert not Health().invites(1e9), "one that is well needs no probes"


@pytest.mark.parametrize(("not_run", "last_s"), [(False, PAID_PAUSE_S_MAX), (True, 1.0)])
def test_a_neighbors_probe_comes_as_rarely_as_an_own_one(not_run, last_s):
    """It is a client of a healthy cluster who pays for it, where what failed may have run."""
    health = degraded()
    waits_s, now_s = [], 0.0
    while now_s < 45.0:
        begun_s = now_s
        while not health.invites(now_s):
            now_s += 0.5
        waits_s.append(now_s - begun_s)
        ended(health, now_s, True, not_run=not_run)
    assert (waits_s[0], waits_s[-1]) == (FOREIGN_PAUSE_S, last_s)
    assert waits_s == sorted(waits_s)


# --- the way back -----------------------------------------------------------------------------


def test_few_successes_end_it_where_all_failed_and_more_after_a_relapse():
    """Twice as many each time; after RELAPSE_S, as few as before."""
    health, runs = degraded(), []
    for _ in range(10):
        ended(health, 0.5, True)
    for _ in range(3):
        runs.append(recover(health, 1.0))
        for _ in range(14):
            ended(health, 1.0, True)
    assert runs == [RUN_MIN, 2 * RUN_MIN, 4 * RUN_MIN]
    recover(health, 1.0)
    for _ in range(14):
        ended(health, 2.0 + RELAPSE_S, True)
    assert recover(health, 2.0 + RELAPSE_S) == RUN_MIN


@given(st.lists(st.floats(0.0, 3 * SLOW_START_S), min_size=2))
def test_a_slow_start_only_grows(after_s):
    """From SLOW_START_SHARE to 1 within SLOW_START_S."""
    health = degraded()
    recover(health, 1.0)
    told = [health.start_share]
    for at_s in sorted(after_s):
        health.tick(1.0 + at_s)
        told.append(health.start_share)
    assert told == sorted(told)
    assert told[0] == SLOW_START_SHARE
    health.tick(1.0 + SLOW_START_S)
    assert (health.start_share, health.state) == (1.0, WELL)


# --- the shares that are told -----------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0.0, 100.0), st.booleans())))
def test_a_share_is_one_and_fades(ends):
    """Between 0 and 1, and half after SHARE_FORGET_S without news."""
    share, now_s = Share(), 0.0
    for pause_s, failed in ends:
        now_s += pause_s
        share.add(now_s, failed=failed)
        assert 0.0 <= share.at(now_s) <= 1.0
    assert share.at(now_s + SHARE_FORGET_S) == pytest.approx(share.at(now_s) / 2)
    assert (share.last > 0.0) == (share.at(now_s) > 0.0)


def test_a_share_that_is_next_to_nothing_is_none():
    """One failure is forgotten over some forty successes, so that a calm cluster is calm again."""
    share = Share()
    share.add(0.0, failed=True)
    successes = 0
    while share.last and successes < 100:
        share.add(0.0, failed=False)
        successes += 1
    assert 30 <= successes <= 40
    assert share.at(0.0) == 0.0


@given(st.lists(st.booleans(), max_size=100), st.floats(0.0, 200.0))
def test_what_others_are_told_comes_in_steps(failures, later_s):
    """So that reports do not differ for nothing."""
    health = Health()
    for failed in failures:
        ended(health, 0.0, failed)
    told = health.failed_share(later_s)
    assert 0.0 <= told <= 1.0
    assert told / SHARE_STEP == pytest.approx(round(told / SHARE_STEP))


# --- all of it at random ----------------------------------------------------------------------


class AnyHealth(RuleBasedStateMachine):
    """Work comes and ends in any order; what the module promises holds all the time."""

    @initialize()
    def begin(self):
        self.health = Health()
        self.now_s = 0.0
        self.failed_s = 0.0
        self.refs = 0
        self.under_way = set()

    @rule(pause_s=st.sampled_from([0.0, 0.01, 0.3, 1.0, 20.0, 100.0]))
    def wait(self, pause_s):
        before = self.health.start_share
        self.now_s += pause_s
        self.health.tick(self.now_s)
        assert self.health.start_share >= before

    @rule(is_home=st.booleans(), is_free=st.booleans())
    def come(self, is_home, is_free):
        """Where it is well, all starts; else what may be a probe does."""
        if is_home:
            self.health.came(self.now_s)
        if self.health.degraded:
            if not self.health.may_probe(self.now_s, is_home=is_home, is_free=is_free):
                return
            assert is_home or is_free or self.health.invites(self.now_s)
            self.health.probe(self.refs)
        self.under_way.add(self.refs)
        self.refs += 1

    @precondition(lambda self: self.under_way)
    @rule(
        data=st.data(),
        failed=st.booleans(),
        usual=st.sampled_from([0.0, 0.0, 0.3, 1.0]),
        not_run=st.booleans(),
    )
    def end(self, data, failed, usual, not_run):
        ref = data.draw(st.sampled_from(sorted(self.under_way)))
        self.under_way.remove(ref)
        was, changes = self.health.degraded, self.health.changes
        self.health.forget(ref)
        how = {"usual": usual, "not_run": failed and not_run}
        changed = ended(self.health, self.now_s, failed, **how)
        assert changed == (was != self.health.degraded)
        assert self.health.changes == changes + changed
        assert not changed or failed == self.health.degraded
        if failed and self.health.degraded and usual < FAILS_EVERYWHERE:
            free, later_s = {"is_home": True, "is_free": True}, self.now_s + PAID_PAUSE_S_MAX
            assert not self.health.may_probe(self.now_s, **free), "a pause after a failure"
            assert self.health._probes or (
                self.health.may_probe(self.now_s + PROBE_PAUSE_S_MAX, **free)
                and self.health.may_probe(later_s, is_home=True)
            )

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def forget(self, data):
        """Cancelled, late, or given back."""
        ref = data.draw(st.sampled_from(sorted(self.under_way)))
        self.under_way.remove(ref)
        self.health.forget(ref)

    @invariant()
    def holds(self):
        self.health.check()
        assert len(self.health._probes) <= self.health.here.run + 1 or not self.health.here.run
        assert self.health.state in (WELL, DEGRADED, RECOVERING)
        assert SLOW_START_SHARE <= self.health.start_share <= 1.0
        assert self.health.degraded or not self.health.invites(self.now_s)


TestAnyHealth = AnyHealth.TestCase
TestAnyHealth.settings = settings(stateful_step_count=60)
