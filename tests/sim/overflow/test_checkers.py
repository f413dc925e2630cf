"""The checkers see what they are there for: each planted bug is found, and told how to repeat."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spillover.core.fifo import Fifo
from spillover.core.overflow import decider
from spillover.core.overflow import events as ev
from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.register import Register
from spillover.inputs.fault_file import load_faults
from spillover.inputs.topology_file import load_topology
from spillover.model.request import Outcome
from spillover.sim.overflow.checkers import Broken
from spillover.sim.overflow.faulty_cluster import FaultyCluster
from spillover.sim.overflow.network import Message
from spillover.sim.overflow.run import run_overflow
from spillover_loadgen.workloads import poisson
from support.few import few_at_first

REPLAY = "spillover sim overflow --faults random:N"


def run(*, keyed=True, seeds=range(12), duration_s=1.5, policy="paper"):
    """Random histories until something breaks; what is told then."""
    for seed in seeds:
        topology = load_topology("ring5").with_policy(policy)
        schedule = poisson(topology.cluster_ids, rate_per_s=115, duration_s=duration_s, seed=seed)
        faults = load_faults(f"random:{seed}", topology, duration_s)
        try:
            run_overflow(topology, schedule, seed, faults=faults, keyed=keyed, replay=REPLAY)
        except Broken as broken:
            return _what(str(broken), seed)
    return None


def _what(told, seed):
    """What is broken, from a line that also says where, and how to see it again."""
    begins, ends = f"seed {seed}, ", f"; replay: {REPLAY}"
    assert told.startswith(begins)
    assert told.endswith(ends)
    assert "\n" not in told
    return told


@pytest.mark.slow
@pytest.mark.parametrize("policy", few_at_first(["adaptive", "paper"], 1))
@pytest.mark.parametrize("keyed", few_at_first([True, False], 1))
def test_the_machines_as_they_are_break_nothing(keyed, policy):
    """Or what the others find would prove little."""
    assert run(keyed=keyed, policy=policy, seeds=range(6)) is None


def test_work_without_a_key_that_is_run_again(monkeypatch):
    """A forward of unknown fate, decided again."""

    def take_for_refused(machine, event, now_s):
        machine._forward_refused(ev.ForwardRefused(event.ref), now_s)

    monkeypatch.setattr(NodeMachine, "_forward_lost", take_for_refused)
    assert "has no key and is started again" in run(keyed=False, seeds=range(200))


def test_keyed_work_whose_outcome_is_said_to_be_unknown(monkeypatch):
    """Its home lives, and could have decided again."""

    def give_up(machine, event, now_s):
        visit = machine.register.visits.get(event.ref)
        if visit is not None and visit.state == "away":
            machine._come_back(visit, "lost_at", now_s)
            machine._end(visit, Outcome.UNKNOWN, now_s)

    monkeypatch.setattr(NodeMachine, "_forward_lost", give_up)
    assert "yet ended unknown" in run(seeds=range(60))


def test_a_queue_that_is_not_first_in_first_out(monkeypatch):
    """The newest starts first."""

    def pop(fifo):
        place = fifo._places.pop()
        while place.item is None:
            fifo._holes -= 1
            place = fifo._places.pop()
        item, place.item = place.item, None
        return item

    monkeypatch.setattr(Fifo, "popleft", pop)
    assert "which queued earlier" in run()


def test_a_second_visit(monkeypatch):
    """The policy may choose whom the request comes from."""
    monkeypatch.setattr(decider, "_without_those_asked", lambda willing, *_: willing)
    assert "is here again" in run()


def test_one_hop_too_many(monkeypatch):
    """A machine that takes the budget for one more than it is."""
    choose = NodeMachine._choose

    def generous(machine, visit, now_s, objection, **told):
        settings = machine.settings
        machine.settings = replace(settings, max_hops=settings.max_hops + 1)
        try:
            return choose(machine, visit, now_s, objection, **told)
        finally:
            machine.settings = settings

    monkeypatch.setattr(NodeMachine, "_choose", generous)
    topology = replace(load_topology("ring5"), max_hops=1)
    schedule = poisson(("a",), rate_per_s=900, duration_s=1.0, seed=1)
    with pytest.raises(Broken, match="has come 2 hops"):
        run_overflow(topology, schedule, 1, check=True)


def test_a_ledger_that_forgets(monkeypatch):
    """Every hundredth end is not put down."""
    end, ends = Register.end, []

    def forgetful(register, visit, outcome):
        end(register, visit, outcome)
        ends.append(outcome)
        if len(ends) % 100 == 0:
            ledger = register.ledger
            counts, end_of = (
                (ledger.home, "done") if visit.is_home else (ledger.foreign, "answered")
            )
            counts[end_of] -= 1

    monkeypatch.setattr(Register, "end", forgetful)
    assert "the ledger is off" in run()


def test_an_answer_that_is_given_twice(monkeypatch):
    """By a shell that does not notice."""
    give = FaultyCluster._give

    def twice(cluster, ref, on_answer, answer):
        give(cluster, ref, on_answer, answer)
        if ref == 50:
            on_answer(answer)

    monkeypatch.setattr(FaultyCluster, "_give", twice)
    assert "has come to an end twice" in run()


@pytest.mark.slow
def test_messages_that_vanish_without_a_word(monkeypatch):
    """Nobody is told of a lost forward: its request never ends."""
    monkeypatch.setattr(Message, "get_lost", lambda _: None)
    assert "has had no answer" in run(seeds=range(60), duration_s=4.0)


def test_expired_work_that_starts(monkeypatch):
    """A queue that looks at no deadline, and a wake that never comes."""
    monkeypatch.setattr("spillover.core.overflow.deadlines.Deadlines.add", lambda *_: None)

    def start(machine, visit, now_s, **_):
        machine.servers.busy += 1
        machine.register.enter(visit, "running", now_s)
        machine._out.append(ev.Start(visit.ref, visit.request, now_s, visit.deadline_s))

    monkeypatch.setattr(NodeMachine, "_start", start)
    monkeypatch.setattr("spillover.core.overflow.admission.Admission.objection", lambda *_: None)
    topology = replace(load_topology("ring5").with_policy("isolated"), default_deadline_ms=200)
    schedule = poisson(("a",), rate_per_s=300, duration_s=2.0, seed=1)
    with pytest.raises(Broken, match=r"is started after its deadline"):
        run_overflow(topology, schedule, 1, check=True)
