"""The report of a demo: one HTML file that needs nothing else, for readers new to the subject.

The words of the page and their order are in `report.html.jinja`; here is what depends on the run.
The drawings are in `figures`, the numbers in `result`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spillover_lab.demo import figures
from spillover_lab.demo.result import SPEEDUP_FIELDS, DemoResult, speedups
from spillover_lab.report.formats import factor, milliseconds
from spillover_lab.report.page import made_with, page

_POLICY_WORDS = {
    "paper": "the rule of Lai & Polak",
    "two-choice": "the better of two neighbors drawn at random",
    "isolated": "no forwarding",
}


def report_page(result: DemoResult) -> str:
    """Returns the report as HTML text; InputError when matplotlib or jinja2 is not installed."""
    most = result.networked.hops_max
    return page(
        "demo/report.html.jinja",
        series=len(result.topology.clusters),
        title=f"Spillover demo: {result.topology.name}",
        headline=_headline(result),
        result=result,
        doubts=_doubts(result),
        tiles=_tiles(result),
        rule=_POLICY_WORDS.get(result.networked.policy, result.networked.policy),
        queue_lengths=_drawings(result, figures.queue_lengths_figure),
        acceptance=_drawings(result, figures.acceptance_figure),
        system_times=_drawings(result, figures.system_times_figure),
        forwards=_drawings(result, figures.forwards_figure),
        cluster_legend=[(f"series-{i}", id_) for i, id_ in enumerate(result.topology.cluster_ids)],
        times_legend=[
            ("isolated", "isolated"),
            ("networked", "networked"),
            *((f"speedup-{i}", f"speed-up of the {f}") for i, f in enumerate(SPEEDUP_FIELDS)),
        ],
        hops_legend=_hops_legend(most),
        statistics=SPEEDUP_FIELDS,
        hop_columns=[f"{hops}\N{MULTIPLICATION SIGN}" for hops in range(most + 1)],
        forwarded_share=result.networked.load.get("forwarded_share"),
        facts=_facts(result),
    )


def _drawings(result: DemoResult, draw: Callable[[DemoResult, int], str]) -> list[str]:
    return [draw(result, width_px) for width_px in (figures.WIDE_PX, figures.NARROW_PX)]


def _headline(result: DemoResult) -> str:
    before, after = result.times_of(None)
    gain = speedups(before, after)["mean"]
    arrow = "\N{RIGHTWARDS ARROW}"
    means = f"{milliseconds(before.get('mean'))} {arrow} {milliseconds(after.get('mean'))} ms"
    if gain is None or gain < 1.2:
        return f"Isolated and networked queues: mean system time {means}"
    isolated_s, networked_s = _pile_ups_s(result)
    if networked_s > isolated_s / 4 or not isolated_s:
        return f"Networked queues shorten the mean system time: {means}"
    return (
        f"Bursts that pile up for {isolated_s:.0f} s in isolated queues "
        f"vanish in networked ones: mean system time {means}"
    )


def _tiles(result: DemoResult) -> list[tuple[str, str, str]]:
    """What was isolated, what networked, and what it is."""
    before, after = result.times_of(None)
    gains, pile_ups_s = speedups(before, after), _pile_ups_s(result)
    return [
        *(
            (
                milliseconds(before.get(field)),
                f"{milliseconds(after.get(field))} ms",
                f"{words} system time, speed-up {factor(gains[field])}",
            )
            for field, words in (("mean", "mean"), ("max", "longest"))
        ),
        (
            f"{result.isolated.longest_queue}",
            f"{result.networked.longest_queue}",
            "requests in the longest queue",
        ),
        (
            f"{pile_ups_s[0]:.1f}",
            f"{pile_ups_s[1]:.1f} s",
            "longest time with more than two waiting for each server",
        ),
    ]


def _pile_ups_s(result: DemoResult) -> tuple[float, float]:
    isolated, networked = (
        run.pile_up_s(result.topology) for run in (result.isolated, result.networked)
    )
    return isolated, networked


def _doubts(result: DemoResult) -> list[str]:
    found = []
    for name, run in (("isolated", result.isolated), ("networked", result.networked)):
        if not run.load.get("kept_up", True):
            found.append(
                f"The load generator did not keep to its schedule in the {name} run; "
                "the times below may say more about this machine than about the queues."
            )
        others = {k: n for k, n in run.load.get("outcomes", {}).items() if k != "ok" and n}
        if others:
            listed = ", ".join(f"{count} {outcome}" for outcome, count in others.items())
            found.append(f"Not every request of the {name} run was answered: {listed}.")
    if not result.ledgers_balanced:
        found.append("The clusters' ledgers do not balance: a request was lost or counted twice.")
    return found


def _hops_legend(most: int) -> list[tuple[str, str]]:
    drawn = min(figures.HOPS_DRAWN, max(1, most))
    names = [(f"hops-{hops}", f"{hops}\N{MULTIPLICATION SIGN}") for hops in range(1, drawn + 1)]
    if most > drawn:
        names[-1] = (names[-1][0], f"{names[-1][1]} or more")
    return names


def _facts(result: DemoResult) -> dict[str, str]:
    runs = (result.isolated, result.networked)
    loads = {"isolated": result.isolated.load, "networked": result.networked.load}
    return {
        "finished": result.finished_at,
        "topology": _topology_words(result),
        "policy": ", then ".join(run.policy for run in runs),
        "seed": str(result.seed),
        "time scale": f"{result.time_scale:g}" + _scale_words(result.time_scale),
        "duration": f"{result.duration_s:g} s per run",
        "requests": " and ".join(_requests(load) for load in loads.values()),
        "load generator": "; ".join(_lag_words(name, load) for name, load in loads.items()),
        "ledgers": "balanced" if result.ledgers_balanced else "not balanced",
        **made_with(),
        "paper": (
            "Lai & Polak: A Collaborative Approach to Stochastic Load Balancing with Networked "
            "Queues of Autonomous Service Clusters"
        ),
    }


def _topology_words(result: DemoResult) -> str:
    topology = result.topology
    delays = sorted({link.delay_ms for link in topology.links})
    links = "1 link" if len(topology.links) == 1 else f"{len(topology.links)} links"
    if delays:
        span = f"{delays[0]:g}" if len(delays) == 1 else f"{delays[0]:g} to {delays[-1]:g}"
        links += f" with {span} ms one way"
    return f"{topology.name}: {len(topology.clusters)} clusters, {links}"


def _scale_words(time_scale: float) -> str:
    if time_scale == 1:
        return " (real time)"
    return " (every duration of the topology and the workload is multiplied by it, here too)"


def _requests(load: dict[str, Any]) -> str:
    outcomes = load.get("outcomes", {})
    return f"{outcomes.get('ok', 0)} of {load.get('sent', 0)} answered"


def _lag_words(name: str, load: dict[str, Any]) -> str:
    lag = load.get("schedule_lag_ms", {})
    kept = "kept up" if load.get("kept_up", True) else "did not keep up"
    p99, most = milliseconds(lag.get("p99")), milliseconds(lag.get("max"))
    return f"{name} {kept}, behind its schedule by {p99} ms at p99 and {most} ms at most"
