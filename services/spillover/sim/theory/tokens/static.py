"""Static load balancing (Comte, section II): every job goes to a class at random, whatever the
state, and is blocked if that class is full.

The classes then are an open network with the law `pi(x) = pi(0) Phi(x) prod lambda_i^x_i`
(equation 3), a product over the components that servers connect. Needs numpy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from spillover.model.errors import InputError
from spillover.model.pool import Pool
from spillover.sim.theory.tokens.balance import along, log_balance
from spillover.sim.theory.tokens.bottlenecks import even_split
from spillover.sim.theory.tokens.graph import Source, connected, sources
from spillover.sim.theory.tokens.grid import STATES_MAX


def static_split(pool: Pool, policy: str) -> dict[str, dict[str, float]]:
    """Returns, for each type, the probability of each of its classes, which is the whole policy.

    `static-best`: loads as even as the graph allows, see `even_split`. `static-uniform`: the same
    probability for each class. KeyError for any other policy.
    """
    return {"static-best": even_split, "static-uniform": _uniform_split}[policy](pool)


def _uniform_split(pool: Pool) -> dict[str, dict[str, float]]:
    return {each.id: dict.fromkeys(each.classes, 1 / len(each.classes)) for each in pool.types}


def static_probabilities(
    pool: Pool, split: Mapping[str, Mapping[str, float]]
) -> tuple[dict[str, float], dict[str, float]]:
    """beta_k by type and psi_s by server, when jobs of a type are `split` over its classes.

    Raises InputError if classes that share servers have more than STATES_MAX states.
    """
    rates = {each.id: 0.0 for each in pool.classes}
    for kind in pool.types:
        for name, share in split[kind.id].items():
            rates[name] += kind.rate * share
    used = [each for each in pool.classes if rates[each.id] > 0]
    number = {each.id: index for index, each in enumerate(used)}
    servers = sources(
        (
            server.id,
            server.rate,
            frozenset(number[each.id] for each in used if server.id in each.servers),
        )
        for server in pool.servers
    )
    full: dict[int, float] = {}
    idle: dict[str, float] = {each.id: 1.0 for each in pool.servers}
    for classes in connected(len(used), [each.classes for each in servers]):
        inside = [each for each in servers if each.classes <= set(classes)]
        tokens = [used[index].tokens for index in classes]
        full_here, idle_here = _component(
            tokens, [rates[used[index].id] for index in classes], _renumbered(inside, classes)
        )
        full.update(zip(classes, full_here, strict=True))
        idle.update(idle_here)
    blocked = {
        kind.id: math.fsum(
            share * full[number[name]] for name, share in split[kind.id].items() if name in number
        )
        for kind in pool.types
    }
    return blocked, idle


def _component(
    tokens: Sequence[int], rates: Sequence[float], servers: Sequence[Source]
) -> tuple[list[float], dict[str, float]]:
    """P(x_i = l_i) by class and P(no class of the server has jobs) by server."""
    shape = [count + 1 for count in tokens]
    if math.prod(shape) > STATES_MAX:
        raise InputError(
            "pool",
            "classes",
            f"expected classes that share servers to have at most {STATES_MAX} states together, "
            f"got {math.prod(shape)}; the pool can be simulated (spillover sim tokens)",
        )
    logs = log_balance(shape, servers)
    for axis, rate in enumerate(rates):
        logs = logs + along(np.arange(shape[axis]) * math.log(rate), axis, len(shape))
    shares = np.exp(logs - np.logaddexp.reduce(logs, axis=None))
    full = [float(shares.take(-1, axis).sum()) for axis in range(len(shape))]
    idle: dict[str, float] = {}
    for source in servers:
        corner = tuple(0 if axis in source.classes else slice(None) for axis in range(len(shape)))
        idle.update(dict.fromkeys(source.ids, float(shares[corner].sum())))
    return full, idle


def _renumbered(servers: Sequence[Source], classes: Sequence[int]) -> list[Source]:
    at = {number: axis for axis, number in enumerate(classes)}
    return [
        Source(each.ids, each.rate, frozenset(at[one] for one in each.classes)) for each in servers
    ]
