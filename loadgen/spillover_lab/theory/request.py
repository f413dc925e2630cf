"""What becomes of one request of Johnson's distributed queue: equations 7 and 8, and what they
leave out where a consumer may probe few producers.

(7) and (8) take a request's probes as independent: each finds nothing with probability p_mt. With K
producers to choose from they are not, since the next probe may meet a producer that was empty a
moment ago. Of the K, a binomial number J is empty, and each probe of this request finds nothing
with probability x = J/K: it parks with probability E[x^h_max], and h_avg = E[1 + x + ... +
x^(h_max - 1)]. As K grows, x comes to p_mt, and these to (7) and (8).

Only the first probe at a producer tells its chain something new. With J' empty ones of the K - 1
others, a request makes E[1 + ... + (J'/K)^(h_max - 1)] = (1 - E[x^h_max]) / (1 - p_mt) of these,
and of those that find nothing the share p_b = E[((1 + J')/K)^(h_max - 1)] / that number parks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from spillover_lab.theory.producer import log_geometric_sum


@dataclass(frozen=True, slots=True)
class Fate:
    """A request's, given the log odds that a producer is empty."""

    probes: float
    """h_avg."""
    new_probes: float
    """Those at producers that this request has not probed yet."""
    parking_share: float
    """p_b: of the new probes that find nothing, those whose request parks there."""
    parks: float
    """Probability that the request parks."""
    finds_none: float
    """Share of all probes that find nothing."""


def independent_probes(log_odds: float, max_hops: int) -> Fate:
    """Equations 7 and 8."""
    empty = share_of(log_odds)
    probes = _sum_of_powers(empty, max_hops)
    parking_share = float(empty ** (max_hops - 1)) / probes
    return Fate(probes, probes, parking_share, float(empty**max_hops), empty)


def probes_among(log_odds: float, max_hops: int, choices: int) -> Fate:
    """Returns the fate of a request with `choices` producers, each as likely as the others at every
    probe."""
    empty = share_of(log_odds)
    others = _binomial(choices - 1, log_odds)
    new = math.fsum(
        weight * _sum_of_powers(j / choices, max_hops) for j, weight in enumerate(others)
    )
    stays = math.fsum(
        weight * float(((1 + j) / choices) ** (max_hops - 1)) for j, weight in enumerate(others)
    )
    rest = math.fsum(
        weight * _sum_of_powers((1 + j) / choices, max_hops - 1) for j, weight in enumerate(others)
    )
    probes = 1.0 + empty * rest
    found = share_of(-log_odds) * new
    return Fate(probes, new, stays / new, empty * stays, max(1.0 - found / probes, 0.0))


def share_of(log_odds: float) -> float:
    """Returns the probability with these log odds."""
    if log_odds > 0.0:
        return 1.0 / (1.0 + math.exp(-log_odds))
    return math.exp(log_odds) / (1.0 + math.exp(log_odds))


def _sum_of_powers(x: float, count: int) -> float:
    """1 + x + ... + x^(count - 1); no 0/0 at x = 1."""
    if count == 0:
        return 0.0
    return math.exp(log_geometric_sum(math.log(x), count - 1)) if x > 0.0 else 1.0


def _binomial(trials: int, log_odds: float) -> list[float]:
    """Probabilities of 0..trials successes."""
    # log(1 - p), without overflow
    log_failure = -max(log_odds, 0.0) - math.log1p(math.exp(-abs(log_odds)))
    return [
        math.exp(log + k * log_odds + trials * log_failure)
        for k, log in enumerate(_log_choose(trials))
    ]


@lru_cache(maxsize=8)
def _log_choose(trials: int) -> list[float]:
    full = math.lgamma(trials + 1)
    return [full - math.lgamma(k + 1) - math.lgamma(trials - k + 1) for k in range(trials + 1)]
