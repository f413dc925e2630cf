"""Our rule beside the paper's and its rivals: bursts, stale knowledge, any load, overload.

The document is decision 0037 and the issue behind it; what is claimed of a figure is what was asked
for. The same requests go through all policies, in the compiled engine. Federations and loads are in
`policies_bed`, drawing is in `policies_drawing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from spillover.inputs.builtin import builtin_topology
from spillover.policy.overflow.admission import FOREIGN_WAITING
from spillover.tools.reproduce import policies_drawing as drawing
from spillover.tools.reproduce.figure import Claim, Effort, Figure, OnProgress
from spillover.tools.reproduce.policies_bed import (
    GAP_CELLS,
    GRID_CELLS,
    HOT_CELLS,
    OVERLOAD_CELLS,
    RTTS,
    SHAPES,
    SHARED,
    Cell,
    Outcome,
    Paired,
    paired,
    play,
    play_until,
)
from spillover.tools.reproduce.policies_faults import claim_faults, compute_faults
from spillover_loadgen import workloads

OURS = "adaptive"
PAPER = "paper"
RIVALS = (PAPER, "two-choice", "isolated")

SEEDS = 20
SEEDS_FULL = 100

NOISE = 0.01
"""A difference of so much is none; means are measured to it."""

BURSTS = {
    "ring5": {"mean": 1.0, "p99": 0.98, "max": 0.87, "forwards": 0.85},
    "chord10": {"mean": 1.0, "p99": 0.84, "max": 0.82, "forwards": 0.82},
    "chord20": {"mean": 1.0, "p99": 0.85, "max": 0.80, "forwards": 0.78},
}
"""What was asked for on the paper's bursts, as ratios to the paper's rule."""

GAPS = {(0.02, 1.0): 0.94, (0.02, 10.0): 0.90, (0.5, 1.0): 0.78, (0.5, 10.0): 0.72}
"""Share of the gap that was asked for, by round trip and period of reports, in services."""


# --- the paper's bursts ---------------------------------------------------------------------------


def compute_bursts(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes three topologies, every policy on the same users."""
    from spillover.sim.fast.overflow.run import run_fast  # noqa: PLC0415 - only figures need numba

    seeds = range(seed, seed + (SEEDS_FULL if effort.full else SEEDS))
    found: dict[str, Any] = {}
    for place, name in enumerate(BURSTS):
        topology = builtin_topology(name)
        duration_s = workloads.bursts_duration_s(len(topology.clusters))
        runs: dict[str, dict[str, list[float]]] = {p: {} for p in (OURS, *RIVALS)}
        for number, one in enumerate(seeds):
            schedule = workloads.bursts(topology.cluster_ids, duration_s=duration_s, seed=one)
            for policy, series in runs.items():
                result = run_fast(topology.with_policy(policy), schedule, one).as_dict()
                times_ms = result["system_time_ms"]
                hops = {int(h): n for h, n in result["hops"].items()}
                told = {key: times_ms[key] for key in ("mean", "p99", "max")}
                told["forwards"] = sum(h * n for h, n in hops.items()) / sum(hops.values())
                told["forwarded_share"] = result["forwarded_share"]
                for key, value in told.items():
                    series.setdefault(key, []).append(value)
            on_progress((place + (number + 1) / len(seeds)) / len(BURSTS))
        found[name] = runs
    return {"seeds": list(seeds), "topologies": found}


def burst_ratios(data: Mapping[str, Any], name: str, policy: str = OURS) -> dict[str, Paired]:
    """Returns ratios to the paper's rule by measure: forwards too, hop by hop."""
    runs = data["topologies"][name]
    return {key: paired(runs[policy][key], runs[PAPER][key]) for key in runs[policy]}


def claim_bursts(data: dict[str, Any]) -> list[Claim]:
    """Returns what was asked for on bursts."""
    claims = []
    for name, limits in BURSTS.items():
        ratios = burst_ratios(data, name)
        for key, limit in limits.items():
            found = ratios[key]
            claims.append(
                Claim(
                    f"{name}: {_WORDS[key]}, as a share of the paper's rule",
                    f"at most {limit:.2f}",
                    f"{found.ratio:.3f} ± {found.half_width:.3f}",
                    found.ratio <= limit,
                )
            )
    return claims


_WORDS = {
    "mean": "the mean system time",
    "p99": "the 99th percentile",
    "max": "the longest",
    "forwards": "requests handed on, hop by hop",
}


# --- how much of the gap --------------------------------------------------------------------------


def compute_gap(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes the mean wait at load 0.9, exponential services, by the period of reports."""
    policies = (OURS, *RIVALS[:2], "isolated", SHARED)
    seeds_max = 12 if effort.full else 4
    found = []
    for place, cell in enumerate(GAP_CELLS):
        played = _play_pairs(cell, policies, seed, 2, seeds_max)
        waits = {policy: [one.wait_mean for one in runs] for policy, runs in played.items()}
        forwards = {policy: fmean(one.forwards for one in runs) for policy, runs in played.items()}
        found.append(
            {
                "shape": cell.shape,
                "rtt": cell.rtt,
                "period": cell.period,
                "wait": waits,
                "forwards": forwards,
            }
        )
        on_progress((place + 1) / len(GAP_CELLS))
    return {"cells": found}


def gap_share(cell: Mapping[str, Any], policy: str) -> float:
    """Returns the share of the gap from isolated queues to one shared queue that is closed."""
    means = {name: fmean(values) for name, values in cell["wait"].items()}
    return (means["isolated"] - means[policy]) / (means["isolated"] - means[SHARED])


def claim_gap(data: dict[str, Any]) -> list[Claim]:
    """Returns what was asked for at load 0.9."""
    claims = []
    for cell in data["cells"]:
        limit = GAPS.get((cell["rtt"], cell["period"]))
        if limit is not None:
            ours, theirs = gap_share(cell, OURS), gap_share(cell, PAPER)
            vs = paired(cell["wait"][OURS], cell["wait"][PAPER])
            claims.append(
                Claim(
                    f"{cell['shape']}, round trip {cell['rtt']:g} services, reports each "
                    f"{cell['period']:g}: share of the gap closed",
                    f"at least {limit:.0%}",
                    f"{ours:.1%} (paper {theirs:.1%}; wait {vs.ratio:.3f} ± {vs.half_width:.3f} of "
                    "the paper's)",
                    ours >= limit,
                )
            )
    return claims


def _play_pairs(
    cell: Cell, policies: Sequence[str], seed: int, seeds_min: int, seeds_max: int
) -> dict[str, list[Outcome]]:
    """Plays until the mean wait beside the paper's is known to NOISE."""

    def enough(played: Mapping[str, Sequence[Outcome]]) -> bool:
        ours, theirs = ([one.wait_mean for one in played[p]] for p in (OURS, PAPER))
        return paired(ours, theirs).half_width <= NOISE

    return play_until(cell, policies, seed, seeds_min=seeds_min, seeds_max=seeds_max, enough=enough)


# --- every kind of load ---------------------------------------------------------------------------


def compute_grid(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes mean waits over loads, laws, ways, periods of reports and shapes."""
    seeds_max = 10 if effort.full else 3
    found = []
    for place, cell in enumerate(GRID_CELLS):
        played = _play_pairs(cell, (OURS, *RIVALS), seed, 2, seeds_max)
        found.append(
            {
                "shape": cell.shape,
                "load": cell.load,
                "law": cell.law,
                "rtt": cell.rtt,
                "period": cell.period,
                "wait": {p: [one.wait_mean for one in runs] for p, runs in played.items()},
            }
        )
        on_progress((place + 1) / len(GRID_CELLS))
    return {"cells": found}


def beside_best(cell: Mapping[str, Any]) -> tuple[Paired, str]:
    """Returns the ratio of our mean wait to that of the best rival, and which that is."""
    best = min(RIVALS, key=lambda policy: fmean(cell["wait"][policy]))
    return paired(cell["wait"][OURS], cell["wait"][best]), best


def claim_grid(data: dict[str, Any]) -> list[Claim]:
    """Returns that no cell is lost, by distance."""
    claims = []
    for rtt in RTTS:
        cells = [cell for cell in data["cells"] if cell["rtt"] == rtt]
        told = [(*beside_best(cell), cell) for cell in cells]
        lost = [one for one in told if one[0].ratio > 1.0 + NOISE]
        surely = [one for one in lost if one[0].ratio - one[0].half_width > 1.0 + NOISE]
        worst, best, cell = max(told, key=lambda one: one[0].ratio)
        where = f"{cell['shape']}, load {cell['load']:g}, {cell['law']}, reports {cell['period']:g}"
        claims.append(
            Claim(
                f"Round trip {rtt:g} services: cells of {len(cells)} in which the mean wait is "
                "more than 1 % above that of the best of the paper's rule, two-choice and isolated",
                "none, beyond half-widths",
                f"{len(lost)}, {len(surely)} of them beyond their half-widths; the worst "
                f"{worst.ratio:.3f} ± {worst.half_width:.3f} of {best} ({where})",
                not surely,
            )
        )
    return claims


# --- overload -------------------------------------------------------------------------------------


def compute_overload(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes what is done in time where all sites have too much to do."""
    seeds = range(seed, seed + (24 if effort.full else 12))  # a loss of 1 % is to be seen
    found = []
    for place, cell in enumerate(OVERLOAD_CELLS):
        runs = {p: [play(cell, p, one) for one in seeds] for p in (OURS, PAPER, "isolated")}
        found.append(
            {
                "shape": cell.shape,
                "load": cell.load,
                "done": {p: [one.done_share for one in own] for p, own in runs.items()},
                "forwards": {p: [one.forwards for one in own] for p, own in runs.items()},
            }
        )
        on_progress((place + 1) / len(OVERLOAD_CELLS))
    return {"cells": found}


def claim_overload(data: dict[str, Any]) -> list[Claim]:
    """Returns that nothing is lost where there is nothing to win."""
    claims = []
    for cell in data["cells"]:
        done = paired(cell["done"][OURS], cell["done"]["isolated"])
        hops = fmean(cell["forwards"][OURS])
        claims.append(
            Claim(
                f"{cell['shape']}, {cell['load']:g} times what all can do: requests done in time, "
                "as a share of isolated queues; hops a request",
                "at least 0.99; at most 0.1",
                f"{done.ratio:.4f} ± {done.half_width:.4f}; {hops:.3f}",
                done.ratio >= 1.0 - NOISE and hops <= 0.1,
            )
        )
    return claims


# --- a hot neighbor -------------------------------------------------------------------------------


def compute_fairness(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes what the clients of three sites suffer from a fourth that has far too much to do."""
    seeds = range(seed, seed + (6 if effort.full else 3))
    found = []
    for place, cell in enumerate(HOT_CELLS):
        runs = {p: [play(cell, p, one) for one in seeds] for p in (OURS, PAPER, "isolated")}
        found.append(
            {
                "hot": cell.hot,
                "cold": cell.load,
                "cold_wait": {p: [one.cold_wait_mean for one in own] for p, own in runs.items()},
                "hot_done": {p: [one.hot_done_share for one in own] for p, own in runs.items()},
            }
        )
        on_progress((place + 1) / len(HOT_CELLS))
    return {"cells": found}


def claim_fairness(data: dict[str, Any]) -> list[Claim]:
    """Returns the bound of `policy.overflow.admission.FOREIGN_WAITING`, and its price."""
    claims = []
    servers = SHAPES["4x8"].servers[0]
    for cell in data["cells"]:
        wait = {policy: fmean(own) for policy, own in cell["cold_wait"].items()}
        done = {policy: fmean(own) for policy, own in cell["hot_done"].items()}
        # Each home request before it has waited for foreign ones, too.
        limit = wait["isolated"] + (FOREIGN_WAITING + 1.0 / servers) / (1.0 - cell["cold"])
        claims.append(
            Claim(
                f"One site at load {cell['hot']:g}, three at {cell['cold']:g}: mean wait of the "
                "three sites' own clients, in services",
                f"at most {limit:.2f}",
                f"{wait[OURS]:.2f} (paper {wait[PAPER]:.2f}, isolated {wait['isolated']:.2f}); of "
                f"the hot site's requests {done[OURS]:.0%} are done (paper {done[PAPER]:.0%}, "
                f"isolated {done['isolated']:.0%})",
                wait[OURS] <= limit,
            )
        )
    return claims


FIGURES = (
    Figure(
        "policies-1",
        "The paper's bursts",
        "Each site in turn gets five times its usual users for two seconds. Every policy serves "
        "the same users; bars are means over seeds, as shares of the paper's rule, with the "
        "95 % half-width of the paired difference.",
        compute_bursts,
        claim_bursts,
        drawing.draw_bursts,
    ),
    Figure(
        "policies-2",
        "How much of the gap is closed, by the age of what is known",
        "All sites have the same load of 0.9. 0 % is the mean wait when every site is left to "
        "itself, 100 % that of one queue for all without any way. To the right reports are rarer, "
        "so that what is known is older; times are in mean services.",
        compute_gap,
        claim_gap,
        drawing.draw_gap,
    ),
    Figure(
        "policies-3",
        "Every kind of load",
        "A dot is one federation under one load: 2 shapes, 4 loads, 3 laws of service times, "
        "3 periods of reports, by round trip. It shows our mean wait as a share of that of the "
        "best rival there (the paper's rule, two-choice, isolated): below 1 we are better.",
        compute_grid,
        claim_grid,
        drawing.draw_grid,
    ),
    Figure(
        "policies-4",
        "Too much everywhere",
        "All sites have 1.5 or 3 times as much to do as they can. Requests whose deadline, "
        "10 services, cannot be kept are refused at once. Forwarding can win nothing here; bars "
        "show the share done in time.",
        compute_overload,
        claim_overload,
        drawing.draw_overload,
    ),
    Figure(
        "policies-5",
        "Where something is wrong",
        "One of four sites dies, is slow or fails at once for a third of the time; reports stop "
        "for good; links are of unlike length. Dots show mean waits in services; a policy that "
        "gets less done than others has its share written above.",
        compute_faults,
        claim_faults,
        drawing.draw_faults,
    ),
    Figure(
        "policies-6",
        "A hot neighbor",
        "One of four sites has several times as much to do as it can, the others have room. Dots "
        "show how long the other sites' own clients wait on average. Ours lets two foreign "
        "requests a server wait in a queue, no more.",
        compute_fairness,
        claim_fairness,
        drawing.draw_fairness,
    ),
)
