"""The servers of a cluster, made from what its topology says. What they do is beside this."""

from __future__ import annotations

from spillover.live.engine.moving import Moving
from spillover.live.engine.timers import Timers
from spillover.live.handlers.base import OnEnd, OnHealth, Workers
from spillover.live.handlers.http.handler import HttpWorkers
from spillover.live.handlers.python.handler import python_workers
from spillover.live.handlers.sleep import SleepWorkers
from spillover.live.handlers.spin import SpinWorkers
from spillover.model.dask_target import dask_target, is_dask_handler
from spillover.model.errors import InputError
from spillover.model.topology import Cluster
from spillover.model.upstream_urls import is_http_handler, upstream_urls


def make_workers(
    cluster: Cluster,
    source: str,
    timers: Timers,
    on_end: OnEnd,
    on_health: OnHealth,
    moving: Moving | None = None,
) -> Workers:
    """Returns what runs requests for `cluster`. Must be called inside a running loop. Answers that
    come from elsewhere count as `moving` until they are whole.

    Neither callback is called before this has returned. Raises InputError, naming `source`, for a
    handler that cannot be had.
    """
    handler, service_s = cluster.handler, cluster.service_ms / 1e3
    if handler == "sleep":
        return SleepWorkers(service_s, timers, on_end)
    if handler == "spin":
        return SpinWorkers(cluster.server_count, service_s, on_end)
    if is_dask_handler(handler):
        return _dask_workers(cluster, source, on_end, on_health)
    if not is_http_handler(handler):
        return python_workers(cluster, source, timers, on_end)
    try:
        urls = upstream_urls(handler)
    except ValueError as error:
        raise InputError(source, "handler", str(error)) from error
    return HttpWorkers(urls, cluster, on_end, on_health, moving)


def _dask_workers(cluster: Cluster, source: str, on_end: OnEnd, on_health: OnHealth) -> Workers:
    from spillover.live.handlers.dask.handler import DaskWorkers  # noqa: PLC0415 - an extra

    try:
        target = dask_target(cluster.handler)
    except ValueError as error:
        raise InputError(source, "handler", str(error)) from error
    return DaskWorkers(target, cluster, source, on_end, on_health)
