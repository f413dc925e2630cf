"""Decision 0037, our rule beside the paper's and its rivals: bursts, stale knowledge, any load,
overload, faults, a hot neighbor.

The same requests go through all policies, in the compiled engine; what needs faults goes through
the services' own code under a virtual clock. All times are in services: a request takes one, on
average. A *cell* is one federation under one load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import combinations, product
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from spillover.inputs.builtin import builtin_topology
from spillover.model.faults import ClusterFault, FaultSchedule
from spillover.model.ids import ClusterId
from spillover.model.request import Outcome as Ended
from spillover.model.schedule import Arrival
from spillover.model.topology import Cluster, Link, Topology
from spillover.policy.overflow.admission import FOREIGN_WAITING
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
    between,
)
from spillover_lab.rivals.queues import QUEUE_RIVALS
from spillover_lab.rivals.queues import play as play_rival

if TYPE_CHECKING:
    from spillover.sim.fast.overflow.arrivals import ArrivalArrays

DOCUMENT = Document(
    prefix="policies",
    citation="Spillover, decision record 0037 (ours, after Lai & Polak and Johnson)",
    heading="Our rule beside the others: by what is known, and how old it is",
    problem="The paper's rule draws lots: it hardly minds old reports, but keeps requests although "
    "a neighbor is idle. Rules that go to the shortest queue do better while they know it, and "
    "worse when they do not.",
    mechanism="A request goes where the expected wait there and the way are less than the wait "
    "here; what was sent and is not reported yet counts. The older what is known, the more the "
    "paper's lots decide. And a site with an idle server asks neighbors that seem to have work.",
    reproduced="The same requests through isolated queues, the paper's rule, two-choice and ours: "
    "on the paper's bursts, and at even loads with services, ways and reports of every kind.",
    left_open="What is claimed of a figure is what was asked for in the decision record.",
)

OURS, PAPER, RIVALS = "adaptive", "paper", ("paper", "two-choice", "isolated")
SHARED = "shared"
"""Stands in place of a policy: one queue for all, without any way."""
SEEDS, SEEDS_FULL = 20, 100
NOISE = 0.01
"""A difference of so much is none; means are measured to it."""
WARM_UP = 0.05
"""The first of the requests are left out: they find everything empty."""
SERVICE_MS = 1_000.0
HYPEREXPONENTIAL_C2 = 4.0
"""Squared coefficient of variation, with balanced means."""
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t for 95 %, from one degree of freedom on; beyond, 1.96 is near enough."""

# --- federations, loads, and one run --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cell:
    """One federation under one load."""

    shape: str
    load: float
    law: str
    """The law of service times: constant, exponential or hyperexponential."""
    rtt: float
    """There and back between neighbors."""
    period: float
    """Between reports."""
    deadline: float = 1e6
    requests: int = 50_000
    hot: float | None = None
    """The load of the first cluster; None: as that of the others."""


MESH = tuple(combinations(range(4), 2))
CHORDS = tuple(
    sorted({(min(x, y), max(x, y)) for x in range(8) for y in ((x + 1) % 8, (x + 2) % 8)})
)
SHAPES: Mapping[str, tuple[tuple[int, ...], tuple[tuple[int, int], ...], tuple[float, ...]]] = {
    "4x8": ((8,) * 4, MESH, (1.0,) * 6),
    "8x5": ((5,) * 8, CHORDS, (1.0,) * 16),
    "unlike": ((2, 4, 8, 16), MESH, (1.0,) * 6),
    "uneven": ((8,) * 4, MESH, (0.1, 0.3, 1.0, 1.0, 2.0, 5.0)),
}
"""Servers by cluster, links, and the ways of these as multiples of the cell's."""


def topology_of(cell: Cell) -> Topology:
    """Returns the federation of a cell; its policy is the default one."""
    servers, links, ways = SHAPES[cell.shape]
    ids = [ClusterId(f"s{x + 1}") for x in range(len(servers))]
    common: dict[str, Any] = {
        "service_ms": SERVICE_MS, "delivery_ms": 0.0, "queue_limit": 1_000_000
    }  # fmt: skip
    return Topology(
        name=cell.shape,
        clusters=tuple(
            Cluster(id=c, servers=n, **common) for c, n in zip(ids, servers, strict=True)
        ),
        links=tuple(
            Link(between=(ids[a], ids[b]), delay_ms=way * (cell.rtt / 2 * SERVICE_MS))
            for (a, b), way in zip(links, ways, strict=True)
        ),
        gossip_period_ms=cell.period * SERVICE_MS,
        default_deadline_ms=cell.deadline * SERVICE_MS,
    )


def arrivals_of(cell: Cell, seed: int) -> ArrivalArrays:
    """Returns Poisson arrivals at each cluster, in proportion to its servers and its load."""
    import numpy as np  # noqa: PLC0415 - only figures need it

    from spillover.sim.fast.overflow.arrivals import ArrivalArrays  # noqa: PLC0415 - as above

    busy = np.array(SHAPES[cell.shape][0], float) * cell.load
    if cell.hot is not None:
        busy[0] *= cell.hot / cell.load
    random, count = np.random.default_rng([seed, cell.requests, len(busy)]), cell.requests
    gaps_s = random.exponential(1.0, count) * (SERVICE_MS / 1e3)
    homes = random.choice(len(busy), count, p=busy / busy.sum())
    services_ms = np.full(count, SERVICE_MS)
    if cell.law == "exponential":
        services_ms = random.exponential(SERVICE_MS, count)
    elif cell.law == "hyperexponential":
        short = 0.5 * (1.0 + math.sqrt((HYPEREXPONENTIAL_C2 - 1) / (HYPEREXPONENTIAL_C2 + 1)))
        means = np.where(random.random(count) < short, 0.5 / short, 0.5 / (1 - short))
        services_ms = random.exponential(SERVICE_MS, count) * means
    return ArrivalArrays(np.cumsum(gaps_s) / busy.sum(), homes.astype(np.int32), services_ms)


def play(cell: Cell, policy: str, seed: int) -> dict[str, float]:
    """Returns what a policy, or SHARED, makes of one seed of a cell: mean waits, which are system
    times less the services, shares of the requests that are done, and forwards a request."""
    from spillover.sim.fast.overflow.queue import DONE  # noqa: PLC0415 - only figures need numba
    from spillover.sim.fast.overflow.run import run_fast  # noqa: PLC0415 - as above

    topology, arrivals = topology_of(cell), arrivals_of(cell, seed)
    chosen = topology if policy == SHARED else topology.with_policy(policy)
    run = run_fast(chosen, arrivals, seed, shared=policy == SHARED)
    first = int(WARM_UP * len(arrivals))
    done = run.requests.outcome[first:] == DONE
    assert arrivals.service_ms is not None  # noqa: S101 - as made above
    waits = (run.requests.system_time_ms - arrivals.service_ms)[first:][done] / SERVICE_MS
    is_hot = arrivals.cluster[first:] == 0
    return {
        "wait": float(waits.mean()),
        "done": float(done.mean()),
        "forwards": float(run.requests.hops[first:][done].mean()),
        "cold_wait": float(waits[~is_hot[done]].mean()),
        "hot_done": float(done[is_hot].mean()),
    }


def paired(ours: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Returns the ratio of the means of two series on the same seeds, and the 95 % half-width of
    the paired difference as a share of the other's mean."""
    mean, count = fmean(other), len(ours)
    if mean == 0.0:
        return (1.0 if fmean(ours) == 0.0 else math.inf), 0.0
    if count < 2:
        return fmean(ours) / mean, math.inf
    factor = T95[count - 2] if count - 2 < len(T95) else 1.96
    differences = [(a - b) / mean for a, b in zip(ours, other, strict=True)]
    return fmean(ours) / mean, factor * stdev(differences) / math.sqrt(count)


Played = dict[str, dict[str, list[float]]]
"""Values by measure and policy, one for each seed."""


def _play_all(cell: Cell, policies: Iterable[str], seeds: Iterable[int], *, until: bool) -> Played:
    """`until` the mean wait beside the paper's is known to NOISE, or the seeds are used up."""
    played: Played = {}
    for number, seed in enumerate(seeds):
        for policy in policies:
            for measure, value in play(cell, policy, seed).items():
                played.setdefault(measure, {}).setdefault(policy, []).append(value)
        if until and number and paired(played["wait"][OURS], played["wait"][PAPER])[1] <= NOISE:
            break
    return played


def _on_cells(
    cells: Sequence[Cell],
    policies: Sequence[str],
    default: int,
    full: int,
    kept: Sequence[str],
    *,
    until: bool = False,
) -> Callable[[Effort, int], Values]:
    """Plays so many seeds of each cell, at most, and keeps some of what is measured."""

    def compute(effort: Effort, seed: int) -> Values:
        seeds = range(seed, seed + effort.pick(default, full))
        found = []
        for cell in cells:
            played = _play_all(cell, policies, seeds, until=until)
            found.append(asdict(cell) | {measure: played[measure] for measure in kept})
        return {"cells": found}

    return compute


# --- the paper's bursts ---------------------------------------------------------------------------

BURSTS = {
    "ring5": {"mean": 1.0, "p99": 0.98, "max": 0.87, "forwards": 0.85},
    "chord10": {"mean": 1.0, "p99": 0.84, "max": 0.82, "forwards": 0.82},
    "chord20": {"mean": 1.0, "p99": 0.85, "max": 0.80, "forwards": 0.78},
}
"""What was asked for, as ratios to the paper's rule."""
MEASURES = {
    "mean": "the mean system time",
    "p99": "the 99th percentile",
    "max": "the longest",
    "forwards": "requests handed on, hop by hop",
}


def _compute_bursts(effort: Effort, seed: int) -> Values:
    """Three topologies, every policy on the same users."""
    from spillover.sim.fast.overflow.run import run_fast  # noqa: PLC0415 - only figures need numba

    found: dict[str, Any] = {}
    for name in BURSTS:
        topology = builtin_topology(name)
        duration_s = generated.bursts_duration_s(len(topology.clusters))
        runs = found[name] = {p: {m: [] for m in (*MEASURES, "share")} for p in (OURS, *RIVALS)}
        for one in range(seed, seed + effort.pick(SEEDS, SEEDS_FULL)):
            schedule = generated.bursts(topology.cluster_ids, duration_s=duration_s, seed=one)
            for policy, series in runs.items():
                result = run_fast(topology.with_policy(policy), schedule, one).as_dict()
                for measure in ("mean", "p99", "max"):
                    series[measure].append(result["system_time_ms"][measure])
                hops = {int(h): n for h, n in result["hops"].items()}
                forwards = sum(h * n for h, n in hops.items()) / sum(hops.values())
                series["forwards"].append(forwards)
                series["share"].append(result["forwarded_share"])
    return {"topologies": found}


def _ratio(data: Values, name: str, measure: str, policy: str = OURS) -> tuple[float, float]:
    """One measure as a share of the paper's rule."""
    runs = data["topologies"][name]
    return paired(runs[policy][measure], runs[PAPER][measure])


def _panels_of_bursts(data: Values) -> list[Panel]:
    panels = []
    for name in data["topologies"]:
        series = []
        for aside, policy in ((-0.1, "two-choice"), (0.1, OURS)):
            pairs = [_ratio(data, name, measure, policy) for measure in MEASURES]
            at, ratios = [x + aside for x in range(len(pairs))], [ratio for ratio, _ in pairs]
            series.append(Series(at, ratios, policy, "o", [half for _, half in pairs]))
        title = f"{name}: share of the paper's rule"
        panels.append(Panel(title, series, x_names=list(MEASURES), y_limits=(0, None), level=1.0))
    return panels


# --- cells ----------------------------------------------------------------------------------------

GAP_CELLS = tuple(
    Cell(shape, 0.9, "exponential", rtt, period)
    for shape, rtt, period in product(("4x8", "8x5"), (0.02, 0.5), (0.05, 0.2, 1.0, 3.0, 10.0))
)
GAPS = {(0.02, 1.0): 0.94, (0.02, 10.0): 0.90, (0.5, 1.0): 0.78, (0.5, 10.0): 0.72}
"""The share of the gap that was asked for, by round trip and period of reports."""
LOADS, RTTS = (0.5, 0.7, 0.9, 0.98), (0.0, 0.02, 0.5, 2.0)
LAWS = ("constant", "exponential", "hyperexponential")
GRID_CELLS = tuple(
    Cell(*one) for one in product(("4x8", "unlike"), LOADS, LAWS, RTTS, (0.05, 1.0, 10.0))
)
OVERLOAD_CELLS = tuple(
    Cell(shape, load, "exponential", 0.07, 0.05, 10.0)
    for shape, load in product(("4x8", "8x5", "unlike"), (1.5, 3.0))
)
HOT_CELLS = tuple(
    Cell("4x8", cold, "exponential", 0.02, 0.05, 60.0, hot=hot)
    for hot, cold in ((2.0, 0.6), (3.0, 0.6), (4.0, 0.3))
)
"""The first site has too much to do, the others have not."""


def _means(by_policy: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {policy: fmean(values) for policy, values in by_policy.items()}


def _gap_share(cell: Mapping[str, Any], policy: str) -> float:
    """The share of the gap from isolated queues to one shared queue that is closed."""
    wait = _means(cell["wait"])
    return (wait["isolated"] - wait[policy]) / (wait["isolated"] - wait[SHARED])


def _gap(place: int) -> Callable[[Values], tuple[float, ...]]:
    def measure(data: Values) -> tuple[float, ...]:
        cell = data["cells"][place]
        beside = paired(cell["wait"][OURS], cell["wait"][PAPER])
        return _gap_share(cell, OURS), _gap_share(cell, PAPER), *beside

    return measure


def _panels_of_gap(data: Values) -> list[Panel]:
    panels = []
    for shape, rtt in dict.fromkeys((cell["shape"], cell["rtt"]) for cell in data["cells"]):
        cells = [c for c in data["cells"] if (c["shape"], c["rtt"]) == (shape, rtt)]
        periods = [cell["period"] for cell in cells]
        series = [
            Series(periods, [100 * _gap_share(cell, p) for cell in cells], p, "-o")
            for p in (OURS, "two-choice", PAPER)
        ]
        title = f"{shape}, round trip {rtt:g}: share of the gap closed, %"
        panels.append(Panel(title, series, "reports each ... services", log="x"))
    return panels


def _beside_best(cell: Mapping[str, Any]) -> tuple[float, float, str]:
    """The ratio of our mean wait to that of the best rival, its half-width, and which that is."""
    best = min(RIVALS, key=lambda policy: fmean(cell["wait"][policy]))
    return *paired(cell["wait"][OURS], cell["wait"][best]), best


def _lost(rtt: float) -> Callable[[Values], tuple[Any, ...]]:
    """How many cells are lost, surely lost, and the worst of them."""

    def measure(data: Values) -> tuple[Any, ...]:
        told = [(*_beside_best(cell), cell) for cell in data["cells"] if cell["rtt"] == rtt]
        lost = [one for one in told if one[0] > 1.0 + NOISE]
        surely = [one for one in lost if one[0] - one[1] > 1.0 + NOISE]
        ratio, half, best, cell = max(told, key=lambda one: one[0])
        where = f"{cell['shape']}, load {cell['load']:g}, {cell['law']}, reports {cell['period']:g}"
        return len(surely), len(lost), ratio, half, best, where

    return measure


def _panels_of_grid(data: Values) -> list[Panel]:
    series = []
    for shape, style in (("4x8", "o"), ("unlike", "^")):
        cells = [cell for cell in data["cells"] if cell["shape"] == shape]
        at = [RTTS.index(c["rtt"]) + 0.18 * (LOADS.index(c["load"]) - 1.5) for c in cells]
        series.append(Series(at, [_beside_best(cell)[0] for cell in cells], shape, style))
    title = f"mean wait, share of the best rival's; loads {', '.join(map(str, LOADS))}"
    names = [f"round trip {rtt:g}" for rtt in RTTS]
    return [Panel(title, series, x_names=names, y_limits=(0, None), level=1.0)]


def _overload(place: int) -> Callable[[Values], tuple[float, float, float]]:
    def measure(data: Values) -> tuple[float, float, float]:
        cell = data["cells"][place]
        ratio, half = paired(cell["done"][OURS], cell["done"]["isolated"])
        return ratio, half, fmean(cell["forwards"][OURS])

    return measure


def _hot(place: int) -> Callable[[Values], tuple[float, ...]]:
    def measure(data: Values) -> tuple[float, ...]:
        cell = data["cells"][place]
        wait, done = _means(cell["cold_wait"]), _means(cell["hot_done"])
        # Each home request before it has waited for foreign ones, too.
        beyond = (FOREIGN_WAITING + 1 / SHAPES["4x8"][0][0]) / (1.0 - cell["load"])
        own = [kind[policy] for kind in (wait, done) for policy in (OURS, PAPER, "isolated")]
        return (*own, wait["isolated"] + beyond)

    return measure


def _dots(
    title: str, names: Callable[[Any], str], measure: str, policies: Sequence[str], log: str = ""
) -> Callable[[Values], list[Panel]]:
    """A dot for each cell and policy."""

    def panels(data: Values) -> list[Panel]:
        series = []
        for number, policy in enumerate(policies):
            at = [
                x + 0.64 * ((number + 0.5) / len(policies) - 0.5) for x in range(len(data["cells"]))
            ]
            values = [max(fmean(cell[measure][policy]), 1e-3) for cell in data["cells"]]
            series.append(Series(at, values, policy, "o"))
        return [Panel(title, series, x_names=[names(cell) for cell in data["cells"]], log=log)]

    return panels


# --- where something is wrong ---------------------------------------------------------------------

SOUND = Cell("4x8", 0.7, "exponential", 0.07, 0.05, 60.0, 8_000)
FAILING = {"action": "failing", "share": 1.0}
WRONG: Mapping[str, Cell | tuple[dict[str, Any], dict[str, Any]]] = {
    "a site dies": ({"action": "crash"}, {"action": "restart"}),
    "a site is slow (3 x)": ({"action": "slow", "factor": 3.0}, {"action": "slow", "factor": 1.0}),
    "a site answers 503 at once": (FAILING | {"status": 503}, FAILING | {"share": 0.0}),
    "a site answers 500 at once": (FAILING | {"status": 500}, FAILING | {"share": 0.0}),
    "reports stop": Cell("4x8", 0.9, "exponential", 0.07, 2_000.0),
    "links of unlike length": Cell("uneven", 0.9, "exponential", 0.2, 0.05),
    "and old reports": Cell("uneven", 0.9, "exponential", 0.2, 10.0),
}
"""A cell of its own, or what begins at the first site and what ends it, for the second third of the
time."""


def _compute_faults(effort: Effort, seed: int) -> Values:
    """Mean waits, and what was done, in each case."""
    found = []
    for case, wrong in WRONG.items():
        played: Played = {"wait": {}, "done": {}}
        for policy in (OURS, *RIVALS):
            for one in range(seed, seed + effort.pick(3, 8)):
                run = (
                    play(wrong, policy, one)
                    if isinstance(wrong, Cell)
                    else _play_faults(case, *wrong, policy, one)
                )
                for measure, by_policy in played.items():
                    by_policy.setdefault(policy, []).append(run[measure])
        found.append({"case": case, **played})
    return {"cells": found}


def _play_faults(
    case: str, begins: dict[str, Any], ends: dict[str, Any], policy: str, seed: int
) -> dict[str, float]:
    topology, arrivals = topology_of(SOUND).with_policy(policy), arrivals_of(SOUND, seed)
    assert arrivals.service_ms is not None  # noqa: S101 - as `arrivals_of` makes them
    columns = zip(arrivals.time_s, arrivals.cluster, arrivals.service_ms, strict=True)
    schedule = [
        Arrival(float(time_s), topology.cluster_ids[home], float(service_ms))
        for time_s, home, service_ms in columns
    ]
    third_s = schedule[-1].time_s / 3
    faults = FaultSchedule(case, (
        ClusterFault(at_s=third_s, cluster=ClusterId("s1"), **begins),
        ClusterFault(at_s=schedule[-1].time_s * 2 / 3, cluster=ClusterId("s1"), **ends),
    ))  # fmt: skip
    # Without checks: they are for tests, and cost more than the run.
    run = run_overflow(topology, schedule, seed, faults=faults, check=False)
    times_ms = [one for own in run.system_time_ms.values() for one in own]
    done = run.outcomes[Ended.DONE]
    wait = (sum(times_ms) / done - fmean(arrivals.service_ms)) / SERVICE_MS
    return {"wait": wait, "done": done / len(schedule)}


def _wrong(place: int) -> Callable[[Values], tuple[Any, ...]]:
    """Our wait beside the best rival that does as much: who turns work away has short waits."""

    def measure(data: Values) -> tuple[Any, ...]:
        case = data["cells"][place]
        done, wait = _means(case["done"]), _means(case["wait"])
        rivals = [policy for policy in RIVALS if done[policy] >= max(done.values()) - NOISE]
        best = min(rivals, key=wait.__getitem__)
        beside = paired(case["wait"][OURS], case["wait"][best])
        return *beside, best, done[OURS], max(done[policy] for policy in RIVALS)

    return measure


def _panels_of_faults(data: Values) -> list[Panel]:
    def name(cell: Any) -> str:
        return str(cell["case"]).replace(" ", "\n", 2)

    waits = _dots("mean wait, services", name, "wait", (OURS, *RIVALS), "y")
    return [*waits(data), *_dots("share done", name, "done", (OURS, *RIVALS))(data)]


# --- rules of others ------------------------------------------------------------------------------

PUBLISHED_CELLS = (
    *(
        Cell("4x8", *one, requests=20_000)
        for one in product((0.7, 0.9), ("exponential",), (0.02, 0.5), (0.05, 3.0))
    ),
    *(Cell("4x8", 0.6, "exponential", rtt, 0.05, hot=1.4, requests=20_000) for rtt in (0.02, 0.5)),
    Cell("unlike", 0.9, "exponential", 0.1, 0.05, requests=20_000),
)
"""All of them have, in all, less to do than they can: rivals have no rule for more."""


def _compute_published(effort: Effort, seed: int) -> Values:
    """Mean waits of ours and of the published rules."""
    found = []
    for cell in PUBLISHED_CELLS:
        wait: dict[str, list[float]] = {policy: [] for policy in (OURS, *QUEUE_RIVALS)}
        for one in range(seed, seed + effort.pick(2, 8)):
            wait[OURS].append(play(cell, OURS, one)["wait"])
            arrivals = arrivals_of(cell, one)
            assert arrivals.service_ms is not None  # noqa: S101 - as `arrivals_of` makes them
            columns = arrivals.time_s, arrivals.cluster, arrivals.service_ms / 1e3
            requests = list(zip(*(column.tolist() for column in columns), strict=True))
            for name, rule_of in QUEUE_RIVALS.items():
                ended = play_rival(topology_of(cell), requests, rule_of, one)
                counted = ended[int(WARM_UP * len(ended)) :]
                wait[name].append(fmean(wait_s for wait_s, _ in counted) * 1e3 / SERVICE_MS)
        best = min((name for name in wait if "NATS" in name), key=_means(wait).__getitem__)
        told = {name: waits for name, waits in wait.items() if "NATS" not in name}
        found.append(asdict(cell) | {"wait": told | {"NATS": wait[best]}})
    return {"cells": found}


def _published(place: int) -> Callable[[Values], tuple[Any, ...]]:
    """Our wait beside the best of the others', and that of each."""

    def measure(data: Values) -> tuple[Any, ...]:
        wait = data["cells"][place]["wait"]
        means = _means(wait)
        best = min((name for name in means if name != OURS), key=means.__getitem__)
        told = ", ".join(f"{name} {mean:.3f}" for name, mean in means.items())
        return *paired(wait[OURS], wait[best]), best, told

    return measure


def _name_of(cell: Mapping[str, Any]) -> str:
    hot = f"one at {cell['hot']:g}" if cell["hot"] else cell["shape"]
    return f"{hot}\n{cell['load']:g}, {cell['rtt']:g}\n{cell['period']:g}"


def _panels_of_published(data: Values) -> list[Panel]:
    """A dot for each rule, as a share of ours."""
    series = []
    for number, name in enumerate(one for one in data["cells"][0]["wait"] if one != OURS):
        at = [x + 0.1 * (number - 2.5) for x in range(len(data["cells"]))]
        ratios = [paired(cell["wait"][name], cell["wait"][OURS])[0] for cell in data["cells"]]
        series.append(Series(at, ratios, name, "o"))
    names = [_name_of(cell) for cell in data["cells"]]
    return [Panel("mean wait, share of ours", series, x_names=names, log="y", level=1.0)]


# fmt: off
FIGURES = (
    Figure(
        "policies-1", "The paper's bursts",
        "Each site in turn gets five times its usual users for two seconds. Every policy serves "
        "the same users; dots are means over seeds, as shares of the paper's rule, with the 95 % "
        "half-width of the paired difference.",
        _compute_bursts, _panels_of_bursts, tuple(
            Statement(
                f"{name}: {MEASURES[measure]}, as a share of the paper's rule",
                f"at most {limit:.2f}",
                partial(_ratio, name=name, measure=measure),
                "{:.3f} ± {:.3f}", between(0, limit))
            for name, limits in BURSTS.items() for measure, limit in limits.items()
        )),
    Figure(
        "policies-2", "How much of the gap is closed, by the age of what is known",
        "All sites have the same load of 0.9. 0 % is the mean wait when every site is left to "
        "itself, 100 % that of one queue for all without any way. To the right reports are rarer, "
        "so that what is known is older; times are in mean services.",
        _on_cells(GAP_CELLS, (OURS, *RIVALS, SHARED), 4, 12, ("wait", "forwards"), until=True),
        _panels_of_gap, tuple(
            Statement(
                f"{cell.shape}, round trip {cell.rtt:g} services, reports each {cell.period:g}: "
                "share of the gap closed", f"at least {GAPS[cell.rtt, cell.period]:.0%}",
                _gap(place), "{:.1%} (paper {:.1%}; wait {:.3f} ± {:.3f} of the paper's)",
                between(GAPS[cell.rtt, cell.period], math.inf))
            for place, cell in enumerate(GAP_CELLS) if (cell.rtt, cell.period) in GAPS
        ), 2),
    Figure(
        "policies-3", "Every kind of load",
        "A dot is one federation under one load: 2 shapes, 4 loads, 3 laws of service times, 3 "
        "periods of reports, by round trip. It shows our mean wait as a share of that of the best "
        "rival there (the paper's rule, two-choice, isolated): below 1 we are better.",
        _on_cells(GRID_CELLS, (OURS, *RIVALS), 3, 10, ("wait",), until=True),
        _panels_of_grid, tuple(
            Statement(
                f"Round trip {rtt:g} services: cells of {len(GRID_CELLS) // len(RTTS)} in which "
                "the mean wait is more than 1 % above that of the best of the paper's rule, "
                "two-choice and isolated", "none, beyond half-widths", _lost(rtt),
                "{1}, {0} of them beyond their half-widths; the worst {2:.3f} ± {3:.3f} of {4} "
                "({5})", between(0, 0))
            for rtt in RTTS
        )),
    Figure(
        "policies-4", "Too much everywhere",
        "All sites have 1.5 or 3 times as much to do as they can. Requests whose deadline, 10 "
        "services, cannot be kept are refused at once. Forwarding can win nothing here; dots show "
        "the share done in time.",
        # So many seeds, as a loss of 1 % is to be seen.
        _on_cells(OVERLOAD_CELLS, (OURS, PAPER, "isolated"), 12, 24, ("done", "forwards")),
        _dots("share done in time", lambda c: f"{c['shape']}\n{c['load']:g} x", "done",
              ("isolated", PAPER, OURS)), tuple(
            Statement(
                f"{cell.shape}, {cell.load:g} times what all can do: requests done in time, as a "
                "share of isolated queues; hops a request", "at least 0.99; at most 0.1",
                _overload(place), "{:.4f} ± {:.4f}; {:.3f}",
                lambda ratio, _, hops: ratio >= 1.0 - NOISE and hops <= 0.1)
            for place, cell in enumerate(OVERLOAD_CELLS)
        )),
    Figure(
        "policies-5", "Where something is wrong",
        "One of four sites dies, is slow or fails at once for a third of the time; reports stop "
        "for good; links are of unlike length. Dots show mean waits, and the share that gets done.",
        _compute_faults, _panels_of_faults, tuple(
            Statement(
                f"{case}: mean wait beside the best rival that does as much, and what is done",
                "at most 1.01 of its; no less", _wrong(place),
                "{:.3f} ± {:.3f} of {}; {:.2%} done, rivals at most {:.2%}",
                lambda ratio, _, __, done, most: ratio <= 1.0 + NOISE and done >= most - NOISE)
            for place, case in enumerate(WRONG)
        )),
    Figure(
        "policies-6", "A hot neighbor",
        "One of four sites has several times as much to do as it can, the others have room. Dots "
        "show how long the other sites' own clients wait on average. Ours lets two foreign "
        "requests a server wait in a queue, no more.",
        _on_cells(HOT_CELLS, (OURS, PAPER, "isolated"), 3, 6, ("cold_wait", "hot_done")),
        _dots("mean wait, services", lambda c: f"one at {c['hot']:g},\nthree at {c['load']:g}",
              "cold_wait", ("isolated", PAPER, OURS), "y"), tuple(
            Statement(
                f"One site at load {cell.hot:g}, three at {cell.load:g}: mean wait of the three "
                "sites' own clients, in services", "at most that of isolated queues, and "
                "(2 + 1 / servers) / (1 - load)", _hot(place),
                "{0:.2f} (paper {1:.2f}, isolated {2:.2f}; bound {6:.2f}); of the hot site's "
                "requests {3:.0%} are done (paper {4:.0%}, isolated {5:.0%})",
                lambda wait, *others: wait <= others[-1])
            for place, cell in enumerate(HOT_CELLS)
        )),
    Figure(
        "policies-7", "Rules of others",
        "Envoy's load-aware locality, AI Grid's ceilings with two choices, Prequal, GORGO, "
        "SkyWalker's selective pushing and NATS' overflow, each as it is published, on the same "
        "requests. Above 1 ours waits less. Below the dots: federation, load and round trip, "
        "period of reports. NATS has the best of four thresholds.",
        _compute_published, _panels_of_published, tuple(
            Statement(
                f"{cell.shape}, load {cell.load:g}{f' (one {cell.hot:g})' if cell.hot else ''}, "
                f"round trip {cell.rtt:g}, reports each {cell.period:g}: mean wait beside the best "
                "of the published rules", "at most 1.01 of its", _published(place),
                "{:.3f} ± {:.3f} of {}; {}",
                lambda ratio, *_: ratio <= 1.0 + NOISE)
            for place, cell in enumerate(PUBLISHED_CELLS)
        )),
)
# fmt: on
