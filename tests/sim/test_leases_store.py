"""The scripts of the guarded rule: owner and epoch are compared, the counts decide."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from spillover.model.lease_times import LeaseTimes
from spillover.sim.leases_store import GuardedStore

TIMES = LeaseTimes()
NODES = st.integers(0, 2)
PARTITIONS = st.integers(0, 4)


def start_everything_on(node, store, now_ms=0.0):
    store.renew(now_ms, node, [])
    for partition in range(len(store.allocations)):
        assert store.grab(now_ms, partition, node, 0.0)
        assert store.activate(now_ms, partition, node)[0] is not None


def test_stale_epochs_change_nothing():
    """Renewing, draining and releasing with another epoch, or as another node."""
    store = GuardedStore(1, TIMES)
    start_everything_on(0, store, 5.0)
    epoch = store.allocations[0].epoch
    before = deepcopy(store)
    for node, stale in ((0, epoch - 1), (0, epoch + 1), (1, epoch)):
        assert not store.drain(9.0, 0, node, stale)
        assert not store.release(9.0, 0, node, stale)
        assert store.renew(9.0, node, [(0, stale)]) == [(0, False, False)]
        assert not store.is_wanted(9.0, 0, node, stale)
    assert (store.allocations, store.grabs) == (before.allocations, before.grabs)


def test_a_living_holder_is_asked_and_never_robbed():
    """Won, drained, released, started: only then does the winner get an epoch."""
    store = GuardedStore(2, TIMES)
    start_everything_on(0, store)
    epoch = store.allocations[0].epoch
    now_ms = TIMES.normal_lease_ms
    store.renew(now_ms, 0, [(0, epoch), (1, epoch)])
    assert store.grab(now_ms, 0, 1, 0.0)
    assert not store.grab(now_ms, 0, 2, 0.0)
    assert store.renew(now_ms, 0, [(0, epoch)]) == [(0, True, True)]
    assert store.activate(now_ms, 0, 1) == (None, TIMES.max_lease_ms)
    assert store.activate(now_ms, 0, 2) == (None, 0.0)
    assert store.drain(now_ms, 0, 0, epoch)
    assert store.activate(now_ms, 0, 1) == (None, TIMES.max_shutdown_ms)
    assert store.release(now_ms + 1, 0, 0, epoch)
    later, _ = store.activate(now_ms + 1, 0, 1)
    assert later > epoch


def test_a_dead_winner_blocks_a_partition_only_for_its_time():
    """And a holder that never stops loses its partition at the shutdown limit."""
    store = GuardedStore(2, TIMES)
    start_everything_on(0, store)
    epoch = store.allocations[0].epoch
    now_ms = TIMES.normal_lease_ms
    assert store.grab(now_ms, 0, 1, 0.0)
    store.drain(now_ms, 0, 0, epoch)
    store.renew(now_ms, 0, [(0, epoch)])
    over_ms = now_ms + TIMES.max_shutdown_ms
    assert store.renew(over_ms, 0, [(0, epoch)]) == [(0, False, False)]
    assert not store.grab(over_ms, 0, 2, 0.0)
    freed_ms = now_ms + TIMES.grab_limit_ms
    store.renew(freed_ms, 2, [])
    assert 0 in store.survey(freed_ms, 2).free
    assert store.grab(freed_ms, 0, 2, 0.0)
    assert store.activate(over_ms, 0, 1) == (None, 0.0)


def test_what_evens_out_nothing_is_refused():
    """Five partitions on two nodes: two move, each after its residency, one in a period."""
    store = GuardedStore(5, TIMES)
    start_everything_on(0, store)
    store.renew(1.0, 1, [])
    assert not any(store.grab(1.0, partition, 1, 0.0) for partition in range(5))
    now_ms = TIMES.min_residency_ms
    assert [store.grab(now_ms, partition, 1, 0.0) for partition in range(5)].count(True) == 1
    now_ms += TIMES.normal_lease_ms
    assert [store.grab(now_ms, partition, 1, 0.0) for partition in range(5)].count(True) == 1
    now_ms += TIMES.normal_lease_ms * 0.9
    store.renew(now_ms, 0, [])
    store.renew(now_ms, 1, [])
    assert sorted(store.standing(now_ms).held.values()) == [2, 3]
    assert not any(store.grab(now_ms, p, node, 0.0) for p in range(5) for node in (0, 1))


class AnyOrderOfScripts(RuleBasedStateMachine):
    """Whatever is called when: epochs grow, nobody loses a live lease that was not drained."""

    def __init__(self):
        super().__init__()
        self.store = GuardedStore(5, TIMES)
        self.now_ms = 0.0
        self.epochs = [0] * 5
        self.granted = {}

    @rule(ms=st.sampled_from([1.0, 5_000.0, 30_000.0, 60_000.0, 180_000.0]))
    def time_passes(self, ms):
        self.now_ms += ms

    @rule(node=NODES)
    def renew(self, node):
        held = [(p, epoch) for p, (owner, epoch) in self.granted.items() if owner == node]
        self.store.renew(self.now_ms, node, held)

    @rule(node=NODES, partition=PARTITIONS, free_for_ms=st.sampled_from([0.0, 60_000.0]))
    def grab(self, node, partition, free_for_ms):
        before = self.store.standing(self.now_ms).held
        owner = self.store._live(self.now_ms, partition)
        if self.store.grab(self.now_ms, partition, node, free_for_ms) and owner is not None:
            assert before[owner.owner] - before.get(node, 0) >= 2

    @rule(node=NODES, partition=PARTITIONS)
    def activate(self, node, partition):
        held = self.store.allocations[partition]
        over = held is None or held.over_ms <= self.now_ms
        epoch, _ = self.store.activate(self.now_ms, partition, node)
        if epoch is not None:
            assert over
            assert epoch > self.epochs[partition]
            self.epochs[partition] = epoch
            self.granted[partition] = (node, epoch)

    @rule(partition=PARTITIONS, release=st.booleans())
    def let_go(self, partition, release):
        if partition in self.granted:
            act = self.store.release if release else self.store.drain
            act(self.now_ms, partition, *self.granted[partition])

    @invariant()
    def counts_are_of_living_members(self):
        standing = self.store.standing(self.now_ms)
        assert set(standing.held) == set(standing.lately)
        assert sum(standing.held.values()) <= 5
        assert all(standing.lately[node] <= held for node, held in standing.held.items())


TestAnyOrderOfScripts = AnyOrderOfScripts.TestCase
