"""The committed boards: what the generator writes, sound by Grafana's schema, fit to be read."""

import importlib.util
import json
import re

import pytest

OTHERS = {"process_cpu_seconds_total", "process_resident_memory_bytes", "up", "ALERTS"}
"""What is not the product's own: of the client library, and of Prometheus itself."""

UNKNOWN_TO_THE_KIT = {"titleFormat", "textFormat", "tagKeys"}


def panels_of(board):
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def queries_of(board):
    """All PromQL of a board, that of its variables and marks too."""
    yield from (target["expr"] for panel in panels_of(board) for target in panel["targets"])
    yield from (marks["expr"] for marks in board["annotations"]["list"])
    yield from (one["query"] for one in board["templating"]["list"] if one["type"] == "query")


@pytest.fixture
def each_panel(boards):
    """Panels of all boards, each with a name for messages."""
    return {
        f"{board['title']}: {panel['title']}": panel
        for board in boards.values()
        for panel in panels_of(board)
    }


def test_the_committed_boards_are_what_the_generator_writes(boards, generate, tmp_path):
    generate(tmp_path)
    assert {file.stem: json.loads(file.read_text("utf-8")) for file in tmp_path.glob("*")} == boards
    assert {"federation", "cluster", "leases"} <= set(boards)


def test_boards_hold_to_the_schema(boards, require):
    """What the kit reads and writes again is the same: it loses what Grafana does not know."""
    require(importlib.util.find_spec("grafana_foundation_sdk"), "the group `dashboards`")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models import dashboard as kit

    for board in boards.values():
        for marks in board["annotations"]["list"]:
            assert set(marks) >= UNKNOWN_TO_THE_KIT
        text = json.dumps(board)
        read = json.loads(text, object_hook=lambda found: {
            key: value for key, value in found.items() if key not in UNKNOWN_TO_THE_KIT
        })  # fmt: skip
        again = json.dumps(kit.Dashboard.from_json(read), cls=JSONEncoder)
        assert json.loads(again) == read


def test_panels_have_units_sources_and_legends(each_panel):
    for name, panel in each_panel.items():
        assert panel["fieldConfig"]["defaults"]["unit"], name
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, name
        assert panel["targets"], name
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters), name
        for target in panel["targets"]:
            assert target["expr"], name
            assert target["datasource"] == panel["datasource"], name
            assert panel["type"] != "timeseries" or target["legendFormat"] != "__auto", name


def test_links_lead_to_boards(boards, each_panel, rules):
    """Of panels and of alerts; a choice that they make is one that the board offers."""
    links = [
        link["url"]
        for panel in each_panel.values()
        for link in panel["fieldConfig"]["defaults"].get("links", [])
    ]
    links += [rule["annotations"]["dashboard"] for rule in rules]
    by_uid = {board["uid"]: board for board in boards.values()}
    assert len(by_uid) == len(boards)
    assert any("/d/spillover-cluster?" in link for link in links)
    for link in links:
        uid, chosen = re.match(r"/d/([\w-]{1,40})(?:\?var-(\w+)=|$)", link).groups()
        variables = {one["name"] for one in by_uid[uid]["templating"]["list"]}
        assert chosen is None or chosen in variables


def test_metrics_are_the_products_own(boards, rules, product_signals):
    """No panel and no rule asks for what no process has."""
    names = set(OTHERS)
    for name, signal in product_signals.items():
        ends = ("_bucket", "_sum", "_count") if signal.kind == "histogram" else ("",)
        names |= {name + end for end in ends}
    asked = [*(rule["expr"] for rule in rules)]
    asked += [query for board in boards.values() for query in queries_of(board)]
    for expr in asked:
        used = set(re.findall(r"\b(?:spillover|process)_\w+|\b(?:up|ALERTS)\b", expr))
        assert used, expr
        assert used <= names, expr


def test_every_metric_of_the_product_is_shown(boards, product_signals, without_panel):
    queries = "\n".join(query for board in boards.values() for query in queries_of(board))
    shown = {
        name
        for name in {*product_signals, *without_panel}
        if re.search(rf"\b{name}(?:_bucket|_sum|_count)?\b", queries)
    }
    assert set(product_signals) - shown <= set(without_panel)
    assert not shown & set(without_panel)
    assert all(without_panel.values())
