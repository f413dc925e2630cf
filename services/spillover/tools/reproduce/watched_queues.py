"""Figures 5 and 6 of Lai & Polak: one run of the services' own code under a virtual clock, watched.

What is measured and what is claimed; the other figures are in `networked_queues`, drawing is in
`networked_queues_drawing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from spillover.inputs.builtin import builtin_topology
from spillover.model.ids import ClusterId
from spillover.model.topology import Topology
from spillover.sim.engine.world import World
from spillover.sim.overflow.federation import SimCluster
from spillover.sim.overflow.run import run_overflow
from spillover.tools.reproduce.figure import Claim, Effort, OnProgress
from spillover_loadgen import workloads

SAMPLE_EVERY_S = 0.1
PRESSED = 10
"""A queue of two requests for each server: high, compared with the usual 0."""

SIDES = ("isolated", "networked")


def _watched(topology: Topology, seed: int) -> dict[str, Any]:
    """Queue lengths, P and R of every cluster over time, in one run."""
    duration_s = workloads.bursts_duration_s(len(topology.clusters))
    schedule = workloads.bursts(topology.cluster_ids, duration_s=duration_s, seed=seed)
    times_s = [k * SAMPLE_EVERY_S for k in range(int(duration_s / SAMPLE_EVERY_S) + 1)]
    samples: dict[str, list[dict[str, float]]] = {c: [] for c in topology.cluster_ids}

    def look(clusters: Mapping[ClusterId, SimCluster]) -> None:
        for cluster_id, cluster in clusters.items():
            machine = cluster.machine
            samples[cluster_id].append(
                {
                    "n": machine.queue_length,
                    "p": machine.accept_probability,
                    "r": machine.neighborhood_accept_probability,
                }
            )

    def observe(world: World, clusters: Mapping[ClusterId, SimCluster]) -> None:
        for time_s in times_s:
            world.at(time_s, look, clusters)

    run_overflow(topology, schedule, seed, observe=observe)
    series = {
        name: {c: [sample[name] for sample in own] for c, own in samples.items()}
        for name in ("n", "p", "r")
    }
    return {"times_s": times_s[: len(next(iter(samples.values())))], **series}


def compute_queue_lengths(_: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes the same requests through isolated and networked queues of five clusters."""
    topology = builtin_topology("ring5")
    isolated = _watched(topology.with_policy("isolated"), seed)
    on_progress(0.5)
    networked = _watched(topology, seed)
    on_progress(1.0)
    times_s = isolated["times_s"]
    rates = {
        c: [workloads.burst_user_rate(k, time_s) for time_s in times_s]
        for k, c in enumerate(topology.cluster_ids)
    }
    sides = {"isolated": isolated["n"], "networked": networked["n"]}
    return {
        "times_s": times_s,
        "user_rate_per_s": rates,
        "queue_length": sides,
        "queue_length_max": {
            side: {c: max(own) for c, own in lengths.items()} for side, lengths in sides.items()
        },
        "pressed_s": {
            side: {c: _pressed_s(own) for c, own in lengths.items()}
            for side, lengths in sides.items()
        },
    }


def _pressed_s(lengths: Sequence[float]) -> float:
    return round(sum(n > PRESSED for n in lengths) * SAMPLE_EVERY_S, 3)


def claim_queue_lengths(data: dict[str, Any]) -> list[Claim]:
    """Returns the claims of section III on figure 5."""
    longest, pressed_s = data["queue_length_max"], data["pressed_s"]
    alone, together = (list(longest[side].values()) for side in SIDES)
    alone_s, together_s = (list(pressed_s[side].values()) for side in SIDES)
    return [
        Claim(
            "Isolated queues rise sharply in a burst",
            "to hundreds of requests",
            f"to {min(alone):.0f} .. {max(alone):.0f} requests",
            median(alone) >= 100,
        ),
        Claim(
            "and stay high for much longer than the two seconds of a burst",
            "about 10 s",
            f"above {PRESSED} requests for {min(alone_s):.1f} .. {max(alone_s):.1f} s",
            median(alone_s) > 4,
        ),
        Claim(
            "Networked queues are significantly shorter",
            "in words only",
            f"at most {min(together):.0f} .. {max(together):.0f} requests",
            max(together) < min(alone) / 5,
        ),
        Claim(
            "and are back to normal very quickly",
            "in words only",
            f"above {PRESSED} requests for {min(together_s):.1f} .. {max(together_s):.1f} s",
            max(together_s) < 2,
        ),
    ]


def compute_acceptance(_: Effort, seed: int, on_progress: OnProgress) -> dict[str, Any]:
    """Computes P and R over time in the networked run, and their means while one's own burst lasts,
    a neighbor's, or that of a cluster farther away."""
    topology = builtin_topology("ring5")
    run = _watched(topology, seed)
    on_progress(1.0)
    law = workloads.PAPER_BURSTS
    ids = topology.cluster_ids
    means: dict[str, list[float]] = {"own": [], "neighbor": [], "farther": []}
    for k, loaded in enumerate(ids):
        near = {neighbor.id for neighbor in topology.neighbors(loaded)}
        begin_s = law.first_burst_s + law.burst_every_s * k
        within = [
            x
            for x, time_s in enumerate(run["times_s"])
            if begin_s <= time_s < begin_s + law.burst_length_s
        ]
        for c in ids:
            whose = "own" if c == loaded else "neighbor" if c in near else "farther"
            means[whose].append(fmean(run["p"][c][x] for x in within))
    return {
        "times_s": run["times_s"],
        "p": run["p"],
        "r": run["r"],
        "p_during_burst": {whose: fmean(values) for whose, values in means.items()},
    }


def claim_acceptance(data: dict[str, Any]) -> list[Claim]:
    """Returns the claims of section III on figure 6."""
    mean = data["p_during_burst"]
    higher = all(
        r >= p - 1e-12 for c in data["p"] for p, r in zip(data["p"][c], data["r"][c], strict=True)
    )
    return [
        Claim(
            "In a burst P falls in the loaded cluster and in its neighbors too",
            "in words only",
            f"mean P {mean['own']:.2f} at the loaded one, {mean['neighbor']:.2f} at neighbors, "
            f"{mean['farther']:.2f} farther away",
            mean["own"] < mean["neighbor"] < 0.99,
        ),
        Claim(
            "R, the probability that a cluster or one of its neighbors accepts, is at least P",
            "by definition",
            "always" if higher else "not always",
            higher,
        ),
    ]
