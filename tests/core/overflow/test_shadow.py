"""A policy that is asked along: told on record and counted, without any effect."""

import json
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from spillover.core.overflow import events as ev
from spillover.core.overflow.decisions import describe
from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.settings import NodeSettings
from spillover.model.load import LoadNow, LoadReport
from spillover.model.request import Answer, Outcome, Request
from spillover.policy.overflow.adaptive import estimate_s
from spillover.policy.overflow.choosers import CHOOSERS

STEPS = 1000


def report(sequence, *, queue_length=0, accepting=True, ahead=-1, load=0.0, epoch=1):
    """Of a neighbor with one server, whose services take 10 ms."""
    accept = 1.0 / (queue_length + 1)
    return LoadReport(
        *(epoch, sequence, accept, accept, queue_length, 1, accepting, ("a",)),
        ahead=ahead, load=load, departure_s=0.01,
    )  # fmt: skip


@cache
def busy_run(policy, shadow=None):
    """A busy cluster, told loads in every way there is: the machine, and all of its commands. Made
    once: nothing of it is changed later."""
    random = Random(5)
    settings = NodeSettings(
        cluster="a", servers=2, queue_limit=20, service_s=0.01, policy=policy, shadow=shadow
    )
    machine = NodeMachine(settings, [(name, 0.002) for name in "bcd"], Random(7), 0.0)
    running, told, now_s = [], [], 0.0
    for step in range(STEPS):
        now_s += random.expovariate(400.0)
        y, number = random.randrange(3), 2 * step
        length, accepting = random.randrange(9), random.random() < 0.8
        ahead = length or random.choice((-1, 0))
        load = LoadNow(1, number + 1, ahead + random.randrange(3), 2 * random.random(), accepting)
        near = report(number, queue_length=length, accepting=accepting, ahead=ahead, load=load.load)
        if random.random() < 0.3:
            told += machine.handle(ev.ReportReceived(y, near), now_s)
        path, origin = random.choice([((), ev.HOME), ((), ev.HOME), (("bcd"[y],), y)])
        request = Request(f"r{step}", True, None, path)
        tells = load if origin != ev.HOME else None
        new = machine.handle(ev.Arrived(step, request, now_s + 9.0, origin, tells), now_s)
        if running and random.random() < 0.9:
            done = ev.ServiceEnded(running.pop(0), Outcome.DONE, 0.02 * random.random())
            new += machine.handle(done, now_s)
        for forward in [one for one in new if isinstance(one, ev.Forward)]:
            if random.random() < 0.3:
                back = ev.ForwardRefused(forward.ref, load)
            else:
                answer = Answer(Outcome.DONE, (*forward.request.path, "b"))
                answer.load = load
                back = ev.ForwardAnswered(forward.ref, answer, 0.002, 0.002)
            new += machine.handle(back, now_s)
        running += [one.ref for one in new if isinstance(one, ev.Start)]
        told += new
        if machine.next_deadline() <= now_s:
            told += machine.handle(ev.TimerFired(), now_s)
        machine.check()
    return machine, told


def decided(machine):
    """All decisions at which the policy was asked, oldest first."""
    records = [one for step in range(STEPS) for one in machine.decider.log.of(f"r{step}")]
    return [record for record in records if record.own is not None]


def choice_of(policy, record):
    """What this policy comes to from the record alone."""
    weights = [7.0] * len(record.eligible)
    loads = record.knowledge.loads
    choice = CHOOSERS[policy](record.own, loads, record.eligible, weights, record.draw)
    return choice, tuple(weights)


def without_loads(commands):
    """What is done, whatever is told of the load besides."""
    kept = []
    for one in commands:
        if isinstance(one, ev.Publish | ev.Heartbeat):
            continue
        if isinstance(one, ev.Forward | ev.Refuse):
            kept.append(replace(one, load=None))
        elif isinstance(one, ev.Reply):
            kept.append(replace(one, answer=replace(one.answer, load=None)))
        else:
            kept.append(one)
    return kept


@pytest.mark.slow
def test_a_shadow_changes_nothing():
    """The same commands in the same order, to the last bit, though it is asked each time."""
    alone, plain = busy_run("paper")
    shadowed, told = busy_run("paper", "adaptive")
    assert without_loads(told) == without_loads(plain)
    records, others = decided(shadowed), decided(alone)
    assert [(one.choice, one.draw, one.weights) for one in records] == [
        (one.choice, one.draw, one.weights) for one in others
    ]
    assert all(one.shadow is None for one in others)
    shadow = shadowed.decider.shadow
    assert shadow.same + shadow.other == len(records) > 300
    assert min(shadow.same, shadow.other) > 20
    assert not any(isinstance(one, ev.AskForWork) for one in told)


@pytest.mark.parametrize(("policy", "shadow"), [("paper", "adaptive"), ("adaptive", "paper")])
def test_both_choices_can_be_made_again_from_the_record(policy, shadow):
    """And the gain: the difference of the two estimates, both by the same rule."""
    machine, _ = busy_run(policy, shadow)
    records = decided(machine)
    saved_s = lost_s = 0.0
    for record in records:
        own, loads = record.own, record.knowledge.loads
        assert choice_of(policy, record) == (record.choice, record.weights)
        choice, _ = choice_of(shadow, record)
        assert (record.shadow.policy, record.shadow.choice) == (shadow, choice)
        if record.shadow.gain_s is None:
            assert not own.may_keep
            continue
        gain_s = estimate_s(own, loads, record.choice) - estimate_s(own, loads, choice)
        assert record.shadow.gain_s == gain_s
        saved_s += max(0.0, gain_s)
        lost_s += max(0.0, -gain_s)
    sums = machine.decider.shadow
    assert (sums.saved_s, sums.lost_s) == (saved_s, lost_s)
    assert (sums.other > 0) == (policy != shadow)


def test_where_a_shadow_goes_by_load_neighbors_are_told_it(story):
    """With all that is sent, so that it sees what it would see; without it nothing is told."""
    for shadow, tells in ((None, False), ("two-choice", False), ("adaptive", True)):
        node = story(shadow=shadow)
        node.hear(0)
        node.fill(1, 2)
        (forward,) = [c for c in node.arrive(3, away=True) if isinstance(c, ev.Forward)]
        assert (forward.load is not None) == tells
        node.tell(ev.Drain())
        (refuse,) = [c for c in node.arrive(4, path=("b",)) if isinstance(c, ev.Refuse)]
        assert (refuse.load is not None) == tells


def test_a_shadow_bounds_nothing_and_gives_nothing(story):
    """How many foreign requests wait, and what a neighbor that asks gets, is up to the policy."""
    node = story(shadow="adaptive")
    node.tell(ev.ReportReceived(0, report(1)))
    node.fill(1)
    for ref in range(2, 8):
        node.arrive(ref, path=("b",))
    assert node.machine.servers.waiting_foreign == 6
    assert node.machine.accepting
    (said,) = node.tell(ev.WorkAsked(1, LoadNow(1, 9, -1, 0.0, True)))
    assert isinstance(said, ev.NoWork)
    node.tell(ev.PolicySet("adaptive"))
    assert not node.machine.accepting


def test_what_is_told_between_reports_opens_no_door(story):
    """Under a policy that goes by reports, a neighbor that says in an answer that it is full is
    believed at its next report, with a shadow as without."""
    for policy, counts in (("paper", False), ("adaptive", True)):
        node = story(policy=policy, shadow="adaptive")
        node.tell(ev.ReportReceived(0, report(1)))
        full = LoadNow(1, 2, 5, 0.5, accepting=False)
        node.tell(ev.Arrived(1, Request("r1", True, None, ("b",)), 9.0, 0, full))
        neighbor = node.machine.neighbors.by_handle[0]
        assert (neighbor.ahead, neighbor.load) == (5, 0.5)
        assert neighbor.accepting == (not counts)
        free = LoadNow(1, 9, 5, 0.5, accepting=True)
        node.tell(ev.Arrived(2, Request("r2", True, None, ("b",)), 9.0, 0, free))
        node.tell(ev.ReportReceived(0, report(5, accepting=False)))  # on its way for longer
        assert neighbor.accepting == counts
        assert neighbor.ahead == 5


def shadowed(story, *, told_s, service_s=0.25):
    """Three wait where one runs so long; the neighbor is idle, 20 ms away, as told then."""
    node = story(shadow="adaptive", service_s=service_s, delay_s=0.02, neighbors=("b",))
    node.tell(ev.ReportReceived(0, report(1)), told_s)
    node.fill(1, 2, 3, 4)
    node.draws.coming.append(0.1)  # the paper keeps it: P is a quarter
    node.arrive(5, 1.0)
    (record,) = node.machine.decider.log.of("r5")
    return describe(record)


def test_an_explanation_says_what_the_choice_was_made_from(story):
    """How much waits, how old that is, what was sent since, and what it was taken to mean."""
    told = shadowed(story, told_s=1.0)
    assert (told["policy"], told["outcome"]) == ("paper", "kept")
    by_load, (row,) = told["by_load"], told["neighbors"]
    assert by_load["wait_ms"] == pytest.approx(250 * 3.5)
    assert by_load["trust"] == 1.0
    assert by_load["words"] == (
        "A request that joins this queue waits about 875 ms. The loads of neighbors were told "
        "0.0 ms before: adaptive goes by them in 100% of such choices, as here."
    )
    assert (row["ahead"], row["load"], row["unreported"], row["load_age_ms"]) == (-1, 0.0, 0, 0.0)
    assert row["departure_ms"] == 10.0
    assert row["in_all_ms"] == pytest.approx(20.0 + row["wait_ms"])
    shadow = told["shadow"]
    assert (shadow["policy"], shadow["neighbor"], shadow["same"]) == ("adaptive", "b", False)
    assert shadow["gain_ms"] == pytest.approx(by_load["wait_ms"] - row["in_all_ms"])
    gain = f"{shadow['gain_ms']:.0f} ms sooner"
    assert shadow["words"] == f"adaptive, asked along, would have handed it to b: about {gain}."
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_an_explanation_where_no_neighbor_has_told_its_load(story):
    """It could go to nobody; who never told has a row of nothing."""
    node = story(policy="adaptive", neighbors=("b",))
    node.fill(1, 2)
    (record,) = node.machine.decider.log.of("r2")
    told = describe(record)
    assert told["by_load"]["words"].endswith("There was no neighbor that it could go to.")
    assert told["neighbors"][0]["load_age_ms"] is None
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_what_comes_of_each_question_is_counted(story):
    """Work, nothing, no answer: each question once, and those under way are none of them."""
    node = story(policy="adaptive", neighbors=("b", "c", "d", "e"), servers=4, service_s=0.01)
    for y in range(4):
        node.tell(ev.ReportReceived(y, report(1, queue_length=9, ahead=9)), 0.1)
    node.arrive(1, 0.1)
    asked = [c.neighbor for c in node.end(1, 0.11) if isinstance(c, ev.AskForWork)]
    assert len(asked) == node.machine.pulling.coming == 4
    load, pulled = LoadNow(1, 5, 0, 0.0, accepting=True), True
    node.tell(ev.NoWorkThere(0, load), 0.12)
    node.tell(ev.Arrived(2, Request("r2", True, None, ("c",)), 9.0, 1, load, pulled), 0.12)
    node.tell(ev.LinkDown(2), 0.12)
    ends = node.machine.pulling.ends
    assert ends == {"work": 1, "nothing": 1, "no_answer": 1}
    assert node.machine.pulling.coming >= 1
    node.tell(ev.NoWorkThere(0, load), 0.12)  # nobody had asked
    assert ends["nothing"] == 1
    for y in range(4):
        node.tell(ev.ReportReceived(y, report(9, queue_length=9, ahead=9)), 5.0)
    node.end(2, 5.0)
    assert ends["no_answer"] == 2
