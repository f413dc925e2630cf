"""Which node is asked: rules without sockets, time passed in."""

import random

import pytest

from spillover.client.nodes import FIRST_PAUSE_S, LONGEST_PAUSE_S, TRIAL_S, Nodes

A, B, C = "http://a", "http://b", "http://c"


def nodes_of(*urls):
    return Nodes(urls, random.Random(1))


def test_the_first_is_asked_until_it_fails_and_then_the_next():
    nodes = nodes_of(A, B, C)
    assert nodes.choose(0.0) == nodes.choose(1.0) == nodes.current == A
    nodes.failed(A, 1.0)
    assert nodes.choose(1.0) == B
    nodes.failed(B, 1.0)
    assert nodes.choose(1.0) == C
    assert nodes.current == A


def test_within_a_round_each_is_asked_once():
    nodes = nodes_of(A, B, C)
    assert nodes.choose(0.0, {A}) == B
    assert nodes.choose(0.0, {A, B}) == C
    assert nodes.choose(0.0, {A, B, C}) is None
    nodes.failed(B, 0.0)
    assert nodes.choose(0.0, {A}) == C
    assert nodes.choose(0.0, {A, C}) == B


def test_one_request_tries_a_node_after_its_pause_and_others_wait_for_what_it_finds():
    nodes = nodes_of(A, B)
    assert nodes.is_calm
    nodes.failed(A, 0.0)
    assert not nodes.is_calm
    assert nodes.choose(FIRST_PAUSE_S) == A
    assert nodes.choose(FIRST_PAUSE_S) == B
    assert nodes.choose(FIRST_PAUSE_S + TRIAL_S) == A
    nodes.succeeded(A)
    assert nodes.is_calm
    assert nodes.choose(FIRST_PAUSE_S) == nodes.choose(FIRST_PAUSE_S) == A


def test_what_fails_together_counts_once_and_what_fails_again_rests_longer():
    nodes = nodes_of(A, B)
    for _ in range(64):
        nodes.failed(A, 0.0)
    assert nodes.choose(FIRST_PAUSE_S) == A
    now_s, rests = FIRST_PAUSE_S, []
    for _ in range(12):
        nodes.failed(A, now_s)
        begun_s = now_s
        while nodes.choose(now_s) == B:
            now_s += 0.01
        rests.append(now_s - begun_s)
    assert FIRST_PAUSE_S < rests[0] < rests[2] < rests[4]
    assert LONGEST_PAUSE_S / 2 <= max(rests) <= LONGEST_PAUSE_S + 0.02


def test_a_node_rests_as_long_as_it_asks_to():
    nodes = nodes_of(A, B)
    nodes.failed(A, 0.0, at_least_s=20.0)
    assert nodes.choose(19.9) == B
    assert nodes.choose(20.0) == A


def test_if_all_rest_it_is_the_one_whose_pause_ends_first():
    nodes = nodes_of(A, B)
    nodes.failed(A, 0.0, at_least_s=9.0)
    nodes.failed(B, 0.0, at_least_s=5.0)
    assert nodes.choose(1.0) == B
    assert nodes_of(A).choose(0.0) == A


def test_who_knows_more_says_what_is_there_and_which_to_use():
    nodes = nodes_of(A, B)
    nodes.use(B)
    assert (nodes.current, nodes.choose(0.0), nodes.choose(0.0, {B})) == (B, B, A)
    nodes.replace([C, B])
    assert (nodes.urls, nodes.current, nodes.choose(0.0, {B})) == ((C, B), B, C)
    nodes.replace([A, C, A])
    assert (nodes.urls, nodes.current) == ((A, C), A)
    nodes.use(B)
    assert (nodes.urls, nodes.current) == ((B, A, C), B)
    with pytest.raises(ValueError, match="at least one"):
        nodes.replace([])


def test_nodes_are_asked_whose_they_are_until_they_have_said_it():
    """One that failed is left alone for a while, and what is not listed is not kept."""
    nodes = nodes_of(A, B, C)
    assert nodes.to_be_asked_whose(0.0) == [A, B, C]
    nodes.of_cluster(A, b"x")
    nodes.of_cluster(B, b"")
    nodes.failed(C, 0.0, at_least_s=9.0)
    assert nodes.to_be_asked_whose(8.9) == []
    assert nodes.to_be_asked_whose(9.0) == [C]
    nodes.of_cluster("http://d", b"x")
    assert [nodes.cluster_of(url) for url in (A, B, C, "http://d")] == [b"x", b"", b"", b""]
    nodes.replace([B, C])
    nodes.replace([A, B, C])
    assert nodes.cluster_of(A) == b""


def test_what_is_no_longer_listed_is_not_remembered():
    nodes = nodes_of(A, B)
    nodes.failed(A, 0.0, at_least_s=100.0)
    nodes.replace([B])
    nodes.failed(A, 0.0)
    nodes.replace([A, B])
    nodes.use(A)
    assert nodes.choose(0.0) == A


@pytest.mark.parametrize(("at_least_s", "least_s", "most_s"), [(0.0, 0.0, 0.5), (2.0, 2.0, 2.0)])
def test_nodes_that_failed_once_rest_for_different_times(at_least_s, least_s, most_s):
    """Not all clients come back at once. A node may say for how long it wants none."""
    rests = []
    for seed in range(50):
        nodes = Nodes([A, B], random.Random(seed))
        nodes.failed(A, 0.0, at_least_s)
        rests.append(nodes._pauses[A].until_s)
        assert nodes.choose(rests[-1] - 0.001) == B
        assert nodes.choose(rests[-1]) == A
    assert least_s <= min(rests) <= max(rests) <= most_s
    assert (max(rests) - min(rests) > 0.15) is (at_least_s == 0.0)
