"""The committed boards: what the generator writes, sound by Grafana's schema, fit to be read."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from itertools import combinations

import pytest

pytestmark = pytest.mark.together

COLUMNS = 24
SAYS_MAX = 120
OTHERS = {"process_cpu_seconds_total", "process_resident_memory_bytes", "up", "ALERTS"}
"""What is not the product's own: of the client library, and of Prometheus itself."""

UNKNOWN_TO_THE_KIT = {"titleFormat", "textFormat", "tagKeys"}
SMALL_BOARD = '''"""A mechanism that comes later."""

from dashboards.board import Board, Row
from dashboards.panels import Query, graph
from dashboards.promql import CLUSTER
from spillover.model.signals import node as signals

LENGTHS = Query(CLUSTER.of(signals.QUEUE_LENGTH), "{{cluster}}")
ROW = Row("Is it well?", graph("How long is it?", "Its length.", LENGTHS))
BOARD = Board(
    name="later", title="Spillover: later", says="It.",
    scope=CLUSTER, choices=signals.SERVERS, rows=(ROW,),
)
'''


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
    """`make dashboards` would change nothing."""
    generate(tmp_path)
    assert {file.stem: json.loads(file.read_text("utf-8")) for file in tmp_path.glob("*")} == boards
    assert {"federation", "cluster", "leases"} <= set(boards)


def test_a_board_more_is_one_small_file(boards, generate, tmp_path, root):
    """It is found, gets the common variables, and the others link to it by its tag."""
    own = tmp_path / "dashboards"
    shutil.copytree(root / "dashboards", own, ignore=shutil.ignore_patterns("__pycache__"))
    (own / "boards" / "later.py").write_text(SMALL_BOARD, encoding="utf-8")
    generate(tmp_path / "out", root=tmp_path)
    assert {file.stem for file in (tmp_path / "out").glob("*")} == {*boards, "later"}
    later = json.loads((tmp_path / "out" / "later.json").read_text(encoding="utf-8"))
    assert later["templating"] == boards["federation"]["templating"]
    tags = [link["tags"] for board in boards.values() for link in board["links"]]
    assert tags == [later["tags"]] * len(boards)


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


def test_panels_have_their_own_numbers_and_places(boards):
    for board in boards.values():
        numbers = [panel["id"] for panel in board["panels"]]
        assert numbers == list(range(1, len(numbers) + 1))
        places = [panel["gridPos"] for panel in board["panels"]]
        assert all(place["x"] + place["w"] <= COLUMNS for place in places)
        for one, other in combinations(places, 2):
            beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
            assert (
                beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
            )


def test_rows_are_full_and_begin_with_what_is_now(boards):
    """No gaps: each row of panels takes the whole width. Numbers come first."""
    for board in boards.values():
        assert board["panels"][0]["type"] == "row"
        assert board["panels"][1]["type"] == "stat"
        widths = {}
        for panel in board["panels"]:
            place = panel["gridPos"]
            widths[place["y"]] = widths.get(place["y"], 0) + place["w"]
        assert set(widths.values()) == {COLUMNS}


def test_panels_ask_and_explain(boards, each_panel):
    """A row and a graph are named by what they answer; a panel says in one sentence what it is."""
    for board in boards.values():
        assert all(one["title"].endswith("?") for one in board["panels"] if one["type"] == "row")
    for name, panel in each_panel.items():
        assert panel["type"] == "stat" or re.search(r"\?( \([PR]\))?$", panel["title"]), name
        says = panel["description"]
        assert says.endswith("."), name
        assert says.count(". ") == 0, name
        assert "\n" not in says, name
        assert len(says) <= SAYS_MAX, name


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


def test_numbers_have_limits_where_they_can_be_wrong(each_panel):
    """At a glance: a number is colored by how bad it is, or cannot be bad."""
    harmless = {"Members", "Partitions held", "Moves", "Producers", "Buffered", "Granted"}
    harmless |= {"Clients"}
    for name, panel in each_panel.items():
        if panel["type"] == "stat" and panel["title"] not in harmless:
            assert len(panel["fieldConfig"]["defaults"]["thresholds"]["steps"]) > 1, name


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
