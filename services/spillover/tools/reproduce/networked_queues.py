"""Figures 5 to 9 of Lai & Polak: bursts at one cluster after the other, isolated and networked.

What is measured and what is claimed, of figures 5 and 6 in `watched_queues`; drawing is in
`networked_queues_drawing`. The paper's pictures of its topologies are lost: ours are rings in which
each cluster is linked to the next one (5 clusters) or the next two (10 and 20). Figures 5 and 6
come from the services' own code under a virtual clock, figures 7 to 9, which want many seeds, from
the same rules compiled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from spillover.inputs.builtin import builtin_topology
from spillover.model.statistics import summarize
from spillover.model.topology import Topology
from spillover.tools.reproduce import networked_queues_drawing as drawing
from spillover.tools.reproduce import watched_queues
from spillover.tools.reproduce.figure import Claim, Effort, Figure, OnProgress
from spillover_loadgen import workloads

SHARPLY = 1.5
"""By how much what "increases sharply" has to increase at least."""

SEEDS = 20
SEEDS_FULL = 100

SPEEDUPS = ("mean", "max", "min", "std")
SIDES = ("isolated", "networked")


def _paired(topology: Topology, seeds: Sequence[int], on_progress: OnProgress) -> dict[str, Any]:
    """Isolated and networked on the same requests, for each seed: summaries by home and of all,
    and hops."""
    from spillover.sim.fast.overflow.run import run_fast  # noqa: PLC0415 - only figures need numba

    duration_s = workloads.bursts_duration_s(len(topology.clusters))
    runs: list[dict[str, Any]] = []
    for done, seed in enumerate(seeds):
        schedule = workloads.bursts(topology.cluster_ids, duration_s=duration_s, seed=seed)
        sides = {
            "isolated": run_fast(topology.with_policy("isolated"), schedule, seed),
            "networked": run_fast(topology, schedule, seed),
        }
        results = {side: run.as_dict() for side, run in sides.items()}
        runs.append(
            {
                "seed": seed,
                "all": {side: result["system_time_ms"] for side, result in results.items()},
                "per_cluster": {
                    side: {c: own["system_time_ms"] for c, own in result["per_cluster"].items()}
                    for side, result in results.items()
                },
                "hops": {c: own["hops"] for c, own in results["networked"]["per_cluster"].items()},
            }
        )
        on_progress((done + 1) / len(seeds))
    return {"topology": topology.name, "runs": runs}


def _seeds(effort: Effort, seed: int) -> range:
    return range(seed, seed + (SEEDS_FULL if effort.full else SEEDS))


def _speedups(sides: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    return {name: sides["isolated"][name] / sides["networked"][name] for name in SPEEDUPS}


def _spread(values: Sequence[float]) -> dict[str, float]:
    found = summarize(values)
    ordered = sorted(values)
    return {
        "median": median(ordered),
        "min": ordered[0],
        "max": ordered[-1],
        "mean": float(found["mean"] or 0.0),
        "std": float(found["std"] or 0.0),
    }


def _with_speedups(paired: dict[str, Any]) -> dict[str, Any]:
    """`paired`, with the spread of the speed-ups over the seeds: of all, and by population."""
    runs = paired["runs"]
    clusters = list(runs[0]["per_cluster"]["isolated"])
    every = [_speedups(run["all"]) for run in runs]
    by_cluster = {
        c: [_speedups({side: run["per_cluster"][side][c] for side in SIDES}) for run in runs]
        for c in clusters
    }
    return paired | {
        "speedup": {name: _spread([one[name] for one in every]) for name in SPEEDUPS},
        "speedup_per_cluster": {
            c: {name: _spread([one[name] for one in own]) for name in SPEEDUPS}
            for c, own in by_cluster.items()
        },
    }


def compute_system_times(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes five clusters, 45 s."""
    return _with_speedups(_paired(builtin_topology("ring5"), _seeds(effort, seed), on_progress))


def claim_system_times(data: dict[str, Any]) -> list[Claim]:
    """Returns the claims of section III on figure 7."""
    speedup = data["speedup"]
    populations = [own["mean"]["median"] for own in data["speedup_per_cluster"].values()]
    seeds = len(data["runs"])
    return [
        Claim(
            "Networked queues shorten the mean system time",
            "4 to 6 times, by population",
            f"{_told(speedup['mean'])} over {seeds} seeds; populations' medians "
            f"{min(populations):.1f} .. {max(populations):.1f}",
            3.5 <= speedup["mean"]["median"] <= 6.5,
        ),
        Claim(
            "and its standard deviation even more",
            "larger than that of the mean",
            _told(speedup["std"]),
            speedup["std"]["median"] > speedup["mean"]["median"],
        ),
        Claim(
            "and the longest system time",
            "another major speed-up",
            _told(speedup["max"]),
            speedup["max"]["median"] > 2,
        ),
        Claim(
            "The shortest one stays as it is",
            "1 in all cases",
            _told(speedup["min"]),
            math.isclose(speedup["min"]["median"], 1.0, rel_tol=1e-6),
        ),
    ]


def compute_larger(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes ten clusters, 70 s, and twenty, 120 s, beside the five of figure 7."""
    found = {}
    for place, name in enumerate(("ring5", "chord10", "chord20")):

        def part(share: float, place: int = place) -> None:
            on_progress((place + share) / 3)

        paired = _with_speedups(_paired(builtin_topology(name), _seeds(effort, seed), part))
        del paired["runs"]
        found[name] = paired
    return {"topologies": found, "seeds": list(_seeds(effort, seed))}


def claim_larger(data: dict[str, Any]) -> list[Claim]:
    """Returns the claims of section III on figure 8."""
    five, ten, twenty = (data["topologies"][n]["speedup"] for n in ("ring5", "chord10", "chord20"))
    told = "; ".join(
        f"{clusters}: {_told(one['mean'])}"
        for clusters, one in ((5, five), (10, ten), (20, twenty))
    )
    return [
        Claim(
            "With more clusters, measured for longer, the mean gains less",
            "less than with 5 clusters",
            told,
            five["mean"]["median"] > ten["mean"]["median"] > twenty["mean"]["median"],
        ),
        Claim(
            "but the standard deviation more",
            "increases sharply in most populations",
            f"5: {_told(five['std'])}; 10: {_told(ten['std'])}; 20: {_told(twenty['std'])}",
            twenty["std"]["median"] > SHARPLY * five["std"]["median"],
        ),
        Claim(
            "and the longest system time too",
            "larger with more clusters",
            f"5: {_told(five['max'])}; 10: {_told(ten['max'])}; 20: {_told(twenty['max'])}",
            twenty["max"]["median"] > five["max"]["median"],
        ),
    ]


def compute_hops(effort: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes how often each population's requests were forwarded, twenty clusters, 120 s."""
    paired = _paired(builtin_topology("chord20"), _seeds(effort, seed), on_progress)
    return {
        "topology": paired["topology"],
        "hops": paired["runs"][0]["hops"],
        "hops_max": [
            max(int(h) for own in run["hops"].values() for h in own) for run in paired["runs"]
        ],
        "not_forwarded_share": [
            sum(own.get("0", 0) for own in run["hops"].values())
            / sum(n for own in run["hops"].values() for n in own.values())
            for run in paired["runs"]
        ],
    }


def claim_hops(data: dict[str, Any]) -> list[Claim]:
    """Returns the claims of section III on figure 9."""
    most, stayed = data["hops_max"], data["not_forwarded_share"]
    return [
        Claim(
            "No request is forwarded very often",
            "at most 7 times",
            f"at most {median(most):.0f} times (median of {len(most)} seeds, {min(most)} .. "
            f"{max(most)})",
            median(most) <= 8,
        ),
        Claim(
            "Most requests are not forwarded at all",
            "in words only",
            f"{min(stayed):.1%} .. {max(stayed):.1%} stay",
            min(stayed) > 0.5,
        ),
    ]


def _told(spread: Mapping[str, float]) -> str:
    return f"{spread['median']:.1f} ({spread['min']:.1f} .. {spread['max']:.1f})"


FIGURES = (
    Figure(
        "lai-polak-5",
        "Queues under bursts, isolated and networked",
        "Five clusters of five servers; for two seconds each in turn gets five times its usual "
        "users. Top: users that arrive per second. Below: how many requests wait at each cluster "
        "when every cluster is left to itself, and when the queues are networked. The requests are "
        "the same in both runs.",
        watched_queues.compute_queue_lengths,
        watched_queues.claim_queue_lengths,
        drawing.draw_queue_lengths,
    ),
    Figure(
        "lai-polak-6",
        "How willing clusters are to accept",
        "P, strong, is the probability that a cluster accepts a request; R, pale, that it or one "
        "of its neighbors does. Both are what neighbors tell each other twenty times a second. In "
        "a burst P falls at the loaded cluster, and at those that help it.",
        watched_queues.compute_acceptance,
        watched_queues.claim_acceptance,
        drawing.draw_acceptance,
    ),
    Figure(
        "lai-polak-7",
        "System times by population, and the speed-up",
        "System time is from a request's generation to the end of its service, wherever that is. "
        "Thick lines run from the shortest to the mean plus a standard deviation, the dot is the "
        "mean, the dash the longest (first seed). Below, isolated divided by networked; dots are "
        "medians over the seeds, whiskers run from the smallest to the largest.",
        compute_system_times,
        claim_system_times,
        drawing.draw_system_times,
    ),
    Figure(
        "lai-polak-8",
        "The speed-up with 10 and 20 clusters",
        "The same speed-ups with more clusters, each in turn with its burst. Since it takes longer "
        "until all had theirs, a smaller part of the requests meets one, and the mean gains less.",
        compute_larger,
        claim_larger,
        drawing.draw_larger,
    ),
    Figure(
        "lai-polak-9",
        "How often requests are forwarded",
        "The share of each population's requests that was forwarded once, twice and so on before "
        "it was accepted, with twenty clusters (first seed).",
        compute_hops,
        claim_hops,
        drawing.draw_hops,
    ),
)
