"""The metrics of a node's configuration (decision 0040). Label `cluster` is the node's."""

from __future__ import annotations

from spillover.model.signals.signal import Signal

VERSION = Signal(
    "spillover_configuration_version", "gauge", "Version of the configuration that the node goes by"
)
ID = Signal(
    "spillover_configuration_id",
    "gauge",
    "A number made of the configuration's version and of who took it: the same where all go by one",
)
CHANGES = Signal(
    "spillover_configuration_changes_total", "counter", "Configurations that the node went over to"
)
REFUSED = Signal(
    "spillover_configuration_refused_total",
    "counter",
    "Configurations of neighbors that were not taken: they are none, or beyond what is declared",
)
SUPERSEDED = Signal(
    "spillover_configuration_superseded_total",
    "counter",
    "Configurations that were taken here and lost against others",
)
