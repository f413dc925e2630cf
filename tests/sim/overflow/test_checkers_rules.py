"""The checkers' other rules, each broken by what is told to a checker in a run, or by itself."""

import msgspec
import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.machine import NodeMachine
from spillover.inputs.topology_file import load_topology
from spillover.model.request import Answer, Outcome, Request
from spillover.sim.overflow.checkers import Broken, Checker, Client
from spillover.sim.overflow.run import run_overflow
from spillover.workloads.generated import poisson


def run():
    topology = load_topology("ring5")
    schedule = poisson(topology.cluster_ids, rate_per_s=60, duration_s=1.0, seed=1)
    run_overflow(topology, schedule, 1, check=True)


def client(checker):
    checker.waiting += 1
    return Client(Request("x", keyed=True, work=msgspec.Raw(b"1")), "a", 0)


def answer(*path):
    return Answer(Outcome.DONE, path, None, None)


@pytest.mark.parametrize(
    ("path", "started", "told"),
    [
        (("a", "b", "a"), 1, "x went a-b-a from a"),
        (("b",), 1, "x went b from a"),
        (("a", "b", "c"), 1, "x took 2 hops, at most 1 allowed"),
        (("a",), 0, "x is said to be done and never started"),
    ],
)
def test_answers_that_cannot_be(path, started, told):
    checker = Checker(1, 1)
    checker.starts["x"] = started
    with pytest.raises(Broken, match=told):
        checker.answered(client(checker), answer(*path), 1.0)


def test_what_was_refused_must_not_have_started():
    checker = Checker(1, 1)
    checker.refused(client(checker), 1.0)
    checker.starts["x"] = 1
    with pytest.raises(Broken, match="x was refused and has been started"):
        checker.refused(client(checker), 1.0)


def change_what_is_seen(monkeypatch, change):
    after = Checker.after

    def changed(checker, cluster, event, now_s, commands):
        after(checker, cluster, event, now_s, change(commands))

    monkeypatch.setattr(Checker, "after", changed)


def done(command):
    return type(command) is ev.Reply and command.answer.outcome is Outcome.DONE


def test_work_that_is_done_too_late(monkeypatch):
    def later(commands):
        for command in filter(done, commands):
            command.delay_s += 1e6
        return commands

    change_what_is_seen(monkeypatch, later)
    with pytest.raises(Broken, match="s too late"):
        run()


def test_work_that_starts_at_its_deadline(monkeypatch):
    """It could only be too late: a start is for what has time left, however little."""

    def at_the_last(commands):
        for command in commands:
            if type(command) is ev.Start:
                command.deadline_s = command.at_s
        return commands

    change_what_is_seen(monkeypatch, at_the_last)
    with pytest.raises(Broken, match="is started after its deadline"):
        run()


def test_a_visit_that_a_machine_answers_twice(monkeypatch):
    change_what_is_seen(monkeypatch, lambda commands: [*commands, *filter(done, commands)])
    with pytest.raises(Broken, match="is answered twice, or never came"):
        run()


def test_a_machine_that_contradicts_itself(monkeypatch):
    def contradict(machine):
        raise AssertionError("two and two")

    monkeypatch.setattr(NodeMachine, "check", contradict)
    with pytest.raises(Broken, match="the machine contradicts itself: two and two"):
        run()


@pytest.mark.parametrize("what", ["accept", "left"])
def test_what_must_hold_once_all_has_settled(monkeypatch, what):
    settled = Checker.settled

    def spoiled(checker, clusters, now_s, *, healed):
        machine = next(iter(clusters.values())).machine
        if what == "accept":
            machine.neighbors.by_handle[0].accepting = False
        else:
            monkeypatch.setattr(machine.register, "visits", {1: None})
            monkeypatch.setattr(NodeMachine, "check", lambda _: None)
        settled(checker, clusters, now_s, healed=healed)

    monkeypatch.setattr(Checker, "settled", spoiled)
    told = "not every neighbor is known" if what == "accept" else "something is left"
    with pytest.raises(Broken, match=told):
        run()
