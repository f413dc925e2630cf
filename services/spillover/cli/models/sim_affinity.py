"""`spillover sim affinity`: simulate where prompts run among engines that cache what they read."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from spillover.cli.models import ModelResult
from spillover.cli.models.progress import progress_bars
from spillover.cli.parsing import some_of, whole_number_in
from spillover.commandline.option_types import above_zero, at_least_zero, whole_number
from spillover.commandline.terminal import open_console, table_of
from spillover.core.affinity.memory import SESSIONS
from spillover.model.prompt import BLOCK_TOKENS
from spillover.sim.affinity.engine import EngineKind
from spillover.sim.affinity.federation import AffinitySetting
from spillover.sim.affinity.run import RULES, RuleOf, run_affinity
from spillover.workloads.sessions import read_prompts

SITES_MAX = 100
ENGINES_MAX = 100
SEEDS_MAX = 1000
CACHE_TOKENS_MAX = 10**9
SESSIONS_MAX = 10**6
SLOTS_MAX = 10_000


def configure(parser: argparse.ArgumentParser, rules: Mapping[str, RuleOf] = RULES) -> None:
    """Declare the options; `rules` are those that can be played."""
    kind = EngineKind()
    parser.set_defaults(known_rules=rules)
    parser.add_argument(
        "--trace", type=Path, required=True, metavar="FILE",
        help="the prompts: JSON lines with timestamp, input_length, output_length and hash_ids",
    )  # fmt: skip
    parser.add_argument(
        "--rules", type=some_of(tuple(rules)), default=list(rules)[:1], metavar="R,R,...",
        help=f"play these rules side by side on the same prompts: {', '.join(rules)}",
    )  # fmt: skip
    parser.add_argument(
        "--load", type=above_zero, default=0.8, metavar="L",
        help="stretch the trace to this share of what all engines can read (default 0.8)",
    )  # fmt: skip
    parser.add_argument(
        "--sites", type=whole_number_in(1, SITES_MAX), default=3, metavar="N",
        help="the number of sites (default 3)",
    )  # fmt: skip
    parser.add_argument(
        "--engines", type=whole_number_in(1, ENGINES_MAX), default=4, metavar="N",
        help="the number of engines at each site (default 4)",
    )  # fmt: skip
    parser.add_argument(
        "--rtt-ms", type=_times_ms, default=(37.0, 279.0, 456.0), metavar="MS,MS,...",
        help="the times between sites and back: of sites a and b the one at a + b, from the "
        "beginning again (default 37,279,456)",
    )  # fmt: skip
    parser.add_argument(
        "--homes", choices=("skewed", "even"), default="skewed",
        help="let most sessions begin at one site at a time (skewed, default), or spread them",
    )  # fmt: skip
    parser.add_argument(
        "--sessions", type=whole_number_in(1, SESSIONS_MAX), default=SESSIONS, metavar="N",
        help=f"the number of sessions that a site remembers (default {SESSIONS})",
    )  # fmt: skip
    parser.add_argument(
        "--cache-tokens", type=whole_number_in(BLOCK_TOKENS, CACHE_TOKENS_MAX),
        default=kind.cache_tokens, metavar="N",
        help=f"the tokens that an engine's cache holds (default {kind.cache_tokens})",
    )  # fmt: skip
    parser.add_argument(
        "--slots", type=whole_number_in(1, SLOTS_MAX), default=kind.slots, metavar="N",
        help=f"the prompts that an engine reads or answers at once (default {kind.slots})",
    )  # fmt: skip
    parser.add_argument(
        "--tokens-per-s", type=above_zero, default=kind.read_tokens_per_s, metavar="N",
        help=f"the tokens that an engine reads per second (default {kind.read_tokens_per_s:g})",
    )  # fmt: skip
    parser.add_argument(
        "--unique", action="store_true",
        help="make all blocks unique: sessions repeat, but nothing is found in a cache",
    )  # fmt: skip
    parser.add_argument(
        "--seed", type=whole_number, default=1, metavar="N", help="the first seed of all draws"
    )
    parser.add_argument(
        "--seeds", type=whole_number_in(1, SEEDS_MAX), default=1, metavar="N",
        help="play so many seeds, and show means and ratios seed by seed (default 1)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> ModelResult:
    """Run the model."""
    prompts = read_prompts(options.trace)
    if options.unique:
        prompts = [one._replace(blocks=()) for one in prompts]
    setting = AffinitySetting(
        sites=options.sites,
        engines=options.engines,
        kind=EngineKind(
            read_tokens_per_s=options.tokens_per_s,
            slots=options.slots,
            cache_tokens=options.cache_tokens,
        ),
        rtts_s=tuple(one / 1e3 for one in options.rtt_ms),
        sessions=options.sessions,
    )
    runs: dict[str, list[dict[str, float]]] = {}
    with progress_bars(options.rules, options.seeds) as bar_of:
        for name in options.rules:
            on_progress, runs[name] = bar_of(name), []
            for number in range(options.seeds):
                figures = run_affinity(
                    prompts,
                    setting,
                    options.known_rules[name],
                    load=options.load,
                    seed=options.seed + number,
                    skewed=options.homes == "skewed",
                )
                runs[name].append(figures)
                if on_progress is not None:
                    on_progress(number + 1)
    results = {
        name: _over_seeds(of_seeds, runs[options.rules[0]]) for name, of_seeds in runs.items()
    }
    told = {"load": options.load, "seed": options.seed, "seeds": options.seeds, "rules": results}
    return ModelResult(told, partial(_print, told))


def _times_ms(text: str) -> tuple[float, ...]:
    return tuple(at_least_zero(one) for one in text.split(","))


def _over_seeds(
    runs: list[dict[str, float]], first: list[dict[str, float]]
) -> dict[str, float | None]:
    """Returns the means over the seeds, and the mean ratio of the p95 to that of the first rule."""
    ratios = [
        one["p95_s"] / other["p95_s"]
        for one, other in zip(runs, first, strict=True)
        if other["p95_s"]
    ]
    means = {name: fmean(one[name] for one in runs) for name in runs[0]}
    return {**means, "p95_ratio": fmean(ratios) if ratios else None}


def _print(told: dict[str, Any]) -> None:
    seeds = f"{told['seeds']} seeds" if told["seeds"] > 1 else f"seed {told['seed']}"
    columns = {
        "mean_s": ("mean s", ".2f"),
        "p50_s": ("p50 s", ".2f"),
        "p95_s": ("p95 s", ".2f"),
        "p95_ratio": ("p95 ratio", ".2f"),
        "found": ("found", ".3f"),
        "read_mtokens": ("read Mtokens", ".1f"),
        "served": ("served", ".3f"),
        "moved": ("moved", ".2f"),
    }
    title = f"time to the first token, load {told['load']:g}, {seeds}"
    table = table_of("rule", (heading for heading, _ in columns.values()), title=title)
    for rule, figures in told["rules"].items():
        shown = (
            "-" if figures[name] is None else format(figures[name], form)
            for name, (_, form) in columns.items()
        )
        table.add_row(rule, *shown)
    open_console().print(table)
