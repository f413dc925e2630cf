"""The look of the page and of the drawings on it, light and dark.

Only presentation is here: the words are in `page` and `documents`.
"""

from __future__ import annotations

from typing import Any

_LIGHT = {
    "page": "#fbfaf8",
    "card": "#ffffff",
    "ink": "#1d2125",
    "muted": "#5c656e",
    "grid": "#dcdfe2",
    "good": "#0f7a5c",
    "bad": "#b3261e",
}
_DARK = {
    "page": "#14171a",
    "card": "#1c2024",
    "ink": "#e8eaed",
    "muted": "#a3abb3",
    "grid": "#383e45",
    "good": "#3fd1a1",
    "bad": "#ff8a80",
}
_LINES_LIGHT = ("#0068b3", "#d1490c", "#0a8a63", "#b0439b", "#937000", "#4b5560", "#7a4fd0")
_LINES_DARK = ("#5cb6f5", "#ff9155", "#3fd1a1", "#ee93d8", "#e5c04a", "#b4bec8", "#b79bff")

_RULES = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 17px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main, footer { max-width: 940px; margin: 0 auto; padding: 0 20px; }
h1 { font-size: clamp(1.7rem, 5vw, 2.5rem); line-height: 1.15; letter-spacing: -.02em;
  margin: 2.4rem 0 .8rem; text-wrap: balance; }
h2 { font-size: 1.55rem; line-height: 1.25; margin: 4rem 0 .3rem; letter-spacing: -.01em;
  padding-top: 1.6rem; border-top: 1px solid var(--grid); text-wrap: balance; }
h3 { font-size: 1.15rem; line-height: 1.3; margin: 2.6rem 0 .4rem; }
h3 small { color: var(--muted); font-weight: 400; font-size: .85rem; margin-left: .5em;
  white-space: nowrap; }
p, dl { max-width: 68ch; }
a { color: inherit; text-decoration-color: var(--muted); text-underline-offset: .15em; }
.lede { font-size: 1.1rem; }
.note, figcaption, .citation { color: var(--muted); font-size: .92rem; }
.citation { margin: 0 0 1rem; }
.told { display: grid; grid-template-columns: max-content 1fr; gap: 8px 18px; max-width: 76ch; }
.told dt { color: var(--muted); }
.told dd { margin: 0; }
.contents { list-style: none; padding: 0; columns: 2 340px; column-gap: 28px; }
.contents > li { break-inside: avoid; margin-bottom: 14px; }
.contents ul { list-style: none; padding: 0; margin: 2px 0 0; font-size: .92rem; }
.contents b { font-weight: 600; }
figure { margin: 1rem 0 0; }
figure img { display: block; width: 100%; height: auto; background: var(--card);
  border: 1px solid var(--grid); border-radius: 10px; padding: 10px; }
figcaption { margin-top: .5rem; }
.scroll { overflow-x: auto; margin-top: 1.1rem; background: var(--card);
  border: 1px solid var(--grid); border-radius: 10px; }
table { border-collapse: collapse; width: 100%; font-size: .95rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: 8px 12px; text-align: left; vertical-align: top;
  border-top: 1px solid var(--grid); }
thead th { border-top: 0; font-weight: 600; color: var(--muted); white-space: nowrap; }
tbody th { font-weight: 400; }
td.yes, td.no { font-weight: 600; white-space: nowrap; }
.yes { color: var(--good); }
.no { color: var(--bad); }
footer { margin-top: 4rem; padding-bottom: 3rem; font-size: .92rem; }
footer dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; margin: 0; }
footer dt { color: var(--muted); }
footer dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 700px) {
  body { font-size: 16px; }
  main, footer { padding: 0 14px; }
  .told, footer dl { grid-template-columns: 1fr; gap: 0; }
  .told dd, footer dd { margin-bottom: 10px; }
  figure img { padding: 4px; }
  table, tbody, tr, td, tbody th { display: block; }
  thead { display: none; }
  tr { padding: 8px 0; border-top: 1px solid var(--grid); }
  tbody th, td { border: 0; padding: 3px 12px; }
  td::before { content: attr(data-column) ": "; color: var(--muted); font-weight: 400; }
}
"""


def style_sheet() -> str:
    """The style sheet of the page."""
    light, dark = (_variables(colors) for colors in (_LIGHT, _DARK))
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n{_RULES}"
    )


def drawing_style(*, dark: bool) -> dict[Any, Any]:
    """The settings of matplotlib for drawings on the page."""
    from cycler import cycler  # noqa: PLC0415 - comes with matplotlib

    colors = _DARK if dark else _LIGHT
    lines = _LINES_DARK if dark else _LINES_LIGHT
    paper, ink, muted, grid = (colors[name] for name in ("card", "ink", "muted", "grid"))
    return {
        "figure.facecolor": paper,
        "savefig.facecolor": paper,
        "axes.facecolor": paper,
        "axes.prop_cycle": cycler(color=lines),
        "text.color": ink,
        "axes.titlecolor": ink,
        "axes.edgecolor": muted,
        "axes.labelcolor": ink,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.titlesize": 11,
        "axes.titlelocation": "left",
        "grid.color": grid,
        "grid.linewidth": 0.8,
        "xtick.color": muted,
        "ytick.color": muted,
        "xtick.labelcolor": muted,
        "ytick.labelcolor": muted,
        "font.size": 10.5,
        "legend.frameon": False,
        "legend.fontsize": 9.5,
        "lines.linewidth": 1.6,
        "lines.markersize": 5,
        "patch.edgecolor": paper,
    }


def _variables(colors: dict[str, str]) -> str:
    return " ".join(f"--{name}: {color};" for name, color in colors.items())
