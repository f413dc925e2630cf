"""What the demo of streams shows at its end: each stream as a strip of time, and how they ended."""

from __future__ import annotations

from rich.console import Group
from rich.table import Table
from rich.text import Text

from spillover.tools.demo.streams.model import End, Stream, StreamsResult

STRIP_WIDTH = 48
COLORS = ("dodger_blue1", "dark_orange", "green3")
"""Of the sites, in their order."""
MARKS = {End.WHOLE: ("✓", "green"), End.ERROR: ("✗", "red")}
WORDS = {
    "dead_site": "came in there or ran there",
    "others": "all others",
    "after": "begun afterwards",
}


def strips(result: StreamsResult) -> Group:
    """Returns a strip for each stream, in the color of the site that ran it, and a table of how
    they ended."""
    end_s = max(stream.ended_s for stream in result.streams)
    table = Table(box=None, header_style="dim", padding=(0, 1, 0, 0))
    for title in ("came in", "ran"):
        table.add_column(title, no_wrap=True)
    died = round(STRIP_WIDTH * result.died_s / end_s)
    table.add_column(f"{'':{died}}↓ {result.dead} dies", no_wrap=True)
    colors = dict(zip(result.sites, COLORS, strict=True))
    for stream in sorted(result.streams, key=lambda one: (one.ran, one.home, one.begun_s)):
        color = colors.get(stream.ran, "dim")
        table.add_row(stream.home, Text(stream.ran, color), _strip(stream, color, end_s))
    return Group(table, "", _ends(result))


def _strip(stream: Stream, color: str, end_s: float) -> Text:
    first_s = stream.ended_s if stream.first_s is None else stream.first_s
    begun, first, ended = (
        round(STRIP_WIDTH * at_s / end_s) for at_s in (stream.begun_s, first_s, stream.ended_s)
    )
    mark, style = MARKS.get(stream.end or End.SHORT, ("?", "bold red"))
    strip = Text(" " * begun + "·" * (first - begun), "dim")
    return strip.append("━" * (ended - first), color).append(mark, style)


def _ends(result: StreamsResult) -> Table:
    table = Table(title=f"Streams, when {result.dead} died", title_justify="left")
    table.add_column("")
    for end in End:
        table.add_column(end.value, justify="right")
    for name, counts in result.counts().items():
        table.add_row(WORDS[name], *(str(counts[end.value]) for end in End))
    return table
