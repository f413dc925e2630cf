"""Admission to a queue: by its length, and by whether a request that joins it is done in time.

A request is *home* where its client sent it, and foreign where a neighbor did. Home requests come
first: they may use all of the queue and all of their time.
"""

from __future__ import annotations

import math

FOREIGN_SHARE = 0.75
"""The share of the time left into which a neighbor's request must fit, so that under overload
requests of the own clients still find room."""

SPREAD = 2.0
"""The margin before a deadline, in standard deviations of the wait."""


def takes_foreign(free: int, waiting: int, foreign_limit: int) -> bool:
    """Returns whether there is room for a neighbor's request, at a free server or in the queue."""
    return free > 0 or waiting < foreign_limit


FOREIGN_WAITING = 2
"""The number of neighbors' requests that may wait for each server, under a policy that goes by the
load. So a home request finds at most two services' worth of them before it."""


def foreign_waiting_max(servers: int) -> int:
    """Returns how many neighbors' requests may wait."""
    return FOREIGN_WAITING * servers


def is_full(waiting: int, is_home: bool, queue_limit: int, foreign_limit: int) -> bool:
    """Returns whether the queue has no room for such a request."""
    return waiting >= (queue_limit if is_home else foreign_limit)


def tells_wait(waiting: int, servers: int) -> bool:
    """Returns whether the length of the queue says how long the wait is: that of a short queue
    depends on what runs just now."""
    return waiting >= servers


def is_too_late(stay_s: float, left_s: float, is_home: bool) -> bool:
    """Returns whether a request with `left_s` seconds left should not stay for `stay_s`."""
    share = 1.0 if is_home else FOREIGN_SHARE
    return stay_s > share * left_s


def stay_s(
    waiting: int, servers: int, service_s: float, spread_s: float, delivery_s: float
) -> float:
    """Returns how long a request that joins now will be here, with a margin.

    A service takes `service_s`, with a standard deviation of `spread_s`. The wait is a sum of
    services, so that its spread grows with the root of their number, and the request's own service
    has a spread too. Servers that work in step take the queue in rounds, the last one unfinished.
    """
    services = math.sqrt((waiting + 1) / servers**2 + 1)
    margin_s = SPREAD * spread_s * services
    wait_s = (waiting + servers) * service_s / servers
    return wait_s + service_s + margin_s + delivery_s
