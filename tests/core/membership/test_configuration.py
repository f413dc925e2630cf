"""The machine of a node's configuration: told by stories, and beside a model that says in a few
lines what it has to do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spillover.core.membership import events as ev
from spillover.core.membership.configuration import (
    COSTS_PAUSED,
    PAUSE_S,
    ConfigurationMachine,
)
from spillover.core.membership.events import Reason
from spillover.model.configuration import LINEAGE_MAX, Configuration, Stamp, of_file
from spillover.model.ids import ClusterId
from spillover.model.ranges import VERSION_MAX
from spillover.model.topology import Cluster, Topology
from support.few import examples

NAMES = [ClusterId(name) for name in "abc"]

PLAIN = Topology(
    name="plain",
    clusters=tuple(
        Cluster(id=name, servers=1, url=f"http://{name}:80") for name in NAMES
    ),
)  # fmt: skip


def hops(count: int) -> Topology:
    return replace(PLAIN, max_hops=count)


FILE = of_file(PLAIN)


def machine(own: str = "a", epoch: int = 1, **told: Any) -> ConfigurationMachine:
    return ConfigurationMachine(ClusterId(own), epoch, FILE, **told)


def chain(by: str, *max_hops: int, base: Configuration = FILE) -> Configuration:
    """Returns what comes of a node's changes of the hop budget."""
    for count in max_hops:
        base = base.next((by, 1), hops(count))
    return base


def propose(one: ConfigurationMachine, if_version: int, topology: Topology) -> list[ev.Command]:
    commands = one.handle(ev.Proposed(1, if_version, topology), 0.0)
    one.check()
    return commands


def test_stamps_are_ordered_by_version_and_then_by_cluster() -> None:
    ordered = [Stamp(0), Stamp(1), Stamp(1, "a", 9), Stamp(1, "b", 1), Stamp(1, "b", 2), Stamp(2)]
    assert sorted([ordered[i] for i in (4, 0, 5, 2, 1, 3)]) == ordered


def test_after_the_last_version_there_is_none() -> None:
    """A higher one would be believed by nobody. Stamps beyond it are none."""
    one = machine()
    last = Configuration(Stamp(VERSION_MAX, "b", 1), hops(3))
    one.handle(ev.Received(last, "b"), 0.0)
    (refused,) = propose(one, VERSION_MAX, hops(4))
    assert isinstance(refused, ev.Refused)
    assert (refused.reason, one.current) == (Reason.INVALID, last)
    assert Stamp.read(last.stamp.told) == last.stamp
    for told in (f"{VERSION_MAX + 1} b 1", f"1 b {2**53 + 1}", "9" * 16 + " b 1", "1 b\r\n 1"):
        assert Stamp.read(told) is None


def test_what_is_fixed_is_refused_with_its_field() -> None:
    (refused,) = propose(machine(), 0, replace(PLAIN, gossip_period_ms=1.0))
    assert isinstance(refused, ev.Refused)
    assert (refused.reason, refused.field) == (Reason.INVALID, "gossip_period_ms")


def test_a_higher_stamp_is_asked_for_once() -> None:
    one = machine()
    assert one.handle(ev.StampHeard("b", Stamp(2, "c")), 0.0) == [ev.Ask("b")]
    assert one.handle(ev.StampHeard("c", Stamp(3, "c")), 0.0) == []
    newer = chain("c", 3, 4)
    assert one.handle(ev.Received(newer, "b"), 1.0) == [ev.Adopt(newer)]
    assert one.handle(ev.StampHeard("b", Stamp(2, "c")), 1.0) == []
    assert one.handle(ev.StampHeard("b", newer.stamp), 1.0) == [], "that is its own"
    assert one.handle(ev.StampHeard("c", Stamp(3, "c")), 1.0) == [ev.Ask("c")]


def test_an_answer_of_no_use_is_not_asked_for_again_at_once() -> None:
    one = machine()
    for come_to in (ev.NotReceived("b"), ev.Received(FILE, "b")):
        assert one.handle(ev.StampHeard("b", Stamp(2, "c")), 0.0) == [ev.Ask("b")]
        assert one.handle(come_to, 0.0) == []
        assert one.handle(ev.StampHeard("b", Stamp(2, "c")), PAUSE_S / 2) == []
        assert one.handle(ev.StampHeard("c", Stamp(2, "c")), PAUSE_S / 2) == [ev.Ask("c")]
        assert one.handle(ev.NotReceived("c"), PAUSE_S / 2) == []
        one = machine()


def test_whose_answer_takes_long_to_read_is_asked_seldom() -> None:
    """Also where it is news each time: what a neighbor says costs a share of a processor."""
    for come_to in (ev.NotReceived("b", 0.5), ev.Received(chain("b", 3), "b", 0.5)):
        one = machine()
        assert one.handle(ev.StampHeard("b", Stamp(2, "c")), 0.0) == [ev.Ask("b")]
        one.handle(come_to, 0.0)
        assert one.handle(ev.StampHeard("b", Stamp(2, "c")), 0.45 * COSTS_PAUSED) == []
        assert one.handle(ev.StampHeard("b", Stamp(2, "c")), 0.5 * COSTS_PAUSED) == [ev.Ask("b")]


def test_who_has_lost_after_all_is_told_again() -> None:
    """What was built on it lost, against what was built on the one that had won at first."""
    one, winner = machine("a"), machine("b")
    propose(one, 0, hops(3))
    propose(winner, 0, hops(4))
    lost = one.current
    built, last = chain("c", 5, base=lost), chain("d", 6, base=winner.current)
    one.handle(ev.Received(winner.current, "b"), 0.0)
    one.handle(ev.Received(built, "c"), 0.0)
    one.check()
    told = ev.Superseded(lost, last.stamp)
    assert one.handle(ev.Received(last, "d"), 0.0) == [ev.Adopt(last), told]
    assert one.superseded == lost


def test_a_store_has_to_take_it_first() -> None:
    one = machine(with_store=True)
    (store,) = propose(one, 0, hops(3))
    assert isinstance(store, ev.Store)
    assert (store.expected, store.configuration.stamp) == (Stamp(0), Stamp(1, "a", 1))
    (refused,) = propose(one, 0, hops(4))
    assert isinstance(refused, ev.Refused)
    assert one.current.stamp == Stamp(0)
    assert [type(one) for one in one.handle(ev.Stored(1), 0.0)] == [ev.Taken, ev.Adopt]


def test_a_store_that_says_no_or_nothing() -> None:
    one = machine(with_store=True)
    for reason in (Reason.STORE_UNREACHABLE, Reason.VERSION_CONFLICT):
        propose(one, 0, hops(3))
        (refused,) = one.handle(ev.StoreRefused(1, reason), 0.0)
        assert isinstance(refused, ev.Refused)
        assert refused.reason is reason
        assert one.current.stamp == Stamp(0)


def test_one_is_stored_while_a_higher_one_comes_by_gossip() -> None:
    one = machine(with_store=True)
    propose(one, 0, hops(3))
    higher = chain("b", 1, 2)
    one.handle(ev.Received(higher), 0.0)
    assert [type(command) for command in one.handle(ev.Stored(1), 0.0)] == [
        ev.Taken,
        ev.Superseded,
    ]
    assert one.current == higher


def test_one_that_is_heard_of_while_it_is_stored_is_adopted_once() -> None:
    one = machine(with_store=True)
    (store,) = propose(one, 0, hops(3))
    assert isinstance(store, ev.Store)
    own = store.configuration
    assert one.handle(ev.Received(own), 0.0) == [ev.Adopt(own)]
    assert one.handle(ev.Stored(1), 0.0) == [ev.Taken(1, own.stamp)]


def test_what_a_configuration_remembers_is_bounded() -> None:
    one = chain("b", *range(3 * LINEAGE_MAX))
    assert len(one.lineage) == LINEAGE_MAX
    assert one.builds_on(Stamp(1, "b", 1)), "as far as it knows"
    assert not one.builds_on(Stamp(one.stamp.version - 1, "a"))


class Beside(RuleBasedStateMachine):
    """Three nodes whose messages come late, twice or not at all, and are started again from their
    files; beside each the whole truth: every configuration with all that it is built on."""

    def __init__(self) -> None:
        super().__init__()
        self.machines = {name: machine(name) for name in NAMES}
        self.whole: dict[Stamp, frozenset[Stamp]] = {Stamp(0): frozenset()}
        """All that each is built on."""
        self.texts: dict[Stamp, Configuration] = {Stamp(0): FILE}
        self.now: dict[str, Stamp] = dict.fromkeys(NAMES, Stamp(0))
        self.taken: dict[str, Stamp | None] = dict.fromkeys(NAMES, None)
        self.lost = dict.fromkeys(NAMES, False)
        """Whether that is not in what counts there."""
        self.asked: dict[str, str] = {}
        self.epochs = dict.fromkeys(NAMES, 1)
        self.now_s = 0.0
        self.count = 0

    def tell(self, name: str, event: ev.Event) -> list[ev.Command]:
        self.now_s += 0.1
        commands = self.machines[ClusterId(name)].handle(event, self.now_s)
        self.machines[ClusterId(name)].check()
        lost = [command for command in commands if isinstance(command, ev.Superseded)]
        mine = self.taken[name]
        for command in commands:
            match command:
                case ev.Adopt(configuration):
                    assert configuration.stamp > self.now[name]
                    self.now[name] = configuration.stamp
                case ev.Ask(neighbor):
                    assert name not in self.asked
                    self.asked[name] = neighbor
        present = self.now[name]
        has_lost = mine is not None and mine != present and mine not in self.whole[present]
        assert [one.lost.stamp for one in lost] == [mine] * (has_lost and not self.lost[name])
        self.lost[name] = has_lost
        assert (self.machines[ClusterId(name)].superseded is not None) == has_lost
        return commands

    @rule(name=st.sampled_from(NAMES), behind=st.sampled_from([0, 0, 0, 1, -1]))
    def set_one(self, name: str, behind: int) -> None:
        """For the version that counts; for one before it, or one that is not there yet, it is
        refused."""
        self.count += 1
        before = self.now[name]
        stamp = Stamp(before.version + 1, name, self.epochs[ClusterId(name)])
        if not behind:
            self.whole[stamp] = self.whole[before] | {before}
            self.taken[name], self.lost[name] = stamp, False
        event = ev.Proposed(self.count, before.version - behind, hops(self.count))
        commands = self.tell(name, event)
        if behind:
            (refused,) = commands
            assert isinstance(refused, ev.Refused)
            assert (refused.reason, refused.current) == (Reason.VERSION_CONFLICT, before)
        else:
            assert ev.Taken(self.count, stamp) in commands
            self.texts[stamp] = self.machines[ClusterId(name)].current

    @rule(name=st.sampled_from(NAMES), other=st.sampled_from(NAMES))
    def hear(self, name: str, other: str) -> None:
        self.tell(name, ev.StampHeard(other, self.now[other]))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.asked)))
        other = self.asked.pop(name)
        if data.draw(st.booleans()):
            self.tell(name, ev.Received(self.texts[self.now[other]], other))
        else:
            self.tell(name, ev.NotReceived(other))

    @rule(name=st.sampled_from(NAMES))
    def start_again(self, name: str) -> None:
        self.epochs[ClusterId(name)] += 1
        self.machines[ClusterId(name)] = machine(name, self.epochs[ClusterId(name)])
        self.now[name], self.taken[name], self.lost[name] = Stamp(0), None, False
        self.asked.pop(name, None)

    @invariant()
    def each_goes_by_the_highest_that_it_has_seen(self) -> None:
        for name, one in self.machines.items():
            assert one.current.stamp == self.now[name]
            assert one.current is self.texts[self.now[name]]

    def teardown(self) -> None:
        """Once all hear each other, all go by the same: the highest."""
        self.now_s += 10 * PAUSE_S
        for _ in range(len(NAMES)):
            for name in NAMES:
                for other in NAMES:
                    self.now_s += 2 * PAUSE_S
                    self.tell(name, ev.StampHeard(other, self.now[other]))
                    if name in self.asked:
                        there = self.asked.pop(name)
                        self.tell(name, ev.Received(self.texts[self.now[there]], there))
        assert len(set(self.now.values())) == 1


TestBeside = Beside.TestCase
TestBeside.settings = settings(max_examples=examples(100), stateful_step_count=30)
