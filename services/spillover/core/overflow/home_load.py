"""The load that the own clients of a cluster bring: arrivals are counted, and made a rate when it
is asked for."""

from __future__ import annotations

from spillover.policy.overflow.home_load import home_rate, load_of


class HomeLoad:
    """The home load of one cluster. `arrivals` counts the requests since the rate was last asked
    for."""

    def __init__(self, now_s: float) -> None:
        self.arrivals = 0
        self._rate_hz = 0.0
        self._at_s = now_s
        self.elsewhere = 0.0
        """The load that clients of the site's other nodes bring."""
        self.own = 0.0
        """The load that clients of this node bring, when it was last asked for."""
        self.load = 0.0
        """The load when it was last asked for: at the last report, at the latest."""

    def at(self, now_s: float, departure_s: float) -> float:
        since_s = now_s - self._at_s
        if self.arrivals or since_s:  # it is asked for more than once per event
            self._rate_hz = home_rate(self._rate_hz, self.arrivals, since_s, departure_s)
            self._at_s = now_s
            self.arrivals = 0
        self.own = load_of(self._rate_hz, departure_s)
        self.load = self.own + self.elsewhere
        return self.load
