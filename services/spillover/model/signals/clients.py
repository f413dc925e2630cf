"""The metrics of a node's clients (decision 0041). Label `cluster` is the node's."""

from __future__ import annotations

from spillover.model.signals.signal import Signal

CLIENTS = Signal("spillover_clients", "gauge", "Clients that have a session here")
MOVES = Signal(
    "spillover_client_moves_total", "counter", "Clients that have left here for another server"
)
CONNECTS_REFUSED = Signal(
    "spillover_client_connects_refused_total",
    "counter",
    "Sessions that were put off: too many at a time, or in all",
)
