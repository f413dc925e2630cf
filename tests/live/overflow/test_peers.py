"""Whom a node takes for its neighbors, by what they say and what they prove; and who is on record
for having been turned away. Without any connection."""

import logging
from dataclasses import replace
from types import SimpleNamespace

import pytest

from spillover.live.overflow import identity, protocol
from spillover.live.overflow.agreement import Terms
from spillover.live.overflow.identity import (
    NAMES_TOLD_MAX,
    TURNED_AWAY_MAX,
    Peers,
    TurnedAway,
    hello_of,
)
from spillover.live.overflow.wire import Caller
from support.federation import topology_of

AFTER_S = 1000.0


def peers_of(secure=False, **fields):
    """Those of b, between a and c. Nobody else has a link to it."""
    urls = {one: {"url": f"https://{one}.example:1"} for one in "abcd"} if secure else None
    return Peers(topology_of("a", "b", "c", "d", clusters=urls, **fields), "b")


def calling(*names):
    """A new connection from who has shown a certificate for these names, or none."""
    shown = SimpleNamespace(names=frozenset(names)) if names else None
    return SimpleNamespace(peer=None, certificate=shown)


@pytest.fixture
def clock(monkeypatch):
    """By which it is remembered who was turned away; the test moves it. Each line gets through."""
    told = SimpleNamespace(now_s=AFTER_S)
    monkeypatch.setattr(identity, "time", SimpleNamespace(monotonic=lambda: told.now_s))
    monkeypatch.setattr(identity._callers_log, "filters", [])
    return told


@pytest.mark.parametrize(
    ("says", "why"),
    [
        (Caller("a", "b", "test"), None),
        (Caller("c", None, None), None),
        (Caller("d", "b", "test"), "cluster b has no link to 'd'"),
        (Caller("b", "b", "test"), "cluster b has no link to 'b'"),
        (Caller("a", "c", "test"), "it looks for cluster 'c', this is 'b'"),
        (Caller("a", "b", "tset"), "federation: 'test' here, 'tset' there"),
    ],
)
def test_a_neighbor_has_a_link_and_means_this_node(says, why):
    """What it does not say is not held against it."""
    peers = peers_of()
    if why is None:
        connection = calling()
        peer = peers.settle(connection, hello_of(says))
        assert (peer.neighbor, peer.caller) == ("ac".index(says.cluster), says)
        assert connection.peer is peer
        assert peers.settle(connection, None) is peer
        assert not peers.turned_away()
    else:
        with pytest.raises(TurnedAway) as turned_away:
            peers.settle(calling(), hello_of(says))
        assert str(turned_away.value) == why
        assert {name: one[0] for name, one in peers.turned_away().items()} == {says.cluster: why}


def test_a_connection_is_of_one_neighbor_whatever_it_says_later():
    peers, connection = peers_of(), calling()
    a, c = Caller("a", "b", "test"), Caller("c", "b", "test")
    peer = peers.settle(connection, hello_of(a))
    for hello in (hello_of(a), None, hello_of(Caller("a", None, None))):
        assert peers.settle(connection, hello) is peer
    with pytest.raises(TurnedAway, match="its connection is that of cluster a"):
        peers.settle(connection, hello_of(c))
    assert connection.peer is peer
    with pytest.raises(TurnedAway, match="says which cluster it is"):
        peers.settle(calling(), None)


MANY = [f"n{number}.test.spillover" for number in range(NAMES_TOLD_MAX + 2)]


@pytest.mark.parametrize(
    ("names", "got"),
    [
        (("a.test.spillover",), None),
        (("x.example", "a.test.spillover"), None),
        ((), "none"),
        (("c.test.spillover",), "c.test.spillover"),
        (("a.tset.spillover", "a"), "a, a.tset.spillover"),
        (MANY, ", ".join(MANY[:NAMES_TOLD_MAX])),
    ],
)
def test_who_one_is_has_to_be_proved_where_nodes_have_certificates(names, got):
    """To a neighbor and to any other member, by each of a connection's first words."""
    peers, hello = peers_of(secure=True), hello_of(Caller("a", "b", "test"))
    calls = (
        lambda: peers.settle(calling(*names), hello).caller.cluster,
        lambda: peers.member(calling(*names), hello),
    )
    for call in calls:
        if got is None:
            assert call() == "a"
        else:
            with pytest.raises(TurnedAway) as turned_away:
                call()
            why = f"expected a certificate for a.test.spillover, got {got}"
            assert str(turned_away.value) == why
    assert peers_of().settle(calling(*names), hello).neighbor == 0, "nobody asks for any"


def test_a_member_need_not_be_a_neighbor():
    """But of this federation, and it says which cluster it is and means this one."""
    peers = peers_of()
    assert peers.member(calling(), hello_of(Caller("d", "b", "test"))) == "d"
    for hello, says in (
        (hello_of(Caller("d", "b", "tset")), "federation"),
        (hello_of(Caller("d", "c", "test")), "looks for cluster 'c'"),
        (hello_of(Caller("no cluster", "b", "test")), "says which cluster it is"),
        (b"", "says which cluster it is"),
        (None, "says which cluster it is"),
    ):
        with pytest.raises(TurnedAway, match=says):
            peers.member(calling(), hello)
    with pytest.raises(TurnedAway, match=r"d\.test\.spillover, got a\.test\.spillover"):
        peers_of(secure=True).member(calling("a.test.spillover"), b"from=d&to=b&federation=test")


def test_whoever_leaves_is_a_neighbor_no_more_on_its_connections_too():
    """And is one anew when it has joined again, by another handle."""
    peers, connection, hello = peers_of(), calling(), hello_of(Caller("a", "b", "test"))
    assert peers.settle(connection, hello).neighbor == 0
    peers.leave(0)
    assert set(peers.agreements) == {1}
    with pytest.raises(TurnedAway, match="no link to 'a'"):
        peers.settle(connection, hello)
    peers.join(7, "a", 3.0)
    assert peers.settle(connection, hello).neighbor == 7
    assert peers.agreements[7].caller == Caller("b", "a", "test")


def test_each_neighbor_is_held_to_the_terms_of_the_topology():
    """All that both ends have to have alike, from the start, and as it changes."""
    fields = {"gossip_period_ms": 50.0, "default_deadline_ms": 4000.0, "max_hops": 3}
    peers = peers_of(delay_ms=7.0, **fields)
    there = Terms(delay_ms=8.0, gossip_period_ms=60.0, default_deadline_ms=5000.0, max_hops=4)

    def differences():
        for agreement in peers.agreements.values():
            agreement.asked(there)
        return {one.disagreement for one in peers.agreements.values()}

    delay, deadline = "link delay: 7 ms here, 8 ms there", "default deadline: 4000 ms here, 5000 ms"
    period, hops = "gossip period: 50 ms here, 60 ms there", "hop budget: 3 here, 4 there"
    assert differences() == {f"{delay}; {period}; {deadline} there; {hops}"}
    peers.go_by(replace(peers._topology, gossip_period_ms=60.0, max_hops=4))
    assert differences() == {f"{delay}; {deadline} there"}


def test_who_was_turned_away_is_on_record_for_a_minute(clock):
    """After its last call, with how long ago that was."""
    peers = peers_of()

    def comes(cluster):
        with pytest.raises(TurnedAway):
            peers.neighbor(Caller(cluster, "b", "test"))

    comes("x")
    clock.now_s += 30.0
    comes("y")
    clock.now_s += 30.0
    assert {name: ago_s for name, (_, ago_s) in peers.turned_away().items()} == {"x": 60, "y": 30}
    clock.now_s += 1.0
    assert set(peers.turned_away()) == {"y"}
    comes("x")
    comes("no cluster's id")
    assert set(peers.turned_away()) == {"x", "y"}


def test_of_those_turned_away_no_more_are_kept_than_were_said(clock):
    """Whoever came last stays."""
    peers, names = peers_of(), [f"x{number}" for number in range(TURNED_AWAY_MAX + 1)]
    for name in (names[0], *names[1:-1], names[0], names[-1]):
        peers.of_another_version(b"from=%b" % name.encode())
    assert list(peers.turned_away()) == [*names[2:-1], names[0], names[-1]]


def test_it_is_told_once_until_the_reason_is_another_or_a_while_has_passed(clock, caplog):
    peers = peers_of()

    def comes(to, after_s):
        clock.now_s += after_s
        caplog.clear()
        with pytest.raises(TurnedAway):
            peers.neighbor(Caller("x", to, "test"))
        return [(one.msg.fields["peer"], one.msg.fields["reason"]) for one in caplog.records]

    with caplog.at_level(logging.WARNING):
        no_link, astray = "cluster b has no link to 'x'", "it looks for cluster 'z', this is 'b'"
        assert comes("b", 0.0) == [("x", no_link)]
        assert comes("b", 1.0) == []
        assert comes("z", 1.0) == [("x", astray)]
        assert comes("b", 1.0) == [("x", no_link)]
        for _ in range(3):
            assert comes("b", 59.0) == []
        assert comes("b", 61.0) == [("x", no_link)]


@pytest.mark.parametrize(
    ("hello", "noted"),
    [
        (b"from=x&speaks=%d" % (protocol.VERSION + 1), {"x"}),
        (b"from=x", {"x"}),
        (b"", set()),
        (None, set()),
        (b"from=x&speaks=%d" % protocol.VERSION, set()),
        (b"from=x&speaks=%d %d" % (protocol.VERSION + 1, protocol.VERSION), set()),
    ],
)
def test_who_speaks_no_version_in_common_is_on_record(hello, noted):
    peers = peers_of()
    peers.of_another_version(hello)
    assert set(peers.turned_away()) == noted


def test_whoever_is_turned_away_hears_who_this_is():
    """A federation without a name is none to tell of, nor to compare."""
    named = peers_of()
    told = dict(named.who_this_is())
    assert (told[b"spillover-cluster"], told[b"spillover-federation"]) == (b"b", b"test")
    assert len(told) == 3
    unnamed = Peers(replace(topology_of("a", "b"), is_named=False), "b")
    assert b"spillover-federation" not in dict(unnamed.who_this_is())
    for federation in ("tset", "test", None):
        assert unnamed.neighbor(Caller("a", "b", federation)) == 0
