"""The next producer that a consumer's request probes, and the answer of a producer to it.

Johnson, "Designing a Distributed Queue", section 2: a consumer draws a producer from its access
probabilities and sends it a probe; a producer with an object answers, one without sends the probe
on to a producer drawn the same way, until the probe has made `max_hops` hops: then it parks.

`reached` holds running sums of a consumer's access probabilities over its producers, so that
reached[-1] is their total, 1 but for rounding. Draws are uniform in [0, 1).
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

SERVE = 0
"""The answer that the producer has an object: it goes to the consumer."""
HOP = 1
"""The answer that the producer is empty, and another one may be probed."""
PARK = 2
"""The answer that the producer is empty and the hops are used up: the request waits here, first
come."""


def meet(buffered: int, hops: int, max_hops: int) -> int:
    """Returns SERVE, HOP or PARK, for a probe on its `hops`-th hop (the first is 1)."""
    if buffered > 0:
        return SERVE
    return HOP if hops < max_hops else PARK


def pick_producer(reached: Sequence[float], draw: float) -> int:
    """Returns the index in whose share the draw falls. What has probability 0 is never picked."""
    last = len(reached) - 1
    target = draw * reached[last]
    low = 0
    high = last
    while low < high:
        middle = (low + high) // 2
        if target < reached[middle]:
            high = middle
        else:
            low = middle + 1
    return low


def pick_unvisited(reached: Sequence[float], visited: Sequence[bool], draw: float) -> int:
    """Returns a producer as `pick_producer` does, among those not visited, in proportion to their
    probabilities.

    If every producer with a probability has been visited, all of them count again.
    """
    total = 0.0
    below = 0.0
    for j in range(len(reached)):
        if not visited[j]:
            total += reached[j] - below
        below = reached[j]
    if total <= 0.0:
        return pick_producer(reached, draw)
    target = draw * total
    sum_so_far = 0.0
    below = 0.0
    picked = 0
    for j in range(len(reached)):
        share = reached[j] - below
        below = reached[j]
        if visited[j] or share <= 0.0:
            continue
        picked = j
        sum_so_far += share
        if target < sum_so_far:
            break
    return picked


LEARNED_SHARE = 0.9
"""The share of a consumer's access probabilities that follows what it has seen; the rest goes to
all alike, so that a producer that was slow, or new, is seen again."""


def learned_access(objects: Sequence[float], access: MutableSequence[float]) -> None:
    """Write access probabilities in proportion to the objects that came from each producer, as the
    paper recommends (section 5), and a rest to all alike. Without any objects all are alike.
    """
    total = 0.0
    for j in range(len(objects)):
        total += objects[j]
    even = 1.0 / len(objects)
    for j in range(len(objects)):
        share = objects[j] / total if total > 0.0 else even
        access[j] = LEARNED_SHARE * share + (1.0 - LEARNED_SHARE) * even
