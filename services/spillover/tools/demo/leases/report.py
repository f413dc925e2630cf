"""The report of a lease demo: one HTML file that needs nothing else.

The words and their order are here, the drawings in `timeline`, the look in `demo.report_style`.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from html import escape
from pathlib import Path

import spillover
from spillover.model.errors import RunError
from spillover.tools.demo.leases import timeline
from spillover.tools.demo.leases.model import TOLD_CAUSES, LeaseDemoResult, longest
from spillover.tools.demo.leases.plan import FREEZE_LEASES, FROZEN, JOINED, KILLED
from spillover.tools.demo.report_style import style_sheet

MISSING = "\N{EN DASH}"

_RULES = """
text { fill: var(--ink); font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
text.tick { fill: var(--muted); font-size: 11.5px; }
text.title, text.mark { paint-order: stroke; stroke: var(--card); stroke-width: 4px; }
text.title { font-size: 12.5px; }
text.mark { font-weight: 650; }
line.grid { stroke: var(--grid); stroke-width: .8; }
line.mark { stroke: var(--ink); stroke-width: 1.2; stroke-dasharray: 4 3; }
rect.bar:hover { filter: brightness(1.25); }
rect.gap { fill: var(--warning); }
polyline.curve { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
details { margin-top: 1.2rem; }
summary { cursor: pointer; color: var(--muted); }
"""


def write_report(result: LeaseDemoResult, path: Path) -> None:
    """Write it to `path`. Raises RunError if that cannot be."""
    try:
        path.write_text(report_page(result), encoding="utf-8")
    except OSError as error:
        raise RunError(f"{path}: the report cannot be written: {error.strerror}") from error


def report_page(result: LeaseDemoResult) -> str:
    """The page as text."""
    sections = (_opening, _owners, _standstills, _held, _rates, _streams)
    body = "\n".join(section(result) for section in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<title>Spillover lease demo</title>\n"
        f"<style>\n{style_sheet(len(result.members))}{_RULES}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n{_footer(result)}\n</body>\n</html>\n"
    )


def _opening(result: LeaseDemoResult) -> str:
    plan = result.plan
    who = {mark.kind: mark.node for mark in result.marks}
    warnings = "".join(f'<p class="warning">{escape(line)}</p>\n' for line in result.problems)
    return f"""<h1>{escape(_headline(result))}</h1>
{warnings}<p class="lede">{plan.members} processes shared {plan.streams} streams on Redis. Then
{escape(who.get(KILLED, "one"))} was <b>killed</b>, {escape(who.get(FROZEN, "one"))} was
<b>frozen</b> for {FREEZE_LEASES * plan.max_lease_ms / 1000:g} s and woken again, and
{escape(who.get(JOINED, "one"))} was <b>added</b>, while records kept coming in.</p>
{_tiles(result)}
<p>Whoever serves a stream holds a lease on it, which lasts {plan.max_lease_ms / 1000:g} s and is
renewed three times as often. Each new holder has a higher <b>epoch</b>, and the sink, which keeps
effects and checkpoint together, takes nothing from an earlier one.</p>"""


def _headline(result: LeaseDemoResult) -> str:
    if result.problems:
        return "Records were lost or applied twice: this is a bug in Spillover"
    return f"{result.records:,} records, each applied exactly once"


def _tiles(result: LeaseDemoResult) -> str:
    late = result.late_writes
    wrong = f"{result.missing} missing, {result.duplicates} doubled"
    tiles = [
        (f"{result.applied:,}", f"records applied: {wrong}"),
        (f"{late.refused} of {late.tried}", "late writes of former holders refused by the sink"),
    ]
    for cause, words in ((KILLED, "killed"), (FROZEN, "frozen"), (JOINED, "added")):
        length_s = longest(result.story.of_cause(cause))
        told = f"longest standstill of a stream: member {words}"
        tiles.append((_seconds(length_s), told))
    items = "".join(
        f"<li><b>{escape(value)}</b><span>{words}</span></li>" for value, words in tiles
    )
    return f'<ul class="tiles">{items}</ul>'


def _owners(result: LeaseDemoResult) -> str:
    caption = (
        "One row a stream. A color is the member that served it; red is time in which nobody did. "
        "Point at a bar for the epoch and the times."
    )
    figure = _figure(result, timeline.owners_drawing, caption)
    return f"""<h2>Who served which stream</h2>
<p>A stream of a dead or frozen member waits until its lease has run out. One that is handed over
stands still only from the end of one handler to the beginning of the next.</p>
{figure}"""


def _standstills(result: LeaseDemoResult) -> str:
    rows = []
    for cause in TOLD_CAUSES:
        told = result.standstills_ms(cause)
        mark = next((mark for mark in result.marks if mark.kind == cause), None)
        name = f"{mark.node} {cause}" if mark is not None else cause
        lengths = [told[field] for field in ("max", "median", "applied_gap_max")]
        cells = "".join(f"<td>{_seconds(_in_s(length_ms))}</td>" for length_ms in lengths)
        rows.append(f'<tr><th scope="row">{escape(name)}</th><td>{told["count"]}</td>{cells}</tr>')
    heads = "".join(
        f'<th scope="col">{words}</th>'
        for words in ("streams moved", "longest standstill", "median", "longest without a record")
    )
    head = f'<tr><th scope="col">event</th>{heads}</tr>'
    moves = result.story.moves
    return f"""<h2>How long streams stood still</h2>
<p>From the members&rsquo; own event lines: from the kill, the freeze, or the end of the old
handler, to the start of the new one. The last column is what Redis saw: the longest time between
two records of such a stream, looked up every 0.1 s; records are applied in batches.</p>
{_table("Standstills by what caused them", head, rows)}
<p class="note">In all, streams changed hands {result.moves} times; {result.story.fewest_moves} is
the fewest that evens the counts out after each event. {moves["evened"]} of the moves had none of
these causes. While the first members came up, {moves["start"]} more streams moved.</p>"""


def _held(result: LeaseDemoResult) -> str:
    caption = "Even shares throughout: counts differ by one at most once a disturbance is over."
    return f"""<h2>How the load was shared</h2>
{_figure(result, timeline.held_drawing, caption)}"""


def _rates(result: LeaseDemoResult) -> str:
    plan = result.plan
    filled = plan.records - plan.fed
    caption = (
        f"{filled:,} records lay there at the start, {plan.fed:,} more came in evenly until the "
        "end of the schedule."
    )
    return f"""<h2>How fast records were applied</h2>
{_figure(result, timeline.rates_drawing, caption, with_legend=False)}"""


def _streams(result: LeaseDemoResult) -> str:
    rows = [
        f'<tr><th scope="row">{one.partition}</th><td>{one.records}</td><td>{one.sum}</td>'
        f"<td>{one.applied}</td><td>{one.applied_sum}</td><td>{one.missing}</td>"
        f"<td>{one.duplicates}</td></tr>"
        for one in result.checks
    ]
    heads = "".join(
        f'<th scope="col">{words}</th>'
        for words in (
            "stream",
            "records",
            "their sum",
            "applied",
            "their sum",
            "missing",
            "doubled",
        )
    )
    return f"""<h2>The check</h2>
<p>Counted at the end by other code than applied them: what lies in each stream, and what its part
of the sink shows. The sink also keeps a bit for each record, so that a record left out and another
one taken twice cannot make up for each other.</p>
<details><summary>All {len(rows)} streams</summary>
{_table("Streams and their part of the sink", f"<tr>{heads}</tr>", rows)}</details>"""


def _figure(
    result: LeaseDemoResult,
    draw: Callable[[LeaseDemoResult, int], str],
    caption: str,
    *,
    with_legend: bool = True,
) -> str:
    wide, narrow = draw(result, timeline.WIDE_PX), draw(result, timeline.NARROW_PX)
    return (
        f'<figure>{_legend(result) if with_legend else ""}<div class="drawing wide">{wide}</div>'
        f'<div class="drawing narrow">{narrow}</div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _legend(result: LeaseDemoResult) -> str:
    items = "".join(
        f'<li style="--chip: {color}">{escape(node)}</li>'
        for node, color in timeline.member_colors(result).items()
    )
    return f'<ul class="legend">{items}<li style="--chip: var(--warning)">nobody</li></ul>'


def _table(caption: str, head: str, rows: list[str]) -> str:
    body = "\n".join(rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table><caption><span>{escape(caption)}</span></caption>\n"
        f"<thead>{head}</thead>\n<tbody>{body}</tbody></table></div>"
    )


def _footer(result: LeaseDemoResult) -> str:
    plan, times = result.plan, result.plan.times
    phases = ", ".join(f"{name} {length_s:.1f} s" for name, length_s in result.phases_s.items())
    facts = {
        "finished": result.finished_at,
        "seed": str(plan.seed),
        "records": f"{plan.records:,} in {plan.streams} streams, {result.records_per_s:,.0f}/s",
        "lease times": (
            f"normal {times.normal_lease_ms:g} ms, maximum {times.max_lease_ms:g} ms, shutdown "
            f"{times.max_shutdown_ms:g} ms, grab {times.min_grab_ms:g} ms, "
            f"delay {times.held_delay_ms:g} ms"
        ),
        "what took how long": phases,
        "late renewals": str(sum(one.late_renewals for one in result.members)),
        "versions": (
            f"Spillover {spillover.__version__}, Python {platform.python_version()}, "
            f"Redis {result.redis_version}"
        ),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
    rows = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())
    return f"<footer>\n<h2>About this run</h2>\n<dl>{rows}</dl>\n</footer>"


def _in_s(length_ms: float | None) -> float | None:
    return None if length_ms is None else length_ms / 1000.0


def _seconds(length_s: float | None) -> str:
    if length_s is None:
        return MISSING
    return f"{length_s * 1000.0:.0f} ms" if length_s < 1.0 else f"{length_s:.2f} s"
