"""The servers of a cluster, made from what its topology says. What they do is beside this."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from spillover.live.engine.moving import Moving
from spillover.live.engine.timers import Timers
from spillover.live.handlers.base import OnEnd, OnHealth, Workers
from spillover.live.handlers.python.handler import SyncWorkers, python_workers
from spillover.live.handlers.service_payload import ServiceTimes
from spillover.live.handlers.sharing_sleep import SharingSleepWorkers
from spillover.live.handlers.sleep import SleepWorkers
from spillover.live.handlers.spin import SpinWorkers
from spillover.live.handlers.unlike import UnlikeWorkers
from spillover.model.dask_target import dask_target, is_dask_handler
from spillover.model.errors import InputError
from spillover.model.topology import Cluster
from spillover.model.unlike_servers import TOKENS_MAX, UnlikeServers
from spillover.model.upstream_urls import (
    is_http_handler,
    is_proxy_handler,
    passed_to,
    upstream_urls,
)

if TYPE_CHECKING:
    from spillover.live.handlers.http.upstreams import Upstream
    from spillover.live.handlers.proxy.handler import Relays

OnServerHealth: TypeAlias = Callable[[int, bool], None]
"""Is called as `OnHealth`, for the server with this number."""

SLEEP, SPIN = EMULATED = ("sleep", "spin")


def upstreams_of(workers: Workers) -> Iterator[Upstream]:
    """Returns the services behind these servers, those that are called over HTTP."""
    for one in workers if isinstance(workers, UnlikeWorkers) else (workers,):
        yield from getattr(one, "upstreams", ())


async def be_ready(workers: Workers, cluster: Cluster, source: str) -> None:
    """Return when these servers of `cluster` can run requests at once: the worker processes of a
    function have imported it. Raises InputError, naming `source`, if one cannot."""
    if isinstance(workers, SyncWorkers):
        await workers.be_ready(cluster.server_count, source)
    elif isinstance(workers, UnlikeWorkers) and cluster.pool is not None:
        for server, one in zip(cluster.pool.servers, workers, strict=True):
            if isinstance(one, SyncWorkers):
                at_once = cluster.pool.runs_at_once(server.id)
                await one.be_ready(at_once, f"{source}: server {server.id}")


def make_workers(  # noqa: PLR0917 - each is handed on by position
    cluster: Cluster,
    source: str,
    timers: Timers,
    on_end: OnEnd,
    on_health: OnHealth,
    moving: Moving | None = None,
    relays: Relays | None = None,
) -> Workers:
    """Returns what runs requests for `cluster`. Must be called inside a running loop. Answers that
    come from elsewhere count as `moving` until they are whole; `relays` take those that
    pass through as they come, which `proxy:` needs.

    Neither callback is called before this has returned. Raises InputError, naming `source`, for a
    handler that cannot be had.
    """
    times = ServiceTimes(cluster.service_ms / 1e3)
    if cluster.handler == SLEEP:
        return SleepWorkers(times, timers, on_end)
    if cluster.handler == SPIN:
        return SpinWorkers(times, on_end)
    return _called_workers(cluster, source, timers, on_end, on_health, moving, relays)


def make_unlike_workers(  # noqa: PLR0917 - as `make_workers`
    cluster: Cluster,
    pool: UnlikeServers,
    source: str,
    timers: Timers,
    on_end: OnEnd,
    on_health: OnServerHealth,
    moving: Moving | None = None,
    relays: Relays | None = None,
) -> Workers:
    """Returns the same for the pool of `cluster`: each of its servers runs what it is sent by its
    own handler, as the cluster says otherwise."""
    handlers = [server.handler or cluster.handler for server in pool.servers]
    times = ServiceTimes(cluster.service_ms / 1e3)
    workers = UnlikeWorkers(on_end, times if any(one in EMULATED for one in handlers) else None)
    for number, (server, handler) in enumerate(zip(pool.servers, handlers, strict=True)):
        if handler == SLEEP:
            workers.add(SharingSleepWorkers(times, server.rate, timers, workers.ended))
        elif handler == SPIN:
            workers.add(SpinWorkers(times, workers.ended, server.rate))
        else:
            # Operators may raise tokens: connections must suffice then.
            at_once = pool.runs_at_once(server.id) if is_dask_handler(handler) else TOKENS_MAX
            service_ms = cluster.service_ms / server.rate
            own = replace(cluster, handler=handler, servers=at_once, service_ms=service_ms)
            told = f"{source}: server {server.id}"
            own_health = partial(on_health, number)
            made = (own, told, timers, workers.ended, own_health, moving, relays)
            workers.add(_called_workers(*made))
    return workers


def _called_workers(  # noqa: PLR0917 - as `make_workers`
    cluster: Cluster,
    source: str,
    timers: Timers,
    on_end: OnEnd,
    on_health: OnHealth,
    moving: Moving | None,
    relays: Relays | None,
) -> Workers:
    """Returns the workers of a handler that is the users' own."""
    if is_dask_handler(cluster.handler):
        return _dask_workers(cluster, source, on_end, on_health)
    is_proxy = is_proxy_handler(cluster.handler)
    if not (is_proxy or is_http_handler(cluster.handler)):
        return python_workers(cluster, source, timers, on_end)
    try:
        urls = (passed_to if is_proxy else upstream_urls)(cluster.handler)
    except ValueError as error:
        raise InputError(source, "handler", str(error)) from error
    # Imported here: a node that starts pays for the handler that it has, and for no other.
    if is_proxy:
        from spillover.live.handlers.proxy.handler import ProxyWorkers  # noqa: PLC0415

        if relays is None:
            raise InputError(source, "handler", "expected a node that passes answers on")
        return ProxyWorkers(urls, cluster, on_end, on_health, relays, moving)
    from spillover.live.handlers.http.handler import HttpWorkers  # noqa: PLC0415

    return HttpWorkers(urls, cluster, on_end, on_health, moving)


def _dask_workers(cluster: Cluster, source: str, on_end: OnEnd, on_health: OnHealth) -> Workers:
    from spillover.live.handlers.dask.handler import DaskWorkers  # noqa: PLC0415 - an extra

    try:
        target = dask_target(cluster.handler)
    except ValueError as error:
        raise InputError(source, "handler", str(error)) from error
    return DaskWorkers(target, cluster, source, on_end, on_health)
