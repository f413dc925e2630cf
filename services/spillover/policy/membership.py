"""The server to which a client goes when the list of servers changes: Shraer & Reed's rules and
their rivals.

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
uniform in that part. `choose_stratified` has a rank instead of the draw.

What the document leaves open or prints wrongly, and what is done here:
* Rule 4 without new servers must be exactly 1: probabilities are quotients of integers, compared
  without dividing, so that no rounding picks from an empty set.
* A list that did not change and a client whose server is not in it is 0/0: the client goes to any
  server of the list, each as likely as the others.
* Lists of equal size that are replaced: whoever is on a survivor stays, all others go to new ones.
* A client that skipped configurations follows from the list that it last acted on: the servers that
  came and went meanwhile are none of its change, and its fellows of that list are spread evenly.
* A change while a client waits is such a case too. One that tries its new server has acted.
* An empty list, or one with duplicates, never comes here: the client keeps the list it has.
* The rules keep evenness in expectation alone: every client is a coin of its own, and the spread
  settles at the multinomial's. An uneven start stays. `choose_stratified`, ours, mends both.
  It counts, and does not just take (rank + 1/2) / clients for the coin: cut off at one point, all
  servers would round to the same side, and 9 of 115 clients give a tenth one 108 and keep 103.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

ELSEWHERE = -1

SURPLUS_MIN = 2
SURPLUS_SHARE_MIN = 0.02
"""A smaller surplus of an uneven spread, as a share of the even part, is left as it is."""

_GOLDEN = 0.6180339887498949


def move_quotient(kept: int, gone: int, added: int) -> tuple[int, int]:
    """Returns the probability with which a client of a survivor leaves it: 1 - |S|/|S'| if the list
    grows (rule 1), else 0 (rule 3). As (numerator, denominator)."""
    return max(0, added - gone), kept + added


def survivor_quotient(kept: int, gone: int, added: int) -> tuple[int, int]:
    """Returns the probability with which a client of a server that went goes to a survivor: none if
    the list grows (rule 2), else |M| (|S| - |S'|) / (|S'| |O|) (rule 4). As (numerator,
    denominator).

    It is 1 if there are no new servers, also where nobody went: see the 0/0 of the module.
    """
    if added == 0:
        return 1, 1
    if added >= gone:
        return 0, 1
    return kept * (gone - added), (kept + added) * gone


def choose_probabilistic(own: int, kept: int, gone: int, added: int, draw: float) -> int:
    """Returns the place by rules 1 to 4. All servers of S' have the same expected number of clients
    if those of S had, and no rule moves fewer in expectation."""
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
    """ZooKeeper's former rule ("Baseline"): stay where that is possible, else go to any server of
    the new list.

    A random permutation of the list, drawn again with each list, begins with any server.
    """
    if 0 <= own < kept:
        return own
    return min(int(draw * (kept + added)), kept + added - 1)


def choose_stratified(
    own: int,
    kept: int,
    gone: int,
    added: int,
    rank: int,
    clients: int,
    surplus: float,
    phase: float,
) -> int:
    """Ours: rules 1 to 4 without coins, for the client of `rank` 0 .. clients-1 at its server.

    Each client counts as if every server had as many clients as its own: so many have to leave each
    survivor (rule 1), the last to come first; they and the clients of the servers that went stand
    in one line, in the places' order, and the line is dealt out in pieces to whom is short (rules 2
    and 4). `phase`, in [0, 1) and the same for all clients of a change, says where rounding begins.

    Guarantees: from counts that are equal, counts that differ by one at most, and the least that
    must move. From counts that differ by d it makes such as differ by about d + 1, and by less
    where the list grows. Needs an order of the places that all agree on, and ranks of one instant.

    Where a server has more clients than others, `surplus` is the share of them that it has too
    many, and half of that leaves too, whatever the change, from the highest ranks down: a little
    to each other server of the new list. See `surplus_of`.
    """
    old, new = kept + gone, kept + added
    if own == ELSEWHERE:
        return _any_short(kept, gone, added, (rank + phase) / clients)
    repairing = int(clients * surplus / 2 + 0.5) if own < kept and new > 1 else 0
    clients -= repairing
    if rank >= clients:
        step = int((rank - clients + phase) * (new - 1) / repairing)
        return (own + 1 + min(step, new - 2)) % new
    if new <= old:
        if own < kept:
            return own
        at = ((own - kept) * clients + rank + phase) * new / clients
        return _dealt(at, old - new, old, kept, added)
    movers = int(clients * kept * (new - old) / new + phase)
    if own < kept:
        before = int(clients * own * (new - old) / new + phase)
        stayers = clients - int(clients * (own + 1) * (new - old) / new + phase) + before
        if rank < stayers:
            return own
        at = before + rank - stayers + phase
    else:
        at = movers + (own - kept) * clients + rank + phase
    return kept + min(int(at * added / (movers + gone * clients)), added - 1)


def _any_short(kept: int, gone: int, added: int, draw: float) -> int:
    """Returns a server for a client of none: spread over the servers that rule 2 or 4 would fill,
    or over all where nobody is short."""
    old, new = kept + gone, kept + added
    room = max(0, old - new)
    short = kept * room + added * old
    if short == 0:
        return min(int(draw * new), new - 1)
    return _dealt(draw * short, room, old, kept, added)


def _dealt(at: float, room: int, empty: int, kept: int, added: int) -> int:
    """Returns the place that gets the point `at` of all that moves: `room` goes to each survivor,
    then `empty` to each new server."""
    if at < kept * room or added == 0:
        return min(int(at / room), kept - 1)
    return kept + min(int((at - kept * room) / empty), added - 1)


def phase_of(version: int) -> float:
    """Returns where rounding begins at the change to this version: multiples of the golden ratio,
    so that in the long run no server is rounded up more often than another."""
    return (0.5 + version * _GOLDEN) % 1.0


def surplus_of(clients: int, total: int, servers: int) -> float:
    """Returns the share of a server's `clients` beyond its even part of the `total` of those
    `servers` that are compared, itself included: it and its neighbors. 0 where that is no more
    than what rounding leaves: SURPLUS_MIN clients, or SURPLUS_SHARE_MIN of the even part."""
    even = total / servers
    beyond = clients - even
    if beyond <= SURPLUS_MIN or beyond <= SURPLUS_SHARE_MIN * even:
        return 0.0
    return beyond / clients


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
