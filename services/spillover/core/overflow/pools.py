"""The choice of a cluster's pool: servers alike with a FIFO, or unlike ones. The code of unlike
ones is loaded only where there are any, as few clusters have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillover.core.overflow.learned_servers import LearnedServers
from spillover.core.overflow.pool import ServerPool, SitePool
from spillover.core.overflow.servers import FifoServers
from spillover.core.overflow.settings import NodeSettings
from spillover.core.overflow.siblings import Siblings
from spillover.core.overflow.site_servers import SiteServers
from spillover.core.overflow.sized_servers import SizedLearnedServers, SizedServers, Sizing
from spillover.model.unlike_servers import shared_most

if TYPE_CHECKING:
    from spillover.core.overflow.visit import Visit
    from spillover.core.tokens.servers import TokenServers


def pool_of(settings: NodeSettings, now_s: float) -> ServerPool:
    """Returns the pool with which a cluster of these settings begins."""
    service_s, delivery_s = settings.service_s, settings.delivery_s
    if settings.nodes > 1 and settings.pool is None:
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
    if settings.nodes > 1:
        from spillover.core.overflow.site_tokens import SiteTokens, layout_of  # noqa: PLC0415

        layout = layout_of(settings.pool)
        return SiteTokens.of(servers, Siblings(settings.node, settings.nodes, 0, now_s, layout))
    return servers


def pool_of_first(
    servers: ServerPool, settings: NodeSettings, nodes: int, now_s: float
) -> SitePool:
    """Turns the pool of a cluster of one node into that of the first one of several, which has all
    servers until others come, and returns it."""
    if isinstance(servers, FifoServers):
        siblings = Siblings(settings.node, nodes, servers.total, now_s)
        siblings.begin_alone(now_s)
        return SiteServers.of(servers, siblings)
    from spillover.core.overflow.site_tokens import SiteTokens, layout_of  # noqa: PLC0415

    tokens = unlike_servers(servers)
    assert tokens is not None
    assert settings.pool is not None
    layout = layout_of(settings.pool)
    most, kinds = shared_most(tokens.discipline), range(len(tokens.class_ids))
    said = tuple([min(most, tokens.bucket.limit(kind)) for kind in kinds])
    out = [server.number for server in tokens.servers if server.is_out]
    siblings = Siblings(settings.node, nodes, 0, now_s, layout._replace(tokens=said))
    siblings.begin_alone(now_s)
    if out or said != layout.tokens:  # operators have said so, and others do not know
        siblings.limit(said, out, now_s)
    return SiteTokens.of(tokens, siblings)


def learned_servers(servers: ServerPool) -> LearnedServers | None:
    """Returns the pool if its number of servers is learned; None if it is given."""
    return servers if isinstance(servers, LearnedServers) else None


def sized_servers(servers: ServerPool) -> Sizing | None:
    """Returns the pool if it counts work; None if it counts requests."""
    return servers if isinstance(servers, Sizing) else None


def site_servers(servers: ServerPool) -> SitePool | None:
    """Returns the pool if it is that of one node of several; None if the site has one node."""
    if isinstance(servers, SiteServers):
        return servers
    if servers.is_alike:
        return None
    from spillover.core.overflow.site_tokens import SiteTokens  # noqa: PLC0415

    return servers if isinstance(servers, SiteTokens) else None


def unlike_servers(servers: ServerPool) -> TokenServers[Visit] | None:
    """Returns the pool if its servers are unlike; None if they are alike."""
    if servers.is_alike:
        return None
    from spillover.core.tokens.servers import TokenServers  # noqa: PLC0415

    return servers if isinstance(servers, TokenServers) else None
