"""Whatever is stored, whatever is called when: Redis and the twin answer and store the same."""

import asyncio
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from spillover.core.leases.records import Allocation, Grab, Registration, StoredLoad
from spillover.model.lease_times import LEASE_BALANCES, LeaseTimes
from support.few import examples, in_soak

TIMES = LeaseTimes()
MEMBERS = st.sampled_from([("a", "i1"), ("a", "i2"), ("b", "i1"), ("c", "i1")])
NODES = st.sampled_from("abc")
PARTITIONS = st.integers(0, 4)
AMOUNTS = st.sampled_from([1_000, 1_001, 2_500, 7_777, 30_000, 10**12])
T = 1_000_000


@pytest.fixture(params=LEASE_BALANCES)
def both(request, new_redis_group, new_twin_group):
    """A new pair of groups for each example."""
    balance = request.param
    return lambda: (new_redis_group(5, TIMES, balance), new_twin_group(5, TIMES, balance))


class InAnyOrder(RuleBasedStateMachine):
    """Carries out each operation on both."""

    def __init__(self, both):
        super().__init__()
        self.runner = asyncio.Runner()
        self.groups = both()
        self.balance = self.groups[1].twin._balance
        self.now_ms = T
        self.epochs = [[0] for _ in range(5)]
        self.accepted = [0] * 5

    def teardown(self):
        for group in self.groups:
            self.runner.run(group.close())
        self.runner.close()

    def do(self, node, operation, *arguments):
        live, twin = (
            self.runner.run(group.do(self.now_ms, node, operation, *arguments))
            for group in self.groups
        )
        assert live == twin, operation
        return live

    @rule(ms=st.sampled_from([1, 5_000, 10_000, 30_000, 60_000, 180_000]))
    def time_passes(self, ms):
        self.now_ms += ms

    @rule(ms=st.sampled_from([1, 30_000, 60_000]), nodes=st.sampled_from(["ab", "abc"]))
    def the_living_renew(self, ms, nodes):
        """What a calm group does; so partitions stay where they are and are old enough to move."""
        self.now_ms += ms
        for node in nodes:
            own = self.do(node, "survey", node).own
            self.do(node, "renew", node, "i1", own)

    @rule(member=MEMBERS, leaves=st.booleans())
    def join_or_leave(self, member, leaves):
        self.do(member[0], "leave" if leaves else "join", *member)

    @rule(member=MEMBERS, data=st.data())
    def renew(self, member, data):
        partitions = data.draw(st.lists(PARTITIONS, unique=True))
        held = [(p, data.draw(st.sampled_from(self.epochs[p][-3:]))) for p in partitions]
        self.do(member[0], "renew", *member, held)

    @rule(node=NODES, partition=PARTITIONS, free_for_ms=st.sampled_from([0.0, 60_000.0]))
    def grab(self, node, partition, free_for_ms):
        self.do(node, "grab", partition, node, free_for_ms)

    @rule(node=NODES, partition=PARTITIONS)
    def activate(self, node, partition):
        epoch = self.do(node, "activate", partition, node).epoch
        if epoch is not None:
            assert epoch > self.accepted[partition]
            self.accepted[partition] = epoch
            self.epochs[partition].append(epoch)

    @rule(node=NODES, partitions=st.lists(PARTITIONS, unique=True))
    def take(self, node, partitions):
        """However many are free, so that there is something to lose."""
        for partition in partitions:
            self.grab(node, partition, 60_000.0)
            self.activate(node, partition)

    @rule(node=NODES)
    def want_all(self, node):
        """As many as the counts allow."""
        for partition in range(5):
            self.grab(node, partition, 0.0)

    @rule(limit=st.booleans(), release=st.booleans())
    def hand_over(self, limit, release):
        """Whoever is asked drains; then it releases, or has had its time; the winner activates."""
        snapshot = self.runner.run(self.groups[1].snapshot(self.now_ms))
        for partition, grab in snapshot.grabs.items():
            held = snapshot.allocations.get(partition)
            if held is not None and held.owner != grab.node:
                self.do(held.owner, "drain", partition, held.owner, held.epoch)
                if release:
                    self.do(held.owner, "release", partition, held.owner, held.epoch)
        self.now_ms += 10_000 * limit
        for partition, grab in snapshot.grabs.items():
            self.activate(grab.node, partition)

    @rule(
        operation=st.sampled_from(["is_wanted", "drain", "release"]),
        node=NODES,
        partition=PARTITIONS,
        data=st.data(),
    )
    def hold(self, operation, node, partition, data):
        epoch = data.draw(st.sampled_from(self.epochs[partition][-2:]))
        self.do(node, operation, partition, node, epoch)

    @rule(node=NODES, told=st.dictionaries(PARTITIONS, AMOUNTS))
    def tell_loads(self, node, told):
        """Of whatever it holds and does not hold."""
        loads = [(p, self.epochs[p][-1], amount) for p, amount in told.items()]
        if self.balance == "load":
            self.do(node, "survey", node, loads)

    @rule(node=NODES)
    def survey(self, node):
        self.do(node, "survey", node)

    @rule(everything=st.booleans())
    def data_are_lost(self, everything):
        self.now_ms += 1
        for group in self.groups:
            self.runner.run(group.lose_all() if everything else group.move())

    @invariant()
    def store_the_same(self):
        live, twin = (self.runner.run(group.snapshot(self.now_ms)) for group in self.groups)
        assert live == twin


def test_redis_and_the_twin_agree(both):
    run_state_machine_as_test(
        lambda: InAnyOrder(both),
        settings=settings(max_examples=in_soak(30, examples(21)), stateful_step_count=40),
    )


AGES_MS = (0, 29_999, 30_000, 59_999, 60_000, 100_000)
AHEAD_MS = (-1, 0, 1, 90_000, 90_000, 90_000, 90_000)


def any_state(random, now_ms):
    """All that is stored, with instants just before, at and just after the clock."""
    allocations, grabs, members = {}, {}, {}
    for partition in range(5):
        since_ms = now_ms - random.choice(AGES_MS)
        to_ms = random.choice([0, *(now_ms + ahead for ahead in AHEAD_MS)])
        stop_ms = random.choice([0, 0, 0, now_ms - 1, now_ms, now_ms + 1])
        if random.random() < 0.9:
            owner = random.choice("aab")
            allocations[partition] = Allocation(owner, since_ms, since_ms, to_ms, stop_ms)
        if random.random() < 0.4:
            since_ms = now_ms - random.choice(AGES_MS)
            grabs[partition] = Grab(
                random.choice("abc"), since_ms, now_ms + random.choice(AHEAD_MS)
            )
    for node in "abc":
        if random.random() < 0.9:
            members[node] = Registration(now_ms + random.choice(AHEAD_MS), "i1")
    amounts = random.choices((1_000, 1_003, 2_500, 4_000, 9_999, 10**12), k=5)
    told_ms = [now_ms - random.choice((0, 1, 359_999, 360_000)) for _ in amounts]
    loads = {
        partition: StoredLoad(amount, at_ms)
        for partition, (amount, at_ms) in enumerate(zip(amounts, told_ms, strict=True))
        if random.random() < 0.7
    }
    return allocations, grabs, members, loads


def any_calls(random, now_ms, allocations):
    """Operations in any order, most of them as the members would call them."""
    for operation in random.choices(
        ("grab", "renew", "activate", "drain", "release", "is_wanted", "survey", "join"),
        weights=(8, 2, 2, 1, 1, 1, 1, 1),
        k=6,
    ):
        node, partition = random.choice("abc"), random.randrange(5)
        epochs = {p: held.epoch for p, held in allocations.items() if held.owner == node}
        if operation == "survey":
            yield node, operation, (node,)
        elif operation == "join":
            yield node, operation, (node, random.choice(("i1", "i1", "i2")))
        elif operation == "grab":
            yield node, operation, (partition, node, random.choice((0, 0, 0, 59_999, 60_000)))
        elif operation == "activate":
            yield node, operation, (partition, node)
        elif operation == "renew":
            pairs = [(p, epoch + random.choice((-1, 0, 0, 0, 1))) for p, epoch in epochs.items()]
            yield node, operation, (node, random.choice(("i1", "i1", "i2")), pairs)
        else:
            epoch = epochs.get(partition, now_ms) + random.choice((-1, 0, 0, 0, 1))
            yield node, operation, (partition, node, epoch)


def test_redis_and_the_twin_agree_from_any_state(both):
    """Also states that many steps would lead to."""

    async def story(random, groups):
        now_ms = T
        for node in "ab":
            for group in groups:
                await group.do(now_ms, node, "renew", node, "i1", [])
        for _ in range(20):
            now_ms += 1_000_000
            state = any_state(random, now_ms)
            moves = random.random() < 0.2
            for group in groups:
                await group.put(*state)
                if moves:
                    await group.move()
            for node, operation, arguments in any_calls(random, now_ms, state[0]):
                live, twin = [
                    await group.do(now_ms, node, operation, *arguments) for group in groups
                ]
                assert live == twin, (operation, arguments, state)
            live, twin = [await group.snapshot(now_ms) for group in groups]
            assert live == twin, state
        for group in groups:
            await group.close()

    for seed in range(in_soak(20, examples(15))):
        asyncio.run(story(Random(seed), both()))
