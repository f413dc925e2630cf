"""The times at which an idle cluster asks a neighbor for waiting work, and at which the neighbor
gives it some (decision 0037)."""

from __future__ import annotations

import math

SPREAD = 0.5
"""The spread of a neighbor's queue around its report, as a share of a random walk's spread, as in
`adaptive`."""

DOUBLINGS_MAX = 6
"""The number of times in a row that a neighbor has had nothing after which it is asked no more
rarely."""

JITTER = 0.5
"""The largest share by which a pause is drawn shorter or longer: clusters that are idle at once
must not ask at once."""

PAUSE_S_MIN = 0.001
"""The shortest pause, in seconds, however quick services are. Where they take no time, the question
would follow its own answer for as long as there is work that may not come."""


AHEAD_MAX = 2
"""The largest number of requests that a cluster asks for, for each server, before that is idle: as
many as neighbors may send unasked (`admission.FOREIGN_WAITING`)."""


def ahead(delay_s: float, departure_s: float, servers: int) -> int:
    """Returns for how many of the next departures to ask now: for those before an answer can be
    here. A server that asks only when it is idle stays idle for the way there and back."""
    return min(math.ceil(2.0 * delay_s / max(departure_s, PAUSE_S_MIN)), AHEAD_MAX * servers)


def worth_s(ahead: int, age_s: float, delay_s: float, departure_s: float) -> float:
    """Returns how much longer the queue there may be than the way from there, in seconds. Only if
    this is above 0 is there perhaps work that is worth the way.

    `age_s` is the age of `ahead`, and `departure_s` the time in which that queue becomes one
    shorter.
    """
    spread = SPREAD * math.sqrt(2.0 * (age_s + 2.0 * delay_s) / departure_s)
    return (ahead + spread) * departure_s - delay_s


def pause_s(row: int, departure_s: float, draw: float) -> float:
    """Returns how long a neighbor is left alone that has had nothing `row` times in a row, at least
    once. `departure_s` is the own one."""
    longer = 1.0 - JITTER + 2.0 * JITTER * draw
    return max(departure_s, PAUSE_S_MIN) * 2.0 ** min(row - 1, DOUBLINGS_MAX) * longer


def first_place(there_s: float, departure_s: float) -> int:
    """Returns the first place in the own queue, from 0 on, from which a request is better off with
    a neighbor: the way there and the wait, `there_s`, are less than what it would wait here.
    `departure_s` is the own one, above 0.
    """
    return int(there_s / departure_s)
