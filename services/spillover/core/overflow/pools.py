"""The choice of a cluster's pool: servers alike with a FIFO, or unlike ones. The code of unlike
ones is loaded only where there are any, as few clusters have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillover.core.overflow.learned_servers import LearnedServers
from spillover.core.overflow.pool import ServerPool
from spillover.core.overflow.servers import FifoServers
from spillover.core.overflow.settings import NodeSettings
from spillover.core.overflow.siblings import Siblings
from spillover.core.overflow.site_servers import SiteServers
from spillover.core.overflow.sized_servers import SizedLearnedServers, SizedServers, Sizing

if TYPE_CHECKING:
    from spillover.core.overflow.visit import Visit
    from spillover.core.tokens.servers import TokenServers


def pool_of(settings: NodeSettings, now_s: float) -> ServerPool:
    """Returns the pool with which a cluster of these settings begins."""
    service_s, delivery_s = settings.service_s, settings.delivery_s
    if settings.nodes > 1:
        siblings = Siblings(settings.node, settings.nodes, settings.servers, now_s)
        return SiteServers(siblings, service_s, delivery_s)
    if settings.bounds is not None:
        learned = SizedLearnedServers if settings.counts_work else LearnedServers
        return learned(settings.bounds, service_s, delivery_s)
    if settings.pool is None:
        alike = SizedServers if settings.counts_work else FifoServers
        return alike(settings.servers, service_s, delivery_s)
    from spillover.core.tokens.servers import TokenServers  # noqa: PLC0415

    groups, own = settings.type_groups, settings.cluster
    servers: TokenServers[Visit] = TokenServers(
        settings.pool, groups, own, service_s, delivery_s, now_s
    )
    return servers


def learned_servers(servers: ServerPool) -> LearnedServers | None:
    """Returns the pool if its number of servers is learned; None if it is given."""
    return servers if isinstance(servers, LearnedServers) else None


def sized_servers(servers: ServerPool) -> Sizing | None:
    """Returns the pool if it counts work; None if it counts requests."""
    return servers if isinstance(servers, Sizing) else None


def site_servers(servers: ServerPool) -> SiteServers | None:
    """Returns the pool if it is that of one node of several; None if the site has one node."""
    return servers if isinstance(servers, SiteServers) else None


def unlike_servers(servers: ServerPool) -> TokenServers[Visit] | None:
    """Returns the pool if its servers are unlike; None if they are alike."""
    if servers.is_alike:
        return None
    from spillover.core.tokens.servers import TokenServers  # noqa: PLC0415

    return servers if isinstance(servers, TokenServers) else None
