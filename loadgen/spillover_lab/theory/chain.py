"""Johnson's model of the distributed queue, equations 1-12, solved for any parameters.

The unknown is p_mt, the probability that a probe finds an empty producer. Given p_mt, h_avg (7)
and p_b (8) are known. The chains (2)-(6) then give p_mt as a growing function of the rate of
probes, so that exactly one rate fits. That rate must be the one that the consumers produce (1): a
second root, over the log odds of p_mt. Both are bracketed from the start; plain iteration on mu_c,
as in the document, diverges at h_max = 1 for loads from 100 %.

Errata of the document, and why:

* W = (h_avg + 1) r + B: (9) has the factor p_mt^h_max already; W as printed has it twice.
* (1): a request occupies its consumer for 1/mu + W, and W has the hop that brings the object back,
  so that the denominator is 1/mu + (h_avg + 1) r + B, as in (13).
* T = M U_c mu = N lambda U_p: a consumer takes mu objects per unit of time while it consumes; the
  document divides by the rates.
* After (10): all N producers together get N mu_c, of which type k gets frac_k, each of its N_k
  producers N frac_k mu_c / N_k. The document has M for N, which is right for M = N only.
* (12) is a sum over where the *last* probe goes and whether it finds nothing: it has p_mt in it,
  as (17) does. So B = p_mt^(h_max - 1) sum of frac_k p_mt,k B_c,k, as in (18); with (9) as it
  stands, (12) would have to be divided by p_mt.

Restricted access (section 4.3): where each consumer probes K producers and each producer is
probed by M_j = M K / N consumers, (13)-(18) say the same of all consumers and all producers and
collapse into the system above, with chain (3) for M_j requests in place of (4). As printed they
miss that a request may probe an empty producer again: simulated waits are up to six times as long
(N = M = 100, h_max = 10, K = 1) and half as long again at K = 5, h_max = 3. With that mended
(`request`), throughput is within 1.5 % of the simulation from K = 1 on. Without
restriction (7) and (8) are solved as printed; that N is finite too shows at load 100 % only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from spillover.sim.queue.system import ProbingFigures, ProbingSystem
from spillover_lab.theory.producer import (
    ProducerState,
    few_sources,
    log_sum,
    many_sources,
)
from spillover_lab.theory.request import (
    Fate,
    independent_probes,
    probes_among,
    share_of,
)
from spillover_lab.theory.root import rising_root

LOG_ODDS = (-1e5, 1e5)
"""The bounds of the log odds of p_mt: wide enough for 1 000 buffers that are never empty."""
LOG_RATES = (-600.0, 600.0)
"""The bounds of the logarithm of the rate of probes relative to what is produced."""

FEW = 1000
"""With more consumers at a producer, (3) and (4) are the same, and (3) takes its time; with more
producers for a consumer, it hardly ever probes one twice."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Producers that are alike in all that matters to the model."""

    count: int
    rate: float
    access: float
    room: int
    """How many requests can be parked at one of them."""


@dataclass(frozen=True, slots=True)
class _Point:
    """The system at a given p_mt, the rate of probes chosen to fit it."""

    fate: Fate
    wait: float
    """W."""
    log_arrivals: float
    """log of N mu_c, the new probes at all producers."""
    states: tuple[ProducerState, ...]
    """A producer of each group."""


def solve(system: ProbingSystem, *, independent: bool = False) -> ProbingFigures:
    """Returns the figures of a system, by equations 1-12; with restricted access by 13-18, mended.

    `independent`: 13-18 as they are printed, the probes of a request being independent.
    """
    groups = _groups(system)

    def surplus(log_odds: float) -> float:
        """Returns how much more producers get asked, at this p_mt, than consumers ask: in
        logarithms."""
        point = _point(system, groups, log_odds, independent=independent)
        per_object = 1.0 / system.consumption_rate + point.wait
        asked = system.consumers * point.fate.new_probes / per_object
        return point.log_arrivals - math.log(asked)

    log_odds = rising_root(surplus, *LOG_ODDS)
    point = _point(system, groups, log_odds, independent=independent)
    per_object = 1.0 / system.consumption_rate + point.wait
    made = math.fsum(
        group.count * group.rate * state.producing
        for group, state in zip(groups, point.states, strict=True)
    )
    return ProbingFigures(
        probes_mean=point.fate.probes,
        wait_mean=point.wait,
        empty_probability=point.fate.finds_none,
        producer_utilization=made / system.capacity,
        consumer_utilization=1.0 / (system.consumption_rate * per_object),
        throughput=system.consumers / per_object,
    )


def _point(
    system: ProbingSystem, groups: tuple[_Group, ...], log_odds: float, *, independent: bool
) -> _Point:
    if system.is_restricted and not independent and system.probed <= FEW:
        fate = probes_among(log_odds, system.max_hops, system.probed)
    else:
        fate = independent_probes(log_odds, system.max_hops)

    def states_at(log_rate: float) -> list[tuple[float, ProducerState]]:
        return _states(system, groups, fate.parking_share, log_rate + math.log(system.capacity))

    def too_empty(log_rate: float) -> float:
        """Log odds that a probe finds nothing (11), beyond those asked for."""
        states = states_at(log_rate)
        found_none = log_sum([math.log(access) + state.log_empty for access, state in states])
        found_one = log_sum([math.log(access) + state.log_stocked for access, state in states])
        return found_none - found_one - log_odds

    log_rate = rising_root(too_empty, *LOG_RATES)
    states = states_at(log_rate)
    if len(groups) == 1:
        log_arrivals = math.log(groups[0].count * states[0][1].arrival_rate)
    else:
        log_arrivals = log_rate + math.log(system.capacity)
    # B by (9) and (12), see above: where the request parks, it met an empty producer of type k.
    empty = share_of(log_odds)
    parked = math.fsum(
        access * math.exp(state.log_empty) * state.parked_time for access, state in states
    )
    blocked = fate.parks / empty * parked if empty > 0.0 else 0.0
    wait = (fate.probes + 1.0) * system.message_time + blocked
    return _Point(fate, wait, log_arrivals, tuple(state for _, state in states))


def _states(
    system: ProbingSystem, groups: tuple[_Group, ...], parking: float, log_probes: float
) -> list[tuple[float, ProducerState]]:
    """frac_k and the state of a producer, for each group; `log_probes` is of the rate of all
    probes.

    Where there is only one group, that is what would come with nobody parked, which is
    as good a parameter and saves a root. Otherwise group k gets the share frac_k of what really
    comes: a producer that cannot take that much counts as always empty.
    """

    def state_of(group: _Group, log_rate: float) -> ProducerState:
        few = system.is_restricted and group.room <= FEW
        chain = few_sources if few else many_sources
        return chain(
            group.rate, math.exp(log_rate) * group.rate, parking, group.room, system.buffers
        )

    def state_with(group: _Group, log_mean: float) -> ProducerState:
        def beyond(log_rate: float) -> float:
            return math.log(state_of(group, log_rate).arrival_rate) - log_mean

        return state_of(group, rising_root(beyond, *LOG_RATES))

    if len(groups) == 1:
        only = groups[0]
        return [(1.0, state_of(only, log_probes - math.log(only.count * only.rate)))]
    return [
        (g.access, state_with(g, log_probes + math.log(g.access) - math.log(g.count)))
        for g in groups
    ]


def _groups(system: ProbingSystem) -> tuple[_Group, ...]:
    """The kinds that are probed; under restricted access, the producers that are probed at all.

    M K links are spread evenly; M_j is their mean, rounded up so that all requests have
    a place to park.
    """
    if not system.is_restricted:
        return tuple(
            _Group(kind.count, kind.rate, kind.access, system.consumers)
            for kind in system.kinds
            if kind.access > 0.0
        )
    (kind,) = system.kinds
    links = system.consumers * system.probed
    probed = min(kind.count, links)
    return (_Group(probed, kind.rate, 1.0, math.ceil(links / probed)),)
