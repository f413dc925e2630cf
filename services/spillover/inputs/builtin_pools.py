"""The built-in pools: those of Comte's figures 8 and 11.

Only the values of the paper live here; reading pool files is in `pool_file`.
"""

from __future__ import annotations

from collections.abc import Callable

from spillover.model.pool import Pool, PoolClass, PoolServer, PoolType

TOKENS = 6
"""The tokens of each server, in both pools."""


def _comte8() -> Pool:
    """Returns the pool of figure 8: five servers of rate 1 and five of rate 4, one type for all, at
    load 1."""
    rates = (1.0,) * 5 + (4.0,) * 5
    servers = tuple(PoolServer(id=f"s{k}", rate=rate) for k, rate in enumerate(rates, 1))
    classes = _one_class_a_server(servers)
    everywhere = tuple(each.id for each in classes)
    types = (PoolType(id="t1", rate=sum(rates), classes=everywhere),)
    return Pool(name="comte8", servers=servers, classes=classes, types=types)


def _comte11() -> Pool:
    """Returns the pool of figure 11: six servers of rate 1; type 1 for the first four, at rate 1;
    type 2 for the last four, at rate 4. That is load 5/6, where the last four become overloaded."""
    servers = tuple(PoolServer(id=f"s{k}", rate=1.0) for k in range(1, 7))
    classes = _one_class_a_server(servers)
    ids = tuple(each.id for each in classes)
    types = (
        PoolType(id="t1", rate=1.0, classes=ids[:4]),
        PoolType(id="t2", rate=4.0, classes=ids[2:]),
    )
    return Pool(name="comte11", servers=servers, classes=classes, types=types)


def _one_class_a_server(servers: tuple[PoolServer, ...]) -> tuple[PoolClass, ...]:
    return tuple(
        PoolClass(id=f"c{k}", servers=(server.id,), tokens=TOKENS)
        for k, server in enumerate(servers, 1)
    )


BUILTIN_POOLS: dict[str, Callable[[], Pool]] = {"comte8": _comte8, "comte11": _comte11}
