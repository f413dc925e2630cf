"""The load that the own clients of a cluster bring: arrivals per second, over a window of
departures."""

from __future__ import annotations

import math

INSTANT = 1e-9
"""The share of the window that counts as no time: nothing fades in it, and a rate over it would be
mostly rounding."""

LOAD_WINDOW = 32.0
"""The length of the window in departures. A window of W arrivals knows a load to sqrt(load / 2 W),
12 % at load 1, and a burst is seen within it."""

STEPS = 64
"""The number of steps in which a load of 1 is reported: at rest the load stays the same, and need
not be reported again."""


def home_rate(rate_hz: float, arrivals: int, since_s: float, departure_s: float) -> float:
    """Returns the rate after these arrivals in the time since it was `rate_hz`.

    The window is exponential, LOAD_WINDOW departures long. Arrivals count as spread evenly over the
    time, so that none costs more than one to count.
    """
    window_s = LOAD_WINDOW * max(departure_s, 1e-6)
    if since_s <= INSTANT * window_s:
        return rate_hz + arrivals / window_s
    kept = math.exp(-since_s / window_s)
    return rate_hz * kept + arrivals / since_s * (1.0 - kept)


def load_of(rate_hz: float, departure_s: float) -> float:
    """Returns the load of so many arrivals per second, as a share of what the cluster can do, which
    has one departure each `departure_s`."""
    return math.floor(rate_hz * departure_s * STEPS + 0.5) / STEPS
