"""The events to come in a kernel: a binary heap by (time, number), as in `sim.engine.world`.
Numbers are given in the order in which events are made, so that events of the same instant happen
in the order made. What an event means is not known here.
"""

from __future__ import annotations

from spillover.sim.fast.compile import inlined
from spillover.sim.fast.overflow.state import KernelState


@inlined
def push(s: KernelState, at_s: float, what: int) -> None:
    """Let `what` happen at `at_s`."""
    run = s.run[0]
    heap = s.under.heap
    run.made += 1
    place = run.heap_size
    run.heap_size = place + 1
    while place > 0:
        above = (place - 1) >> 1
        # Of equal times the one above was made before.
        if heap[above].at_s <= at_s:
            break
        heap[place].at_s = heap[above].at_s
        heap[place].made = heap[above].made
        heap[place].what = heap[above].what
        place = above
    heap[place].at_s = at_s
    heap[place].made = run.made
    heap[place].what = what


@inlined
def pop(s: KernelState) -> int:
    """Take out the next event: what it is. When it was due is left in `run`."""
    run = s.run[0]
    heap = s.under.heap
    run.now_s = heap[0].at_s
    run.now_made = heap[0].made
    what = heap[0].what
    size = run.heap_size - 1
    run.heap_size = size
    at_s, made, last = heap[size].at_s, heap[size].made, heap[size].what
    # Down to a leaf, then up again: what was last seldom belongs higher than a leaf. The lesser of
    # two is found without a branch, which no processor could predict.
    place = 0
    below = 1
    while below + 1 < size:
        one, other = heap[below], heap[below + 1]
        below += (other.at_s < one.at_s) | ((other.at_s == one.at_s) & (other.made < one.made))
        heap[place].at_s = heap[below].at_s
        heap[place].made = heap[below].made
        heap[place].what = heap[below].what
        place = below
        below = 2 * place + 1
    if below < size:
        heap[place].at_s = heap[below].at_s
        heap[place].made = heap[below].made
        heap[place].what = heap[below].what
        place = below
    while place > 0:
        above = (place - 1) >> 1
        if heap[above].at_s < at_s or (heap[above].at_s == at_s and heap[above].made < made):
            break
        heap[place].at_s = heap[above].at_s
        heap[place].made = heap[above].made
        heap[place].what = heap[above].what
        place = above
    heap[place].at_s = at_s
    heap[place].made = made
    heap[place].what = last
    return what  # type: ignore[no-any-return]
