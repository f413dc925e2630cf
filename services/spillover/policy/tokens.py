"""Which token an incoming job takes, of those it is compatible with: the longest available, or one
of the least loaded class.

Comte, "Dynamic load balancing with tokens", section III-C. There is one bucket of tokens; each
names a class, and a job that holds it runs on the servers of that class. An incoming job takes the
first compatible token in the order of their release, or is blocked; the token of a finished job
goes to the tail. What the paper leaves open is how the bucket is sorted at first: here the classes
take turns, so that the first jobs spread over all servers.

The bucket is numbered, not sorted: each release gets the next number, and the longest available
token has the smallest. Tokens of one class are alike and leave in order, so one ring of numbers for
each class says all:

first[i]      where class i's ring starts in `numbers`; limits[i] places belong to it
limits[i]     the tokens of class i, in use or not
numbers       release numbers, by place
heads[i]      the place in its ring of class i's longest available token
available[i]  how many of its tokens are available
oldest[i]     the number of the longest available one, NONE without any: all that the choice reads

All arrays are the caller's; `seize` and `give_back` write the last four for the class they name.
The same choice serves first come, first served: there, the servers choose among waiting jobs.

*Least loaded* is ours. In place of `oldest` the same choice reads a rank for each class, the
smaller the better (`load_rank`): how many jobs it has, by the square root of its speed, and how
short of tokens the types are that may join it. So fast servers have more jobs, by less than their
speed, since all are to be kept from running idle; and what others need most is taken last. Of ranks
that are equal the class that comes first is taken. It blocks less than any rule it was compared
with, but nothing that theory says of the longest available token is true of it (decision 0038).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, MutableSequence, Sequence

BLOCKED = -1
NONE = 2**62
"""The number of a token that is not there: it is later than every release."""

IDLE = 0.01
"""The number of jobs that a class without any counts as having: of two such classes, the faster one
is taken."""


def fill(
    limits: Sequence[int],
    first: Sequence[int],
    numbers: MutableSequence[int],
    heads: MutableSequence[int],
    available: MutableSequence[int],
    oldest: MutableSequence[int],
) -> int:
    """Put all tokens into the bucket, the classes taking turns, and return the number of the next
    release."""
    number = 0
    place = 0
    found = True
    while found:
        found = False
        for i in range(len(limits)):
            if place < limits[i]:
                numbers[first[i] + place] = number
                number += 1
                found = True
        place += 1
    for i in range(len(limits)):
        heads[i] = 0
        available[i] = limits[i]
        oldest[i] = numbers[first[i]] if limits[i] > 0 else NONE
    return number


def longest_available(
    classes: Sequence[int], start: int, stop: int, oldest: Sequence[float]
) -> int:
    """Returns the class among classes[start:stop] whose token has waited longest, BLOCKED if none
    has one. With ranks in place of numbers: the class of the smallest.

    Never blocks while a compatible token is available, whatever else is in the bucket.
    """
    chosen = BLOCKED
    smallest: float = NONE
    for place in range(start, stop):
        i = classes[place]
        if oldest[i] < smallest:
            smallest = oldest[i]
            chosen = i
    return chosen


def seize(
    i: int,
    limits: Sequence[int],
    first: Sequence[int],
    numbers: Sequence[int],
    heads: MutableSequence[int],
    available: MutableSequence[int],
    oldest: MutableSequence[int],
) -> int:
    """Take class i's longest available token, of which there must be one, and return its release
    number."""
    taken = oldest[i]
    heads[i] = heads[i] + 1 if heads[i] + 1 < limits[i] else 0
    available[i] -= 1
    oldest[i] = numbers[first[i] + heads[i]] if available[i] > 0 else NONE
    return taken


def give_back(
    i: int,
    number: int,
    limits: Sequence[int],
    first: Sequence[int],
    numbers: MutableSequence[int],
    heads: Sequence[int],
    available: MutableSequence[int],
    oldest: MutableSequence[int],
) -> None:
    """Release a token of class i, which must be in use, to the tail of the bucket.

    `number` is larger than that of every earlier release.
    """
    place = heads[i] + available[i]
    if place >= limits[i]:
        place -= limits[i]
    numbers[first[i] + place] = number
    if available[i] == 0:
        oldest[i] = number
    available[i] += 1


def speeds(rates: Iterable[Sequence[float]]) -> list[float]:
    """Returns the speeds of classes whose servers have these rates, as `load_rank` takes them: 1 is
    the mean."""
    roots = [sum(math.sqrt(rate) for rate in of_class) for of_class in rates]
    mean = sum(roots) / len(roots)
    return [root / mean for root in roots]


def rivals(joins: Sequence[Sequence[int]], classes: int) -> list[list[int]]:
    """Returns by class the types that may join it, where `joins` has the classes by type: those
    that may join all are left out, since they add as much to each."""
    told = [k for k, of in enumerate(joins) if len(of) < classes]
    return [[k for k in told if i in joins[k]] for i in range(classes)]


def load_rank(
    held: int, speed: float, types: Sequence[int], start: int, stop: int, free: Sequence[int]
) -> float:
    """Returns the rank of a class with an available token, `held` of whose tokens are in use.

    types[start:stop] are those that may join it (`rivals`), free[k] how many tokens type k could
    take, this one too. Worked out whenever a token of the class comes or goes, and kept till then:
    nearly as good as anew for each job, at a cost that does not grow with the classes.
    """
    rank = (held + IDLE) / speed
    for place in range(start, stop):
        rank += 1.0 / math.sqrt(free[types[place]])
    return rank


def assigned_at_random(
    classes: Sequence[int], shares: Sequence[float], start: int, stop: int, draw: float
) -> int:
    """Returns the static rival: the class of classes[start:stop] in whose share the draw falls.

    shares[start:stop] are assignment probabilities and sum to 1 up to rounding; `draw` is uniform
    in [0, 1). Looks at no token: a job whose class is full is blocked (section II-A).
    """
    chosen = BLOCKED
    reached = 0.0
    for place in range(start, stop):
        if shares[place] > 0.0:
            chosen = classes[place]
            reached += shares[place]
            if draw < reached:
                break
    return chosen
