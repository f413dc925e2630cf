"""Writes day.csv: the made-up day of one site that answers prompts, as Azure's LLM trace has it.

Ten minutes stand for a day: little at night, a steep morning, a lunch break, an afternoon that ends
slowly. Arrivals are Poisson with that rate; token counts are log-normal. Run it as
`python loadgen/traces/make_day.py`; the seed is fixed, so that the file never changes.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

SEED = 1
DAY_S = 600.0
BEGIN = datetime(2026, 1, 5, tzinfo=UTC)

RATE_NIGHT_PER_S = 0.2
PEAKS = ((0.42, 0.06, 3.0), (0.62, 0.1, 2.4))
"""The peaks of the day: when, how wide, and how many requests a second on top of the night's."""

CONTEXT_TOKENS = (math.log(900.0), 0.8, 8_000)
GENERATED_TOKENS = (math.log(40.0), 0.7, 400)
"""Mean and spread of the logarithm, and the most."""


def rate_per_s(at_s: float) -> float:
    """Returns how many requests come in a second at that time of the day."""
    share = at_s / DAY_S
    peaks = sum(top * math.exp(-(((share - when) / width) ** 2)) for when, width, top in PEAKS)
    return RATE_NIGHT_PER_S + peaks


def day() -> str:
    """Returns the file's text."""
    random = Random(SEED)
    most_per_s = RATE_NIGHT_PER_S + sum(top for _, _, top in PEAKS)
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    at_s = 0.0
    while (at_s := at_s + random.expovariate(most_per_s)) < DAY_S:
        if random.random() * most_per_s < rate_per_s(at_s):
            context, generated = (_tokens(random, *of) for of in (CONTEXT_TOKENS, GENERATED_TOKENS))
            at = (BEGIN + timedelta(seconds=round(at_s, 3))).strftime("%Y-%m-%d %H:%M:%S.%f")
            lines.append(f"{at},{context},{generated}")
    return "\n".join(lines) + "\n"


def _tokens(random: Random, mean: float, spread: float, most: int) -> int:
    return min(most, max(1, round(random.lognormvariate(mean, spread))))


if __name__ == "__main__":
    Path(__file__).with_name("day.csv").write_text(day(), encoding="utf-8")
