"""Rules of others for where a prompt runs, each after its published description, and an oracle.

Each sender chooses the engine, by the reports that all sites get. What a rule leaves to another
one, such as which engine of a site, is the fewest requests. Sources: consistent hashing with
bounded loads (Mirrokni, Thorup & Zadimoghaddam 2018, as HAProxy and Envoy have it); GORGO (arXiv
2602.11688), with exact caches; Envoy 1.40, load-aware locality; AI Grid Network,
docs/site-selection.md; Prequal (NSDI 2024, arXiv 2312.10172).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from random import Random
from statistics import fmean

from spillover.core.affinity.places import Dispatch
from spillover.model.prompt import Prompt
from spillover.sim.affinity.federation import Answered, Bound, Federation, Sent
from spillover.sim.affinity.run import RuleOf, hashed

BOUND = 1.25
"""An engine takes at most so many times the mean number of requests, as HAProxy's documentation
proposes it."""
GORGO_QUEUE = 0.2
"""GORGO's weight of a queued token, where an uncached one counts 1: retuned for high loads."""
ENVOY_VARIANCE = 0.1
ENVOY_PROBE = 0.03
"""Envoy: all stays local while the local utilization is at most so much above the mean of the
others, but for this share."""
PREQUAL_HOT = 0.84
"""Prequal: engines above this quantile of requests in flight are hot."""


class _Chosen(ABC):
    """A rule whose sender chooses the engine, and that learns nothing."""

    def __init__(self, federation: Federation, seed: int) -> None:
        self.federation = federation
        self.seed = seed
        self.draws = Random(seed)

    @abstractmethod
    def choose(self, prompt: Prompt, home: int, now_s: float) -> int:
        """Returns the engine."""

    def send(self, prompt: Prompt, home: int, now_s: float) -> Sent:
        engine = self.choose(prompt, home, now_s)
        return Sent(prompt, home, self.federation.site_of(engine), engine, is_bound=True)

    def bind(self, sent: Sent, now_s: float) -> Bound:
        return Bound(sent.engine, sent.prompt.tokens)

    def began(self, site: int, dispatch: Dispatch, now_s: float) -> None:  # noqa: B027
        """Nothing: no node has sent it."""

    def answered(self, answered: Answered) -> None:  # noqa: B027 - none of them learns
        """Learns nothing."""

    def requests(self, home: int, now_s: float) -> list[int]:
        """Returns the requests at each engine, as far as a site knows."""
        every = range(len(self.federation.engines))
        return [self.federation.state(home, one, now_s).requests for one in every]

    def least_of(self, engines: Iterable[int], home: int, now_s: float) -> int:
        """Returns the engine with the fewest requests, the nearest if there are several."""
        federation, setting = self.federation, self.federation.setting

        def busy(engine: int) -> tuple[int, float]:
            requests = federation.state(home, engine, now_s).requests
            return requests, setting.rtt_s(home, federation.site_of(engine))

        return min(engines, key=busy)


class Sticky(_Chosen):
    """Each session belongs to one engine of all, by hash."""

    def choose(self, prompt: Prompt, home: int, now_s: float) -> int:
        return hashed(prompt.session, len(self.federation.engines), self.seed)


class Bounded(_Chosen):
    """Each session belongs to one engine of all, by hash, and to the next one while that one has
    its bound of requests."""

    def choose(self, prompt: Prompt, home: int, now_s: float) -> int:
        requests = self.requests(home, now_s)
        count = len(requests)
        limit = math.ceil(BOUND * (sum(requests) + 1) / count)
        first = hashed(prompt.session, count, self.seed)
        ring = [(first + step) % count for step in range(count)]
        return next((one for one in ring if requests[one] < limit), first)


class Least(_Chosen):
    """A prompt goes to the engine with the fewest requests."""

    def choose(self, prompt: Prompt, home: int, now_s: float) -> int:
        return self.least_of(range(len(self.federation.engines)), home, now_s)


class Envoy(_Chosen):
    """A site is chosen by lot, by its engines and their headroom, once the local one is busier than
    the others."""

    def choose(self, prompt: Prompt, home: int, now_s: float) -> int:
        federation, every = self.federation, range(self.federation.setting.sites)
        busy = [
            fmean(federation.state(home, one, now_s).busy for one in federation.engines_of(site))
            for site in every
        ]
        others = [site for site in every if site != home]
        site = home
        if others and busy[home] > fmean(busy[one] for one in others) + ENVOY_VARIANCE:
            headroom = [max(1.0 - one, 1e-6) for one in busy]
            (site,) = self.draws.choices(every, headroom)
        elif others and self.draws.random() < ENVOY_PROBE:
            site = self.draws.choice(others)
        return self.least_of(federation.engines_of(site), home, now_s)


class Grid(_Chosen):
    """Of two sites, drawn, the one with fewer requests for what it can have without a queue. All
    sites are alike here, so that their ceilings are."""

    def choose(self, prompt: Prompt, home: int, now_s: float) -> int:
        requests, federation = self.requests(home, now_s), self.federation
        every = range(federation.setting.sites)
        two = self.draws.sample(every, min(2, len(every)))
        site = min(two, key=lambda one: sum(requests[e] for e in federation.engines_of(one)))
        return self.least_of(federation.engines_of(site), home, now_s)


class Prequal(_Chosen):
    """Of the engines with few requests the one with the least latency; the fewest requests where
    all have many. Its latency is the wait that an engine expects, and the way."""

    def choose(self, prompt: Prompt, home: int, now_s: float) -> int:
        federation, every = self.federation, range(len(self.federation.engines))
        requests = self.requests(home, now_s)
        hot = sorted(requests)[min(int(PREQUAL_HOT * len(requests)), len(requests) - 1)]
        cold = [one for one in every if requests[one] < hot]
        if not cold:
            return min(every, key=requests.__getitem__)

        def latency_s(engine: int) -> float:
            way_s = federation.setting.rtt_s(home, federation.site_of(engine))
            return federation.state(home, engine, now_s).wait_s + way_s

        return min(cold, key=latency_s)


class Gorgo(_Chosen):
    """A prompt goes to the engine with the least sum of the way, the tokens that are not in its
    cache, and the tokens that wait there."""

    def choose(self, prompt: Prompt, home: int, now_s: float) -> int:
        federation = self.federation
        per_s = federation.setting.kind.read_tokens_per_s

        def cost_s(number: int) -> float:
            engine = federation.engines[number]
            read = prompt.tokens - engine.cache.found(prompt.blocks, prompt.tokens)
            queued_s = GORGO_QUEUE * federation.state(home, number, now_s).wait_s
            way_s = federation.setting.rtt_s(home, federation.site_of(number))
            return way_s + read / per_s + queued_s

        return min(range(len(federation.engines)), key=cost_s)


class Oracle(_Chosen):
    """A yardstick: all is known at once, when each engine begins and what it finds. It is greedy,
    so no bound: take the best of its weights of a miss."""

    def __init__(self, federation: Federation, seed: int, *, weight: float) -> None:
        super().__init__(federation, seed)
        self.weight = weight

    def choose(self, prompt: Prompt, home: int, now_s: float) -> int:
        federation, setting = self.federation, self.federation.setting
        per_s = setting.kind.read_tokens_per_s

        def cost_s(number: int) -> float:
            engine = federation.engines[number]
            way_s = setting.rtt_s(home, federation.site_of(number)) / 2
            read = prompt.tokens - engine.cache.found(prompt.blocks, prompt.tokens)
            free_s = engine.free_s(now_s) + federation.flying_tokens[number] / per_s
            return max(free_s, now_s + way_s) + way_s + self.weight * read / per_s

        return min(range(len(federation.engines)), key=cost_s)


RIVALS: Mapping[str, RuleOf] = {
    "sticky": Sticky,
    "bounded": Bounded,
    "least": Least,
    "envoy": Envoy,
    "grid": Grid,
    "prequal": Prequal,
    "gorgo": Gorgo,
    **{f"oracle-{weight}": partial(Oracle, weight=weight) for weight in (1, 3, 6, 12)},
}
