"""Whom a producer believes by a certificate, and which queue it takes itself to be of."""

import pytest

from spillover.live.queue.certified import CertifiedProducers, queues_of
from spillover.live.tls.certified import PeerCertificate

NAMES = ("p2.q.spillover", "p3.q.spillover")


def shown(*names):
    return PeerCertificate(frozenset(names), 1e12, b"")


@pytest.fixture
def producers():
    """What p1 of the queue q knows of its peers; it shows nothing here."""
    return CertifiedProducers(None, "q", ("p2", "p3"))


def test_a_peer_is_believed_by_its_own_name(producers):
    assert producers.why_not(shown("p2.q.spillover", "x.test"), "p2") is None
    for name in NAMES:
        assert producers.why_not(shown(name)) is None


@pytest.mark.parametrize(
    ("names", "claimed", "why"),
    [
        (("p3.q.spillover",), "p2", "for p2.q.spillover, got p3.q.spillover"),
        (("p2.other.spillover",), "p2", "for p2.q.spillover, got p2.other.spillover"),
        (("b.test", "a.test"), None, "of a peer, got a.test, b.test"),
        (("p2.q.spillover",), "p9", "of a peer, got p2.q.spillover"),
        ((), "p2", "for p2.q.spillover, got none"),
    ],
)
def test_who_is_somebody_else_is_told_why_not(producers, names, claimed, why):
    assert producers.why_not(shown(*names), claimed) == f"expected a certificate {why}"


def test_who_shows_nothing_is_not_believed(producers):
    assert producers.why_not(None) == "expected a certificate of a peer, got none"
    assert producers.why_not(None, "p3") == "expected a certificate for p3.q.spillover, got none"


def test_of_many_names_only_some_are_told(producers):
    many = [f"n{number:02}.test" for number in range(20)]
    told = producers.why_not(shown(*many))
    assert told == f"expected a certificate of a peer, got {', '.join(many[:8])}"


@pytest.mark.parametrize(
    ("names", "queues"),
    [
        (["p1.q.spillover"], {"q"}),
        (["P1.Q.Spillover", "p1.q.spillover"], {"q"}),
        (["p1.q.spillover", "p1.r.spillover", "x.test"], {"q", "r"}),
        (
            ["p2.q.spillover", "p1.q.test", "p1.a.b.spillover", "p1..spillover", "p1.spillover"],
            set(),
        ),
        ([], set()),
    ],
)
def test_a_queue_stands_between_a_producer_and_spillover(names, queues):
    assert queues_of(names, "P1") == queues_of(names, "p1") == queues
