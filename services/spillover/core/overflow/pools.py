"""Which pool a cluster has, by its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillover.core.overflow.pool import ServerPool
from spillover.core.overflow.servers import FifoServers
from spillover.core.overflow.settings import NodeSettings

if TYPE_CHECKING:
    from spillover.core.overflow.visit import Visit
    from spillover.core.tokens.servers import TokenServers


def pool_of(settings: NodeSettings, now_s: float) -> ServerPool:
    """Returns servers alike with a FIFO, or a pool of unlike servers."""
    service_s, delivery_s = settings.service_s, settings.delivery_s
    if settings.pool is None:
        return FifoServers(settings.servers, service_s, delivery_s)
    from spillover.core.tokens.servers import TokenServers  # noqa: PLC0415 - few have such a pool

    groups, own = settings.type_groups, settings.cluster
    servers: TokenServers[Visit] = TokenServers(
        settings.pool, groups, own, service_s, delivery_s, now_s
    )
    return servers
