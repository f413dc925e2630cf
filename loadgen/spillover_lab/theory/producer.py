"""One producer of Johnson's distributed queue as a Markov chain: equations 2-6 and B_c.

State s > 0: s objects are buffered; s < 0: -s requests are parked; s = f: the producer is blocked.
Objects are made at rate lambda in every state but f. Requests arrive at rate mu_c; of those that
find no object, the share p_b parks and the rest hops on.

Errata of the document, and why:

* Text before (3): with s < 0, the number of parked requests is -s, so that M + s consumers are
  left and the rate is (M + s) mu_c / M, not (M - s). Equation (3) itself is right.
* mu_c of (1) is the mean rate of requests, time spent parked included. Putting it into (3) takes
  the parked consumers off a second time. What multiplies (M + s) / M must be the rate that *would*
  come with nobody parked here; it is found from the mean: sum over s of p(s) a (M + s) / M = mu_c.
  (Errata list: "use (4)"; so does `solve`, but for restricted access, where M_j is small.)
* (4) lets requests arrive in state -M too, when every consumer is parked there. None can: here the
  rate is 0 in that state, its mean is mu_c, and p_mt is what arrivals see. Then what producers make
  is exactly what consumers get, T = M U_c mu = N lambda U_p, and M = N = 1 is solved exactly. In
  the document's own cases p(-M) is below 1e-16 and nothing changes.
* (5) and (6) divide 0 by 0 at lambda = mu_c and at lambda = p_b mu_c. All their parts are sums of
  1, x, ..., x^n: n + 1 at x = 1, and without cancellation near 1 by expm1. The mean of that law,
  which B_c needs, is n/2 at x = 1: B_c = p(0)/p_mt M (M + 1) / (2 lambda).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

NEAR_ONE = 0.03
"""Below this |n log x|, the mean of a truncated geometric law is taken from its series."""


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a producer looks like to those who probe it. Rates and times in the caller's unit."""

    log_empty: float
    """log p_mt: a request finds no object. Logarithms, since it may be below the least float."""
    log_stocked: float
    """log(1 - p_mt)."""
    producing: float
    """1 - p(f): share of the time in which the producer is not blocked."""
    arrival_rate: float
    """mu_c: mean rate of requests."""
    parked_time: float
    """B_c: mean time parked, of a request that parks."""


def many_sources(
    production_rate: float, arrival_rate: float, parking_share: float, room: int, buffers: int
) -> ProducerState:
    """Returns the state by equations 2 and 4: parked requests do not change the rate at which
    others arrive. `arrival_rate` is the rate as long as anyone is left to probe.

    `arrival_rate` is the rate as long as anyone is left to probe.
    """
    log_down = math.log(arrival_rate / production_rate)
    log_parking = math.log(parking_share) + log_down if parking_share > 0.0 else -math.inf
    log_empty = log_geometric_sum(log_parking, room - 1)
    log_last = room * log_parking
    mean_parked = geometric_mean(log_parking, room - 1)
    return _state(
        production_rate, arrival_rate, (log_empty, log_last), (log_down, buffers), mean_parked
    )


def few_sources(
    production_rate: float, arrival_rate: float, parking_share: float, room: int, buffers: int
) -> ProducerState:
    """Returns the state by equations 2 and 3: each of the `room` consumers parked here probes no
    more. `arrival_rate` is the rate with nobody parked. It takes time in proportion to `room`.

    `arrival_rate` is the rate with nobody parked. Takes time in proportion to `room`.
    """
    log_down = math.log(arrival_rate / production_rate)
    log_parking = math.log(parking_share) + log_down if parking_share > 0.0 else -math.inf
    # Weights relative to p(0): of states -k times the share of the rate that is left there, then
    # times the share that is missing. The latter has no k = 0, the former no k = room.
    paths = [path + k * log_parking if k else 0.0 for k, path in enumerate(_log_falling(room))]
    logs = [path + math.log((room - k) / room) for k, path in enumerate(paths[:-1])]
    log_empty, mean_parked = _log_sum_and_mean(logs)
    log_away = log_sum([path + math.log(k / room) for k, path in enumerate(paths) if k > 0])
    return _state(
        production_rate, arrival_rate, (log_empty, log_away), (log_down, buffers), mean_parked
    )


@lru_cache(maxsize=8)
def _log_falling(room: int) -> list[float]:
    """Logarithms of M (M - 1) ... (M - k + 1) / M^k, for k = 0..M."""
    logs = [0.0]
    for k in range(room):
        logs.append(logs[-1] + math.log((room - k) / room))
    return logs


def _state(
    production_rate: float,
    arrival_rate: float,
    log_empties: tuple[float, float],
    down: tuple[float, int],
    mean_parked: float,
) -> ProducerState:
    """Returns the state from the logarithms of weights relative to p(0): states <= 0 as arrivals
    see them, and what those states have beyond; then log(mu_c / lambda) and f."""
    log_empty, log_away = log_empties
    log_down, buffers = down
    log_stocked = log_geometric_sum(-log_down, buffers - 1) - log_down
    log_partly = -math.inf  # of states 1..f - 1
    if buffers > 1:
        log_partly = log_geometric_sum(-log_down, buffers - 2) - log_down
    log_seen = log_sum([log_empty, log_stocked])
    log_all = log_sum([log_seen, log_away])
    return ProducerState(
        log_empty=log_empty - log_seen,
        log_stocked=log_stocked - log_seen,
        producing=math.exp(log_sum([log_empty, log_away, log_partly]) - log_all),
        arrival_rate=arrival_rate * math.exp(log_seen - log_all),
        # One object for each request ahead and one for itself, made at rate lambda.
        parked_time=(mean_parked + 1.0) / production_rate,
    )


def log_geometric_sum(log_x: float, n: int) -> float:
    """log(1 + x + ... + x^n)."""
    if n == 0 or log_x == -math.inf:
        return 0.0
    if log_x == 0.0:
        return math.log(n + 1)
    if log_x > 0.0:
        return n * log_x + log_geometric_sum(-log_x, n)
    return math.log(math.expm1((n + 1) * log_x) / math.expm1(log_x))


def geometric_mean(log_x: float, n: int) -> float:
    """Mean of k over 0..n with weights x^k."""
    if n == 0 or log_x == -math.inf:
        return 0.0
    if log_x > 0.0:
        return n - geometric_mean(-log_x, n)
    terms = n + 1
    if terms * -log_x < NEAR_ONE:
        # 1/(e^-y - 1) = -1/y - 1/2 - y/12 + y^3/720 - ..., once with y = L, once with y = (n+1) L.
        first = (terms**2 - 1) * log_x / 12.0
        third = (terms**4 - 1) * log_x**3 / 720.0
        fifth = (terms**6 - 1) * log_x**5 / 30240.0
        return n / 2.0 + first - third + fifth
    beyond = terms * -log_x
    cut = terms / math.expm1(beyond) if beyond < 700.0 else 0.0
    return (1.0 / math.expm1(-log_x) if log_x > -700.0 else 0.0) - cut


def log_sum(logs: Sequence[float]) -> float:
    """Returns the logarithm of a sum, from the logarithms of its parts."""
    top = max(logs)
    if top == -math.inf:
        return top
    return top + math.log(math.fsum(math.exp(log - top) for log in logs))


def _log_sum_and_mean(logs: list[float]) -> tuple[float, float]:
    """Returns the logarithm of the sum of weights by k = 0, 1, ..., and the mean of k."""
    log_total = log_sum(logs)
    return log_total, math.fsum(k * math.exp(log - log_total) for k, log in enumerate(logs))
