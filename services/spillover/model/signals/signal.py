"""The form of a metric, and the metrics that every service has. The other modules here list the
rest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signal:
    """One metric. `kind` is gauge, counter or histogram."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


LOOP_LAG = Signal(
    "spillover_loop_lag_seconds", "gauge", "How late a timer rang, at most, since the last scrape"
)
