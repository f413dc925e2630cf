"""Lai & Polak, networked queues: figures 5 to 9, bursts at one cluster after the other.

The pictures of the paper's topologies are lost: ours are rings in which each cluster is linked to
the next one (5 clusters) or the next two (10 and 20). Figures 5 and 6 come from the services' own
code under a virtual clock, figures 7 to 9, which want many seeds, from the same rules compiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, TypeAlias

from spillover.inputs.builtin import builtin_topology
from spillover.model.ids import ClusterId
from spillover.model.topology import Topology
from spillover.sim.engine.world import World
from spillover.sim.overflow.federation import SimCluster
from spillover.sim.overflow.run import run_overflow
from spillover.workloads import generated
from spillover_lab.reproduce.figure import (
    Document,
    Effort,
    Figure,
    Panel,
    Series,
    Statement,
    Values,
    above,
    between,
    near,
    spread,
)

Spread: TypeAlias = Mapping[str, float]

DOCUMENT = Document(
    prefix="lai-polak",
    citation="Cheng-Jia Lai, Wolfgang Polak: A Collaborative Approach to Stochastic Load Balancing "
    "with Networked Queues of Autonomous Service Clusters",
    heading="Networked queues: one site's overload is another's idle time",
    problem="Several sites each have a few servers and a queue. When many users come to one site "
    "at once, its queue grows to hundreds of requests and takes long to empty, while the servers "
    "of the other sites are idle. One queue for all would need a center that never fails.",
    mechanism="Each site keeps its own queue and tells its neighbors every 50 ms how likely it "
    "would take one more request. A request that comes to a long queue is, by a draw, kept or "
    "handed on, more likely to a neighbor that is willing, or whose own neighbors are.",
    reproduced="Users, servers, delays and bursts are the paper's: 5 servers a site, 40 ms a "
    "request, 35 ms between neighbors, one burst of 2 s at each site in turn. The very same "
    "requests go through isolated and networked queues, by the code that Spillover's services run.",
    left_open="Which site neighbors which is drawn in the paper's figure 4, which is lost: we use "
    "a ring of 5 sites, and rings of 10 and 20 in which each site also knows the next but one. The "
    "measured curves were pictures too: our numbers stand beside what the text says of them.",
)

SEEDS, SEEDS_FULL = 20, 100
SAMPLE_EVERY_S = 0.1
PRESSED = 10
"""A queue of two requests for each server: high, compared with the usual 0."""
SHARPLY = 1.5
"""What "increases sharply" has to increase by at least."""

SPEEDUPS = ("mean", "max", "min", "std")
SIDES = ("isolated", "networked")
CIRCLES = ("ring5", "chord10", "chord20")


# --- figures 5 and 6: one run, watched ------------------------------------------------------------


def _watched(topology: Topology, seed: int) -> dict[str, Any]:
    """Queue lengths, P and R of every cluster over time, in one run."""
    duration_s = generated.bursts_duration_s(len(topology.clusters))
    schedule = generated.bursts(topology.cluster_ids, duration_s=duration_s, seed=seed)
    times_s = [k * SAMPLE_EVERY_S for k in range(int(duration_s / SAMPLE_EVERY_S) + 1)]
    n, p, r = ({c: [] for c in topology.cluster_ids} for _ in range(3))  # type: ignore[var-annotated]

    def look(clusters: Mapping[ClusterId, SimCluster]) -> None:
        for cluster_id, cluster in clusters.items():
            n[cluster_id].append(cluster.machine.queue_length)
            p[cluster_id].append(cluster.machine.accept_probability)
            r[cluster_id].append(cluster.machine.neighborhood_accept_probability)

    def observe(world: World, clusters: Mapping[ClusterId, SimCluster]) -> None:
        for time_s in times_s:
            world.at(time_s, look, clusters)

    run_overflow(topology, schedule, seed, observe=observe)
    return {"times_s": times_s[: len(next(iter(n.values())))], "n": n, "p": p, "r": r}


def _compute_5(_: Effort, seed: int) -> Values:
    topology = builtin_topology("ring5")
    isolated = _watched(topology.with_policy("isolated"), seed)
    rates = {
        c: [generated.burst_user_rate(k, time_s) for time_s in isolated["times_s"]]
        for k, c in enumerate(topology.cluster_ids)
    }
    sides = {"isolated": isolated["n"], "networked": _watched(topology, seed)["n"]}
    return {"times_s": isolated["times_s"], "user_rate_per_s": rates, "queue_length": sides}


def _longest(data: Values, side: str) -> tuple[float, float, float]:
    return spread(max(own) for own in data["queue_length"][side].values())


def _pressed_s(data: Values, side: str) -> tuple[float, float, float]:
    lengths = data["queue_length"][side].values()
    return spread(SAMPLE_EVERY_S * sum(n > PRESSED for n in own) for own in lengths)


def _panels_5(data: Values) -> list[Panel]:
    alone, together = (data["queue_length"][side] for side in SIDES)
    same = (None, 1.05 * _longest(data, "isolated")[2])
    shown = (
        ("users arriving per second", data["user_rate_per_s"], (None, None)),
        ("requests waiting, isolated", alone, same),
        ("requests waiting, networked, same scale", together, same),
        ("requests waiting, networked, magnified", together, (None, None)),
    )
    return [
        Panel(title, [Series(data["times_s"], own, c) for c, own in of.items()], y_limits=limits)
        for title, of, limits in shown
    ]


def _compute_6(_: Effort, seed: int) -> Values:
    """P and R over time in the networked run, and the mean P while one's own burst lasts, a
    neighbor's, or that of a cluster farther away."""
    topology = builtin_topology("ring5")
    run = _watched(topology, seed)
    law, ids = generated.PAPER_BURSTS, topology.cluster_ids
    means: dict[str, list[float]] = {"own": [], "neighbor": [], "farther": []}
    for k, loaded in enumerate(ids):
        neighbors = {neighbor.id for neighbor in topology.neighbors(loaded)}
        from_s = law.first_burst_s + law.burst_every_s * k
        to_s = from_s + law.burst_length_s
        within = [x for x, time_s in enumerate(run["times_s"]) if from_s <= time_s < to_s]
        for c in ids:
            whose = "own" if c == loaded else "neighbor" if c in neighbors else "farther"
            means[whose].append(fmean(run["p"][c][x] for x in within))
    during = {whose: fmean(values) for whose, values in means.items()}
    return {"times_s": run["times_s"], "p": run["p"], "r": run["r"], "p_during_burst": during}


def _r_is_higher(data: Values) -> bool:
    pairs = ((data["p"][c], data["r"][c]) for c in data["p"])
    return all(r >= p - 1e-12 for ps, rs in pairs for p, r in zip(ps, rs, strict=True))


def _panels_6(data: Values) -> list[Panel]:
    lines = (("r", "R", 2.2), ("p", "P", 1.0))
    return [
        Panel(c, [Series(data["times_s"], data[n][c], label, width=w) for n, label, w in lines])
        for c in data["p"]
    ]


# --- figures 7 to 9: many seeds -------------------------------------------------------------------


def _paired(name: str, effort: Effort, seed: int) -> list[dict[str, Any]]:
    """Isolated and networked on the same requests, for each seed: summaries of all and by home,
    and hops."""
    from spillover.sim.fast.overflow.run import run_fast  # noqa: PLC0415 - only figures need numba

    topology = builtin_topology(name)
    duration_s = generated.bursts_duration_s(len(topology.clusters))
    runs: list[dict[str, Any]] = []
    for one in range(seed, seed + effort.pick(SEEDS, SEEDS_FULL)):
        schedule = generated.bursts(topology.cluster_ids, duration_s=duration_s, seed=one)
        run: dict[str, Any] = {"seed": one, "all": {}, "per_cluster": {}}
        for side, policy in (("isolated", "isolated"), ("networked", topology.policy)):
            result = run_fast(topology.with_policy(policy), schedule, one).as_dict()
            own = result["per_cluster"]
            run["all"][side] = result["system_time_ms"]
            run["per_cluster"][side] = {c: told["system_time_ms"] for c, told in own.items()}
            run["hops"] = {c: told["hops"] for c, told in own.items()}
        runs.append(run)
    return runs


def _speedups(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The spread of the speed-ups over the seeds: of all, and by population."""

    def of(sides: Sequence[Mapping[str, Spread]]) -> dict[str, Spread]:
        factors = {
            name: [one["isolated"][name] / one["networked"][name] for one in sides]
            for name in SPEEDUPS
        }
        names = ("median", "min", "max")
        return {k: dict(zip(names, spread(own), strict=True)) for k, own in factors.items()}

    populations = {
        c: of([{side: run["per_cluster"][side][c] for side in SIDES} for run in runs])
        for c in runs[0]["per_cluster"]["isolated"]
    }
    return {"speedup": of([run["all"] for run in runs]), "speedup_per_cluster": populations}


def _compute_7(effort: Effort, seed: int) -> Values:
    runs = _paired("ring5", effort, seed)
    return {"runs": runs, **_speedups(runs)}


def _compute_8(effort: Effort, seed: int) -> Values:
    return {"topologies": {name: _speedups(_paired(name, effort, seed)) for name in CIRCLES}}


def _compute_9(effort: Effort, seed: int) -> Values:
    runs = _paired("chord20", effort, seed)
    counts = [run["hops"].values() for run in runs]
    stay = [sum(own.get("0", 0) for own in each) for each in counts]
    total = [sum(sum(own.values()) for own in each) for each in counts]
    return {
        "hops": runs[0]["hops"],
        "hops_max": [max(int(h) for own in each for h in own) for each in counts],
        "not_forwarded_share": [one / of for one, of in zip(stay, total, strict=True)],
    }


def _panels_7(data: Values) -> list[Panel]:
    run, clusters = data["runs"][0], list(data["speedup_per_cluster"])
    series = []
    for side, aside in (("isolated", -0.12), ("networked", 0.12)):
        own = [run["per_cluster"][side][c] for c in clusters]
        ends = [[o["mean"] - o["min"] for o in own], [o["max"] - o["mean"] for o in own]]
        at = [k + aside for k in range(len(own))]
        series.append(Series(at, [o["mean"] for o in own], side, "o", ends))
    title = f"system time, ms: least, mean, greatest (seed {run['seed']})"
    return [
        Panel(title, series, x_names=clusters, log="y"),
        _speedup_panel("isolated divided by networked", data["speedup_per_cluster"]),
    ]


def _panels_8(data: Values) -> list[Panel]:
    found = data["topologies"]
    each = [_speedup_panel(name, own["speedup_per_cluster"]) for name, own in found.items()]
    totals = {name: own["speedup"] for name, own in found.items()}
    return [*each[1:], _speedup_panel("all populations", totals)]


def _speedup_panel(title: str, by_name: Mapping[str, Mapping[str, Spread]]) -> Panel:
    series = []
    for place, statistic in enumerate(SPEEDUPS):
        found = [own[statistic] for own in by_name.values()]
        ends = [[f["median"] - f["min"] for f in found], [f["max"] - f["median"] for f in found]]
        at = [k + 0.15 * place - 0.225 for k in range(len(found))]
        series.append(Series(at, [f["median"] for f in found], statistic, "o", ends))
    return Panel(title, series, x_names=list(by_name), log="y", level=1.0)


def _panels_9(data: Values) -> list[Panel]:
    populations = data["hops"]
    bars = [
        Series(
            range(len(populations)),
            [100 * own.get(str(hop), 0) / sum(own.values()) for own in populations.values()],
            f"{hop} times",
            "bar",
        )
        for hop in range(1, data["hops_max"][0] + 1)
    ]
    title = "forwarded requests, % of each population's"
    return [Panel(title, bars, x_names=list(populations))]


# --- what the paper says of them ------------------------------------------------------------------


def _told(found: Spread) -> str:
    return f"{found['median']:.1f} ({found['min']:.1f} .. {found['max']:.1f})"


def _gain(statistic: str, data: Values) -> tuple[float, str]:
    found = data["speedup"][statistic]
    return found["median"], _told(found)


def _mean_gain(data: Values) -> tuple[Any, ...]:
    medians = [own["mean"]["median"] for own in data["speedup_per_cluster"].values()]
    return (*_gain("mean", data), len(data["runs"]), min(medians), max(medians))


def _by_circle(statistic: str, data: Values) -> tuple[Any, ...]:
    """The medians with 5, 10 and 20 clusters, and how they are told."""
    found = [data["topologies"][name]["speedup"][statistic] for name in CIRCLES]
    told = "; ".join(f"{n}: {_told(one)}" for n, one in zip((5, 10, 20), found, strict=True))
    return (*(one["median"] for one in found), told)


# fmt: off
FIGURES = (
    Figure(
        "lai-polak-5", "Queues under bursts, isolated and networked",
        "Five clusters of five servers; for two seconds each in turn gets five times its usual "
        "users. Top: users that arrive per second. Below: how many requests wait at each cluster "
        "when every cluster is left to itself, and when the queues are networked.",
        _compute_5, _panels_5, (
            Statement(
                "Isolated queues rise sharply in a burst", "to hundreds of requests",
                lambda d: _longest(d, "isolated"), "to {1:.0f} .. {2:.0f} requests",
                between(100, float("inf"))),
            Statement(
                "and stay high for much longer than the two seconds of a burst", "about 10 s",
                lambda d: _pressed_s(d, "isolated"),
                f"above {PRESSED} requests for {{1:.1f}} .. {{2:.1f}} s", above(4)),
            Statement(
                "Networked queues are significantly shorter", "in words only",
                lambda d: (*_longest(d, "networked"), _longest(d, "isolated")[1]),
                "at most {1:.0f} .. {2:.0f} requests", lambda _, __, most, alone: most < alone / 5),
            Statement(
                "and are back to normal very quickly", "in words only",
                lambda d: _pressed_s(d, "networked"),
                f"above {PRESSED} requests for {{1:.1f}} .. {{2:.1f}} s",
                lambda _, __, most_s: most_s < 2),
        )),
    Figure(
        "lai-polak-6", "How willing clusters are to accept",
        "P is the probability that a cluster accepts a request; R that it or one of its neighbors "
        "does. Both are what neighbors tell each other twenty times a second. In a burst P falls "
        "at the loaded cluster, and at those that help it.",
        _compute_6, _panels_6, (
            Statement(
                "In a burst P falls in the loaded cluster and in its neighbors too",
                "in words only",
                lambda d: tuple(d["p_during_burst"][w] for w in ("own", "neighbor", "farther")),
                "mean P {0:.2f} at the loaded one, {1:.2f} at neighbors, {2:.2f} farther away",
                lambda own, neighbor, _: own < neighbor < 0.99),
            Statement(
                "R, the probability that a cluster or one of its neighbors accepts, is at least P",
                "by definition",
                lambda d: "always" if _r_is_higher(d) else "not always", "{}",
                lambda found: found == "always"),
        )),
    Figure(
        "lai-polak-7", "System times by population, and the speed-up",
        "System time is from a request's generation to the end of its service, wherever that is. "
        "Dots are means, whiskers reach from the shortest to the longest (first seed). Below, "
        "isolated divided by networked: medians, smallest and largest over the seeds.",
        _compute_7, _panels_7, (
            Statement(
                "Networked queues shorten the mean system time", "4 to 6 times, by population",
                _mean_gain, "{1} over {2} seeds; populations' medians {3:.1f} .. {4:.1f}",
                between(3.5, 6.5)),
            Statement(
                "and its standard deviation even more", "larger than that of the mean",
                lambda d: (*_gain("std", d), d["speedup"]["mean"]["median"]), "{1}",
                lambda std, _, mean: std > mean),
            Statement(
                "and the longest system time", "another major speed-up",
                lambda d: _gain("max", d), "{1}", above(2)),
            Statement(
                "The shortest one stays as it is", "1 in all cases",
                lambda d: _gain("min", d), "{1}", near(1.0, 1e-6)),
        )),
    Figure(
        "lai-polak-8", "The speed-up with 10 and 20 clusters",
        "The same speed-ups with more clusters, each in turn with its burst. Since it takes longer "
        "until all had theirs, a smaller part of the requests meets one, and the mean gains less.",
        _compute_8, _panels_8, (
            Statement(
                "With more clusters, measured for longer, the mean gains less",
                "less than with 5 clusters", lambda d: _by_circle("mean", d), "{3}",
                lambda five, ten, twenty, _: five > ten > twenty),
            Statement(
                "but the standard deviation more", "increases sharply in most populations",
                lambda d: _by_circle("std", d), "{3}",
                lambda five, _, twenty, __: twenty > SHARPLY * five),
            Statement(
                "and the longest system time too", "larger with more clusters",
                lambda d: _by_circle("max", d), "{3}", lambda five, _, twenty, __: twenty > five),
        )),
    Figure(
        "lai-polak-9", "How often requests are forwarded",
        "The share of each population's requests that was forwarded once, twice and so on before "
        "it was accepted, with twenty clusters (first seed).",
        _compute_9, _panels_9, (
            Statement(
                "No request is forwarded very often", "at most 7 times",
                lambda d: (*spread(d["hops_max"]), len(d["hops_max"])),
                "at most {0:.0f} times (median of {3} seeds, {1} .. {2})",
                between(0, 8)),
            Statement(
                "Most requests are not forwarded at all", "in words only",
                lambda d: spread(d["not_forwarded_share"]), "{1:.1%} .. {2:.1%} stay",
                lambda _, least, __: least > 0.5),
        )),
)
# fmt: on
