"""Every expression of every panel and rule on a real Prometheus, which scrapes real nodes and lease
members under load: each gives data, and alerts fire when somebody dies, not before.
"""

import math
import re

SELECTOR = re.compile(r"\b(?:spillover_\w+|up)\b(?:\{[^}]*\})?")
LEGEND_LABEL = re.compile(r"\{\{(\w+)\}\}")
LINK_LABEL = re.compile(r"\$\{__field\.labels\.(\w+)\}")


def panels_of(board):
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def asked(expr, board):
    """The expression as Grafana would send it."""
    for variable in board["templating"]["list"]:
        chosen = variable.get("allValue") or "a"
        expr = expr.replace(f"${variable['name']}", chosen)
    for name, value in (("$__rate_interval", "5s"), ("$__range", "1m"), (":30s]", ":1s]")):
        expr = expr.replace(name, value)
    assert "$" not in expr, expr
    return expr


def is_of_others(target):
    """Whether it shows what only nodes with --otel tell, or with a service behind them, or whose
    clients say how large requests are: there are none in this world. What they tell is looked at in
    tests/apps and tests/live/handlers."""
    kinds = (
        *("spillover_spans_", "spillover_upstream_", "spillover_affinity_", "spillover_engine_"),
        *("spillover_servers_ceiling", "spillover_work_", "spillover_waiting_work_"),
    )
    return any(kind in target["expr"] for kind in kinds)


def is_of_alerts(target):
    """Whether it shows the alerts that fire, and nothing while there is none."""
    return "ALERTS{" in target["expr"] and not target["expr"].endswith(" or vector(0)")


def test_every_panel_shows_data(world, boards):
    """Each query of each panel has a series with a number, with the labels its legend tells."""
    poor = []
    for board in boards.values():
        for panel in panels_of(board):
            for target in panel["targets"]:
                if is_of_alerts(target) or is_of_others(target):
                    continue  # see below, and above
                series = world.prometheus.query(asked(target["expr"], board))
                numbers = [one for one in series if math.isfinite(float(one["value"][1]))]
                labels = set(LEGEND_LABEL.findall(target["legendFormat"]))
                links = panel["fieldConfig"]["defaults"].get("links", [])
                labels |= {label for link in links for label in LINK_LABEL.findall(link["url"])}
                if not numbers or not all(labels <= set(one["metric"]) for one in series):
                    poor.append(f"{board['title']}: {panel['title']}: {target['expr']}")
    assert not poor


def test_every_variable_offers_choices(world, boards):
    for board in boards.values():
        for variable in board["templating"]["list"]:
            if variable["type"] != "query":
                continue
            metric, label = re.fullmatch(
                r"label_values\((\w+), (\w+)\)", variable["query"]
            ).groups()
            values = world.prometheus.get(f"label/{label}/values", **{"match[]": metric})
            assert len(values) >= 2


def test_every_series_of_a_rule_is_there(world, rules):
    """Whatever a rule compares exists: with the labels and buckets that it asks for."""
    for rule in rules:
        for selector in SELECTOR.findall(rule["expr"]):
            assert world.prometheus.query(selector), (rule["alert"], selector)


def test_what_is_shown_is_so(world, until):
    ask = world.prometheus.number
    until(lambda: ask("sum(spillover_lease_held)") == 6, what="no partition is on its way")
    until(lambda: (ask('spillover_lease_moves_total{node="n1"}') or 0) >= 3, what="its moves")
    assert ask("sum(spillover_servers)") == 6
    assert ask("sum(rate(spillover_forwards_total{cluster='a', outcome='answered'}[5s]))") > 5
    assert ask("sum(rate(spillover_received_total{neighbor='a', outcome='done'}[5s]))") > 5


def test_what_has_no_panel_has_no_data_either(world, without_panel):
    for name in without_panel:
        assert not world.prometheus.query(f'{{__name__=~"{name}.*"}}'), f"{name} is there: show it"


def test_alerts_fire_when_somebody_dies_and_not_before(world, until, boards):
    """Load and a partition that moved are no reason for one; here no rule waits before it fires."""
    prometheus = world.prometheus
    until(lambda: not prometheus.query("count_over_time(ALERTS[3s])"), what="all is quiet")
    world.kill("c")
    world.n1.kill()
    awaited = {"SpilloverNodeDown", "SpilloverNeighborUnknown", "SpilloverPartitionsUnowned"}
    seen = set()
    until(lambda: seen.update(prometheus.firing()) or awaited <= seen, what=f"{awaited} fire")
    # A machine may really be that busy, and c has taken requests along.
    assert seen - {"SpilloverLoopLag", "SpilloverNeighborAvoided"} == awaited
    unknown = 'ALERTS{alertname="SpilloverNeighborUnknown"}'
    assert {one["metric"]["neighbor"] for one in prometheus.query(unknown)} == {"c"}
    for alert in prometheus.get("alerts")["alerts"]:
        texts = alert["annotations"].values()
        assert not [text for text in texts if re.search(r"\{\{|<no value>|<error", text)]
    for board in boards.values():
        of_alerts = [one for panel in panels_of(board) for one in panel["targets"]]
        of_alerts = [one for one in of_alerts if is_of_alerts(one)]
        for shown in [*board["annotations"]["list"], *of_alerts]:
            assert prometheus.query(asked(shown["expr"], board))
    until(lambda: prometheus.number("min(spillover_lease_held)") == 6, what="the other one has all")
