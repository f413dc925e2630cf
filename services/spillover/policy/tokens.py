"""Which token an incoming job takes: the longest available of those it is compatible with.

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
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

BLOCKED = -1
NONE = 2**62
"""Stands for the number of a token that is not there: later than every release."""


def fill(
    limits: Sequence[int],
    first: Sequence[int],
    numbers: MutableSequence[int],
    heads: MutableSequence[int],
    available: MutableSequence[int],
    oldest: MutableSequence[int],
) -> int:
    """Put all tokens into the bucket, the classes taking turns; the number of the next release."""
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


def longest_available(classes: Sequence[int], start: int, stop: int, oldest: Sequence[int]) -> int:
    """Returns the class among classes[start:stop] whose token has waited longest, BLOCKED if none
    has one.

    Never blocks while a compatible token is available, whatever else is in the bucket.
    """
    chosen = BLOCKED
    smallest = NONE
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
    """Take class i's longest available token, of which there must be one; its release number."""
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
