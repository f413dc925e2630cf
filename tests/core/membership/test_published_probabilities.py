"""The machine moves clients with exactly the published probabilities: chi-square at 0.001, for each
rule and case of `policy.membership`, from fixed seeds; ours to within rounding."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from random import Random

import pytest

from spillover.core.membership.client_session import ClientSession
from spillover.core.membership.session_events import (
    Announced,
    Connect,
    Connected,
    Lost,
    Started,
    TimerFired,
)
from support.client_sessions import told, urls

CLIENTS = 1000
SEEDS = (1, 2, 3)


def uniform(names):
    return {name: Fraction(1, len(names)) for name in names}


GROWN = {"a": 4 / 6, "e": 1 / 6, "f": 1 / 6}

# What a client does, from the list that it acted on and its server to where it ends. Of S servers,
# S' come to be, M of them stay, O go: rule 1: leave with 1 - S/S'; 2: to new ones; 3: stay; 4: to
# survivors with M (S - S') / (S' O).
CASES = {
    "1: the list grows, a survivor": ("abcd", "a", ["abcdef"], GROWN),
    "1: one goes, three come": (
        "abcd", "a", ["abcxyz"], dict.fromkeys("xyz", 1 / 9) | {"a": 2 / 3},
    ),
    "2: the list grows, one that went": ("abcd", "d", ["abcxyz"], uniform("xyz")),
    "3: the list shrinks, a survivor": ("abcde", "a", ["abcx"], {"a": 1}),
    "3: as long as before, a survivor": ("abcd", "a", ["abxy"], {"a": 1}),
    "4: the list shrinks, one that went": (
        "abcdefg", "g", ["abcdx"], dict.fromkeys("abcd", 2 / 15) | {"x": 7 / 15},
    ),
    "4: nothing is new": ("abcde", "e", ["abc"], uniform("abc")),
    "2 and 4: as long as before, one that went": ("abcd", "d", ["abxy"], uniform("xy")),
    "all are replaced": ("abc", "b", ["wxyz"], uniform("wxyz")),
    "own is in neither, unchanged": ("abc", "q", ["abc"], uniform("abc")),
    "one that skipped a list": ("abcd", "a", ["abcdx", "abcdef"], GROWN),
    "one whose server went and came back": ("abcd", "a", ["bcdx", "abcdef"], GROWN),
    "one that lost its server": ("abcd", "a", [], uniform("bcd")),
    "one that lost it while it waited": ("abcd", "a", ["abcdxy"], uniform("xy")),
}  # fmt: skip


def destination(case, name, seed):
    """Where one client goes, by the rules with coins."""
    before, own, lists, _ = case
    options = {"rule": "probabilistic", "in_order": True}
    first = own + before.replace(own, "")
    client = ClientSession(name, urls(first), Random(f"{seed}/{name}"), **options)
    (asked,) = client.handle(Started(), 0.0)
    given = before if own in before else first
    commands = client.handle(Connected(asked.attempt, told(own, given, 1)), 0.0)
    if own not in before:
        lists = [before]
    for version, names in enumerate(lists, start=2):
        commands = client.handle(Announced(asked.attempt, told(own, names, version)), 1.0)
    if "lost" in name or not lists:
        commands = client.handle(Lost(asked.attempt), 1.1)
    elif math.isfinite(client.next_deadline()):
        commands = client.handle(TimerFired(), client.next_deadline())
    chosen = [command for command in commands if isinstance(command, Connect)]
    return chosen[0].server.url.removeprefix("http://") if chosen else own


def chi_square_limit(freedom, z=3.0902):
    """What chi-square exceeds with probability 0.001, by Wilson and Hilferty, to within a percent
    or so: 10.8 with one degree of freedom, 18.5 with four."""
    part = 2.0 / (9.0 * freedom)
    return freedom * (1.0 - part + z * math.sqrt(part)) ** 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", CASES)
def test_clients_move_with_the_published_probability(name, seed):
    case = CASES[name]
    expected = {server: float(share) * CLIENTS for server, share in case[-1].items()}
    assert sum(expected.values()) == pytest.approx(CLIENTS)
    found = Counter(destination(case, f"{name}/{n}", seed) for n in range(CLIENTS))
    assert found.keys() == expected.keys()
    if len(expected) > 1:
        chi_square = sum((found[to] - count) ** 2 / count for to, count in expected.items())
        assert chi_square < chi_square_limit(len(expected) - 1), found


@pytest.mark.parametrize("version", range(2, 8))
@pytest.mark.parametrize(
    ("before", "after"),
    [case.split() for case in ("abcd abcdef", "abcd abcxyz", "abcdefg abcdx", "abc wxyz")],
)
def test_ours_is_within_rounding_of_them(before, after, version):
    """By ranks, from equal counts: after it all are within one, the least have moved, and from each
    server as many as the rules expect."""
    each = 101
    counts, left = Counter(), Counter()
    for own in before:
        for rank in range(each):
            client = ClientSession("me", urls(own + before), Random(rank), in_order=True)
            (asked,) = client.handle(Started(), 0.0)
            client.handle(Connected(asked.attempt, told(own, before, 1)), 0.0)
            news = told(own, after, version, clients=each, rank=rank)
            client.handle(Announced(asked.attempt, news), 0.0)
            commands = client.handle(TimerFired(), client.next_deadline())
            to = commands[0].server.url.removeprefix("http://") if commands else own
            counts[to] += 1
            left[own] += to != own
    assert counts.keys() == set(after)
    assert max(counts.values()) - min(counts.values()) <= 1
    for own in before:
        leave = 1.0 if own not in after else max(0.0, 1.0 - len(before) / len(after))
        assert abs(left[own] - each * leave) <= 1
