"""Whatever neighbors tell within the declared ranges, nothing in a machine overflows. What raises
all the same costs the neighbor that told it, not the node."""

import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillover.core.overflow import events as ev
from spillover.core.overflow import neighbor as neighbor_module
from spillover.core.overflow import siblings as siblings_module
from spillover.core.overflow.machine import NodeMachine
from spillover.core.overflow.settings import NodeSettings
from spillover.core.overflow.sibling_messages import NO_VIEW, Prepare, SiblingLoad
from spillover.live.overflow.report_lines import decode_line, encode_report
from spillover.model.load import LoadNow, LoadReport
from spillover.model.ranges import AHEAD_MAX, AMOUNT_MAX, DURATION_MS_MAX, WHOLE_MAX
from spillover.model.request import Answer, Outcome, Request
from spillover.policy.overflow.choosers import POLICY_NAMES
from support.few import examples

wholes = st.sampled_from([0, 1, 2, 2**31, WHOLE_MAX - 1, WHOLE_MAX])
aheads = st.sampled_from([-AHEAD_MAX, -5, 0, 1, AHEAD_MAX])
amounts = st.sampled_from([0.0, 5e-324, 1e-9, 0.5, 1.0, 1.0 + 2**-52, 1e3, AMOUNT_MAX])
shares = st.sampled_from([0.0, 5e-324, 0.5, 1.0 - 2**-53, 1.0])
instants = st.sampled_from([0.0, 1e-9, 0.05, 0.3, 10.0, 1e6])

reports = st.builds(
    LoadReport,
    epoch=st.just(1),
    sequence=st.just(1),
    accept_probability=shares,
    neighborhood_accept_probability=shares,
    queue_length=wholes,
    servers=wholes,
    accepting=st.just(True),
    hears=st.just(("a",)),
    degraded=st.booleans(),
    failed_share=shares,
    least_failed=st.none() | shares,
    next_failed=st.none() | shares,
    ahead=st.none() | aheads,
    load=amounts,
    departure_s=amounts.map(lambda ms: ms / 1e3),
    residual=amounts,
    clients=st.none() | wholes,
)
told = st.lists(
    st.tuples(st.sampled_from(["report", "load", "ask", "none", "home"]), reports, instants),
    min_size=1,
    max_size=8,
)


def machine_of(policy, **more):
    names = {"cluster": "a", "servers": 1, "queue_limit": 3, "policy": policy, **more}
    return NodeMachine(NodeSettings(**names), [("b", 0.0), ("c", 60.0)], Random(5), 0.0)


def as_event(kind, number, report):
    neighbor, load = number % 2, LoadNow(1, number, report.ahead or 0, report.load, True)
    if kind == "report":
        return ev.ReportReceived(neighbor, replace(report, sequence=number))
    if kind == "ask":
        return ev.WorkAsked(neighbor, load)
    if kind == "none":
        return ev.NoWorkThere(neighbor, load)
    request = Request(f"r{number}", True, None, ("b",) if kind == "load" else ())
    if kind == "load":
        return ev.Arrived(number, request, math.inf, 0, load)
    return ev.Arrived(number, request, math.inf)


@pytest.mark.parametrize("policy", POLICY_NAMES)
@given(story=told)
@settings(max_examples=examples(30))
def test_nothing_overflows_within_the_ranges(policy, story):
    """Also not in a policy that is asked along, and in what is told of decisions."""
    node, now_s = machine_of(policy, shadow="adaptive"), 0.0
    for number, (kind, report, pause_s) in enumerate(story, start=1):
        now_s += pause_s
        commands = node.handle(as_event(kind, number, report), now_s)
        for one in commands:
            if isinstance(one, ev.Publish):
                assert decode_line(encode_report(one.report)[:-1]) is not None
            if isinstance(one, ev.Forward) and report.load > 1.0:
                longest_s = DURATION_MS_MAX / 1e3
                answer = Answer(Outcome.DONE, ("a", "b"), service_s=longest_s, queued_s=longest_s)
                node.handle(ev.ForwardAnswered(one.ref, answer, longest_s, longest_s), now_s)
        node.check()
        node.decider.log.tell(f"r{number}")
        near = node.neighbors.knowledge().loads
        columns = [value for column in near[:-1] for value in column if value != -math.inf]
        assert all(map(math.isfinite, columns))


def raise_it(*_):
    raise OverflowError("a bug")


@pytest.mark.parametrize("kind", ["report", "load", "ask", "none"])
def test_a_bug_in_what_is_made_of_a_neighbor_costs_that_neighbor(monkeypatch, kind):
    node = machine_of("adaptive")
    report = LoadReport(1, 1, 1.0, 1.0, 0, 1, True, ("a",), ahead=0)
    for neighbor in (0, 1):
        node.handle(ev.ReportReceived(neighbor, report), 0.0)
    node.spares_node = True
    with monkeypatch.context() as patch:
        patch.setattr(neighbor_module, "first_departure", raise_it)
        commands = node.handle(as_event(kind, 2, report), 0.1)
    node.check()
    assert [one.neighbor for one in commands if isinstance(one, ev.Distrust)] == [0]
    assert node.neighbors.known == [False, True]
    if kind == "load":  # the request that brought it has its place
        assert [one.ref for one in commands if isinstance(one, ev.Accepted)] == [2]
    node.handle(ev.ReportReceived(0, replace(report, sequence=3)), 0.2)
    assert node.neighbors.known == [True, True]


def test_a_bug_in_what_is_made_of_a_sibling_costs_that_sibling(monkeypatch):
    node = machine_of("adaptive", nodes=2, node=1, servers=4)
    load = ev.SiblingHeard(2, SiblingLoad((1,), NO_VIEW, 0, 0, 0, 0.0, 0.0))
    node.handle(load, 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(siblings_module.Siblings, "_prepare", raise_it)
        told = ev.SiblingHeard(2, Prepare((9, 2)))
        with pytest.raises(OverflowError):
            node.handle(told, 0.1)
        node.spares_node = True
        commands = node.handle(told, 0.1)
    assert [one.sibling for one in commands if isinstance(one, ev.DistrustSibling)] == [2]
    assert node.servers.siblings.up == {1}
    node.handle(load, 0.2)
    assert node.servers.siblings.up == {1, 2}


def test_a_bug_in_an_own_event_ends_the_node(monkeypatch):
    """What state it is in is anybody's guess. Simulations and tests see all bugs."""
    report = LoadReport(1, 1, 1.0, 1.0, 0, 1, True)
    node = machine_of("adaptive")
    with monkeypatch.context() as patch:
        patch.setattr(neighbor_module, "first_departure", raise_it)
        with pytest.raises(OverflowError):
            node.handle(as_event("report", 1, report), 0.0)
    node = machine_of("adaptive")
    node.spares_node = True
    monkeypatch.setattr(node, "_accept", raise_it)
    with pytest.raises(OverflowError):
        node.handle(as_event("home", 1, report), 0.0)
