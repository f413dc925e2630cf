"""A trace of prompts through sites of engines, at a load, from a seed: what of it is drawn, and the
figures of what came of it.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import TypeAlias

from spillover.model.prompt import Prompt
from spillover.model.statistics import percentile
from spillover.sim.affinity.cache import PrefixCache
from spillover.sim.affinity.federation import AffinitySetting, Federation, Rule, play
from spillover.sim.affinity.rule import AffinityRule, NodesRule, UrlsRule

SKEW = 0.6
"""Where homes are skewed, the share of the sessions that begin at the busiest site of the time."""

RuleOf: TypeAlias = Callable[[Federation, int], Rule]
"""A function that makes a rule for a federation, from a seed."""

RULES: Mapping[str, RuleOf] = {
    "affinity": lambda federation, _: AffinityRule(federation),
    "waits": lambda federation, _: AffinityRule(federation, between=False),
    "urls": lambda federation, _: UrlsRule(federation),
    "nodes": lambda federation, _: NodesRule(federation),
}


def run_affinity(
    prompts: Sequence[Prompt],
    setting: AffinitySetting,
    rule_of: RuleOf,
    *,
    load: float,
    seed: int,
    skewed: bool = True,
) -> dict[str, float]:
    """Returns the figures of one run."""
    played = spread(prompts, seed)
    homes = homes_of(played, setting.sites, seed, skewed=skewed)
    per_s = load * capacity_per_s(prompts, setting)
    first_s, length_s = played[0].time_s, played[-1].time_s - played[0].time_s
    scale = len(played) / per_s / length_s
    played = [one._replace(time_s=(one.time_s - first_s) * scale) for one in played]
    federation = Federation(setting)
    answers = play(played, homes, federation, rule_of(federation, seed))
    times_s = sorted(one.first_token_s for one in answers)
    asked = sum(one.tokens for one in played)
    found = sum(one.reading.found_tokens for one in answers)
    ended_s = played[-1].time_s
    served = sum(one.sent.prompt.time_s + one.first_token_s <= ended_s for one in answers)
    return {
        "mean_s": fmean(times_s),
        "p50_s": percentile(times_s, 0.5),
        "p95_s": percentile(times_s, 0.95),
        "found": found / asked,
        "read_mtokens": (asked - found) / 1e6,
        "served": served / len(answers),
        "moved": sum(one.sent.site != one.sent.home for one in answers) / len(answers),
    }


def spread(prompts: Sequence[Prompt], seed: int) -> list[Prompt]:
    """Returns prompts whose equal times are spread evenly until the next time, as traces with
    coarse clocks need it."""
    draws = random.Random(f"times {seed}")
    batches = [list(batch) for _, batch in groupby(prompts, key=lambda one: one.time_s)]
    ends_s = [batch[0].time_s for batch in batches[1:]] + [batches[-1][0].time_s]
    return [
        one._replace(time_s=time_s)
        for batch, end_s in zip(batches, ends_s, strict=True)
        for one, time_s in zip(
            batch, sorted(draws.uniform(batch[0].time_s, end_s) for _ in batch), strict=True
        )
    ]


def homes_of(prompts: Sequence[Prompt], sites: int, seed: int, *, skewed: bool) -> list[int]:
    """Returns the home of each prompt, which is its session's. Where they are skewed, most of the
    sessions that begin in one of as many parts of the trace as there are sites have one home."""
    draws, homes = random.Random(f"homes {seed}"), dict[int, int]()
    for place, prompt in enumerate(prompts):
        if prompt.session not in homes:
            busiest = place * sites // len(prompts)
            share = SKEW if skewed and sites > 1 else 1.0 / sites
            others = [site for site in range(sites) if site != busiest]
            is_there = not others or draws.random() < share
            homes[prompt.session] = busiest if is_there else draws.choice(others)
    return [homes[prompt.session] for prompt in prompts]


def capacity_per_s(prompts: Sequence[Prompt], setting: AffinitySetting) -> float:
    """Returns the prompts a second at load 1: those that all engines can read, and have slots for,
    if each session has one engine, spread by hash, so that caches find what stickiness finds."""
    engines, kind = setting.sites * setting.engines, setting.kind
    caches = [PrefixCache(kind.cache_tokens) for _ in range(engines)]
    read = 0
    for prompt in prompts:
        cache = caches[hashed(prompt.session, engines)]
        read += prompt.tokens - cache.found(prompt.blocks, prompt.tokens)
        cache.enter(prompt.blocks)
    read_s = read / kind.read_tokens_per_s
    written = sum(prompt.answer_tokens - 1 for prompt in prompts)
    write_s = written * (kind.token_s + kind.token_each_s * kind.slots)
    return engines * len(prompts) / max(read_s, (read_s + write_s) / kind.slots)


def hashed(session: int, count: int, seed: int = 0) -> int:
    """Returns a number below `count` that a session always has."""
    return zlib.crc32(f"{seed} {session}".encode()) % count
