"""Adaptive: to where the request costs all of them least, by what is known and how old it is.

Decision 0037 has the derivation, and what each constant was weighed against. One *departure* of a
cluster is its mean service time divided by its servers: what a queue shortens by one in. All that
could depend on how long services take is counted in these, so that no constant is a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import erfc, exp, sqrt

from spillover.policy.overflow.base import (
    KEEP,
    NeighborLoads,
    OwnLoad,
    accept_probability,
    pick_by_weight,
)
from spillover.policy.overflow.home_load import LOAD_WINDOW
from spillover.policy.overflow.report_terms import first_departure, overload, sure_drain
from spillover.policy.overflow.stranded import STUCK_SERVICES

DRAIN_MAX = 8.0
"""The most departures for which a reported queue is believed to drain. Beyond them requests from
third clusters make the forecast wrong."""

SPREAD = 0.5
"""The spread of a neighbor's queue around the forecast, as a share of a random walk's spread (one
arrival and one departure at each departure): the very rule keeps neighbors' queues together."""

WAY_DISCOUNT = 0.25
"""The cost of a home request that stays to those behind it, as a share of the way, at load 1."""

SURPLUS_DISCOUNT = 0.65
"""The further cost of a home request that stays where the cluster is surely overloaded, and the
others are busy too: it stays for all that follows."""

SURPLUS_ERRORS = 3.0
"""The number of standard errors on the safe side with which a cluster is surely overloaded: a load
of 0.98 is two above 1 too often, by chance."""

BUSY_FROM = 0.7
"""The mean load, of the cluster and those that it may hand on to, from which on the others are
busy. Below it they take the surplus within a few departures, and the queue here does not stay."""

BUSY_RANGE = 0.15
"""The range of the mean load above BUSY_FROM beyond which the whole surplus counts."""

TRUST = 16.0
"""The number of departures of the slower side in which knowledge loses all but 1 / e of its weight.
The other choices are the paper's."""

HOPE = 0.7
"""The least wait here, as a share of the price of the way to a neighbor, for the paper's draw to go
there: a cluster that knows nothing keeps too much otherwise."""

HOPELESS = 8.0
"""The factor by which a neighbor's reported queue may take longer than the wait here and the way,
for the paper's draw to go there."""

REPEATS_S = 0.3
"""The time, in seconds, for which a report that would only repeat the last ones may be left out:
knowledge that is no older counts as old as reports are apart, at most."""

DEPARTURE_S_MIN = 1e-6
"""The least time of a departure, in seconds, where services take none."""

SURE = 8.5
"""The number of spreads from which on a queue is as long as it was reported, to the last bit: the
rest is lost in rounding, and costs two functions."""

ROOT_2 = math.sqrt(2.0)
ROOT_2_PI = math.sqrt(2.0 * math.pi)


def expected_excess(mean: float, spread: float) -> float:
    """Returns E max(0, mean + spread Z), where Z is standard normal: the expected length of a
    queue, which cannot be below 0."""
    if spread <= 0.0:
        return max(0.0, mean)
    if mean >= SURE * spread:
        return mean
    z = mean / spread
    return 0.5 * mean * erfc(-z / ROOT_2) + spread * exp(-0.5 * z * z) / ROOT_2_PI


def departure_s(own: OwnLoad, near: NeighborLoads, y: int) -> float:
    """Returns one departure of y, in seconds; if y does not tell, services there take as long as
    here."""
    told_s = near.departure_s[y]
    if told_s <= 0.0:
        told_s = own.service_s / near.servers[y]
    return max(told_s, DEPARTURE_S_MIN)


def known_age_s(since_s: float, period_s: float) -> float:
    """Returns the age of a load that came `since_s` ago, where reports are `period_s` apart. A load
    that changed a little before it came, and is told late, counts as new."""
    if since_s > REPEATS_S or 0.0 <= since_s <= period_s:
        return since_s
    return period_s if since_s > 0.0 else 0.0


def age_s(own: OwnLoad, near: NeighborLoads, y: int) -> float:
    """Returns the age of what is known of y, in seconds."""
    return known_age_s(own.now_s - near.told_s[y], near.period_s)


def wait_after_s(
    ahead: float, servers: int, load: float, residual: float, departure_s: float, age_s: float
) -> float:
    """Returns the expected wait in a queue that was reported with these values `age_s` ago."""
    first = first_departure(residual, load, servers)
    return wait_s(ahead, servers, sure_drain(load), first, departure_s, age_s)


def wait_s(
    ahead: float, servers: int, drain: float, first: float, departure_s: float, age_s: float
) -> float:
    """Returns the expected wait by `sure_drain` and `first_departure` of the report."""
    if drain >= 0.0:
        departures = age_s / departure_s
        if departures > DRAIN_MAX:  # noqa: PLR1730 - a call less per neighbor
            departures = DRAIN_MAX
        ahead -= drain * departures
        if ahead < -servers:
            ahead = -float(servers)
    mean_s = (ahead + first) * departure_s
    spread_s = SPREAD * sqrt(2.0 * age_s * departure_s)
    if mean_s >= SURE * spread_s > 0.0:  # as in `expected_excess`: a call less where it is sure
        return mean_s
    return expected_excess(mean_s, spread_s)


def wait_here_s(own: OwnLoad) -> float:
    """Returns the expected wait of a request that joins the own queue."""
    first = first_departure(own.residual, own.load, own.servers)
    return own.departure_s * (own.queue_length + first)


def wait_there_s(own: OwnLoad, near: NeighborLoads, y: int) -> float:
    """Returns the expected wait at y of a request that is sent there now. Its load is older by two
    ways when the request arrives: that of the report, and its own."""
    return wait_s(
        near.ahead[y] + own.unreported[y],
        near.servers[y],
        near.sure_drain[y],
        near.first_departure[y],
        departure_s(own, near, y),
        age_s(own, near, y) + 2.0 * near.delays_s[y],
    )


def estimate_s(own: OwnLoad, near: NeighborLoads, choice: int) -> float:
    """Returns the expected seconds on the way and in the queue for this choice."""
    if choice == KEEP:
        return wait_here_s(own)
    return near.delays_s[choice] + wait_there_s(own, near, choice)


def trust(age: float) -> float:
    """Returns the probability with which a home request goes by what is known, by its mean age as
    `write_ages` counts it; otherwise it goes by the paper's draw."""
    return exp(-age / TRUST)


def load_around(own: OwnLoad, near: NeighborLoads, eligible: Sequence[bool]) -> float:
    """Returns the mean load of the cluster and its eligible neighbors, by what each can do."""
    loads, departures_s = near.load, near.departure_s
    rate = 1.0 / max(own.departure_s, DEPARTURE_S_MIN)
    work = rate * own.load
    for y in range(len(eligible)):
        if eligible[y]:
            one_s = departures_s[y]
            if one_s < DEPARTURE_S_MIN:
                one_s = departure_s(own, near, y)
            rate_y = 1.0 / one_s
            rate += rate_y
            work += loads[y] * rate_y
    return work / rate


def price_of_the_way(own: OwnLoad, near: NeighborLoads, eligible: Sequence[bool]) -> float:
    """Returns omega: the share of the way that a request pays. A request that was handed on before
    pays all of it, so that work does not wander."""
    if own.hops > 0:
        return 1.0
    load = own.load
    price = min(1.0 - WAY_DISCOUNT * min(load, 1.0) ** 2, 1.0 / overload(load))
    if load - SURPLUS_ERRORS * sqrt(load / (2.0 * LOAD_WINDOW)) <= 1.0:
        return price
    busy = (load_around(own, near, eligible) - BUSY_FROM) / BUSY_RANGE
    return min(price, 1.0 - WAY_DISCOUNT - SURPLUS_DISCOUNT * min(max(busy, 0.0), 1.0))


def choose(
    own: OwnLoad,
    near: NeighborLoads,
    eligible: Sequence[bool],
    weights: list[float],
    draw: float,
) -> int:
    """Hands on where the expected wait there, counted as often as it delays others, and the way are
    less than the wait here. Among several such neighbors chance decides, the more evenly the less
    is known.

    With knowledge that is old, a home request goes by the paper's draw, to where even an idle
    server would be worth the way. One draw serves all stages.
    """
    if own.still_s > STUCK_SERVICES * own.service_s and own.may_keep:
        choice = _away_from_stuck(own, near, eligible, weights, draw)
        if choice != KEEP:
            return choice
    age = write_ages(own, near, eligible, weights)
    if age < 0.0:
        return KEEP
    here_s = wait_here_s(own)
    price = price_of_the_way(own, near, eligible)
    if own.hops == 0:
        known = trust(age)
        if draw >= known:
            for y in range(len(weights)):
                weights[y] = 0.0
            rest = (draw - known) / (1.0 - known)
            return _as_the_paper(own, near, eligible, weights, rest, here_s, price)
        draw /= known
    return _where_it_costs_least(own, near, eligible, weights, draw, here_s, price)


def has_idle(own: OwnLoad, near: NeighborLoads, y: int) -> bool:
    """Returns whether y has more idle servers than requests that are on their way there."""
    return near.ahead[y] + own.unreported[y] < 0


def _away_from_stuck(
    own: OwnLoad,
    near: NeighborLoads,
    eligible: Sequence[bool],
    weights: list[float],
    draw: float,
) -> int:
    """Returns the nearest neighbor with an idle server. If there is none, returns one with the
    shortest queue for each of its servers, if that is shorter than the own one.

    Only a neighbor that is nearer than the time for which nothing has begun here is chosen. The
    wait is not known here then, since the mean service says nothing of those that run, and may be
    as long there; but beyond a neighbor that is no better there may be idle ones.
    """
    own_line = own.queue_length / own.servers
    least_s, least_line = own.still_s, own_line
    for y in range(len(weights)):
        weights[y] = 0.0
        if eligible[y] and near.delays_s[y] < own.still_s:
            line = (near.ahead[y] + own.unreported[y]) / near.servers[y]
            if line >= 0.0:
                least_line = min(least_line, line)
            elif near.delays_s[y] < least_s:
                least_s = near.delays_s[y]
    count = 0
    for y in range(len(weights)):
        if eligible[y] and near.delays_s[y] < own.still_s:
            line = (near.ahead[y] + own.unreported[y]) / near.servers[y]
            if least_s < own.still_s:
                is_best = line < 0.0 and near.delays_s[y] == least_s
            else:
                is_best = line == least_line < own_line
            if is_best:
                weights[y] = 1.0
                count += 1
    return pick_by_weight(weights, float(count), draw)


def write_ages(
    own: OwnLoad, near: NeighborLoads, eligible: Sequence[bool], ages_s: list[float]
) -> float:
    """Writes the age of what is known of each eligible neighbor; 0 for the others. Returns the mean
    in departures of the slower side; below 0 if none is eligible.

    A wait there changes by about the time that has passed, at most. If waits differ by departures
    of the slower side, so little is nothing, however many departures the other has had.
    """
    now_s, period_s, own_s = own.now_s, near.period_s, own.departure_s
    told_s, departures_s = near.told_s, near.departure_s
    count, age = 0, 0.0
    for y in range(len(ages_s)):
        if eligible[y]:
            since_s = now_s - told_s[y]
            if not 0.0 <= since_s <= period_s:
                since_s = known_age_s(since_s, period_s)
            one_s = departures_s[y]
            if one_s < DEPARTURE_S_MIN:
                one_s = departure_s(own, near, y)
            if one_s < own_s:  # noqa: PLR1730
                one_s = own_s
            ages_s[y] = since_s
            count += 1
            age += since_s / one_s
        else:
            ages_s[y] = 0.0
    return age / count if count > 0 else -1.0


def _where_it_costs_least(
    own: OwnLoad,
    near: NeighborLoads,
    eligible: Sequence[bool],
    weights: list[float],
    draw: float,
    here_s: float,
    price: float,
) -> int:
    """Returns the neighbor with the least cost. `weights` holds the ages, then the costs: so
    nothing is worked out twice, and nothing is called that can be done in place. It is on the way
    of every request."""
    unreported, most_s = own.unreported, here_s if own.may_keep else math.inf
    delays_s, ahead, servers = near.delays_s, near.ahead, near.servers
    drains, firsts, departures_s = near.sure_drain, near.first_departure, near.departure_s
    overloads = near.overload
    own_overload = overload(own.load)
    least_s = math.inf
    for y in range(len(weights)):
        if eligible[y]:
            delay_s = delays_s[y]
            cost_s = price * delay_s
            if cost_s < most_s:
                one_s = departures_s[y]
                if one_s < DEPARTURE_S_MIN:
                    one_s = departure_s(own, near, y)
                there_s = wait_s(
                    ahead[y] + unreported[y],
                    servers[y],
                    drains[y],
                    firsts[y],
                    one_s,
                    weights[y] + 2.0 * delay_s,
                )
                cost_s += there_s * overloads[y] / own_overload
                if cost_s < least_s:  # noqa: PLR1730
                    least_s = cost_s
            weights[y] = cost_s
    return _pick_by_cost(own, near, eligible, weights, draw, least_s, most_s)


def _pick_by_cost(
    own: OwnLoad,
    near: NeighborLoads,
    eligible: Sequence[bool],
    weights: list[float],
    draw: float,
    least_s: float,
    most_s: float,
) -> int:
    """Returns one of the neighbors that cost less than `most_s`: `weights` holds the costs, of
    which one is `least_s`, then the weights."""
    now_s, period_s = own.now_s, near.period_s
    told_s, delays_s, departures_s = near.told_s, near.delays_s, near.departure_s
    total = 0.0
    for y in range(len(weights)):
        cost_s = weights[y]
        weights[y] = 0.0
        if eligible[y] and cost_s < most_s:
            since_s, one_s = now_s - told_s[y], departures_s[y]
            if not 0.0 <= since_s <= period_s:
                since_s = known_age_s(since_s, period_s)
            if one_s < DEPARTURE_S_MIN:
                one_s = departure_s(own, near, y)
            unsure_s = SPREAD * sqrt(2.0 * (since_s + 2.0 * delays_s[y]) * one_s)
            if unsure_s > 0.0:
                weights[y] = exp(-(cost_s - least_s) / unsure_s)
            elif cost_s == least_s:
                weights[y] = 1.0
            total += weights[y]
    return pick_by_weight(weights, total, draw)


def _may_be_worth(own: OwnLoad, near: NeighborLoads, y: int, here_s: float, price: float) -> bool:
    """Returns whether the paper's draw may go there: the way is not much longer than the wait here,
    and the queue there was not hopeless, however old that report is."""
    if not own.may_keep:
        return True
    way_s = near.delays_s[y]
    there_s = near.ahead[y] * departure_s(own, near, y)
    return here_s > HOPE * price * way_s and there_s <= HOPELESS * (here_s + way_s)


def _as_the_paper(
    own: OwnLoad,
    near: NeighborLoads,
    eligible: Sequence[bool],
    weights: list[float],
    draw: float,
    here_s: float,
    price: float,
) -> int:
    """Returns the choice of `paper.choose`, but only among neighbors that may be worth it."""
    accept = accept_probability(own.queue_length, own.servers) if own.may_keep else 0.0
    if draw < accept or accept >= 1.0:  # what is left of a draw may round up to 1
        return KEEP
    reject, total = 1.0 - accept, 0.0
    rest = (draw - accept) / reject
    worth = 0
    for y in range(len(weights)):
        if eligible[y] and _may_be_worth(own, near, y, here_s, price):
            worth += 1
            if near.reject_near[y] < reject:
                weights[y] = 1.0 - near.reject_near[y] / reject
                total += weights[y]
    if total > 0.0:
        return pick_by_weight(weights, total, rest)
    for y in range(len(weights)):
        if eligible[y] and _may_be_worth(own, near, y, here_s, price):
            weights[y] = 1.0
    return pick_by_weight(weights, float(worth), rest)
