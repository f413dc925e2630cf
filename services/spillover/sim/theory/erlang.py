"""Erlang's formulas and what follows from them: M/M/c with and without waiting, and M/M/1/K.

Pure functions of rates and counts; times are in the unit whose inverse the rates are in. The
formulas are textbook ones (Erlang 1917); all recursions add and multiply positive numbers only, so
that they hold to about 15 digits for any number of servers.
"""

from __future__ import annotations

import math


def erlang_b(servers: int, offered: float) -> float:
    """Returns the share of arrivals lost in M/M/c/c: `offered` is arrival rate over service rate.

    `B(0) = 1`, `B(c) = a B(c-1) / (c + a B(c-1))`. Insensitive to the law of the service times.
    """
    _check(servers, offered)
    lost = 1.0
    for count in range(1, servers + 1):
        if lost == 0.0:
            return 0.0  # below the smallest float, and only smaller from here on
        lost = offered * lost / (count + offered * lost) if offered < math.inf else 1.0
    return lost


def erlang_c(servers: int, offered: float) -> float:
    """Returns the share of arrivals that have to wait in M/M/c; 1 when it is not stable."""
    if offered >= servers:
        _check(servers, offered)
        return 1.0
    lost = erlang_b(servers, offered)
    return lost / (1.0 - offered / servers * (1.0 - lost))


def wait_mean(servers: int, arrival_rate: float, service_rate: float) -> float:
    """Returns the mean time in the queue of M/M/c, without service; infinite when it is not
    stable.
    """
    spare = servers * service_rate - arrival_rate
    if spare <= 0:
        return math.inf
    return erlang_c(servers, arrival_rate / service_rate) / spare


def wait_exceeds(servers: int, arrival_rate: float, service_rate: float, time: float) -> float:
    """Returns the probability that the wait of M/M/c in FIFO order is longer than `time`, 0 or
    more.
    """
    spare = servers * service_rate - arrival_rate
    if spare <= 0:
        return 1.0
    return erlang_c(servers, arrival_rate / service_rate) * math.exp(-spare * time)


def wait_quantile(servers: int, arrival_rate: float, service_rate: float, share: float) -> float:
    """Returns the time that a `share` (0 to below 1) of the waits of M/M/c do not exceed."""
    spare = servers * service_rate - arrival_rate
    if spare <= 0:
        return math.inf
    waiting = erlang_c(servers, arrival_rate / service_rate)
    return max(0.0, math.log(waiting / (1.0 - share)) / spare) if waiting > 0 else 0.0


def system_time_exceeds(
    servers: int, arrival_rate: float, service_rate: float, time: float
) -> float:
    """Returns the probability that wait and service of M/M/c in FIFO order take longer than `time`.

    Wait and service are independent, and the wait is 0 or exponential at rate `spare`.
    """
    spare = servers * service_rate - arrival_rate
    if spare <= 0:
        return 1.0
    waiting = erlang_c(servers, arrival_rate / service_rate)
    # P(wait + service > t | waits) is e^(-mu t) + mu (e^(-spare t) - e^(-mu t)) / (mu - spare);
    # expm1 keeps what the subtraction would lose where the two rates are close.
    gap, slower = abs(service_rate - spare), min(service_rate, spare)
    growth = -math.expm1(-gap * time) / gap if gap else time
    still_served = math.exp(-service_rate * time)
    return still_served + waiting * service_rate * math.exp(-slower * time) * growth


def mm1k_distribution(load: float, limit: int) -> list[float]:
    """P(n in the system), n = 0..limit, of M/M/1/K with room for `limit`, at arrival rate over
    service rate `load`: proportional to `load ** n`. Insensitive under processor sharing."""
    _check(limit, load)
    # Powers of the smaller of load and 1/load: neither overflows.
    ratio = load if load <= 1 else 1 / load
    powers = [ratio**count for count in range(limit + 1)]
    total = math.fsum(powers)
    shares = [power / total for power in powers]
    return shares if load <= 1 else shares[::-1]


def mm1k_blocking(load: float, limit: int) -> float:
    """Returns the share of arrivals that find M/M/1/K full."""
    return mm1k_distribution(load, limit)[-1]


def _check(count: int, offered: float) -> None:
    if count < 0 or not offered >= 0:
        raise ValueError(f"expected a count and a load of at least 0, got {count} and {offered}")
