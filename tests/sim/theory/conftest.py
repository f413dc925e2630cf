"""Pools for the theory of tokens: the token machine as a Markov chain, solved by elimination.

It knows nothing of balance functions: jobs in order of arrival, tokens in order of release, and
what happens to them as section III-C of Comte says.
"""

import pytest


@pytest.fixture(scope="session")
def machine():
    """`machine(pool)`: beta_k by type and psi_s by server of the chain (c, t)."""
    return _machine


def _machine(pool):
    import numpy as np

    bucket = tuple(each.id for each in pool.classes for _ in range(each.tokens))
    start = ((), bucket)
    number, rows, waiting = {start: 0}, [], [start]
    while waiting:
        state = waiting.pop()
        for rate, after in _steps(pool, *state):
            if after not in number:
                number[after] = len(number)
                waiting.append(after)
            rows.append((number[state], number[after], rate))
    flows = np.zeros((len(number), len(number)))
    for before, after, rate in rows:
        flows[after, before] += rate
        flows[before, before] -= rate
    flows[0] = 1.0  # one balance equation is the sum of the others; the shares add up to 1
    shares = np.linalg.solve(flows, np.eye(len(number))[0])
    blocked = {
        kind.id: sum(
            p for (_, t), p in zip(number, shares, strict=True) if not {*kind.classes} & {*t}
        )
        for kind in pool.types
    }
    busy = {each.id: set(each.servers) for each in pool.classes}
    idle = {
        server.id: sum(
            p
            for (c, _), p in zip(number, shares, strict=True)
            if not any(server.id in busy[name] for name in c)
        )
        for server in pool.servers
    }
    return blocked, idle


def _steps(pool, jobs, tokens):
    """What can happen next: (rate, state after)."""
    for kind in pool.types:
        for place, name in enumerate(tokens):
            if name in kind.classes:
                yield kind.rate, ((*jobs, name), tokens[:place] + tokens[place + 1 :])
                break
    servers = {each.id: each.servers for each in pool.classes}
    taken = set()
    for place, name in enumerate(jobs):
        own = [each for each in pool.servers if each.id in servers[name] and each.id not in taken]
        taken.update(each.id for each in own)
        if own:
            rate = sum(each.rate for each in own)
            yield rate, (jobs[:place] + jobs[place + 1 :], (*tokens, name))
