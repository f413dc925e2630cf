"""A board as data, and what all boards have in common: variables, links, alerts as marks in time,
places on the grid. Which panels there are is the business of `boards/`.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from grafana_foundation_sdk.builders import dashboard as parts
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from dashboards.panels import DATASOURCE, UID_PREFIX, Panel, listing
from dashboards.promql import FIRING, Scope, total
from spillover.model.signals.signal import Signal

TAG = "spillover"
EVERY = ".+"
"""What `All` means in a regular expression: any value, but not a label that is missing."""

ALERT_WORDS = {
    "titleFormat": "{{alertname}}",
    "textFormat": "{{cluster}}{{node}} {{neighbor}} {{instance}}",
    "tagKeys": "severity,cluster,node,job",
}
"""What the marks of alerts say: fields of the data source, which the kit does not know."""

ALERT_COLUMNS = {
    "alertname": "Alert",
    "severity": "Severity",
    "cluster": "Cluster",
    "neighbor": "Neighbor",
    "node": "Member",
    "job": "Job",
    "instance": "Address",
}

TITLES_OF_VARIABLES = {"cluster": "Cluster", "node": "Member"}


@dataclass(frozen=True, slots=True, init=False)
class Row:
    """Panels under a question that they answer together, from left to right."""

    title: str
    panels: tuple[Panel, ...]

    def __init__(self, title: str, *panels: Panel) -> None:
        object.__setattr__(self, "title", title)
        object.__setattr__(self, "panels", panels)


ALERTS_NOW = listing(
    "Which alerts are firing?", "What each means and what to do about it is in its description.",
    total(FIRING, *ALERT_COLUMNS), columns=ALERT_COLUMNS, width=24, height=5,
    nothing="None: no rule of alerts.yaml is firing.",
)  # fmt: skip
"""For the end of a board's first row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One board, the most important row first. Its file and its address come from `name`; `scope`
    is what one chooses by at its top, among the values that the signal `choices` has."""

    name: str
    title: str
    says: str
    scope: Scope
    choices: Signal
    chooses_one: bool = False
    since: str = "now-30m"
    rows: tuple[Row, ...] = field(default=())

    @property
    def uid(self) -> str:
        return UID_PREFIX + self.name

    def build(self) -> dashboard.Dashboard:
        """As Grafana has it. Panels are numbered in order, so that a change shows as one."""
        board = parts.Dashboard(self.title).uid(self.uid).description(self.says).tags([TAG])
        board.time(self.since, "now").refresh("10s").timezone("browser").editable()
        board.tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        board.with_variable(
            parts.DatasourceVariable("datasource").label("Data source").type("prometheus")
        )
        board.with_variable(self._variable()).link(_links()).annotation(_alerts())
        for row in self.rows:
            board.with_row(parts.Row(row.title))
            for panel in row.panels:
                board.with_panel(deepcopy(panel))  # the board gives it its place
        built = board.build()
        for number, panel in enumerate(built.panels or [], start=1):
            panel.id_val = number
        return built

    def text(self) -> str:
        """As the file that Grafana reads."""
        built: Any = json.loads(json.dumps(self.build(), cls=JSONEncoder))
        for marks in built["annotations"]["list"]:
            marks.update(ALERT_WORDS)
        return json.dumps(built, indent=2, sort_keys=True, ensure_ascii=False) + "\n"

    def _variable(self) -> parts.QueryVariable:
        label = self.scope.label
        query = f"label_values({self.choices.name}, {label})"
        variable = parts.QueryVariable(label).label(TITLES_OF_VARIABLES[label]).query(query)
        variable.datasource(DATASOURCE).sort(dashboard.VariableSort.ALPHABETICAL_ASC)
        variable.refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        if self.chooses_one:
            return variable
        every = dashboard.VariableOption(selected=True, text="All", value="$__all")
        return variable.multi(True).include_all(True).all_value(EVERY).current(every)


def _links() -> parts.DashboardLink:
    """To all other boards with our tag, those of other makers too, keeping time and choice."""
    link = parts.DashboardLink("Spillover").type(dashboard.DashboardLinkType.DASHBOARDS)
    return link.tags([TAG]).include_vars(True).keep_time(True)


def _alerts() -> parts.AnnotationQuery:
    marks = parts.AnnotationQuery().name("Alerts").datasource(DATASOURCE).expr(FIRING)
    return marks.enable(True).icon_color("red")
