"""Work that waits behind work which takes far longer than usual (decision 0037): how long that is
believed to last, and when a request that waits is looked at again before its deadline."""

from __future__ import annotations

STUCK_SERVICES = 8.0
"""All servers are busy, and no service has begun for so many mean services: then the mean says
nothing of those that run. So long an exponential service is one in 3 000; constant ones, never."""

LOOKS = 4
"""A waiting request is looked at again so often: when a half, a quarter, an eighth and a sixteenth
is left of the time that it came with."""


def seen_departure_s(departure_s: float, service_s: float, still_s: float) -> float:
    """Returns in what time a queue is believed to become one shorter where, by the mean service, it
    is `departure_s`, and no service has begun for `still_s`: as long again."""
    if still_s > STUCK_SERVICES * service_s:
        return max(departure_s, still_s)
    return departure_s


def next_look_s(came_s: float, deadline_s: float, now_s: float) -> float:
    """Returns when what came at `came_s` is looked at next after now; its deadline, if that was the
    last time."""
    left_s = deadline_s - came_s
    for _ in range(LOOKS):
        left_s *= 0.5
        if deadline_s - left_s > now_s:
            return deadline_s - left_s
    return deadline_s
