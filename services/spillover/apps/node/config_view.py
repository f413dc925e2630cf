"""What `/state` shows of the configuration that a node goes by."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from spillover.apps.node.pool_view import Count
from spillover.live.overflow.configured import Configured


class ConfigurationState(BaseModel):
    """Which configuration a node goes by; `by` is the cluster whose node took it, null where it is
    that of the node's own file."""

    model_config = ConfigDict(extra="allow")

    version: Count = 0
    by: str | None = None
    superseded: Count | None = None
    """The version of what was taken here and lost against another; null where nothing has."""
    removed: bool = False
    """It has this cluster no more: the cluster drains, and waits to be ended."""


def configuration_state(configured: Configured) -> ConfigurationState:
    """Returns it as it is now."""
    stamp, lost = configured.stamp, configured.superseded
    return ConfigurationState(
        version=stamp.version,
        by=stamp.cluster or None,
        superseded=None if lost is None else lost.version,
        removed=configured.removed,
    )
