"""The look of the report: its style sheet, light and dark, and the colors of the figures.

Only presentation is here; the page's words are in `report`.
"""

from __future__ import annotations

_CLUSTERS_LIGHT = ("#0068b3", "#d1490c", "#0a8a63", "#b0439b", "#937000")
_CLUSTERS_DARK = ("#5cb6f5", "#ff9155", "#3fd1a1", "#ee93d8", "#e5c04a")
_GOLDEN_ANGLE = 137.508

_LIGHT = """
  --page: #fbfaf8; --card: #ffffff; --ink: #1d2125; --muted: #5c656e; --grid: #dcdfe2;
  --isolated: #d4622a; --networked: #0f8577; --accept: #1f4e9e; --neighborhood: #9cc1f0;
  --speedup-0: #1f4e9e; --speedup-1: #5d8fd9; --speedup-2: #b7bec6; --speedup-3: #8a5aa8;
  --hops-1: #9fd6cb; --hops-2: #5cb5a5; --hops-3: #1f8f7f; --hops-4: #0d6a60; --hops-5: #0a4a48;
  --hops-6: #082f33; --warning: #b3261e;
"""
_DARK = """
  --page: #14171a; --card: #1c2024; --ink: #e8eaed; --muted: #a3abb3; --grid: #383e45;
  --isolated: #f0915b; --networked: #35b8a6; --accept: #8fbcff; --neighborhood: #3f5f8f;
  --speedup-0: #8fbcff; --speedup-1: #4f7fc8; --speedup-2: #6b737c; --speedup-3: #c39be0;
  --hops-1: #155e56; --hops-2: #1f877b; --hops-3: #35b1a1; --hops-4: #74d3c5; --hops-5: #aeeae0;
  --hops-6: #e0fbf6; --warning: #ff8a80;
"""

_RULES = """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 17px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main, footer { max-width: 940px; margin: 0 auto; padding: 0 20px; }
h1 { font-size: clamp(1.7rem, 5vw, 2.5rem); line-height: 1.15; letter-spacing: -.02em;
  margin: 2.4rem 0 .8rem; text-wrap: balance; }
h2 { font-size: 1.35rem; line-height: 1.25; margin: 3.2rem 0 .5rem; letter-spacing: -.01em; }
p, dl { max-width: 68ch; }
.lede { font-size: 1.1rem; }
.note, figcaption { color: var(--muted); font-size: .92rem; }
.warning { border-left: 4px solid var(--warning); padding: .5rem 1rem; background: var(--card); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); gap: 12px;
  list-style: none; padding: 0; margin: 1.6rem 0; }
.tiles li { background: var(--card); border: 1px solid var(--grid); border-radius: 10px;
  padding: 14px 16px; }
.tiles b { display: block; font-size: 1.35rem; font-weight: 650; line-height: 1.3;
  font-variant-numeric: tabular-nums; white-space: nowrap; }
.tiles li > span { color: var(--muted); font-size: .9rem; }
.tiles .isolated { color: var(--isolated); }
.tiles .networked { color: var(--networked); }
figure { margin: 1.2rem 0 0; }
.drawing { overflow-x: auto; background: var(--card); border: 1px solid var(--grid);
  border-radius: 10px; padding: 14px; }
.drawing svg { display: block; width: 100%; height: auto; }
.drawing text { font-family: inherit !important; }
/* A drawing wider than a phone scrolls rather than shrink until nobody can read it. */
.narrow svg { min-width: calc(var(--drawn-width) * .75); }
.narrow { display: none !important; }
figcaption { margin-top: .6rem; max-width: 72ch; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; list-style: none; padding: 0;
  margin: .2rem 0 .7rem; font-size: .92rem; }
.legend li::before { content: ""; display: inline-block; width: .75em; height: .75em;
  border-radius: 3px; margin-right: .4em; background: var(--chip); }
.scroll { overflow-x: auto; margin-top: 1.2rem; background: var(--card);
  border: 1px solid var(--grid); border-radius: 10px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums;
  font-size: .95rem; }
caption { text-align: left; padding: 12px 12px 4px; font-weight: 600; }
caption span { display: block; position: sticky; left: 12px; width: max-content;
  max-width: calc(100vw - 60px); }
th, td { padding: 6px 12px; text-align: right; white-space: nowrap;
  border-top: 1px solid var(--grid); }
thead th { border-top: 0; font-weight: 600; color: var(--muted); }
th[scope=row], thead tr:first-child th:first-child { text-align: left; position: sticky; left: 0;
  background: var(--card); }
tbody th { font-weight: 600; }
th.isolated, th.networked { text-align: center; }
th.networked, thead tr + tr th:nth-child(5), tbody td:nth-of-type(5):nth-last-of-type(4) {
  border-left: 1px solid var(--grid); }
th.isolated { color: var(--isolated); }
th.networked { color: var(--networked); }
tr.all th, tr.all td { border-top: 2px solid var(--muted); font-weight: 650; }
td small { display: block; color: var(--muted); font-size: .82em; font-weight: 400; }
td.heat { background: color-mix(in srgb, var(--networked) calc(var(--heat) * 60%), transparent); }
footer { margin-top: 3.5rem; padding-bottom: 3rem; font-size: .92rem; }
footer h2 { margin-top: 0; padding-top: 1.6rem; border-top: 1px solid var(--grid); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 18px; margin: 0; }
dt { color: var(--muted); }
dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 700px) {
  body { font-size: 16px; }
  main, footer { padding: 0 14px; }
  .wide { display: none !important; }
  .narrow { display: block !important; }
  .drawing { padding: 8px 6px; }
  th, td { padding: 6px 8px; }
  dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: 8px; }
}
"""


def style_sheet(clusters: int) -> str:
    """The style sheet of a report on so many clusters, each of which has a color of its own."""
    light = _LIGHT + _cluster_colors(clusters, _CLUSTERS_LIGHT, "hsl({hue:.0f} 70% 38%)")
    dark = _DARK + _cluster_colors(clusters, _CLUSTERS_DARK, "hsl({hue:.0f} 70% 66%)")
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n{_RULES}"
    )


def _cluster_colors(clusters: int, chosen: tuple[str, ...], pattern: str) -> str:
    # Few clusters get colors chosen by eye; many get hues that differ most from one to the next.
    colors = chosen if clusters <= len(chosen) else ()
    return " ".join(
        f"--cluster-{index}: "
        f"{colors[index] if colors else pattern.format(hue=210 + index * _GOLDEN_ANGLE)};"
        for index in range(clusters)
    )
