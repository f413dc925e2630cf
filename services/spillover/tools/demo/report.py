"""The report of a demo: one HTML file that needs nothing else, for readers new to the subject.

The words of the page and their order are here; the drawings are in `figures`, the numbers in
`tables` and `series`, the look in `report_style`.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any

import spillover
from spillover.model.errors import RunError
from spillover.tools.demo import figures
from spillover.tools.demo.model import DemoResult
from spillover.tools.demo.report_style import style_sheet
from spillover.tools.demo.series import (
    longest_pile_up_s,
    longest_queue,
    shared_hop_count,
    system_time_of,
)
from spillover.tools.demo.speedup import SPEEDUP_FIELDS, speedups
from spillover.tools.demo.tables import (
    factor,
    forwards_table,
    milliseconds,
    speedups_table,
    system_times_table,
)

_ARROW = "\N{RIGHTWARDS ARROW}"
_POLICY_WORDS = {
    "paper": "the rule of Lai & Polak",
    "two-choice": "the better of two neighbors drawn at random",
    "isolated": "no forwarding",
}


def write_report(result: DemoResult, path: Path) -> None:
    """Writes the report on a demo to `path`.

    Raises RunError when matplotlib is not installed or the file cannot be written.
    """
    page = report_page(result)
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise RunError(f"{path}: the report cannot be written: {error.strerror}") from error


def report_page(result: DemoResult) -> str:
    """The report as HTML text; RunError when matplotlib is not installed."""
    title = escape(f"Spillover demo: {result.topology.name}")
    sections = (_opening, _queues, _acceptance, _system_times, _forwards)
    body = "\n".join(section(result) for section in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n"
        f"<style>\n{style_sheet(len(result.topology.clusters))}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n{_footer(result)}\n</body>\n</html>\n"
    )


def _opening(result: DemoResult) -> str:
    topology = result.topology
    servers = sum(cluster.servers for cluster in topology.clusters)
    rule = _POLICY_WORDS.get(result.networked.policy, result.networked.policy)
    warnings = "".join(f'<p class="warning">{escape(text)}</p>\n' for text in _warnings(result))
    return f"""<h1>{escape(_headline(result))}</h1>
{warnings}<p class="lede">{len(topology.clusters)} clusters with {servers} servers in all ran as
separate processes on one machine. Users came to each cluster at random, for a short while many
more than its servers can serve. The very same requests were sent twice: first to <b>isolated</b>
queues, where every cluster has to serve all that comes in, then to <b>networked</b> queues, where
a cluster whose queue grows hands some requests on to its neighbors.</p>
{_tiles(result)}
<p>Each cluster decides alone and for each request: keep it or hand it on, and to whom. It knows
only its own queue and what its neighbors last said about theirs. The rule used here is
{escape(rule)}. A request&rsquo;s <b>system time</b> runs from the moment a user makes it to the
end of its service, wherever that is.</p>"""


def _headline(result: DemoResult) -> str:
    before = system_time_of(result.isolated.load, None)
    after = system_time_of(result.networked.load, None)
    gain = speedups(before, after)["mean"]
    means = f"{milliseconds(before.get('mean'))} {_ARROW} {milliseconds(after.get('mean'))} ms"
    if gain is None or gain < 1.2:
        return f"Isolated and networked queues: mean system time {means}"
    isolated_s = longest_pile_up_s(result, result.isolated)
    networked_s = longest_pile_up_s(result, result.networked)
    if networked_s > isolated_s / 4 or not isolated_s:
        return f"Networked queues shorten the mean system time: {means}"
    return (
        f"Bursts that pile up for {isolated_s:.0f} s in isolated queues "
        f"vanish in networked ones: mean system time {means}"
    )


def _tiles(result: DemoResult) -> str:
    before = system_time_of(result.isolated.load, None)
    after = system_time_of(result.networked.load, None)
    gains = speedups(before, after)
    tiles = [
        _tile(
            milliseconds(before.get(field)),
            f"{milliseconds(after.get(field))} ms",
            f"{words} system time, speed-up {factor(gains[field])}",
        )
        for field, words in (("mean", "mean"), ("max", "longest"))
    ]
    lengths = [str(longest_queue(run)) for run in (result.isolated, result.networked)]
    tiles.append(_tile(lengths[0], lengths[1], "requests in the longest queue"))
    pile_ups = [longest_pile_up_s(result, run) for run in (result.isolated, result.networked)]
    words = "longest time with more than two waiting for each server"
    tiles.append(_tile(f"{pile_ups[0]:.1f}", f"{pile_ups[1]:.1f} s", words))
    return f'<ul class="tiles">{"".join(tiles)}</ul>'


def _tile(isolated: str, networked: str, words: str) -> str:
    return (
        f'<li><b><span class="isolated" title="isolated">{isolated}</span> {_ARROW} '
        f'<span class="networked" title="networked">{networked}</span></b>'
        f"<span>{escape(words)}</span></li>"
    )


def _warnings(result: DemoResult) -> list[str]:
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


def _queues(result: DemoResult) -> str:
    caption = (
        "After figure 5 of the paper. The second and third panel have the same scale; the fourth "
        "shows the third again, magnified."
    )
    figure = _figure(result, figures.queue_lengths_figure, _cluster_legend(result), caption)
    return f"""<h2>Where the requests waited</h2>
<p>Each color is one cluster. The top panel shows when its users came. While more requests come in
than its servers can serve, those that cannot start wait in its queue.</p>
{figure}"""


def _acceptance(result: DemoResult) -> str:
    names = [
        ("accept", "P: the cluster itself accepts a request"),
        ("neighborhood", "R: it or one of its neighbors does"),
    ]
    caption = (
        "After figure 6 of the paper: the networked run, one panel per cluster. A burst lowers P "
        "in its own cluster and, as requests are handed on, in the neighboring ones."
    )
    figure = _figure(result, figures.acceptance_figure, _legend(names), caption)
    return f"""<h2>How willing each cluster was</h2>
<p>The longer a queue, the smaller the probability P that a cluster keeps one more request. With N
requests waiting for m servers, P = m / (N + m). Clusters tell their neighbors P and R every
{result.topology.gossip_period_ms:g} ms, and a request that is handed on goes
more likely to where R is high.</p>
{figure}"""


def _system_times(result: DemoResult) -> str:
    names = [
        ("isolated", "isolated"),
        ("networked", "networked"),
        *((f"speedup-{i}", f"speed-up of the {f}") for i, f in enumerate(SPEEDUP_FIELDS)),
    ]
    caption = (
        "After figure 7 of the paper. A thick line reaches from the minimum to mean + standard "
        "deviation (std), the line across it is the mean, the tick above it the maximum."
    )
    figure = _figure(result, figures.system_times_figure, _legend(names), caption)
    return f"""<h2>How long the requests took</h2>
<p>Times are grouped by the cluster whose users made the request, not by the cluster that served
it. A speed-up of 4 means that the isolated time is four times the networked one. That of the
minimum is close to 1: a request that finds a free server has nothing to gain.</p>
{figure}
{system_times_table(result)}
{speedups_table(result)}
<p class="note">Simulated values come from the same decision rules in virtual time, fed with the
same requests.</p>"""


def _forwards(result: DemoResult) -> str:
    most = shared_hop_count(result.networked)
    drawn = min(figures.HOPS_DRAWN, max(1, most))
    names = [(f"hops-{hops}", f"{hops}\N{MULTIPLICATION SIGN}") for hops in range(1, drawn + 1)]
    if most > drawn:
        names[-1] = (names[-1][0], f"{names[-1][1]} or more")
    share = result.networked.load.get("forwarded_share")
    told = "" if share is None else f" Here {1 - share:.1%} were."
    caption = "After figure 9 of the paper: the networked run, by user population."
    figure = _figure(result, figures.forwards_figure, _legend(names), caption)
    return f"""<h2>How far the requests went</h2>
<p>A request may be handed on more than once, each time with the delay of a link. Most should be
served where they came in.{told}</p>
{figure}
{forwards_table(result)}"""


def _figure(
    result: DemoResult, draw: Callable[[DemoResult, int], str], legend: str, caption: str
) -> str:
    wide, narrow = draw(result, figures.WIDE_PX), draw(result, figures.NARROW_PX)
    return (
        f'<figure>{legend}<div class="drawing wide">{wide}</div>'
        f'<div class="drawing narrow">{narrow}</div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _legend(names: list[tuple[str, str]]) -> str:
    items = "".join(
        f'<li style="--chip: var(--{variable})">{escape(words)}</li>' for variable, words in names
    )
    return f'<ul class="legend">{items}</ul>'


def _cluster_legend(result: DemoResult) -> str:
    ids = result.topology.cluster_ids
    return _legend([(f"cluster-{index}", name) for index, name in enumerate(ids)])


def _footer(result: DemoResult) -> str:
    facts = {
        "finished": result.finished_at,
        "topology": _topology_words(result),
        "policy": f"{result.isolated.policy}, then {result.networked.policy}",
        "seed": str(result.seed),
        "time scale": f"{result.time_scale:g}" + _scale_words(result.time_scale),
        "duration": f"{result.duration_s:g} s per run",
        "requests": " and ".join(
            _requests(run.load) for run in (result.isolated, result.networked)
        ),
        "load generator": "; ".join(
            _lag_words(name, run.load)
            for name, run in (("isolated", result.isolated), ("networked", result.networked))
        ),
        "ledgers": "balanced" if result.ledgers_balanced else "not balanced",
        "versions": f"Spillover {spillover.__version__}, Python {platform.python_version()}",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "paper": (
            "Lai & Polak: A Collaborative Approach to Stochastic Load Balancing with Networked "
            "Queues of Autonomous Service Clusters"
        ),
    }
    rows = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())
    return f"<footer>\n<h2>About this run</h2>\n<dl>{rows}</dl>\n</footer>"


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
