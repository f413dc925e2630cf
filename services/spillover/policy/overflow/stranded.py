"""The rules for work that waits behind work which takes far longer than usual (decision 0037): how
long that is believed to last, and when a waiting request is looked at again before its deadline."""

from __future__ import annotations

STUCK_SERVICES = 8.0
"""The time without a begin of a service while all servers are busy, in mean services, after which
the mean says nothing of the services that run. One exponential service in 3 000 takes so long, and
no constant one."""

LOOKS = 4
"""The number of times that a waiting request is looked at again: when a half, a quarter, an eighth
and a sixteenth is left of the time that it came with."""


def seen_departure_s(departure_s: float, service_s: float, still_s: float) -> float:
    """Returns the time, in seconds, in which a queue is believed to become one shorter. It is
    `departure_s`, by the mean service, unless no service has begun for far longer, `still_s`: then
    it takes as long again."""
    if still_s > STUCK_SERVICES * service_s:
        return max(departure_s, still_s)
    return departure_s


def next_look_s(came_s: float, deadline_s: float, now_s: float) -> float:
    """Returns when a request that came at `came_s` is looked at next after now; its deadline, if
    the last look has passed."""
    left_s = deadline_s - came_s
    for _ in range(LOOKS):
        left_s *= 0.5
        if deadline_s - left_s > now_s:
            return deadline_s - left_s
    return deadline_s
