"""PromQL for the panels: series by signal, never by name, so that no board asks for a metric that
the product does not have. Nothing about looks.
"""

from __future__ import annotations

from dataclasses import dataclass

from spillover.model.signals.signal import Signal

FIRING = 'ALERTS{alertname=~"Spillover.*", alertstate="firing"}'
"""Prometheus's own record of the rules in alerts.yaml."""

TARGETS = 'up{job=~"spillover.*"}'
"""Scrape jobs are named spillover, or spillover- and something; see README.md."""


FAILED = 'outcome=~"failed|unknown|expired"'
"""Ends of clients' requests with which they got an error that is not their own fault."""

REFUSED = 'outcome="refused"'


RATE = "$__rate_interval"
"""A few scrapes: what Grafana takes for rates."""

SHOWN = "$__range"
"""All the time that the board shows."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a board chooses series by: a label, and the variable of the same name."""

    label: str

    def of(self, signal: Signal, matchers: str = "", *, suffix: str = "") -> str:
        """Returns the series of the chosen ones; `suffix` is that of a histogram: _bucket, _sum,
        _count.
        """
        chosen = f'{self.label}=~"${self.label}"'
        return f"{signal.name}{suffix}{{{', '.join(filter(None, (chosen, matchers)))}}}"

    def rate(
        self, signal: Signal, matchers: str = "", *, suffix: str = "", over: str = RATE
    ) -> str:
        """Returns a counter per second."""
        return f"rate({self.of(signal, matchers, suffix=suffix)}[{over}])"

    def increase(
        self, signal: Signal, matchers: str = "", *, suffix: str = "", over: str = SHOWN
    ) -> str:
        """By how much a counter grew."""
        return f"increase({self.of(signal, matchers, suffix=suffix)}[{over}])"

    def quantile(self, share: float, signal: Signal, *by: str, over: str = RATE) -> str:
        """Of a histogram: NaN where nothing happened."""
        counts = total(self.rate(signal, suffix="_bucket", over=over), *by, "le")
        return f"histogram_quantile({share:g}, {counts})"

    def mean(self, signal: Signal, *by: str) -> str:
        """Of a histogram, over the rate interval."""
        sums, counts = (total(self.rate(signal, suffix=end), *by) for end in ("_sum", "_count"))
        return f"{sums} / {counts}"

    def process(self, metric: str, signal: Signal) -> str:
        """Returns a metric that every Prometheus client has of its process and that does not bear
        our label: got from the signal of the same process.
        """
        ours = f"group by (instance, {self.label}) ({self.of(signal)})"
        return f"{metric} * on (instance) group_left ({self.label}) {ours}"


CLUSTER = Scope("cluster")
NODE = Scope("node")


def total(vector: str, *by: str) -> str:
    """Returns the sum, for each value of the labels `by`."""
    return _aggregate("sum", vector, by)


def largest(vector: str, *by: str) -> str:
    """Returns the maximum, for each value of the labels `by`."""
    return _aggregate("max", vector, by)


def least(vector: str, *by: str) -> str:
    """Returns the minimum, for each value of the labels `by`."""
    return _aggregate("min", vector, by)


def number(vector: str) -> str:
    """Returns how many series there are: 0 where there are none, so that a panel says so."""
    return f"count({vector}) or vector(0)"


def _aggregate(how: str, vector: str, by: tuple[str, ...]) -> str:
    return f"{how} by ({', '.join(by)}) ({vector})" if by else f"{how}({vector})"
