"""Where a client goes when the list of servers changes: Shraer & Reed's rules and their rivals.

"Load-Balancing Clients-Server Connections During Membership Change". Each client decides alone.
S is the old list, S' the new one, M = S & S' the survivors, O the servers of S alone, which went,
N those of S' alone, which are new (garbled in the text). A list holds each server once and S' is
not empty: whoever reads them sees to that. Servers are *places*, the same for all clients of a
change:

    old list: 0 .. kept-1 the survivors, in an agreed order; kept .. kept+gone-1 those that went
    new list: 0 .. kept-1 the survivors, in the same order;  kept .. kept+added-1 the new ones

`own` is the client's place in the old list. ELSEWHERE, for one whose server is in neither list,
counts as a place that went; whoever is on a new server already has nothing to choose. A chooser
returns the client's place in the new list, `own` where it stays. `draw` is uniform in [0, 1), the
only randomness, and one serves both stages: given that it fell into a part of the interval, it is
uniform in that part.

What the document leaves open or prints wrongly, and what is done here:
* Rule 4 without new servers must be exactly 1: probabilities are quotients of integers, compared
  without dividing, so that no rounding picks from an empty set.
* A list that did not change and a client whose server is not in it is 0/0: the client goes to any
  server of the list, each as likely as the others.
* The rules keep evenness in expectation alone: every client is a coin of its own, and the spread
  settles at the multinomial's. `choose_stratified`, ours, takes that away.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

ELSEWHERE = -1

LAST_POSITION = 1.0 - 2.0**-53
"""The largest number below 1: what rounding would make a position of 1."""

_GOLDEN = 0.6180339887498949


def move_quotient(kept: int, gone: int, added: int) -> tuple[int, int]:
    """With which probability a client of a survivor leaves it: 1 - |S|/|S'| if the list grows
    (rule 1), else 0 (rule 3). As (numerator, denominator)."""
    return max(0, added - gone), kept + added


def survivor_quotient(kept: int, gone: int, added: int) -> tuple[int, int]:
    """With which probability a client of a server that went goes to a survivor: none if the list
    grows (rule 2), else |M| (|S| - |S'|) / (|S'| |O|) (rule 4). As (numerator, denominator).

    It is 1 if there are no new servers, also where nobody went: see the 0/0 of the module.
    """
    if added == 0:
        return 1, 1
    if added >= gone:
        return 0, 1
    return kept * (gone - added), (kept + added) * gone


def choose_probabilistic(own: int, kept: int, gone: int, added: int, draw: float) -> int:
    """Rules 1 to 4. All servers of S' have the same expected number of clients if those of S had,
    and no rule moves fewer in expectation."""
    if 0 <= own < kept:
        moves, of = move_quotient(kept, gone, added)
        rest = draw * of
        if rest >= moves:
            return own
        return kept + min(int(rest / moves * added), added - 1)
    to_survivors, of = survivor_quotient(kept, gone, added)
    rest = draw * of
    if rest < to_survivors:
        return min(int(rest / to_survivors * kept), kept - 1)
    return kept + min(int((rest - to_survivors) / (of - to_survivors) * added), added - 1)


def choose_baseline(own: int, kept: int, gone: int, added: int, draw: float) -> int:
    """ZooKeeper before: stay where that is possible, else any server of the new list ("Baseline").

    A random permutation of the list, drawn again with each list, begins with any server.
    """
    if 0 <= own < kept:
        return own
    return min(int(draw * (kept + added)), kept + added - 1)


def choose_stratified(
    own: int, kept: int, gone: int, added: int, position: float
) -> tuple[int, float]:
    """Ours: rules 1 to 4 without coins. The place in the new list, and the position there.

    A client has a position in [0, 1) among those of its server, and keeps it between changes. The
    positions of all servers, laid end to end, are one interval, of which each server of S owns a
    part as large as the others'. A change cuts as much off the end of the survivors' parts as they
    have too much (rule 1), lays what was cut off and the parts of the servers that went end to end,
    and deals it out in the places' order to whom is short: to survivors behind what they have, to
    new servers from 0 (rules 2 and 4). Nothing else moves. Lengths are kept, only scaled, so that
    evenly spread positions stay evenly spread, and last to come is first to go.

    Needs: positions that are spread evenly over the servers' parts (`even_start`), an
    order of the places that all agree on, and lists that all clients see in the same order.
    Guarantees: of the interval, exactly the fractions of rules 1 to 4, so the least that must move.
    Of clients, each server has the even number up to one for each piece of the first interval that
    it owns by now: within 2 or 3 of even for 1 000 clients after the document's four changes, 5
    after twenty, where coins differ by 30. With random positions, as of hashed names, the spread is
    the coins'. As with the rules, unevenness that was there before is not repaired. A client that
    had to take another server than the chosen one keeps its position and goes on from there.
    """
    old, new = kept + gone, kept + added
    # Lengths are counted in parts of which the whole interval has old * new: an old server owns
    # `new` of them, a new one `old`.
    if 0 <= own < kept:
        at = position * new
        if new <= old or at < old:
            return own, at / old
        return _dealt(own * (new - old) + at - old, 0, kept, added, old)
    if own == ELSEWHERE:
        # Of no part: spread over whom rule 2 or 4 would fill, or over all where nobody is short.
        short = kept * max(0, old - new) + added * old
        if short == 0:
            place = min(int(position * new), new - 1)
            return place, position * new - place
        return _dealt(position * short, max(0, old - new), kept, added, old)
    at = (own - kept + position) * new + kept * max(0, new - old)
    return _dealt(at, max(0, old - new), kept, added, old)


def _dealt(at: float, room: int, kept: int, added: int, old: int) -> tuple[int, float]:
    """The server that is dealt the point `at` of what moves, and the position there: `room` goes to
    each survivor, behind what it has, then `old` to each new server."""
    if at < kept * room or added == 0:
        place = min(int(at / room), kept - 1)
        return place, min((old - room + at - place * room) / old, LAST_POSITION)
    behind = (at - kept * room) / old
    place = min(int(behind), added - 1)
    return kept + place, min(behind - place, LAST_POSITION)


def spread_point(rank: int) -> float:
    """Returns a point in [0, 1) for each rank 0, 1, 2, ...: the multiples of the golden ratio, of
    which any number from any rank on are spread evenly, so that nobody has to know how many there
    are."""
    return (0.5 + rank * _GOLDEN) % 1.0


def even_start(point: float, servers: int) -> tuple[int, float]:
    """Returns the server and the position that belong to a point in [0, 1): where a client begins.

    The point is `spread_point(rank)`, or (rank + 1/2) / clients where their number is known: the
    spread is smaller then.
    """
    at = point * servers
    place = min(int(at), servers - 1)
    return place, min(at - place, LAST_POSITION)


def hash_point(name: str) -> int:
    """Returns the point of a client or server on the circle of 2^128 points: MD5, as in the
    document."""
    return int.from_bytes(hashlib.md5(name.encode(), usedforsecurity=False).digest(), "big")


def successor(points: Sequence[int], point: int) -> int:
    """Returns the index of the first of the sorted `points` at or after `point`, around the circle
    ("Consistent Hashing"): a client's server is the one that owns it."""
    low, high = 0, len(points)
    while low < high:
        middle = (low + high) // 2
        if points[middle] < point:
            low = middle + 1
        else:
            high = middle
    return low if low < len(points) else 0
