"""The rules by which a server goes from one node of a site to another one (decision 0049)."""

from __future__ import annotations

from collections.abc import Mapping

OLDER_DEPARTURES = 2.0
"""The number of the site's departures by which a request at a sibling has to be older than any here
to get the next free server. Otherwise servers would go to and fro between queues alike."""


def goes_first(there_age_s: float, here_age_s: float, departure_s: float) -> bool:
    """Returns whether the oldest request at a sibling is to be served before the oldest one here.
    `departure_s` is how long the site's queue takes to become one shorter."""
    return there_age_s > here_age_s + OLDER_DEPARTURES * departure_s


def trimmed(shares: list[int], servers: int) -> list[int]:
    """Returns these shares, the largest made smaller until their sum is at most `servers`."""
    kept = list(shares)
    for _ in range(sum(kept) - servers):
        kept[kept.index(max(kept))] -= 1
    return kept


def spread(shares: list[int], spare: int, first: int = 0) -> list[int]:
    """Returns these shares, the smallest made larger until `spare` servers more are in them. Of
    shares that are equal the next one from the place `first` on grows first, going round."""
    turn = first % len(shares)
    grown = shares[turn:] + shares[:turn]
    for _ in range(spare):
        grown[grown.index(min(grown))] += 1
    back = len(shares) - turn
    return grown[back:] + grown[:back]


def evened(number: int, idle: int, others: Mapping[int, int]) -> tuple[int, int] | None:
    """Returns to which other node this one gives servers, and how many, so that all come to have
    the same; None unless it is the one that has most. `others` have so many idle servers."""
    if not others or max((has, -other) for other, has in others.items()) > (idle, -number):
        return None
    poorest = min(others, key=lambda other: (others[other], other))
    part = (idle - others[poorest]) // 2
    return (poorest, part) if part > 0 else None
