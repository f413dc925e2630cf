"""The kinds of panels that boards are made of, all looking alike. No metric is named here.

A title asks what the panel answers; `says` is one plain sentence for whoever has never seen it.
Widths are in columns of 24. Queries are PromQL, values have Grafana's names of units.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from grafana_foundation_sdk.builders import bargauge, heatmap, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders import common as looks
from grafana_foundation_sdk.builders import dashboard as parts
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models import heatmap as heatmaps
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

Panel: TypeAlias = Any
"""A panel's builder: the kit has one class for each kind, and none that stands for all."""

Limits: TypeAlias = Sequence[tuple[float, str]]
"""From which value on a color holds, ascending."""

DATASOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
UID_PREFIX = "spillover-"

CALM, WARNING, ALARM = "green", "orange", "red"
GRAPH_HEIGHT = 8
NUMBER_HEIGHT = 4


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of Prometheus, and how its series are called."""

    expr: str
    legend: str = ""


def now(
    title: str, says: str, expr: str, *, unit: str = "short", limits: Limits = (),
    lowest: str = CALM, width: int = 3,
) -> Panel:  # fmt: skip
    """One number: how it is now. `lowest` is the color below all limits."""
    panel = _dress(stat.Panel(), title, says, unit, width, NUMBER_HEIGHT)
    panel.with_target(_target(Query(expr), 0).instant())
    panel.reduce_options(looks.ReduceDataOptions().calcs(["lastNotNull"]))
    panel.color_mode(common.BigValueColorMode.BACKGROUND)
    panel.graph_mode(common.BigValueGraphMode.NONE)
    return panel.no_value("none").thresholds(_thresholds(limits, lowest))


def graph(
    title: str, says: str, *queries: Query, unit: str = "short", limits: Limits = (),
    top: float | None = None, stacked: bool = False, opens: str | None = None, width: int = 12,
) -> Panel:  # fmt: skip
    """Lines over time, from 0 to `top` at least; limits as lines across. `opens` names a label: a
    click on a series opens the board of that name with the label's value chosen."""
    panel = _dress(timeseries.Panel(), title, says, unit, width, GRAPH_HEIGHT)
    for index, query in enumerate(queries):
        panel.with_target(_target(query, index).range())
    panel.axis_soft_min(0).line_width(2).show_points(common.VisibilityMode.NEVER)
    panel.fill_opacity(40 if stacked else 5)
    panel.legend(
        looks.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.TABLE)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
        .calcs(["lastNotNull", "max"])
    )
    panel.tooltip(
        looks.VizTooltipOptions()
        .mode(common.TooltipDisplayMode.MULTI)
        .sort(common.SortOrder.DESCENDING)
    )
    if top is not None:
        panel.axis_soft_max(top)
    if stacked:
        panel.stacking(looks.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    if limits:
        style = looks.GraphThresholdsStyleConfig()
        panel.thresholds_style(style.mode(common.GraphThresholdsStyleMode.DASHED))
        panel.thresholds(_thresholds(limits, CALM))
    return panel if opens is None else panel.data_links([_opens(opens)])


def bars(title: str, says: str, expr: str, *, unit: str = "short", width: int = 12) -> Panel:
    """One bar for each bucket of a histogram given by `le`, named by its upper bound."""
    panel = _dress(bargauge.Panel(), title, says, unit, width, GRAPH_HEIGHT)
    # As a heat map, buckets arrive one by one instead of summed up from below.
    panel.with_target(_target(Query(expr, "{{le}}"), 0).instant().format(PromQueryFormat.HEATMAP))
    panel.reduce_options(looks.ReduceDataOptions().calcs(["lastNotNull"]))
    panel.orientation(common.VizOrientation.HORIZONTAL)
    panel.display_mode(common.BarGaugeDisplayMode.BASIC)
    return panel.thresholds(_thresholds((), "blue")).min(0)


def heat(title: str, says: str, expr: str, *, unit: str = "short", width: int = 12) -> Panel:
    """Buckets of a histogram over time: the darker, the more."""
    panel = _dress(heatmap.Panel(), title, says, "short", width, GRAPH_HEIGHT)
    panel.with_target(_target(Query(expr, "{{le}}"), 0).range().format(PromQueryFormat.HEATMAP))
    panel.y_axis(heatmap.YAxisConfig().unit(unit))
    colors = heatmap.HeatmapColorOptions().mode(heatmaps.HeatmapColorMode.SCHEME)
    colors.scheme("Oranges").fill("dark-orange").exponent(0.5).steps(64)
    return panel.calculate(False).color(colors)


def matrix(
    title: str, says: str, expr: str, *, rows: str, columns: str, unit: str = "short",
    width: int = 12,
) -> Panel:  # fmt: skip
    """Returns a table of one label against another."""
    panel = _dress(table.Panel(), title, says, unit, width, GRAPH_HEIGHT)
    panel.with_target(_target(Query(expr), 0).instant().format(PromQueryFormat.TABLE))
    options = {"rowField": rows, "columnField": columns, "valueField": "Value"}
    return panel.transformations(
        [dashboard.DataTransformerConfig(id_val="groupingToMatrix", options=options)]
    )


def listing(
    title: str, says: str, expr: str, *, columns: dict[str, str], width: int = 12,
    height: int = GRAPH_HEIGHT, nothing: str = "Nothing.",
) -> Panel:  # fmt: skip
    """Returns a table of the series there are now. `columns` are what it shows of the labels and
    Value, in this order, each with its heading; the first one sorts. `nothing` stands where there
    is none.
    """
    panel = _dress(table.Panel(), title, says, "none", width, height).no_value(nothing)
    panel.with_target(_target(Query(expr), 0).instant().format(PromQueryFormat.TABLE))
    options = {
        "excludeByName": {name: True for name in ("Time", "Value") if name not in columns},
        "indexByName": {name: index for index, name in enumerate(columns)},
        "renameByName": columns,
    }
    panel.transformations([dashboard.DataTransformerConfig(id_val="organize", options=options)])
    first = next(iter(columns.values()))
    return panel.sort_by([looks.TableSortByFieldState().display_name(first).desc(False)])


def _dress(panel: Panel, title: str, says: str, unit: str, width: int, height: int) -> Panel:
    panel = panel.title(title).description(says).datasource(DATASOURCE).unit(unit)
    return panel.span(width).height(height)


def _target(query: Query, index: int) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expr).ref_id(chr(ord("A") + index))
    return target.datasource(DATASOURCE).legend_format(query.legend or "__auto")


def _thresholds(limits: Limits, lowest: str) -> parts.ThresholdsConfig:
    steps = [dashboard.Threshold(value=None, color=lowest)]
    steps += [dashboard.Threshold(value=value, color=color) for value, color in limits]
    return parts.ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(steps)


def _opens(label: str) -> parts.DashboardLink:
    chosen = f"var-{label}=${{__field.labels.{label}}}"
    url = f"/d/{UID_PREFIX}{label}?{chosen}&${{datasource:queryparam}}&${{__url_time_range}}"
    link = parts.DashboardLink(f"Look closer at this {label}")
    return link.type(dashboard.DashboardLinkType.LINK).url(url)
