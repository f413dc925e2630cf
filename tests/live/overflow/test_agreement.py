"""What a node and one neighbor have said of each other, and what comes of it: in words, in the log,
and of the configuration. Without any connection."""

import logging
from types import SimpleNamespace
from urllib.parse import parse_qs

import pytest

from spillover.live.overflow import agreement as agreements
from spillover.live.overflow import protocol
from spillover.live.overflow.agreement import (
    TOLD_MAX,
    TOLD_WITHIN_S,
    Agreement,
    Terms,
    node_asking,
)
from spillover.live.overflow.configured import Configured
from spillover.live.overflow.wire import Caller, MalformedMessage
from spillover.model.configuration import Stamp

OWN = Terms(delay_ms=5.0, gossip_period_ms=50.0, default_deadline_ms=4000.0, max_hops=3)
STAMP = Stamp(4, "b", 7)


@pytest.fixture
def clock(monkeypatch):
    """By which it is remembered how often it was told; the test moves it."""
    told = SimpleNamespace(now_s=1000.0)
    monkeypatch.setattr(agreements, "time", SimpleNamespace(monotonic=lambda: told.now_s))
    return told


@pytest.fixture
def between(caplog):
    caplog.set_level(logging.INFO, agreements.__name__)
    return Agreement(Caller("a", "b", "test"), OWN, Configured(STAMP))


def lines(caplog):
    """(level, words, disagreement) of each line since this was last asked."""
    said = [
        (one.levelname, one.msg.words, one.msg.fields.get("disagreement"))
        for one in caplog.records
        if one.name == agreements.__name__
    ]
    assert all(one.msg.fields["neighbor"] == "b" for one in caplog.records)
    caplog.clear()
    return said


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (Terms(), None),
        (OWN, None),
        (Terms(delay_ms=5.0 * (1 + 1e-12)), None),
        (Terms(delay_ms=5.0005), "link delay: 5 ms here, 5.0005 ms there"),
        (Terms(delay_ms=0.0), "link delay: 5 ms here, 0 ms there"),
        (
            Terms(gossip_period_ms=60.0, max_hops=2),
            "gossip period: 50 ms here, 60 ms there; hop budget: 3 here, 2 there",
        ),
        (Terms(default_deadline_ms=1e3), "default deadline: 4000 ms here, 1000 ms there"),
    ],
)
def test_terms_differ_where_both_have_told_them(there, words):
    assert OWN.differences(there) == words
    assert Terms().differences(there) is None


@pytest.mark.parametrize(
    ("told", "read"),
    [("0", 0.0), ("1.5", 1.5), ("1e3", 1000.0), ("0" * 31 + "7", 7.0), ("0" * 32 + "7", 0.0)],
)
def test_terms_are_read_as_numbers_up_to_a_length(told, read):
    assert Terms.read({"max_hops": [told, "9"], "delay_ms": []}) == Terms(max_hops=read)
    for bad in ("-1", "", "inf", "nan", "x"):
        with pytest.raises(MalformedMessage, match="max_hops: expected a number, 0 or more"):
            Terms.read({"max_hops": [bad]})


def test_what_a_node_says_of_itself_when_it_asks():
    """Who it is, its hello tells. What it has not, it leaves out."""
    between = Agreement(Caller("a", "b", "two words"), Terms(delay_ms=5.0), Configured(STAMP))
    assert parse_qs(between.query()) == {"delay_ms": ["5.0"], "configuration": [STAMP.told]}
    unnamed = Agreement(Caller("a"), Terms())
    assert parse_qs(unnamed.query()) == {"configuration": [Configured().told]}


@pytest.mark.parametrize("number", [1, 2, 16])
def test_a_node_of_several_says_which_one_asks(number):
    told = parse_qs(Agreement(Caller("a", "b"), OWN, node=number).query())
    assert node_asking(told) == number
    for bad in ("0", "17", "-1", "", "x", "2" * 5000):
        with pytest.raises(MalformedMessage, match="node: expected a whole number from 1 to 16"):
            node_asking({"node": [bad]})


def test_both_kinds_of_disagreement_are_told_in_one_line(between, caplog):
    assert not between.is_turned_away
    between.asked(Terms(delay_ms=7.0))
    assert not between.is_turned_away
    between.turned_away({b"spillover-cluster": b"b"})
    assert between.is_turned_away
    delay, link = "link delay: 5 ms here, 7 ms there", "link: one here, none there"
    assert between.disagreement == f"{link}; {delay}"
    between.heard()
    assert (between.disagreement, between.is_turned_away) == (delay, False)
    between.asked(OWN)
    assert between.disagreement is None
    assert lines(caplog) == [
        ("WARNING", "neighbor disagrees", delay),
        ("WARNING", "neighbor disagrees", f"{link}; {delay}"),
        ("WARNING", "neighbor disagrees", delay),
        ("INFO", "neighbor agrees again", None),
    ]


def test_the_same_is_told_once_and_no_more_than_so_many_changes_within_a_minute(
    between, caplog, clock
):
    def change(number):
        between.asked(Terms(delay_ms=100.0 + number))
        between.asked(Terms(delay_ms=100.0 + number))
        return len(lines(caplog))

    assert [change(number) for number in range(TOLD_MAX + 2)] == [1] * TOLD_MAX + [0, 0]
    clock.now_s += TOLD_WITHIN_S - 1.0
    assert change(50) == 0
    clock.now_s += 1.0
    between.heard()  # what was not told is, once it may be
    assert lines(caplog) == [
        ("WARNING", "neighbor disagrees", "link delay: 5 ms here, 150 ms there")
    ]
    assert [change(number) for number in range(TOLD_MAX)] == [1] * (TOLD_MAX - 1) + [0]


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        ({}, "what is at its address does not know this cluster"),
        ({b"spillover-cluster": b"b"}, "link: one here, none there"),
        (
            {b"spillover-cluster": b"b", b"spillover-federation": b"test"},
            "link: one here, none there",
        ),
        (
            {b"spillover-cluster": b"b", b"spillover-federation": b"a%20b"},
            "federation: 'test' here, 'a b' there",
        ),
        ({b"spillover-federation": b"other"}, "federation: 'test' here, 'other' there"),
        ({b"spillover-cluster": b"x"}, "at its address is cluster 'x'"),
        (
            {b"spillover-cluster": b"x", b"spillover-federation": b"other"},
            "at its address is cluster 'x' of federation 'other'",
        ),
    ],
)
def test_why_one_is_turned_away(between, caplog, headers, words):
    between.turned_away(headers)
    assert between.disagreement == words
    assert lines(caplog) == [("WARNING", "neighbor disagrees", words)]


@pytest.mark.parametrize(
    ("own", "there", "is_listened_to"),
    [
        ("test", b"test", True),
        ("test", None, True),
        ("test", b"other", False),
        (None, b"other", True),
        (None, None, True),
    ],
)
def test_whoever_turns_one_away_is_listened_to_if_it_may_be_of_the_same_federation(
    own, there, is_listened_to
):
    """Of what it goes by: that may be why. By the name of who it is, or was taken for."""
    for cluster, taken_for in ((b"x", "x"), (None, "b")):
        heard, configured = [], Configured(STAMP)
        configured.on_higher = lambda *told, heard=heard: heard.append(told)
        between = Agreement(Caller("a", "b", own), OWN, configured)
        headers = {
            b"spillover-configuration": b"5 c 1",
            b"spillover-federation": there,
            b"spillover-cluster": cluster,
        }
        between.turned_away({name: told for name, told in headers.items() if told is not None})
        assert heard == ([(taken_for, Stamp(5, "c", 1))] if is_listened_to else [])


def test_terms_of_another_configuration_are_not_compared(between):
    """One of the two will go by the other's in a moment; those of the same are, and so are those
    of a neighbor that knows of no configurations."""
    there = Terms(delay_ms=7.0)
    words = "link delay: 5 ms here, 7 ms there"
    for configuration, expected in (("5 c 1", None), (STAMP.told, words), ("", words)):
        between.asked(there, configuration)
        assert between.disagreement == expected
    between.go_by(there)
    assert between.disagreement is None
    between.go_by(Terms(delay_ms=8.0))
    assert between.disagreement == "link delay: 8 ms here, 7 ms there", "it still goes by its own"
    between.asked(there, STAMP.told)
    between.go_by(OWN)
    assert between.disagreement is None, "it changes, too"


@pytest.mark.parametrize(
    ("told", "there"), [(b"7 8", "7 or 8"), (b"", "another"), (None, "another")]
)
def test_who_speaks_other_versions_is_turned_away(between, caplog, told, there):
    between.refused_version({} if told is None else {protocol.TOLD: told})
    own = " or ".join(map(str, protocol.VERSIONS))
    words = f"protocol: version {own} here, {there} there"
    assert between.is_turned_away
    assert lines(caplog) == [("WARNING", "neighbor disagrees", words)]
