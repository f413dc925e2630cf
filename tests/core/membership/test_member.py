"""In which order a cluster obeys another configuration, where another order would hurt somebody."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from spillover.core.membership import member as steps
from spillover.core.membership.member import FederationMember, MemberStep
from spillover.model.configuration import of_file
from spillover.model.ids import ClusterId
from spillover.model.topology import Cluster, Link, Topology

A, B, C, D = (ClusterId(name) for name in "abcd")
S = TypeVar("S", bound=MemberStep)


def link(one: ClusterId, other: ClusterId, delay_ms: float = 0.0) -> Link:
    return Link(between=(one, other), delay_ms=delay_ms)


FOUR = Topology(
    name="four",
    clusters=tuple(Cluster(id=name, servers=2, url=f"http://{name}") for name in (A, B, C, D)),
    links=(link(A, B, 5.0), link(A, C, 5.0)),
)
WITHOUT_A = replace(FOUR, clusters=FOUR.clusters[1:], links=())


def of_a(topology: Topology, **changed: Any) -> Topology:
    own, *others = topology.clusters
    return replace(topology, clusters=(replace(own, **changed), *others))


class Told:
    """One cluster, and the steps of the configurations that it has heard of, by version."""

    def __init__(self) -> None:
        self.member = FederationMember(A, FOUR)
        self.configuration = of_file(FOUR, "")

    def adopt(self, topology: Topology, linked: Collection[ClusterId]) -> list[MemberStep]:
        self.configuration = self.configuration.next((B, 1), topology, "")
        return self.member.adopt(self.configuration, linked)


@pytest.fixture
def told() -> Told:
    return Told()


def kinds(found: list[MemberStep]) -> list[type[MemberStep]]:
    return [type(step) for step in found]


def only(kind: type[S], found: list[MemberStep]) -> S:
    (step,) = (step for step in found if isinstance(step, kind))
    return step


EVERYTHING = of_a(
    replace(FOUR, links=(link(A, B, 9.0), link(A, D)), policy="paper", payload_limit_bytes=100),
    servers=3,
)
REMOVED = [steps.SayStamp, steps.TellClients, steps.Remove, steps.TellNeighbors]


def test_all_that_is_different_is_done_in_order(told: Told) -> None:
    found = told.adopt(EVERYTHING, [B, C])
    assert kinds(found) == [
        *(steps.SayStamp, steps.TellClients, steps.GoBy),
        *(steps.PartFrom, steps.LinkTo, steps.SetDelay, steps.SetDelay),
        *(steps.SetLimits, steps.SetPolicy, steps.TellNeighbors),
    ]
    assert only(steps.SayStamp, found).stamp == told.configuration.stamp
    assert only(steps.TellClients, found).configuration.topology == EVERYTHING
    assert only(steps.GoBy, found).topology == told.member.topology
    assert only(steps.PartFrom, found).cluster == C
    assert only(steps.LinkTo, found).neighbor.url == "http://d"
    delays = [step.neighbor for step in found if isinstance(step, steps.SetDelay)]
    assert [one.id for one in delays] == [D, B]
    assert delays[1].delay_ms == 9.0
    assert only(steps.SetLimits, found).limits == {"servers": 3}
    assert only(steps.SetPolicy, found).rules == {"policy": "paper"}


def test_a_cluster_that_is_removed_drains_over_the_links_that_it_has(told: Told) -> None:
    assert kinds(told.adopt(WITHOUT_A, [B, C])) == REMOVED
    assert (told.member.removed, told.member.topology) == (True, FOUR)
    assert kinds(told.adopt(replace(WITHOUT_A, max_hops=2), [B])) == REMOVED
    assert told.member.topology == FOUR


def test_a_cluster_that_is_back_is_restored_before_it_is_linked_to_whom_it_has_left(
    told: Told,
) -> None:
    """It has parted from C meanwhile, and not from B."""
    told.adopt(WITHOUT_A, [B, C])
    found = told.adopt(replace(FOUR, max_hops=2), [B])
    linked = [steps.LinkTo, steps.SetDelay, steps.SetLimits, steps.TellNeighbors]
    told_first = [steps.SayStamp, steps.TellClients]
    assert kinds(found) == [*told_first, steps.Restore, steps.GoBy, *linked]
    assert only(steps.LinkTo, found).neighbor.id == C
    assert not told.member.removed
    assert steps.Restore not in kinds(told.adopt(FOUR, [B, C])), "once"


def test_a_neighbor_that_could_not_join_or_was_parting_is_linked_to_with_its_delay(
    told: Told,
) -> None:
    """One that was parting has a link, with the delay of before."""
    found = told.adopt(replace(FOUR, links=(link(A, B, 5.0), link(A, C, 9.0))), [B])
    assert only(steps.LinkTo, found).neighbor.id == C
    assert only(steps.SetDelay, found).neighbor.delay_ms == 9.0


def test_what_is_fixed_stays_as_the_own_file_has_it(told: Told) -> None:
    found = told.adopt(of_a(replace(FOUR, gossip_period_ms=1.0), url="http://z", servers=3), [B, C])
    there = only(steps.GoBy, found).topology
    assert there.gossip_period_ms == FOUR.gossip_period_ms
    assert there.cluster(A).url == "http://a"
    assert there.cluster(A).servers == 3


def test_a_shadow_that_is_no_more_leaves_the_policy_as_it_is(told: Told) -> None:
    told.adopt(replace(FOUR, shadow="paper"), [B, C])
    assert only(steps.SetPolicy, told.adopt(FOUR, [B, C])).rules == {"shadow": None}


def test_a_configuration_that_does_not_fit_the_own_file_is_told_with_the_reason(told: Told) -> None:
    """The sites call each other by https, but for this one as its own file has it."""
    secure = [replace(one, url=f"https://{one.id}") for one in FOUR.clusters]
    new = Cluster(id=ClusterId("e"), servers=1, url="https://e")
    found = told.adopt(replace(FOUR, clusters=(*secure, new)), [B, C])
    assert (
        "expected https:// between all nodes or between none" in only(steps.SayStamp, found).misfit
    )
    assert only(steps.SayStamp, told.adopt(FOUR, [B, C])).misfit == ""
