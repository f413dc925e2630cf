"""Rules of others for where a prompt runs, each after its published description, and an oracle.

Each sender chooses the engine. Sources: consistent hashing with bounded loads (Mirrokni, Thorup &
Zadimoghaddam 2018, as HAProxy and Envoy have it), GORGO (arXiv 2602.11688: way, uncached tokens and
queued tokens, weighted; here with exact caches and the reports that all sites get).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

from spillover.model.prompt import Prompt
from spillover.sim.affinity.federation import Answered, Bound, Federation, Sent
from spillover.sim.affinity.run import RuleOf, hashed

BOUND = 1.25
"""An engine takes at most so many times the mean number of requests, as HAProxy's documentation
proposes it."""
GORGO_QUEUE = 0.2
"""GORGO's weight of a queued token, where an uncached one counts 1: retuned for high loads."""


class _Chosen:
    """A rule whose sender chooses the engine, and that learns nothing."""

    def __init__(self, federation: Federation, seed: int) -> None:
        self.federation = federation
        self.seed = seed

    def choose(self, prompt: Prompt, home: int, now_s: float) -> int:
        """Returns the engine."""
        raise NotImplementedError

    def send(self, prompt: Prompt, home: int, now_s: float) -> Sent:
        engine = self.choose(prompt, home, now_s)
        return Sent(prompt, home, self.federation.site_of(engine), engine, is_bound=True)

    def bind(self, sent: Sent, now_s: float) -> Bound:
        return Bound(sent.engine, sent.prompt.tokens)

    def answered(self, answered: Answered) -> None:
        """Learns nothing."""

    def requests(self, home: int, now_s: float) -> list[int]:
        """Returns the requests at each engine, as far as a site knows."""
        every = range(len(self.federation.engines))
        return [self.federation.state(home, one, now_s).requests for one in every]


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
    """A prompt goes to the engine with the fewest requests, the nearer one if there are several."""

    def choose(self, prompt: Prompt, home: int, now_s: float) -> int:
        requests, federation = self.requests(home, now_s), self.federation
        way_s = [
            federation.setting.rtt_s(home, federation.site_of(e)) for e in range(len(requests))
        ]
        return min(range(len(requests)), key=lambda one: (requests[one], way_s[one]))


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
    "gorgo": Gorgo,
    **{f"oracle-{weight}": partial(Oracle, weight=weight) for weight in (1, 3, 6, 12)},
}
